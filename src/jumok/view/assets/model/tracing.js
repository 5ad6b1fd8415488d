// Traces of what a model reads, as `jumok.view.trace`.

import { distribution, knownLogits, rankOf } from "./candidates.js";
import { Recording } from "./recording.js";
import { AttentionRows, traceJson } from "./trace_json.js";
import { Turns } from "./turns.js";
import { windowStart } from "./window.js";

/** @typedef {import("../page/engine_types.js").About} About */
/** @typedef {import("./token_text.js").TokenNames} TokenNames */
/** @typedef {import("./trace_json.js").Shape} Shape */

const PART = 32; // queries that are recorded at a time: the weights of more would take much memory
const USUAL_TOP = 10;

/** Traces of one model. */
export class Tracing {
  /** @param {About} about @param {TokenNames} reader */
  constructor(about, reader) {
    this.about = about;
    this.reader = reader;
  }

  /**
   * What a model predicts at a place.
   * @param {Float32Array} logits (V) of the model, which may have more ids than the tokenizer
   * @param {number | null} id the token that stands there
   * @param {number} top
   */
  prediction(logits, id, top) {
    const known = knownLogits(logits, this.reader.tokenizer.vocabSize);
    const { probabilities, alternatives, surprise } = distribution(known, null, [], top, this.reader);
    return {
      p: id === null ? null : probabilities[id],
      rank: id === null ? null : rankOf(known, id),
      nats: id === null ? null : surprise(id),
      top: alternatives.map((one) => [one.id, one.text, one.probability]),
    };
  }

  /**
   * @param {string} block @param {number} layers
   * @param {{queries?: number, keys?: number, causal?: boolean, heads?: number}} [where] @returns {Shape}
   */
  shape(block, layers, { queries = 0, keys = 0, causal = false, heads = this.about.n_head } = {}) {
    const same = heads === this.about.n_head;
    const kvHeads = same ? this.about.n_kv_head : heads;
    const width = same ? this.about.head_dim : this.about.n_embd / heads;
    return { block, queries, keys, causal, layers: Array.from({ length: layers }, (_, i) => i), heads, kvHeads, width };
  }

  /**
   * A GPT reads the window of a text.
   * @param {import("./gpt.js").GPT} model @param {number[]} ids
   * @param {{off?: import("./blocks.js").Head[], top?: number}} [settings]
   */
  async gpt(model, ids, { off = [], top = USUAL_TOP } = {}) {
    const start = windowStart(ids.length, model.config.context_length);
    const window = ids.slice(start);
    const rows = new AttentionRows(this.shape("self", this.about.n_layer, { causal: true }));
    const cache = model.newCache();
    const predictions = [];
    const turns = new Turns();
    for (let from = 0; from < window.length; from += PART) {
      const part = window.slice(from, from + PART);
      const record = new Recording();
      const logits = model.read(part, cache, { off, record, all: true }); // (T, V)
      const width = logits.length / part.length;
      for (let i = 0; i < part.length; i += 1) {
        const row = logits.subarray(i * width, (i + 1) * width);
        predictions.push(this.prediction(row, window[from + i + 1] ?? null, top));
      }
      rows.add(record);
      await turns.pause();
    }
    const after = predictions.pop() ?? null;
    return traceJson({
      about: this.about,
      sequences: [{ name: "text", prompt: window.length, ...this.reader.read(window) }],
      attentions: [rows],
      predictions: { sequence: 0, kind: "next", tokens: [null, ...predictions], after },
      notes: start ? [{ code: "trace.leftOut", values: { n: start } }] : [],
    });
  }

  /**
   * A source and its answer.
   * @param {import("./encoder_decoder.js").EncoderDecoder} model @param {number[]} source
   * @param {number[]} answer ids that were written
   */
  encoderDecoder(model, source, answer) {
    const { decoder_start_id: start, eos_id: end, n_decoder_layer, n_decoder_head: heads } = model.config;
    const written = answer[answer.length - 1] === end ? answer.slice(0, -1) : answer;
    const target = [start, ...written].slice(0, model.config.context_length);
    const record = new Recording();
    const cache = model.newCache(model.encode(source, { record }));
    const logits = model.decodeStep(target, cache, { record, all: true }); // (T, V)
    const width = logits.length / target.length;
    const predictions = target.map((_, i) =>
      this.prediction(logits.subarray(i * width, (i + 1) * width), target[i + 1] ?? null, USUAL_TOP),
    );
    const after = predictions.pop() ?? null;
    const decoder = { queries: 1, heads };
    const attentions = [
      new AttentionRows(this.shape("encoder", this.about.n_layer)),
      new AttentionRows(this.shape("decoder", n_decoder_layer, { ...decoder, keys: 1, causal: true })),
      new AttentionRows(this.shape("cross", n_decoder_layer, { ...decoder, keys: 0 })),
    ];
    for (const one of attentions) one.add(record);
    return traceJson({
      about: this.about,
      sequences: [
        { name: "source", prompt: source.length, ...this.reader.read(source) },
        { name: "target", prompt: 1, ...this.reader.read(target) },
      ],
      attentions,
      predictions: { sequence: 1, kind: "next", tokens: [null, ...predictions], after },
      notes: [],
    });
  }
}
