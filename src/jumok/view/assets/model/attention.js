/**
 * Multi-head attention, as in `jumok.nn.attention`. T query positions, S key positions, C width, H heads, G key/value
 * heads, D width of a head. Here the layout is (T, H, D).
 */

import { RMSNorm } from "./layers.js";
import { Linear, softmax } from "./matrices.js";

/** @typedef {import("./cache.js").LayerCache} LayerCache */
/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./positions.js").Rotary} Rotary */
/** @typedef {import("./recording.js").Notes} Notes */
/**
 * @typedef {object} Shape of an attention layer
 * @property {number} n_head H
 * @property {number} n_kv_head G
 * @property {number} head_dim D
 * @property {number | null} qk_norm epsilon of the norms of q and k
 */
/**
 * @typedef {object} How
 * @property {boolean} causal whether a query sees no later position
 * @property {Rotary | null} rotary
 * @property {number[]} off heads that are switched off
 * @property {Notes | null} notes
 */

/** Multi-head attention: self-attention, or cross-attention to keys and values in a cache. */
export class MultiHeadAttention {
  /** @param {Parameters} parameters @param {string} name @param {Shape} shape */
  constructor(parameters, name, { n_head, n_kv_head, head_dim, qk_norm }) {
    this.heads = n_head;
    this.groups = n_kv_head;
    this.width = head_dim;
    this.q = new Linear(parameters, `${name}.q_proj`);
    this.k = new Linear(parameters, `${name}.k_proj`);
    this.v = new Linear(parameters, `${name}.v_proj`);
    this.o = new Linear(parameters, `${name}.o_proj`);
    this.qNorm = qk_norm === null ? null : new RMSNorm(parameters, `${name}.q_norm`, qk_norm);
    this.kNorm = qk_norm === null ? null : new RMSNorm(parameters, `${name}.k_norm`, qk_norm);
  }

  /**
   * Attend from x to the positions in the cache and to x itself, which is added to the cache.
   * @param {Float32Array} x (T, C)
   * @param {LayerCache} cache @param {How} how
   * @returns {Float32Array} (T, C)
   */
  forward(x, cache, how) {
    const start = cache.length;
    this.remember(x, cache, how);
    return this.attend(x, cache, start, how);
  }

  /**
   * Attend from x to the positions in the cache.
   * @param {Float32Array} x (T, C)
   * @param {LayerCache} cache
   * @param {number} start position of the first row of x
   * @param {How} how
   * @returns {Float32Array} (T, C)
   */
  attend(x, cache, start, how) {
    const { notes } = how;
    let q = this.q.forward(x); // (T, H, D)
    if (this.qNorm) {
      notes?.keep("q_projected", q);
      q = this.qNorm.forward(q);
    }
    notes?.keep("q", q);
    if (how.rotary) q = how.rotary.rotate(q, this.heads, start);
    notes?.keep("q_rotated", q);
    const heads = this.combineValues(q, cache, start, how); // (T, H, D)
    notes?.keep("heads", heads);
    const out = this.o.forward(heads); // (T, C)
    notes?.keep("attention_out", out);
    return out;
  }

  /**
   * Add the keys and values of x to the cache.
   * @param {Float32Array} x (T, C)
   * @param {LayerCache} cache @param {How} how
   */
  remember(x, cache, { rotary, notes }) {
    let k = this.k.forward(x); // (T, G, D)
    const v = this.v.forward(x); // (T, G, D)
    if (this.kNorm) {
      notes?.keep("k_projected", k);
      k = this.kNorm.forward(k);
    }
    notes?.keep("k", k);
    notes?.keep("v", v);
    if (rotary) k = rotary.rotate(k, this.groups, cache.length);
    notes?.keep("k_rotated", k);
    cache.append(k, v);
  }

  /**
   * softmax(q kᵀ / sqrt(D)) v.
   * @param {Float32Array} q (T, H, D)
   * @param {LayerCache} cache @param {number} start @param {How} how
   * @returns {Float32Array} (T, H, D)
   */
  combineValues(q, { keys, values, length, products }, start, { causal, off, notes }) {
    const { heads, groups, width } = this;
    const step = groups * width;
    const out = new Float32Array(q.length);
    const scores = notes && new Float32Array((q.length / width) * length).fill(-Infinity); // (T, H, S)
    const weights = notes && new Float32Array((q.length / width) * length); // (T, H, S)
    for (let place = 0, number = 0; place < q.length; place += width, number++) {
      const head = number % heads;
      const seen = causal ? start + Math.floor(number / heads) + 1 : length;
      const first = Math.floor((head * groups) / heads) * width;
      const row = products.scores(q.subarray(place, place + width), keys, first, step, seen); // (seen)
      scores?.set(row, number * length);
      softmax(row);
      weights?.set(row, number * length);
      if (!off.includes(head)) products.mix(out.subarray(place, place + width), row, values, first, step);
    }
    if (notes && scores && weights) {
      notes.keep("keys", keys.subarray(0, length * step));
      notes.keep("values", values.subarray(0, length * step));
      notes.arrays.scores = scores;
      notes.arrays.weights = weights;
    }
    return out;
  }
}
