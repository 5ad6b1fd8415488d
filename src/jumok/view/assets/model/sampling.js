// Which token comes next: penalty, temperature, filters and a draw, in this order, as `jumok.inference.sampling`. The
// kept tokens and their probabilities are the same. The random numbers are those of a smaller generator (`Random`), so
// the same seed draws another text than in Python.

import { EngineError } from "./errors.js";
import { softmax as softmaxRow } from "./matrices.js";

/**
 * How the next token is drawn; see `jumok.inference.sampling.Sampling`.
 * @typedef {object} Sampling
 * @property {number} [temperature]
 * @property {number | null} [top_k]
 * @property {number} [top_p]
 * @property {number} [min_p]
 * @property {number} [repetition_penalty]
 * @property {number} [seed]
 */

/** @typedef {{temperature: number, top_k: number, top_p: number, min_p: number, repetition_penalty: number}} Settings */

/** @type {[keyof Settings, number, number, number][]} name, value unless given, least, most */
const FIELDS = [
  ["repetition_penalty", 1, 0.01, 100],
  ["temperature", 0.8, 0, Infinity],
  ["top_k", 0, 0, Infinity],
  ["top_p", 1, Number.MIN_VALUE, 1],
  ["min_p", 0, 0, 1],
];

const FEW = 64; // tokens that nearly always have the probability of a top-p together, or the one that is drawn

/** All settings, checked. @param {Sampling} sampling @returns {Settings} */
export function settingsOf(sampling = {}) {
  const settings = /** @type {Settings} */ ({});
  for (const [name, usual, least, most] of FIELDS) {
    const value = sampling[name] ?? usual;
    if (typeof value !== "number" || !(value >= least && value <= most)) {
      throw new EngineError("engine.sampling", { name, value, least, most });
    }
    settings[name] = value;
  }
  return settings;
}

/**
 * The logits to draw from, -Infinity where a token is ruled out; up to a constant, which cancels in the softmax.
 * @param {Float32Array} logits (V)
 * @param {Settings} settings
 * @param {Iterable<number>} [seen] the ids that occurred, for the repetition penalty.
 * @returns {Float32Array} (V)
 */
export function filtered(logits, settings, seen = []) {
  const found = Float32Array.from(logits);
  if (settings.repetition_penalty !== 1) {
    for (const id of new Set(seen)) {
      if (id < found.length) found[id] *= found[id] > 0 ? 1 / settings.repetition_penalty : settings.repetition_penalty;
    }
  }
  if (settings.temperature === 0) return found; // the likeliest token passes every filter
  const most = largest(found);
  const temperature = Math.min(Math.max(settings.temperature, 1e-30), 1e30);
  for (let i = 0; i < found.length; i += 1) found[i] = (found[i] - most) / temperature;
  if (settings.top_k) keepTopK(found, settings.top_k);
  if (settings.top_p < 1) keepTopP(found, settings.top_p);
  if (settings.min_p > 0) keepMinP(found, settings.min_p);
  return found;
}

/**
 * Rule out, in place, all but the k largest, ties with the last of them kept.
 * @param {Float32Array} logits @param {number} k
 */
function keepTopK(logits, k) {
  const least = Float32Array.from(logits).sort()[Math.max(0, logits.length - k)];
  for (let i = 0; i < logits.length; i += 1) if (logits[i] < least) logits[i] = -Infinity;
}

/**
 * Rule out, in place, all but the fewest likeliest whose probabilities reach p.
 * @param {Float32Array} logits @param {number} p
 */
function keepTopP(logits, p) {
  const probabilities = softmax(logits);
  let before = 0; // what the likelier ones have together
  const kept = new Set();
  for (const id of likeliestFirst(logits)) {
    if (kept.size > 0 && before >= p) break;
    kept.add(id);
    before += probabilities[id];
  }
  for (let id = 0; id < logits.length; id += 1) if (!kept.has(id)) logits[id] = -Infinity;
}

