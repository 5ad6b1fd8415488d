/**
 * Records what a model computes on the way to its logits.
 * The notes of a layer, for T positions that are read together and S positions that they may attend to:
 * input (T, C)                      the residual stream before this layer
 * norm1 (T, C)                      the input of attention, after the norm (pre-norm)
 * q_projected, k_projected          before the norm of each head, if the model has one
 * q (T, H, D), k, v (T, G, D)       q and k after the norm of each head, if the model has one
 * q_rotated, k_rotated              after the rotation; without rotary positions the same as q and k
 * keys, values (S, G, D)            of all positions
 * scores, weights (T, H, S)         before and after the softmax; masked scores are -Infinity, their weights 0
 * heads (T, H, D)                   output of each head; zeros for one that is switched off
 * attention_out (T, C)              after o_proj
 * residual1 (T, C)                  after the sum with the residual stream
 * norm2 (T, C), mlp_hidden (T, M), mlp_out (T, C), residual2 (T, C)
 * mlp_up (T, M)                     before the activation, or before the product with the gate
 * mlp_gate (T, M)                   before the activation; of gated MLPs
 * With post-norm, residual1 and residual2 are after the norms, and norm1 and norm2 are the inputs as they are.
 * Cross-attention has notes of its own. The notes of the model: embedding (T, C), position_embedding (T, C, learned
 * positions only), norm (T, C), logits.
 */

/** The arrays of one layer or of the model, by their names. */
export class Notes {
  constructor() {
    /** @type {Record<string, Float32Array>} */
    this.arrays = {};
  }

  /** @param {string} name @param {Float32Array} array is copied, because layers reuse theirs */
  keep(name, array) {
    this.arrays[name] = array.slice();
  }
}

/** What a model computed for the ids of one call. */
export class Recording {
  constructor() {
    this.model = new Notes();
    /** @type {Map<string, Notes>} */
    this.notes = new Map();
  }

  /**
   * The notes of a layer, for the model to fill.
   * @param {string} block "self", or "encoder", "decoder" or "cross"
   * @param {number} layer @returns {Notes}
   */
  at(block, layer) {
    const key = `${block} ${layer}`;
    const notes = this.notes.get(key) ?? new Notes();
    this.notes.set(key, notes);
    return notes;
  }

  /**
   * The arrays of a layer that was recorded.
   * @param {number} layer @param {string} [block] @returns {Record<string, Float32Array>}
   */
  layer(layer, block = "self") {
    const notes = this.notes.get(`${block} ${layer}`);
    if (!notes) throw new RangeError(`${block} layer ${layer} was not recorded`);
    return notes.arrays;
  }
}
