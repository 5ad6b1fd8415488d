// The engine of a model that is here: what `page/engine_types.js` describes, on the classes of this folder. It runs in a
// worker, in a page and under Node.

import { Answering } from "./answering.js";
import { BERT } from "./bert.js";
import { Chat } from "./chat.js";
import { Classifying } from "./classifying.js";
import { EncoderDecoder } from "./encoder_decoder.js";
import { EngineError } from "./errors.js";
import { Filling } from "./filling.js";
import { GPT } from "./gpt.js";
import { build } from "./models.js";
import { readHeader, readParameters } from "./reader.js";
import { distribution } from "./candidates.js";
import { stepOf } from "./step.js";
import { TokenNames } from "./token_text.js";
import { Tokenizer } from "./tokenizer.js";
import { Tracing } from "./tracing.js";
import { Writing } from "./writing.js";

/** @import { About, Engine, Head } from "../page/engine_types.js" */

const USUAL_TOP = 12;

/**
 * The engine of a page's model.
 * @param {string} header the JSON text of the page
 * @param {string} parameters base64
 * @param {{kernels?: "simd" | "javascript"}} [options]
 */
export async function openModel(header, parameters, options) {
  const read = readHeader(header);
  if (!(read.about && read.config && read.tokenizer?.model)) {
    throw new EngineError("engine.damaged", { reason: "the header is incomplete" });
  }
  const model = build(read.config, await readParameters(read, parameters, options));
  return new LocalEngine(/** @type {About} */ (read.about), model, new Tokenizer(read.tokenizer, read.about.tokenizer));
}

/** @implements {Engine} */
export class LocalEngine {
  /** @param {About} about @param {GPT | BERT | EncoderDecoder} model @param {Tokenizer} tokenizer */
  constructor(about, model, tokenizer) {
    this.about = model instanceof GPT ? { ...about, features: model.features } : about;
    this.model = model;
    this.tokenizer = tokenizer;
    this.reader = new TokenNames(tokenizer);
    this.tracing = new Tracing(about, this.reader);
    this.chat = about.chat ? new Chat(about.chat, tokenizer) : null;
    this.writing = about.kind === "gpt" && model instanceof GPT ? new Writing(model, this.reader, this.chat) : null;
    const labelled = about.labels.length > 0 && !(model instanceof EncoderDecoder);
    this.classifying = labelled ? new Classifying(model, tokenizer) : null;
    this.answering = model instanceof EncoderDecoder ? new Answering(model, this.reader) : null;
    this.filling = model instanceof BERT && model.mlm ? new Filling(model, this.reader) : null;
    this.stops = 0;
  }

  /** @param {string} text */
  async encode(text) {
    const ordinary = this.writing ? !this.about.prompt_tokens : undefined;
    let ids = this.filling ? this.filling.draft(text).ids : this.tokenizer.encode(text, ordinary);
    if (!ids.length && this.writing) ids = [...this.model.config.start];
    return this.spell(ids);
  }

  /** @param {number[]} ids */
  async spell(ids) {
    // What is written stands in a text that is edited and read again, so its special tokens are shown.
    const { text: characters, places } = this.reader.places(ids, this.writing !== null);
    const units = [0]; // the UTF-16 units before each character
    for (const character of characters) units.push(units[units.length - 1] + character.length);
    const pieces = ids.map((id, i) => ({
      id,
      text: this.reader.name(id),
      start: units[places[i][0]],
      end: units[places[i][1]],
    }));
    return { ids, pieces, text: characters.join("") };
  }

  /** @param {import("./chat.js").Message[]} messages @param {{tokens: number}} settings the most of the answer */
  async prompt(messages, { tokens }) {
    if (!this.chat) throw this._not("chat");
    const { ids, left } = this.chat.fitting(messages, tokens, this.about.context_length);
    const names = ids.map((id) => this.reader.name(id));
    return { ids, left, names, tokens: Math.min(tokens, this.about.context_length - ids.length) };
  }

  /** @param {number[]} ids */
  async decode(ids) {
    return this.tokenizer.decodeWhole(ids);
  }

  /** @param {number[]} ids @param {import("../page/engine_types.js").NextSettings} [settings] */
  async next(ids, settings) {
    return this._writing(ids).next(ids, settings);
  }

  /** @param {number[]} ids @param {{off?: Head[], top?: number}} [settings] */
  async score(ids, settings) {
    return this._writing(ids).score(ids, settings);
  }

  /**
   * @param {number[]} ids @param {import("../page/engine_types.js").WriteSettings} [settings]
   * @param {(token: import("../page/engine_types.js").Written) => void} [onToken]
   */
  async write(ids, settings = {}, onToken = () => {}) {
    return this._writing(ids).write(ids, settings, onToken, this._stopped());
  }

  /** @param {number[]} ids @param {{off?: Head[], top?: number}} [settings] @returns {Promise<object>} */
  async record(ids, settings) {
    return this.tracing.gpt(this._writing(ids).model, ids, settings);
  }

  /**
   * @param {number[]} ids @param {{layer?: number, off?: Head[], top?: number}} [settings]
   * @returns {Promise<import("../page/engine_types.js").Step>}
   */
  async step(ids, { layer = 0, off = [], top = USUAL_TOP } = {}) {
    const writing = this._writing(ids);
    if (!(layer >= 0 && layer < this.about.n_layer)) {
      throw new EngineError("engine.no_layer", { layer, last: this.about.n_layer - 1 });
    }
    await writing.readAhead(ids, off);
    const step = stepOf(writing.reading, ids, { layer, off });
    const logits = step.logits.subarray(0, this.tokenizer.vocabSize);
    const texts = ids.slice(-step.length).map((id) => this.reader.name(id));
    return {
      ...step,
      logits,
      token: { id: ids[ids.length - 1], text: texts[texts.length - 1] },
      texts,
      top: distribution(logits, null, [], top, this.reader).alternatives,
    };
  }

  /** @param {string} text @param {{words?: boolean}} [settings] */
  async classify(text, settings) {
    if (!this.classifying) throw this._not("classify");
    return this.classifying.classify(text, settings);
  }

  /**
   * @param {string} text @param {{tokens?: number, trace?: boolean}} [settings]
   * @param {(token: {id: number, text: string, added: string}) => void} [onToken]
   */
  async answer(text, { trace = false, ...settings } = {}, onToken = () => {}) {
    if (!this.answering) throw this._not("answer");
    const { source, ...found } = await this.answering.answer(text, settings, onToken, this._stopped());
    const cross = trace ? this.tracing.encoderDecoder(this.answering.model, source, found.ids) : null;
    return { ...found, cross };
  }

  /** @param {string} text @param {{top?: number}} [settings] */
  async fill(text, settings) {
    if (!this.filling) throw this._not("fill");
    return this.filling.fill(text, settings);
  }

  /** End what is being written. */
  async stop() {
    this.stops += 1;
  }

  /** @returns {() => boolean} whether `stop` was called since now */
  _stopped() {
    const { stops } = this;
    return () => this.stops !== stops;
  }

  /** @param {number[]} ids @returns {Writing} */
  _writing(ids) {
    if (!this.writing) throw this._not("write");
    if (!ids.length) throw new EngineError("engine.empty_text");
    const wrong = ids.find((id) => !(id >= 0 && id < this.tokenizer.vocabSize));
    if (wrong !== undefined) throw new EngineError("engine.id", { id: wrong, last: this.tokenizer.vocabSize - 1 });
    return this.writing;
  }

  /** @param {string} method */
  _not(method) {
    return new EngineError("engine.not_this_model", { method, kind: this.about.kind });
  }
}
