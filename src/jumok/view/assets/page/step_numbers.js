// The arithmetic of one step that the page shows beside the model's own numbers, so that each sum can be checked.
// C width, H heads, G key/value heads, D width of a head, T keys.

import { dot } from "../model/matrices.js";

/** @typedef {import("./engine_types.js").StepLayer} StepLayer */
/** @typedef {ArrayLike<number>} Numbers */

/**
 * What one head computed at the last position.
 * @typedef {object} HeadNumbers
 * @property {number} head
 * @property {number} group the key/value head that it uses
 * @property {number} d D
 * @property {number} length T
 * @property {Float32Array} qProjected (D), x·W
 * @property {Float32Array} kProjected (D), likewise
 * @property {Float32Array} q (D), after its norm if it has one
 * @property {Float32Array} qRotated (D)
 * @property {Float32Array} k (D), likewise
 * @property {Float32Array} kRotated (D)
 * @property {Float32Array} v (D)
 * @property {Float32Array} keys (T, D)
 * @property {Float32Array} values (T, D)
 * @property {Float32Array} scores (T), -Infinity where masked
 * @property {Float32Array} weights (T)
 * @property {Float32Array} output (D), zeros if the head is switched off
 */

/**
 * A sum that is done here and in the model. word: its sentence in the words table; values: its numbers.
 * @typedef {{word: string, here: number, model: number, agrees: boolean, values: Record<string, number>}} Check
 */

/** @param {Numbers} values */
export function lengthOf(values) {
  return Math.sqrt(dot(values, values));
}

/** @param {Numbers} values @returns {number} the largest absolute value that is finite */
export function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i += 1) {
    const size = Math.abs(values[i]);
    if (size > most && size < Infinity) most = size;
  }
  return most;
}

/** @param {Numbers} a @param {Numbers} b @returns {number} the largest difference of two vectors */
export function difference(a, b) {
  let most = 0;
  for (let i = 0; i < a.length; i += 1) most = Math.max(most, Math.abs(a[i] - b[i]));
  return most;
}

/**
 * What a norm subtracts from each number and divides it by; of RMSNorm, no mean is subtracted.
 * @param {Numbers} values @param {"rms" | "layer"} kind @param {number} eps @returns {{mean: number, divisor: number}}
 */
export function normOf(values, kind, eps) {
  const n = values.length;
  let sum = 0;
  for (let i = 0; i < n; i += 1) sum += values[i];
  const mean = kind === "rms" ? 0 : sum / n;
  let squares = 0;
  for (let i = 0; i < n; i += 1) squares += (values[i] - mean) ** 2;
  return { mean, divisor: Math.sqrt(squares / n + eps) };
}

/** @param {Numbers} a @param {Numbers} b @returns {Float32Array} */
export function sumOf(a, b) {
  return Float32Array.from(a, (value, i) => value + b[i]);
}

/** @param {Numbers} a @param {Numbers} b @returns {Float32Array} a · b, element by element */
export function products(a, b) {
  return Float32Array.from(a, (value, i) => value * b[i]);
}

/**
 * @param {Required<StepLayer>} layer @param {number} head
 * @param {{n_head: number, n_kv_head: number, head_dim: number}} sizes @returns {HeadNumbers}
 */
export function headNumbers(layer, head, { n_head: heads, n_kv_head: groups, head_dim: d }) {
  const length = layer.scores.length / heads;
  const group = Math.floor((head * groups) / heads);
  /** @param {Float32Array} rows @param {number} at @param {number} width */
  const row = (rows, at, width) => rows.subarray(at * width, (at + 1) * width);
  return {
    head,
    group,
    d,
    length,
    qProjected: row(layer.q_projected ?? layer.q, head, d),
    kProjected: row(layer.k_projected ?? layer.k, group, d),
    q: row(layer.q, head, d),
    qRotated: row(layer.q_rotated, head, d),
    k: row(layer.k, group, d),
    kRotated: row(layer.k_rotated, group, d),
    v: row(layer.v, group, d),
    keys: row(layer.keys, group, length * d),
    values: row(layer.values, group, length * d),
    scores: row(layer.scores, head, length),
    weights: row(layer.weights, head, length),
    output: row(layer.heads, head, d),
  };
}

