/** Everything that a GPT computes for one token, the last of a text. */

import { Recording } from "./recording.js";
import { windowStart } from "./window.js";

/** @typedef {import("./blocks.js").Head} Head */
/** @typedef {import("./window.js").Reading} Reading */
/** @typedef {Record<string, Float32Array>} Arrays */
/**
 * @typedef {object} StepArrays
 * @property {number} position of the token in the window that the model sees
 * @property {number} length T, the tokens in that window
 * @property {number} layer the one that has everything
 * @property {Float32Array} embedding (C)
 * @property {Float32Array | null} position_embedding (C); null where positions are rotated
 * @property {({layer: number, norms: {attention: number, mlp: number, residual: number}} & Record<string, any>)[]} layers
 *   the arrays of `recording.js` for one position, with keys and values as (G, T, D), and `joined`, the heads in one
 *   vector; `norms` are lengths of what attention and the MLP add, and of their sum after this layer
 * @property {Float32Array} norm (C)
 * @property {Float32Array} logits (V)
 */

/**
 * @param {Reading} reading
 * @param {ArrayLike<number>} ids the text, of which the model sees the window
 * @param {{layer?: number, off?: Head[]}} [options] @returns {StepArrays}
 */
export function stepOf(reading, ids, { layer = 0, off = [] } = {}) {
  const { config } = reading.model;
  const record = new Recording();
  const logits = reading.next(ids, { off, record });
  const length = ids.length - windowStart(ids.length, config.context_length);
  const layers = Array.from({ length: config.n_layer }, (_, number) => {
    const arrays = record.layer(number);
    const [attention, mlp, residual] = [arrays.attention_out, arrays.mlp_out, arrays.residual2].map(lengthOf);
    const norms = { layer: number, norms: { attention, mlp, residual } };
    return number === layer ? { ...norms, ...byHead(arrays, config.n_kv_head), joined: arrays.heads } : norms;
  });
  const { embedding, position_embedding = null, norm } = record.model.arrays;
  return { position: length - 1, length, layer, embedding, position_embedding, layers, norm, logits };
}

/** @param {Arrays} arrays @param {number} groups @returns {Arrays} with keys and values as (G, T, D) */
function byHead(arrays, groups) {
  const width = arrays.k.length / groups;
  const turned = (/** @type {Float32Array} */ rows) => {
    const length = rows.length / (groups * width);
    return rows.map(
      (_, i) =>
        rows[((Math.floor(i / width) % length) * groups + Math.floor(i / width / length)) * width + (i % width)],
    );
  };
  return { ...arrays, keys: turned(arrays.keys), values: turned(arrays.values) };
}

/** @param {Float32Array} vector @returns {number} */
function lengthOf(vector) {
  return Math.sqrt(vector.reduce((total, value) => total + value * value, 0));
}
