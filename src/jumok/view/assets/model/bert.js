/** BERT, as in `jumok.models.bert`. T positions, C width, V ids. */

import { Block, makeNorm } from "./blocks.js";
import { LayerCache } from "./cache.js";
import { EngineError } from "./errors.js";
import { embed, requireIds } from "./gpt.js";
import { gelu } from "./layers.js";
import { addRow, Linear } from "./matrices.js";
import { Pooling } from "./pooling.js";

/** @import { BlockConfig, Options } from "./blocks.js" */
/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./reader.js").Config} Config */

/** A bidirectional encoder, with the head of its configuration. */
export class BERT {
  /** @param {Config} config @param {Parameters} parameters */
  constructor(config, parameters) {
    const block = blockOf(config);
    const pools = config.head === "pooler" || config.head === "classify";
    this.config = config;
    this.embedding = parameters.matrix("token_embedding.weight");
    this.positions = parameters.matrix("position_embedding.weight");
    this.types = parameters.matrix("type_embedding.weight");
    this.norm = makeNorm(parameters, "embedding_norm", block);
    this.blocks = Array.from(
      { length: config.n_layer },
      (_, i) => new Block(parameters, "blocks", i, block, { causal: false }),
    );
    this.mlm = config.head === "mlm" ? new MaskedLMHead(parameters, block) : null;
    this.pooling = pools ? new Pooling(config.pooling) : null;
    this.pooler = pools ? new Linear(parameters, "pooler") : null;
    this.classifier = config.head === "classify" ? new Linear(parameters, "classifier") : null;
  }

  /**
   * The last hidden states.
   * @param {ArrayLike<number>} ids (T)
   * @param {Options} [options]
   * @returns {Float32Array} (T, C)
   */
  hidden(ids, options = {}) {
    const notes = options.record?.model;
    requireIds(ids, this.config);
    let x = embed(this.embedding, ids); // (T, C)
    notes?.keep("embedding", x);
    const added = embed(
      this.positions,
      Array.from(ids, (_, t) => t),
    ); // (T, C)
    notes?.keep("position_embedding", added);
    addRow(added, embed(this.types, [0]));
    x = this.norm.forward(x.map((value, i) => value + added[i]));
    for (const block of this.blocks) {
      x = block.forward(x, null, new LayerCache(this.config.n_embd), null, options); // (T, C)
    }
    return x;
  }

  /**
   * The logits over the vocabulary at some positions.
   * @param {ArrayLike<number>} ids (T)
   * @param {number[]} positions (N)
   * @param {Options} [options]
   * @returns {Float32Array} (N, V)
   */
  predict(ids, positions, options) {
    if (!this.mlm) throw new EngineError("engine.no_masks");
    const width = this.config.n_embd;
    const hidden = this.hidden(ids, options);
    const chosen = new Float32Array(positions.length * width);
    positions.forEach((t, row) => chosen.set(hidden.subarray(t * width, (t + 1) * width), row * width));
    return this.embedding.times(this.mlm.forward(chosen), this.mlm.bias);
  }

  /** The logits of the labels. @param {ArrayLike<number>} ids (T) @param {Options} [options] @returns {Float32Array} */
  classify(ids, options) {
    if (!this.pooling || !this.pooler || !this.classifier) throw new EngineError("engine.no_labels");
    const pooled = this.pooler.forward(this.pooling.forward(this.hidden(ids, options), this.config.n_embd));
    return this.classifier.forward(pooled.map(Math.tanh));
  }
}

/** The head for masked tokens, but for its last layer, which is the matrix of the embedding. */
class MaskedLMHead {
  /** @param {Parameters} parameters @param {BlockConfig} block */
  constructor(parameters, block) {
    this.dense = new Linear(parameters, "mlm_head.dense");
    this.norm = makeNorm(parameters, "mlm_head.norm", block);
    this.bias = parameters.vector("mlm_head.bias");
  }

  /** @param {Float32Array} hidden (N, C) @returns {Float32Array} (N, C) */
  forward(hidden) {
    const x = this.dense.forward(hidden);
    gelu(x);
    return this.norm.forward(x);
  }
}

/** @param {Config} config @returns {BlockConfig} */
function blockOf(config) {
  return {
    n_head: config.n_head,
    n_kv_head: config.n_head,
    head_dim: config.n_embd / config.n_head,
    qk_norm: null,
    activation: "gelu",
    gated: false,
    norm: "layer",
    norm_eps: config.norm_eps,
    pre_norm: false,
  };
}
