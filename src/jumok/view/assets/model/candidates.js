// What a page shows of a distribution: its likeliest tokens, before and after the settings of sampling.

import { EngineError } from "./errors.js";
import { filtered, likeliest, logSumExp, segmentsOf, softmax } from "./sampling.js";

/** @typedef {import("./sampling.js").Settings} Settings */
/** @typedef {import("./token_text.js").TokenNames} TokenNames */
/** @typedef {{id: number, text: string, logit: number, probability: number, chosen_probability: number}} Alternative */

/**
 * @param {Float32Array} logits
 * @param {number} known the ids that the tokenizer has; a model may have more.
 * @returns {Float32Array}
 */
export function knownLogits(logits, known) {
  const found = logits.length > known ? logits.subarray(0, known) : logits;
  if (!found.every(Number.isFinite)) throw new EngineError("engine.not_finite");
  return found;
}

/**
 * The distribution after some ids.
 * @param {Float32Array} logits (V)
 * @param {Settings | null} settings null: nothing is ruled out, and the temperature is 1
 * @param {number[]} ids those that occurred, for the repetition penalty
 * @param {number} top how many alternatives
 * @param {TokenNames} reader
 * @param {number | null} [never] the id that is never drawn
 */
export function distribution(logits, settings, ids, top, reader, never = null) {
  const total = logSumExp(logits);
  const probabilities = logits.map((logit) => Math.exp(logit - total));
  const choice = settings ? filtered(without(logits, never), settings, ids) : logits;
  const chosen = settings ? chosenProbabilities(choice, settings) : probabilities;
  const alternatives = likeliest(logits, Math.min(top, logits.length)).map((id) => ({
    id,
    text: reader.name(id),
    logit: logits[id],
    probability: probabilities[id],
    chosen_probability: chosen[id],
  }));
  let [kept, mean] = [0, 0]; // of the logits
  for (let id = 0; id < logits.length; id += 1) {
    if (chosen[id] > 0) kept += 1;
    mean += probabilities[id] * logits[id];
  }
  /** -ln p, finite also where p is too small for a number. @param {number} id */
  const surprise = (id) => Math.max(0, total - logits[id]);
  return { probabilities, choice, chosen, alternatives, entropy: Math.max(0, total - mean), kept, surprise };
}

/** Logits without one of them. @param {Float32Array} logits @param {number | null} id @returns {Float32Array} */
function without(logits, id) {
  if (id === null) return logits;
  const allowed = logits.slice();
  allowed[id] = -Infinity;
  return allowed;
}

/**
 * The ruler that a token is drawn from: the segments of the likeliest, then that of a token and the one that a number
 * falls into, if they are not among them.
 * @param {Float32Array} chosen the probabilities after the settings
 * @param {number} count of the likeliest
 * @param {{id?: number, number?: number}} looked @param {TokenNames} reader
 * @returns {import("../page/engine_types.js").Segment[]}
 */
export function rulerOf(chosen, count, { id: wanted = -1, number = -1 }, reader) {
  const found = [];
  let missing = (chosen[wanted] > 0 ? 1 : 0) + (number >= 0 ? 1 : 0);
  let rank = 0;
  for (const { id, from, to } of segmentsOf(chosen)) {
    if (rank >= count && missing === 0) break;
    const [isWanted, isHit] = [id === wanted, from <= number && number < to];
    missing -= (isWanted ? 1 : 0) + (isHit ? 1 : 0);
    if (rank < count || isWanted || isHit) found.push({ id, text: reader.name(id), from, to });
    rank += 1;
  }
  return found;
}

/**
 * The probabilities with which tokens are drawn; at temperature 0 the likeliest one is certain.
 * @param {Float32Array} choice the logits of `filtered`
 * @param {Settings} settings
 */
function chosenProbabilities(choice, settings) {
  if (settings.temperature > 0) return softmax(choice);
  const certain = new Float32Array(choice.length);
  certain[likeliest(choice, 1)[0]] = 1;
  return certain;
}

/** How many ids are likelier than one, plus one. @param {Float32Array} probabilities @param {number} id */
export function rankOf(probabilities, id) {
  let rank = 1;
  for (const probability of probabilities) if (probability > probabilities[id]) rank += 1;
  return rank;
}