/** @param {HeadNumbers} numbers @returns {Float32Array} q·k for each key (T) */
export function dotProducts({ qRotated, keys, d, length }) {
  return Float32Array.from({ length }, (_, key) => dot(qRotated, keys.subarray(key * d, (key + 1) * d)));
}

/**
 * Softmax in its parts: e to the power of what each score lies below the highest, and their sum.
 * @param {Numbers} scores @returns {{highest: number, powers: Float64Array, sum: number, weights: Float64Array}}
 */
export function softmaxParts(scores) {
  let highest = -Infinity;
  for (let i = 0; i < scores.length; i += 1) if (scores[i] > highest) highest = scores[i];
  const powers = Float64Array.from(scores, (score) => (score === -Infinity ? 0 : Math.exp(score - highest)));
  const sum = powers.reduce((total, power) => total + power, 0);
  return { highest, powers, sum, weights: powers.map((power) => (sum ? power / sum : 0)) };
}

/** @param {Numbers} weights (T) @param {Float32Array} values (T, D) @param {number} d @returns {Float32Array} (D) */
export function weightedSum(weights, values, d) {
  const sum = new Float64Array(d);
  for (let key = 0; key < weights.length; key += 1) {
    for (let i = 0; i < d; i += 1) sum[i] += weights[key] * values[key * d + i];
  }
  return Float32Array.from(sum);
}

/**
 * The pairs (x_i, x_{i+D/2}) that rotary positions turn, and by which angle, as found in the numbers themselves.
 * @param {Numbers} before (D)
 * @param {Numbers} after (D)
 * @returns {{from: [number, number], to: [number, number], angle: number}[]} angle in radians, above -π, up to π
 */
export function rotations(before, after) {
  const half = before.length / 2;
  return Array.from({ length: half }, (_, i) => {
    /** @type {[number, number]} */
    const from = [before[i], before[i + half]];
    /** @type {[number, number]} */
    const to = [after[i], after[i + half]];
    const angle = Math.atan2(from[0] * to[1] - from[1] * to[0], from[0] * to[0] + from[1] * to[1]);
    return { from, to, angle };
  });
}

/**
 * The keys that are listed: those with the largest weights, the token itself and the one that is looked at, in the
 * order of the text.
 * @param {Numbers} weights @param {number} most @param {number | null} wanted @returns {number[]}
 */
export function listedKeys(weights, most, wanted = null) {
  const last = weights.length - 1;
  const kept = new Set([last, ...(wanted === null ? [] : [wanted])]);
  const ranked = Array.from(weights, (_, key) => key).sort((a, b) => weights[b] - weights[a] || b - a);
  for (const key of ranked) {
    if (kept.size >= Math.min(most, weights.length)) break;
    kept.add(key);
  }
  return [...kept].sort((a, b) => a - b);
}

/** @param {Numbers} values @param {number} most @returns {number[]} where the largest absolute values are, largest first */
export function strongest(values, most) {
  const places = Array.from(values, (_, i) => i);
  return places.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, most);
}

/** SiLU, which lets through what is large and nearly nothing of what is negative. @param {number} x */
export function silu(x) {
  return x / (1 + Math.exp(-x));
}

/**
 * Whether a sum that is done here is the model's: they differ by less than float32 rounds numbers of this size.
 * @param {string} word @param {number} here @param {number} model @param {Record<string, number>} values
 * @param {number} [size] of the numbers that were added
 * @returns {Check}
 */
export function check(word, here, model, values = {}, size = Math.max(1, Math.abs(model))) {
  return { word, here, model, agrees: Math.abs(here - model) <= 1e-4 * size, values: { here, model, ...values } };
}
