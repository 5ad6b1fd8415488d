/** The block of Transformers, as in `jumok.nn.blocks`. */

import { MultiHeadAttention } from "./attention.js";
import { LayerNorm, MLP, RMSNorm, SwiGLU } from "./layers.js";
import { sum } from "./matrices.js";

/** @typedef {import("./attention.js").Shape} Shape */
/** @typedef {import("./cache.js").LayerCache} LayerCache */
/** @import { Activation, Norm } from "./layers.js" */
/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./positions.js").Rotary} Rotary */
/** @typedef {import("./recording.js").Recording} Recording */
/**
 * @typedef {Shape & {
 *   activation: Activation, gated: boolean, norm: "rms" | "layer", norm_eps: number, pre_norm: boolean
 * }} BlockConfig
 */
/** @typedef {[number, number] | [string, number, number]} Head [layer, head], or [block, layer, head] */
/** @typedef {{off?: Head[], record?: Recording | null}} Options heads that are switched off; what to record */

/** Attention, perhaps cross-attention, and an MLP, each with a norm and a residual connection. */
export class Block {
  /**
   * @param {Parameters} parameters
   * @param {string} stack such as "blocks"
   * @param {number} layer @param {BlockConfig} config
   * @param {{name?: string, causal?: boolean, cross?: boolean}} [kind] name of the block in recordings
   */
  constructor(parameters, stack, layer, config, { name = "self", causal = true, cross = false } = {}) {
    const place = `${stack}.${layer}`;
    this.layer = layer;
    this.name = name;
    this.causal = causal;
    this.preNorm = config.pre_norm;
    this.norm1 = makeNorm(parameters, `${place}.attention_norm`, config);
    this.attention = new MultiHeadAttention(parameters, `${place}.attention`, config);
    this.crossNorm = cross ? makeNorm(parameters, `${place}.cross_norm`, config) : null;
    this.cross = cross ? new MultiHeadAttention(parameters, `${place}.cross_attention`, config) : null;
    this.norm2 = makeNorm(parameters, `${place}.mlp_norm`, config);
    this.mlp = config.gated
      ? new SwiGLU(parameters, `${place}.mlp`)
      : new MLP(parameters, `${place}.mlp`, config.activation);
  }

  /**
   * @param {Float32Array} x (T, C)
   * @param {Rotary | null} rotary
   * @param {LayerCache} cache extended by the keys and values of x
   * @param {LayerCache | null} context keys and values for cross-attention
   * @param {Options} options
   * @returns {Float32Array} (T, C)
   */
  forward(x, rotary, cache, context, options) {
    const notes = options.record?.at(this.name, this.layer) ?? null;
    const own = { causal: this.causal, rotary, off: headsOff(options, this.name, this.layer), notes };
    notes?.keep("input", x);
    x = this.join(x, this.norm1, (y) => {
      notes?.keep("norm1", y);
      return this.attention.forward(y, cache, own);
    });
    notes?.keep("residual1", x);
    if (this.cross && this.crossNorm && context) {
      const { cross } = this;
      const about = options.record?.at("cross", this.layer) ?? null;
      const how = { causal: false, rotary: null, off: headsOff(options, "cross", this.layer), notes: about };
      x = this.join(x, this.crossNorm, (y) => cross.attend(y, context, 0, how));
      about?.keep("residual1", x);
    }
    x = this.join(x, this.norm2, (y) => {
      notes?.keep("norm2", y);
      const out = this.mlp.forward(y, notes);
      notes?.keep("mlp_out", out);
      return out;
    });
    notes?.keep("residual2", x);
    return x;
  }

  /**
   * Pre-norm is x + part(norm(x)), post-norm is norm(x + part(x)).
   * @param {Float32Array} x @param {Norm} norm @param {(x: Float32Array) => Float32Array} part @returns {Float32Array}
   */
  join(x, norm, part) {
    return this.preNorm ? sum(x, part(norm.forward(x))) : norm.forward(sum(x, part(x)));
  }
}

/**
 * @param {Parameters} parameters @param {string} name @param {{norm: "rms" | "layer", norm_eps: number}} config
 * @returns {Norm}
 */
export function makeNorm(parameters, name, { norm, norm_eps }) {
  return norm === "rms" ? new RMSNorm(parameters, name, norm_eps) : new LayerNorm(parameters, name, norm_eps);
}

/**
 * The heads of a layer that are switched off.
 * @param {Options} options @param {string} block @param {number} layer @returns {number[]}
 */
function headsOff({ off = [] }, block, layer) {
  /** @type {[string, number, number][]} */
  const named = off.map((head) => (head.length === 3 ? head : ["self", ...head]));
  return named.filter((head) => head[0] === block && head[1] === layer).map((head) => head[2]);
}
