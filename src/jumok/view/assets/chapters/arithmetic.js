// The sums of the pieces in the chapters. Names and shapes are those of jumok.nn.attention, jumok.nn.positions and
// jumok.course.chapters.speed; vectors and matrices are plain arrays, because every number of them is shown.

/** @typedef {number[]} Vector */
/** @typedef {number[][]} Matrix */

/**
 * q_i · k_i of each index: what a dot product adds up.
 * @param {Vector} q (D,)
 * @param {Vector} k (D,)
 * @returns {Vector} (D,)
 */
export function products(q, k) {
  return q.map((value, i) => value * k[i]);
}

/** @param {Vector} numbers @returns {number} */
export function sum(numbers) {
  return numbers.reduce((total, value) => total + value, 0);
}

/** The dot product q·k. @param {Vector} q (D,) @param {Vector} k (D,) @returns {number} */
export function dot(q, k) {
  return sum(products(q, k));
}

/**
 * exp(score) over the sum of all of them, computed after the largest score is subtracted. Where all scores are -∞, as in
 * a row in which every key is masked, all weights are 0.
 * @param {Vector} scores @returns {Vector}
 */
export function softmax(scores) {
  const largest = Math.max(...scores);
  if (largest === -Infinity) return scores.map(() => 0);
  const exponentials = scores.map((score) => Math.exp(score - largest));
  const total = sum(exponentials);
  return exponentials.map((exponential) => exponential / total);
}

/**
 * How many tokens share the weight: the exponential of the entropy.
 * @param {Vector} weights sum to one
 * @returns {number}
 */
export function effectiveTokens(weights) {
  return Math.exp(-sum(weights.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0))));
}

/**
 * Scores of each query with each key, divided by √D.
 * @param {Matrix} q (T, D)
 * @param {Matrix} k (S, D)
 * @returns {Matrix} (T, S)
 */
export function attentionScores(q, k) {
  return q.map((query) => k.map((key) => dot(query, key) / Math.sqrt(query.length)));
}

/**
 * Which keys a query may attend to: itself and what is before it. The last query belongs to the last key.
 * @param {number} T queries
 * @param {number} S keys
 * @returns {boolean[][]} (T, S), true: may attend
 */
export function causalMask(T, S) {
  return Array.from({ length: T }, (_, t) => Array.from({ length: S }, (_, s) => s <= t + S - T));
}

/**
 * Scores with -∞ where the mask is false.
 * @param {Matrix} scores (T, S)
 * @param {boolean[][]} mask (T, S)
 * @returns {Matrix} (T, S)
 */
export function maskScores(scores, mask) {
  return scores.map((row, t) => row.map((score, s) => (mask[t][s] ? score : -Infinity)));
}

// --- rotary positions ---

/**
 * By how many radians each pair turns from one position to the next.
 * @param {number} headDim D
 * @param {number} base @returns {Vector} (D/2,)
 */
export function frequencies(headDim, base) {
  return Array.from({ length: headDim / 2 }, (_, i) => base ** ((-2 * i) / headDim));
}

/**
 * Turn each pair (x_i, x_{i+D/2}) by the angle of its position.
 * @param {Vector} x (D,)
 * @param {number} position
 * @param {Vector} turns (D/2,), radians per position
 * @returns {Vector} (D,)
 */
export function rotate(x, position, turns) {
  const half = turns.length;
  const first = turns.map((turn, i) => x[i] * Math.cos(position * turn) - x[i + half] * Math.sin(position * turn));
  const second = turns.map((turn, i) => x[i + half] * Math.cos(position * turn) + x[i] * Math.sin(position * turn));
  return [...first, ...second];
}

// --- online softmax ---

/**
 * What online softmax keeps of one query: the largest score so far, the sum of exp(score - largest), and the sum of the
 * same exponentials times the values.
 * @typedef {{largest: number, total: number, gathered: number}} Seen
 */

/** @type {Seen} */
export const nothingSeen = { largest: -Infinity, total: 0, gathered: 0 };

/**
 * By how much both sums are multiplied when these scores come: exp(old - new largest score).
 * @param {Seen} seen
 * @param {Vector} scores of a tile
 * @returns {number}
 */
export function correction(seen, scores) {
  return Math.exp(seen.largest - Math.max(seen.largest, ...scores));
}

/**
 * Take in one more tile.
 * @param {Seen} seen
 * @param {Vector} scores of the tile, not all -∞
 * @param {Vector} values one number of each key
 * @returns {Seen}
 */
export function see(seen, scores, values) {
  const largest = Math.max(seen.largest, ...scores);
  const factor = correction(seen, scores);
  const exponentials = scores.map((score) => Math.exp(score - largest));
  return {
    largest,
    total: seen.total * factor + sum(exponentials),
    gathered: seen.gathered * factor + dot(exponentials, values),
  };
}

/** The weighted mean of the values seen. @param {Seen} seen @returns {number} */
export function result(seen) {
  return seen.gathered / seen.total;
}

// --- how much a model computes ---

/** @typedef {{positions: number, pairs: number, outputs: number}} Work */
/**
 * @typedef {{nLayer: number, nEmbd: number, nHead: number, nKvHead: number, headDim: number, mlpWidth: number,
 *   gated: boolean, vocabSize: number}} Sizes
 */

/**
 * What passes through a model that generates tokens after a prompt: positions, pairs of a query and a key, and positions
 * whose logits are computed.
 * @param {number} prompt tokens, at least 1
 * @param {number} generated tokens
 * @param {boolean} cached @returns {Work}
 */
export function work(prompt, generated, cached) {
  const done = { positions: 0, pairs: 0, outputs: 0 };
  for (let written = 0; written < generated; written++) {
    const length = prompt + written;
    const fresh = written === 0 || !cached ? length : 1;
    done.positions += fresh;
    done.pairs += fresh * length;
    done.outputs += 1;
  }
  return done;
}

/**
 * The number of multiplications in all matrix products of a GPT.
 * @param {Sizes} sizes @param {Work} done @returns {number}
 */
export function multiplications(sizes, done) {
  const heads = sizes.nHead * sizes.headDim;
  const keyHeads = sizes.nKvHead * sizes.headDim;
  const projections = sizes.nEmbd * (2 * heads + 2 * keyHeads); // q and o, k and v
  const mlp = (sizes.gated ? 3 : 2) * sizes.nEmbd * sizes.mlpWidth;
  const aPosition = sizes.nLayer * (projections + mlp);
  const aPair = sizes.nLayer * 2 * heads; // one product for the score, one for the weighted sum
  return done.positions * aPosition + done.pairs * aPair + done.outputs * sizes.nEmbd * sizes.vocabSize;
}
