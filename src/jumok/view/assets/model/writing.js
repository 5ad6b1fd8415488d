// A GPT continues a text, and predicts each token of it. The window of a text that the model sees is that of Python
// (`window.js`); what two calls have in common at their beginning is read once.

import { distribution, knownLogits, rankOf, rulerOf } from "./candidates.js";
import { AnswerStream } from "./chat.js";
import { isLooping } from "./looping.js";
import { drawn, Random, settingsOf } from "./sampling.js";
import { Queue, Turns } from "./turns.js";
import { Reading, windowStart } from "./window.js";

/** @typedef {import("./candidates.js").Alternative} Alternative */
/** @typedef {import("./gpt.js").GPT} GPT */
/** @typedef {import("./sampling.js").Sampling} Sampling */
/** @typedef {import("./token_text.js").TokenNames} TokenNames */
/** @typedef {[number, number]} Head */
/** @typedef {{id: number, surprise: number, probability: number, rank: number, alternatives: Alternative[]}} Scored */

const PART = 32; // ids of a prompt that are read before others get a turn
const RATED = 16; // tokens over which the rate is measured: soon right again when a tab wakes up
const USUAL_TOP = 12;

/** Writes and scores with one GPT. */
export class Writing {
  /** @param {GPT} model @param {TokenNames} reader @param {import("./chat.js").Chat | null} [chat] */
  constructor(model, reader, chat = null) {
    this.model = model;
    this.reader = reader;
    this.chat = chat;
    this.reading = new Reading(model);
    this.scores = new Reading(model); // its own, so that a prompt is not read anew for each of the two
    /** @type {(Scored | null)[]} of the tokens in the window of `scores` */
    this.scored = [];
    this.scoredTop = USUAL_TOP;
    this.readings = new Queue();
    this.scorings = new Queue();
  }

  /**
   * Read all of a text but its last id, in turns.
   * @param {number[]} ids @param {Head[]} off @param {Turns} turns @param {() => boolean} stopped
   * @returns {Promise<boolean>} false if it was stopped
   */
  async readAhead(ids, off, turns = new Turns(), stopped = () => false) {
    return this.readings.run(async () => {
      while (this.reading.readPart(ids, PART, { off })) {
        await turns.pause();
        if (stopped()) return false;
      }
      return true;
    });
  }

  /**
   * The logits of the token after a text.
   * @param {number[]} ids @param {Head[]} off @param {Turns} turns @param {() => boolean} stopped
   * @returns {Promise<Float32Array | null>} (V) of the tokenizer; null if it was stopped
   */
  async logitsAfter(ids, off, turns, stopped = () => false) {
    if (!(await this.readAhead(ids, off, turns, stopped))) return null;
    return knownLogits(this.reading.next(ids, { off }), this.reader.tokenizer.vocabSize);
  }

  /** The id that pads, which is never drawn. */
  get never() {
    const { eos_ids, pad_id: pad = null } = this.model.config;
    return pad === null || [...(eos_ids ?? []), this.chat?.end].includes(pad) ? null : pad;
  }

  /** @param {number[]} ids @param {import("../page/engine_types.js").NextSettings} [settings] */
  async next(ids, { off = [], sampling, top = USUAL_TOP, look } = {}) {
    const settings = settingsOf(sampling);
    const logits = /** @type {Float32Array} */ (await this.logitsAfter(ids, off, new Turns()));
    const { alternatives, entropy, kept, chosen } = distribution(logits, settings, ids, top, this.reader, this.never);
    return { alternatives, entropy, kept, ruler: look ? rulerOf(chosen, top, look, this.reader) : [] };
  }

  /**
   * How well each id but the first was predicted; null for those before the window.
   * @param {number[]} ids @param {{off?: Head[], top?: number}} [settings] @returns {Promise<(Scored | null)[]>}
   */
  score(ids, { off = [], top = USUAL_TOP } = {}) {
    return this.scorings.run(() => this.scoreNow(ids, off, top));
  }

