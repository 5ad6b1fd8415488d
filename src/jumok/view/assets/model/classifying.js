// The class of a text, and the words that decide it: what changes when a word is left out (occlusion).

import { EngineError } from "./errors.js";
import { Framing, stripped } from "./framing.js";
import { logSoftmax } from "./sampling.js";
import { Turns } from "./turns.js";

/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {import("../page/engine_types.js").Classified} Classified */

/** Classifies with one model. */
export class Classifying {
  /** @param {import("./gpt.js").GPT | import("./bert.js").BERT} model with labels @param {Tokenizer} tokenizer */
  constructor(model, tokenizer) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.framing = new Framing(model.config);
    this.calls = 0;
  }

  /**
   * The probabilities of the labels; with `words` also the effect of each word. A later call ends the search for words
   * of an earlier one, which then has the words so far.
   * @param {string} text @param {{words?: boolean}} [settings] @returns {Promise<Classified>}
   */
  async classify(text, { words = false } = {}) {
    const call = (this.calls += 1);
    const ids = this.tokenizer.encode(stripped(text));
    if (!ids.length) throw new EngineError("engine.empty_text");
    const scores = this.logProbabilities(ids);
    const winner = scores.indexOf(Math.max(...scores));
    /** @type {Classified["words"]} */
    const effects = [];
    const turns = new Turns();
    for (const { 0: word, index } of words ? text.matchAll(/\S+/gu) : []) {
      await turns.pause();
      if (call !== this.calls) break;
      const rest = this.tokenizer.encode(stripped(withoutWord(text, index, index + word.length)));
      const without = rest.length ? this.logProbabilities(rest)[winner] : Math.log(1 / scores.length);
      effects.push({ text: word, start: index, end: index + word.length, effect: without - scores[winner] });
    }
    const labels = this.model.config.labels.map((/** @type {string} */ label, /** @type {number} */ i) => ({
      label,
      probability: Math.exp(scores[i]),
    }));
    return { labels, words: effects, tokens: ids.length, read: Math.min(ids.length, this.framing.room) };
  }

  /** @param {number[]} ids of a text @returns {number[]} of the labels */
  logProbabilities(ids) {
    const logits = this.model.classify(this.framing.frame(ids));
    if (!logits.every(Number.isFinite)) throw new EngineError("engine.not_finite");
    return Array.from(logSoftmax(logits));
  }
}

/** A text without a word and the space before it. @param {string} text @param {number} start @param {number} end */
function withoutWord(text, start, end) {
  const before = text.slice(0, start);
  return (before.endsWith(" ") ? before.slice(0, -1) : before) + text.slice(end);
}
