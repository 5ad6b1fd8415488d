/** The encoder–decoder, as in `jumok.models.encoder_decoder`. S source and T target positions, C width, V ids. */

import { Block, makeNorm } from "./blocks.js";
import { KVCache, LayerCache } from "./cache.js";
import { embed, requireIds } from "./gpt.js";
import { sinusoidal } from "./positions.js";

/** @import { BlockConfig, Options } from "./blocks.js" */
/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./reader.js").Config} Config */
/** @typedef {{target: KVCache, source: LayerCache[]}} Cache keys and values of the target, and of the source */

/** A sequence-to-sequence model. */
export class EncoderDecoder {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    const block = blockOf(config, config.n_head);
    const decoderBlock = blockOf(config, config.n_decoder_head);
    this.config = config;
    this.embedding = parameters.matrix("token_embedding.weight");
    this.scale = config.scale_embedding ? Math.sqrt(config.n_embd) : 1;
    this.outputBias = parameters.vector("output_bias");
    this.sourcePlacement = new Placement(parameters, "source_placement", config, block);
    this.targetPlacement = new Placement(parameters, "target_placement", config, block);
    this.encoder = Array.from(
      { length: config.n_layer },
      (_, i) => new Block(parameters, "encoder", i, block, { name: "encoder", causal: false }),
    );
    this.decoder = Array.from(
      { length: config.n_decoder_layer },
      (_, i) => new Block(parameters, "decoder", i, decoderBlock, { name: "decoder", cross: true }),
    );
  }

  /**
   * The last hidden states of the encoder.
   * @param {ArrayLike<number>} ids (S)
   * @param {Options} [options]
   * @returns {Float32Array} (S, C)
   */
  encode(ids, options = {}) {
    requireIds(ids, this.config);
    let x = this.sourcePlacement.forward(this.embedScaled(ids), 0);
    for (const block of this.encoder) {
      x = block.forward(x, null, new LayerCache(this.config.n_embd), null, options); // (S, C)
    }
    return x;
  }

  /**
   * A cache for targets, with the keys and values of a source.
   * @param {Float32Array} encoded (S, C), the result of `encode`
   * @returns {Cache}
   */
  newCache(encoded) {
    const width = this.config.n_embd;
    const source = this.decoder.map(({ cross }) => {
      const cache = new LayerCache(width);
      cross?.remember(encoded, cache, { causal: false, rotary: null, off: [], notes: null });
      return cache;
    });
    return { target: new KVCache(this.config.n_decoder_layer, width), source };
  }

  /**
   * Read ids of the target: the logits of the next token after the last of them, or after each.
   * @param {ArrayLike<number>} ids (T)
   * @param {Cache} cache extended by the keys and values of `ids`
   * @param {Options & {all?: boolean}} [options] recorded blocks are "decoder" and "cross"
   * @returns {Float32Array} (V), or (T, V) for all
   */
  decodeStep(ids, { target, source }, { all = false, ...options } = {}) {
    const start = target.length;
    requireIds(ids, this.config, start);
    let x = this.targetPlacement.forward(this.embedScaled(ids), start); // (T, C)
    this.decoder.forEach((block, i) => {
      x = block.forward(x, null, target.layers[i], source[i], options); // (T, C)
    });
    const logits = this.embedding.times(all ? x : x.subarray(-this.config.n_embd), this.outputBias);
    options.record?.model.keep("logits", logits);
    return logits;
  }

  /** @param {ArrayLike<number>} ids @returns {Float32Array} (T, C) */
  embedScaled(ids) {
    return embed(this.embedding, ids).map((value) => value * this.scale);
  }
}

/** Adds positions to embeddings; after learned positions follows a norm. */
class Placement {
  /** @param {Parameters} parameters @param {string} name @param {Config} config @param {BlockConfig} block */
  constructor(parameters, name, { family, context_length, n_embd }, block) {
    const learned = family === "classic";
    this.width = n_embd;
    this.learned = learned ? parameters.matrix(`${name}.position_embedding.weight`) : null;
    this.norm = learned ? makeNorm(parameters, `${name}.norm`, block) : null;
    this.table = learned ? null : sinusoidal(context_length, n_embd);
  }

  /**
   * @param {Float32Array} x (T, C), changed in place
   * @param {number} start position of the first row
   * @returns {Float32Array} (T, C)
   */
  forward(x, start) {
    const { learned, table, width } = this;
    for (let t = 0; t < x.length / width; t++) learned?.addRowTo(start + t, x, t * width);
    if (table) for (let i = 0; i < x.length; i++) x[i] += table[start * width + i];
    return this.norm ? this.norm.forward(x) : x;
  }
}

/** @param {Config} config @param {number} heads @returns {BlockConfig} */
function blockOf(config, heads) {
  return {
    n_head: heads,
    n_kv_head: heads,
    head_dim: config.n_embd / heads,
    qk_norm: null,
    activation: config.activation,
    gated: false,
    norm: "layer",
    norm_eps: 1e-5,
    pre_norm: false,
  };
}