  /** @param {number[]} ids @param {Head[]} off @param {number} top @returns {Promise<(Scored | null)[]>} */
  async scoreNow(ids, off, top) {
    const start = windowStart(ids.length, this.model.config.context_length);
    const window = ids.slice(start);
    const turns = new Turns();
    if (top !== this.scoredTop) this.scores = new Reading(this.model);
    this.scoredTop = top;
    for (;;) {
      let part = this.scores.prepare(ids, { off }, PART);
      let from = this.scores.held.length - part.length; // of the window
      if (from > 0 && this.scored[from]?.id !== window[from]) {
        this.scores.held.length = from - 1; // another token follows what is read: its logits are needed again
        part = this.scores.prepare(ids, { off }, PART);
        from -= 1;
      }
      this.scored.length = from + 1;
      if (!part.length) break;
      const logits = this.model.read(part, this.scores.cache, { off, all: true }); // (T, V)
      const width = logits.length / part.length;
      part.forEach((_, i) => {
        const row = knownLogits(logits.subarray(i * width, (i + 1) * width), this.reader.tokenizer.vocabSize);
        this.scored[from + i + 1] = this.scoredToken(row, window[from + i + 1], top);
      });
      await turns.pause();
    }
    return [...new Array(start).fill(null), ...this.scored.slice(1)];
  }

  /**
   * @param {Float32Array} logits (V)
   * @param {number} id the token that follows
   * @param {number} top @returns {Scored}
   */
  scoredToken(logits, id, top) {
    const { probabilities, alternatives, surprise } = distribution(logits, null, [], top, this.reader);
    const probability = probabilities[id];
    return { id, surprise: surprise(id), probability, rank: rankOf(probabilities, id), alternatives };
  }

  /**
   * Continue a text, token by token; with a chat template it is one up to where an answer begins.
   * @param {number[]} ids @param {import("../page/engine_types.js").WriteSettings} settings
   * @param {(token: import("../page/engine_types.js").Written) => void} onToken @param {() => boolean} stopped
   * @returns {Promise<import("../page/engine_types.js").WriteResult>}
   */
  async write(ids, { tokens = 200, sampling = {}, off = [], top = USUAL_TOP, begun }, onToken, stopped) {
    const settings = settingsOf(sampling);
    const random = new Random(sampling.seed);
    const answer = begun && this.chat ? new AnswerStream(this.chat) : null;
    const stream = this.reader.tokenizer.stream();
    const rest = () => (answer ? answer.finish().added : stream.finish());
    const turns = new Turns();
    const text = [...ids];
    const times = [performance.now()];
    const ends = [...(this.model.config.eos_ids ?? []), ...(answer ? [answer.chat.end] : [])];
    for (let count = 0; count < tokens; count += 1) {
      await turns.pause();
      const logits = stopped() ? null : await this.logitsAfter(text, off, turns, stopped);
      if (!logits) return { ids: text, ended: "stop", rest: rest() };
      const found = distribution(logits, settings, text, top, this.reader, this.never);
      const given = begun?.[count];
      const draw = given === undefined && settings.temperature > 0 ? random.next() : undefined;
      const id = given ?? drawn(found.choice, settings, draw ?? 0);
      text.push(id);
      times.push(performance.now());
      const measured = times.slice(-RATED - 1);
      onToken({
        id,
        text: this.reader.name(id),
        ...(answer?.push(id) ?? { added: ends.includes(id) ? "" : stream.push(id) }),
        probability: found.probabilities[id],
        surprise: found.surprise(id),
        entropy: found.entropy,
        draw,
        alternatives: found.alternatives,
        per_second: (1000 * (measured.length - 1)) / Math.max(1e-3, measured[measured.length - 1] - measured[0]),
      });
      if (ends.includes(id)) return { ids: text, ended: "end", rest: rest() };
      if (answer && isLooping(text.slice(ids.length))) return { ids: text, ended: "loop", rest: rest() };
    }
    return { ids: text, ended: "length", rest: rest() };
  }
}