/**
 * Rule out, in place, what is less than p times as likely as the likeliest.
 * @param {Float32Array} logits @param {number} p
 */
function keepMinP(logits, p) {
  const least = Math.fround(largest(logits) + Math.log(p));
  for (let i = 0; i < logits.length; i += 1) if (logits[i] < least) logits[i] = -Infinity;
}

/** The largest of some numbers. @param {Float32Array} logits */
function largest(logits) {
  let most = -Infinity;
  for (let i = 0; i < logits.length; i += 1) if (logits[i] > most) most = logits[i];
  return most;
}

/** @param {Float32Array} logits @returns {Float32Array} */
export function softmax(logits) {
  const shares = Float32Array.from(logits);
  softmaxRow(shares);
  return shares;
}

/** ln Σ exp(logit) @param {Float32Array} logits */
export function logSumExp(logits) {
  const most = largest(logits);
  let sum = 0;
  for (let i = 0; i < logits.length; i += 1) sum += Math.exp(logits[i] - most);
  return most + Math.log(sum);
}

/** @param {Float32Array} logits @returns {Float32Array} */
export function logSoftmax(logits) {
  const total = logSumExp(logits);
  return logits.map((logit) => logit - total);
}

/**
 * The ids of the largest numbers, the largest first; the lower id of two that are equal.
 * @param {Float32Array} logits @param {number} count @returns {number[]}
 */
export function likeliest(logits, count) {
  if (count > logits.length / 8) {
    const ids = Array.from(logits, (_, id) => id);
    return ids.sort((a, b) => logits[b] - logits[a] || a - b).slice(0, count);
  }
  /** @type {number[]} */
  const best = [];
  for (let id = 0; id < logits.length; id += 1) {
    if (best.length === count && logits[id] <= logits[best[count - 1]]) continue;
    let place = best.length;
    while (place > 0 && logits[best[place - 1]] < logits[id]) place -= 1;
    best.splice(place, 0, id);
    if (best.length > count) best.pop();
  }
  return best;
}

/** All ids, that of the largest number first; the many after the first few are sorted only if they are asked for. @param {Float32Array} numbers */
function* likeliestFirst(numbers) {
  yield* likeliest(numbers, FEW);
  if (numbers.length > FEW) yield* likeliest(numbers, numbers.length).slice(FEW);
}

/**
 * The segments of 0 to 1 that a random number falls into: each as wide as the probability of its token, the likeliest
 * first, the lower id of two that are equal.
 * @param {Float32Array} probabilities (V) @returns {Generator<{id: number, from: number, to: number}>}
 */
export function* segmentsOf(probabilities) {
  const total = probabilities.reduce((sum, probability) => sum + probability, 0); // not quite 1, by rounding
  let before = 0;
  for (const id of likeliestFirst(probabilities)) {
    if (probabilities[id] === 0) return;
    const from = before / total;
    before += probabilities[id];
    yield { id, from, to: before / total };
  }
}

/**
 * The id whose segment a random number falls into; the likeliest where the temperature is 0.
 * @param {Float32Array} logits (V), of `filtered`.
 * @param {Settings} settings @param {number} number at least 0 and below 1 @returns {number}
 */
export function drawn(logits, settings, number) {
  let last = likeliest(logits, 1)[0];
  if (settings.temperature === 0) return last;
  for (const { id, to } of segmentsOf(softmax(logits))) {
    last = id;
    if (number < to) break;
  }
  return last;
}

/** Random numbers from a seed of 32 bits: mulberry32, a Weyl sequence of step 0x6D2B79F5 whose terms are mixed. */
export class Random {
  /** @param {number} [seed] a new one each time unless given. */
  constructor(seed = Math.floor(Math.random() * 2 ** 32)) {
    this.state = seed >>> 0;
  }

  /** The next number, at least 0 and below 1. */
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}
