/** GPT, as in `jumok.models.gpt`: both families, and a classifier if the configuration has labels. */

import { Block, makeNorm } from "./blocks.js";
import { KVCache } from "./cache.js";
import { EngineError } from "./errors.js";
import { RMSNorm, SwiGLU } from "./layers.js";
import { Pooling } from "./pooling.js";
import { Rotary } from "./positions.js";
import { canBeSimd, PlainProducts, SimdProducts } from "./products.js";

/** @import { BlockConfig, Options } from "./blocks.js" */
/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./reader.js").Config} Config */

/** A causal language model. T positions, C width, V ids. */
export class GPT {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    const modern = config.family === "modern";
    const block = blockOf(config);
    this.config = config;
    this.embedding = parameters.matrix("token_embedding.weight");
    this.positions = modern ? null : parameters.matrix("position_embedding.weight");
    this.rotary = modern ? new Rotary(config.context_length, config.head_dim, config.rope_theta) : null;
    this.blocks = Array.from({ length: config.n_layer }, (_, i) => new Block(parameters, "blocks", i, block));
    this.norm = makeNorm(parameters, "norm", block);
    this.head = config.tie_embeddings ? this.embedding : parameters.matrix("head.weight");
    this.classifier = config.labels.length ? parameters.matrix("classifier.weight") : null;
    /** @type {KVCache | null} for texts that are classified */
    this.reused = null;
    this.pooling = config.labels.length ? new Pooling(config.pooling) : null;
  }

  /**
   * @param {{lasting?: boolean}} [settings] lasting: has room for all positions at once, in a memory of WebAssembly if
   * that is what the model computes with. Browsers have few of these, and are slow to free them.
   * @returns {KVCache} for up to context_length positions
   */
  newCache({ lasting = false } = {}) {
    const { n_layer, n_kv_head, head_dim, context_length } = this.config;
    const width = n_kv_head * head_dim;
    const { module } = this.embedding.kernels;
    if (!lasting || !module || !canBeSimd(head_dim)) return new KVCache(n_layer, width, new PlainProducts());
    const products = new SimdProducts(module, 2 * n_layer * context_length * width, context_length, head_dim);
    return new KVCache(n_layer, width, products, context_length);
  }

  /** What the model computes in its own way. @returns {import("../page/engine_types.js").Features} */
  get features() {
    const { norm1, attention, mlp } = this.blocks[0];
    return {
      norm: norm1 instanceof RMSNorm ? "rms" : "layer",
      norm_eps: norm1.eps,
      rotary: this.rotary !== null,
      qk_norm_eps: attention.qNorm?.eps ?? null,
      qkv_bias: attention.q.bias !== null,
      out_bias: attention.o.bias !== null,
      gated: mlp instanceof SwiGLU,
      activation: this.config.activation,
      mlp_bias: mlp.up.bias !== null,
    };
  }

  /**
   * The last hidden states, after the final norm.
   * @param {ArrayLike<number>} ids (T)
   * @param {KVCache} [cache] keys and values of the tokens before `ids`; extended by those of `ids`
   * @param {Options} [options]
   * @returns {Float32Array} (T, C)
   */
  hidden(ids, cache = this.newCache(), options = {}) {
    const notes = options.record?.model;
    const start = cache.length;
    requireIds(ids, this.config, start);
    let x = embed(this.embedding, ids); // (T, C)
    notes?.keep("embedding", x);
    if (this.positions) {
      const added = embed(
        this.positions,
        Array.from(ids, (_, t) => start + t),
      ); // (T, C)
      notes?.keep("position_embedding", added);
      x = x.map((value, i) => value + added[i]);
    }
    this.blocks.forEach((block, i) => {
      x = block.forward(x, this.rotary, cache.layers[i], null, options); // (T, C)
    });
    x = this.norm.forward(x);
    notes?.keep("norm", x);
    return x;
  }

  /**
   * Read ids: the logits of the next token after the last of them, or after each.
   * @param {ArrayLike<number>} ids (T)
   * @param {KVCache} [cache] @param {Options & {all?: boolean}} [options]
   * @returns {Float32Array} (V), or (T, V) for all
   */
  read(ids, cache, { all = false, ...options } = {}) {
    const hidden = this.hidden(ids, cache, options);
    const logits = this.head.times(all ? hidden : hidden.subarray(-this.config.n_embd));
    options.record?.model.keep("logits", logits);
    return logits;
  }

  /** The logits of the labels. @param {ArrayLike<number>} ids (T) @param {Options} [options] @returns {Float32Array} */
  classify(ids, options) {
    if (!this.pooling || !this.classifier) throw new EngineError("engine.no_labels");
    this.reused ??= this.newCache({ lasting: true });
    this.reused.truncate(0);
    return this.classifier.times(this.pooling.forward(this.hidden(ids, this.reused, options), this.config.n_embd));
  }
}

/** @param {Config} config @returns {BlockConfig} */
function blockOf(config) {
  const modern = config.family === "modern";
  return {
    n_head: config.n_head,
    n_kv_head: config.n_kv_head,
    head_dim: config.head_dim,
    qk_norm: modern ? config.norm_eps : null,
    activation: config.activation === "gelu" ? "gelu_tanh" : config.activation,
    gated: modern,
    norm: modern ? "rms" : "layer",
    norm_eps: config.norm_eps,
    pre_norm: true,
  };
}

/**
 * @param {import("./matrices.js").Matrix} table (V, C)
 * @param {ArrayLike<number>} ids (T)
 * @returns {Float32Array} (T, C)
 */
export function embed(table, ids) {
  const out = new Float32Array(ids.length * table.columns);
  for (let t = 0; t < ids.length; t++) table.addRowTo(ids[t], out, t * table.columns);
  return out;
}

/** @param {ArrayLike<number>} ids @param {Config} config @param {number} [past] positions in the cache */
export function requireIds(ids, config, past = 0) {
  if (!ids.length) throw new RangeError("there are no ids to read");
  if (past + ids.length > config.context_length) {
    throw new EngineError("engine.too_long", { length: past + ids.length, most: config.context_length });
  }
  for (let i = 0; i < ids.length; i++) {
    if (!(ids[i] >= 0 && ids[i] < config.vocab_size)) throw new RangeError(`the model has no id ${ids[i]}`);
  }
}
