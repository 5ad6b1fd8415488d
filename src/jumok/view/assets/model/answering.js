// An encoder–decoder answers a text greedily, as `jumok.inference.answer`.

import { knownLogits } from "./candidates.js";
import { EngineError } from "./errors.js";
import { likeliest, logSoftmax } from "./sampling.js";
import { Turns } from "./turns.js";
import { withoutReplaced } from "./utf8.js";

/** @typedef {import("./encoder_decoder.js").Cache} Cache */
/** @typedef {{ids: number[], score: number, finish: "stop" | "length"}} Answer */

/** Answers with one encoder–decoder. */
export class Answering {
  /**
   * @param {import("./encoder_decoder.js").EncoderDecoder} model @param {import("./token_text.js").TokenNames} reader
   */
  constructor(model, reader) {
    this.model = model;
    this.reader = reader;
    this.tokenizer = reader.tokenizer;
    const { config } = model;
    const marks = [config.decoder_start_id, config.eos_id, config.pad_id].filter((id) => id !== null);
    this.special = new Set([...this.tokenizer.specialIds, ...marks]);
  }

  /** The ids of a source, with those around it. @param {string} text @returns {number[]} */
  source(text) {
    const { frame, context_length: most } = this.model.config;
    const inside = this.tokenizer.encode(text);
    if (!inside.length) throw new EngineError("engine.empty_text");
    const ids = [...frame.before, ...inside, ...frame.after];
    if (ids.length > most) throw new EngineError("engine.source_too_long", { count: ids.length, most });
    return ids;
  }

  /**
   * @param {string} text @param {{tokens?: number}} settings
   * @param {(token: {id: number, text: string, added: string}) => void} onToken tokens as they come
   * @param {() => boolean} stopped
   */
  async answer(text, { tokens }, onToken, stopped) {
    const { config } = this.model;
    const limit = Math.min(Math.max(1, tokens ?? config.context_length), config.context_length);
    const source = this.source(text);
    const turns = new Turns();
    const state = this.model.newCache(this.model.encode(source));
    const pause = async () => {
      await turns.pause();
      return stopped();
    };
    const found = await this.written(state, limit, onToken, pause);
    return { ...found, text: this.textOf(found.ids, found.finish), source };
  }

  /**
   * One answer, token by token.
   * @param {Cache} state @param {number} limit
   * @param {(token: {id: number, text: string, added: string}) => void} onToken @param {() => Promise<boolean>} pause
   * @returns {Promise<Answer>}
   */
  async written(state, limit, onToken, pause) {
    const stream = this.tokenizer.stream();
    const end = this.model.config.eos_id;
    /** @type {number[]} */
    const ids = [];
    let total = 0;
    while (ids.length < limit && ids[ids.length - 1] !== end) {
      if (await pause()) break;
      const scores = this.logProbabilities(ids, state, limit);
      const [id] = likeliest(scores, 1);
      total += scores[id];
      ids.push(id);
      onToken({ id, text: this.reader.name(id), added: this.special.has(id) ? "" : stream.push(id) });
    }
    const finish = ids[ids.length - 1] === end ? "stop" : "length";
    return { ids, score: total / Math.max(1, ids.length), finish };
  }

  /**
   * Log-probabilities of the token after those of a target: (V) of the tokenizer. A forced token costs nothing.
   * @param {number[]} ids without the one that begins a target
   * @param {Cache} state holds all but the last of them
   * @param {number} limit @returns {Float32Array}
   */
  logProbabilities(ids, state, limit) {
    const { config } = this.model;
    const last = ids.length ? ids[ids.length - 1] : config.decoder_start_id;
    const scores = logSoftmax(knownLogits(this.model.decodeStep([last], state), this.tokenizer.vocabSize));
    // Padding is never generated; see jumok.inference.rules.
    if (config.pad_id !== null && config.pad_id !== config.eos_id) scores[config.pad_id] = -Infinity;
    const forced =
      (ids.length + 1 === limit ? config.forced_eos_id : null) ?? (ids.length ? null : config.forced_bos_id);
    if (forced === null || forced === undefined) return scores;
    scores.fill(-Infinity);
    scores[forced] = 0;
    return scores;
  }

  /**
   * The text of an answer, without special tokens, and without a last character that is not complete.
   * @param {number[]} ids @param {"stop" | "length"} finish
   */
  textOf(ids, finish) {
    const text = this.tokenizer.decode(ids.filter((id) => !this.special.has(id)));
    return finish === "stop" ? text : withoutReplaced(text);
  }
}
