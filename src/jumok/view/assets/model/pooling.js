/** From the hidden states of a text to one vector, as in `jumok.models.pooling`. */

import { dot, softmax } from "./matrices.js";

/** Pools hidden states: the first or the last, their mean, or a mean that is weighted by a learned query. */
export class Pooling {
  /** @param {"first" | "last" | "mean" | "attention"} kind @param {Float32Array | null} query (C) */
  constructor(kind, query) {
    this.kind = kind;
    this.query = query;
  }

  /** @param {Float32Array} hidden (T, C) @param {number} width C @returns {Float32Array} (C) */
  forward(hidden, width) {
    if (this.kind === "first") return hidden.slice(0, width);
    if (this.kind === "last") return hidden.slice(-width);
    const rows = Array.from({ length: hidden.length / width }, (_, t) => hidden.subarray(t * width, (t + 1) * width));
    const { query } = this;
    const weights = Float32Array.from(rows, (row) => (query ? dot(row, query) * width ** -0.5 : 0)); // (T)
    softmax(weights);
    const out = new Float32Array(width);
    rows.forEach((row, t) => row.forEach((value, i) => (out[i] += weights[t] * value)));
    return out;
  }
}
