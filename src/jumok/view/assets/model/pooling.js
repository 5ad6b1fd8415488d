/** From the hidden states of a text to one vector, as in `jumok.models.pooling`. */

/** Pools hidden states: the first or the last, or their mean. */
export class Pooling {
  /** @param {"first" | "last" | "mean"} kind */
  constructor(kind) {
    this.kind = kind;
  }

  /** @param {Float32Array} hidden (T, C) @param {number} width C @returns {Float32Array} (C) */
  forward(hidden, width) {
    if (this.kind === "first") return hidden.slice(0, width);
    if (this.kind === "last") return hidden.slice(-width);
    const out = new Float32Array(width);
    hidden.forEach((value, i) => (out[i % width] += (value * width) / hidden.length));
    return out;
  }
}
