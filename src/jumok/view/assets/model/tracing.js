// @ts-check
// Traces of what a model reads, as `jumok.view.trace`, and of a text that grows, as `jumok.view.live`.

import { distribution, knownLogits, rankOf } from "./candidates.js";
import { EngineError } from "./errors.js";
import { Recording } from "./recording.js";
import { AttentionRows, newestRows, sequenceJson, tokenJson, traceJson } from "./trace_json.js";
import { Turns } from "./turns.js";
import { windowStart } from "./window.js";

/** @typedef {import("../page/engine_types.js").About} About */
/** @typedef {import("./gpt.js").GPT} GPT */
/** @typedef {import("./token_text.js").Reader} Reader */
/** @typedef {import("./trace_json.js").Shape} Shape */
/** @typedef {[number, number]} Head */

const PART = 32; // queries that are recorded at a time: the weights of more would take much memory
const USUAL_TOP = 10;

/**
 * @param {number | undefined} count
 * @returns {number[]}
 */
function upTo(count = 0) {
  return Array.from({ length: count }, (_, i) => i);
}

/**
 * What a model predicts at a place.
 * @param {Float32Array} logits (V)
 * @param {number | null} id the token that stands there
 * @param {number} top
 * @param {Reader} reader
 */
function predictionJson(logits, id, top, reader) {
  const { probabilities, alternatives, surprise } = distribution(logits, null, [], top, reader);
  return {
    p: id === null ? null : probabilities[id],
    rank: id === null ? null : rankOf(probabilities, id),
    nats: id === null ? null : surprise(id),
    top: alternatives.map((one) => [one.id, one.text, one.probability]),
  };
}

/** Traces of one model. */
export class Tracing {
  /**
   * @param {About} about
   * @param {Reader} reader
   */
  constructor(about, reader) {
    this.about = about;
    this.reader = reader;
    /** @type {{ids: number[], layers: number[], off: Head[], top: number, start: number, cache: import("./cache.js").KVCache, after: Float32Array} | null} */
    this.last = null; // the text of a GPT that was recorded last
  }

  /**
   * @param {string} block
   * @param {number[]} layers
   * @param {{queries?: number, keys?: number, causal?: boolean, heads?: number}} [where]
   * @returns {Shape}
   */
  shape(block, layers, { queries = 0, keys = 0, causal = false, heads = this.about.n_head } = {}) {
    const same = heads === this.about.n_head;
    const kvHeads = same ? this.about.n_kv_head : heads;
    const width = same ? this.about.head_dim : this.about.n_embd / heads;
    return { block, queries, keys, causal, layers, heads, kvHeads, width };
  }

  /**
   * A GPT reads the window of a text.
   * @param {GPT} model
   * @param {number[]} ids
   * @param {{layers?: number[], off?: Head[], top?: number}} [settings]
   */
  async gpt(model, ids, { layers = upTo(this.about.n_layer), off = [], top = USUAL_TOP } = {}) {
    const writes = this.about.kind === "gpt";
    const start = windowStart(ids.length, model.config.context_length);
    const window = ids.slice(start);
    const rows = new AttentionRows(this.shape("self", layers, { causal: true }));
    const cache = model.newCache();
    const predictions = [];
    /** @type {Float32Array} */
    let logits = new Float32Array(0);
    const turns = new Turns();
    for (let from = 0; from < window.length; from += PART) {
      const part = window.slice(from, from + PART);
      const record = new Recording(layers);
      if (writes) {
        const found = model.read(part, cache, { off, record, all: true }); // (T, V)
        const width = found.length / part.length;
        for (let i = 0; i < part.length; i += 1) {
          logits = knownLogits(found.subarray(i * width, (i + 1) * width), this.reader.tokenizer.vocabSize);
          predictions.push(predictionJson(logits, window[from + i + 1] ?? null, top, this.reader));
        }
      } else model.hidden(part, cache, { off, record });
      rows.add(record);
      await turns.pause();
    }
    const after = predictions.pop() ?? null;
    this.last = writes ? { ids: [...ids], layers, off, top, start, cache, after: logits.slice() } : null;
    const pieces = this.reader.read(window);
    return traceJson({
      about: this.about,
      sequences: [sequenceJson("text", pieces, window.length)],
      attentions: [rows],
      predictions: writes ? { sequence: 0, kind: "next", tokens: [null, ...predictions], after } : null,
      notes: start ? [leftOut(start)] : [],
    });
  }

  /**
   * The token event for one more id than the last recording has.
   * @param {GPT} model
   * @param {number[]} ids
   */
  async gptNext(model, ids) {
    const { last } = this;
    const follows = last && ids.length === last.ids.length + 1 && last.ids.every((id, i) => id === ids[i]);
    if (!last || !follows) throw new EngineError("engine.not_next");
    const { layers, off, top, start, cache } = last;
    const most = model.config.context_length;
    if (ids.length - start > most) throw new EngineError("engine.window_moves", { most });
    const id = ids[ids.length - 1];
    const prediction = predictionJson(last.after, id, top, this.reader);
    const record = new Recording(layers);
    const logits = knownLogits(model.read([id], cache, { off, record }), this.reader.tokenizer.vocabSize);
    this.last = { ...last, ids: [...ids], after: logits.slice() };
    const window = ids.slice(start);
    const before = this.reader.tokenizer.decode(window.slice(0, -1));
    return {
      event: "token",
      sequence: 0,
      ...tokenJson(this.reader.read(window), before),
      rows: { self: newestRows(record, this.shape("self", layers)) },
      prediction,
      after: predictionJson(logits, null, top, this.reader),
    };
  }

  /**
   * A BERT reads a text with the ids around it.
   * @param {import("./bert.js").BERT} model
   * @param {number[]} ids
   * @param {{layers?: number[], off?: Head[]}} [settings]
   */
  bert(model, ids, { layers = upTo(this.about.n_layer), off = [] } = {}) {
    const record = new Recording(layers);
    model.hidden(ids, { off, record });
    const rows = new AttentionRows(this.shape("self", layers));
    rows.add(record);
    const sequences = [sequenceJson("text", this.reader.read(ids), ids.length)];
    return traceJson({ about: this.about, sequences, attentions: [rows], predictions: null, notes: [] });
  }

  /**
   * A source and its answer.
   * @param {import("./encoder_decoder.js").EncoderDecoder} model
   * @param {number[]} source
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
    const predictions = target.map((_, i) => {
      const row = knownLogits(logits.subarray(i * width, (i + 1) * width), this.reader.tokenizer.vocabSize);
      return predictionJson(row, target[i + 1] ?? null, USUAL_TOP, this.reader);
    });
    const after = predictions.pop() ?? null;
    const decoder = { queries: 1, heads };
    const attentions = [
      new AttentionRows(this.shape("encoder", upTo(this.about.n_layer))),
      new AttentionRows(this.shape("decoder", upTo(n_decoder_layer), { ...decoder, keys: 1, causal: true })),
      new AttentionRows(this.shape("cross", upTo(n_decoder_layer), { ...decoder, keys: 0 })),
    ];
    for (const one of attentions) one.add(record);
    return traceJson({
      about: this.about,
      sequences: [
        sequenceJson("source", this.reader.read(source), source.length),
        sequenceJson("target", this.reader.read(target), 1),
      ],
      attentions,
      predictions: { sequence: 1, kind: "next", tokens: [null, ...predictions], after },
      notes: [],
    });
  }
}

/** @param {number} count */
function leftOut(count) {
  return {
    ko: `글이 모델의 컨텍스트보다 길어 앞의 ${count.toLocaleString("ko")}토큰을 제외했습니다.`,
    en: `The text is longer than the model's context: the first ${count.toLocaleString("en")} tokens are left out.`,
  };
}
