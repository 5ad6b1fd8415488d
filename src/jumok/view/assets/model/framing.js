// @ts-check
// The form of a text as input of a model: special ids before and after it, and truncation, as `jumok.models.framing`.

import { isBlank } from "./boundaries.js";
import { EngineError } from "./errors.js";

/** @typedef {import("./reader.js").Config} Config */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

/**
 * A text without white space around it.
 * @param {string} text
 */
export function stripped(text) {
  let [start, end] = [0, text.length];
  while (start < end && isBlank(text[start])) start += 1;
  while (end > start && isBlank(text[end - 1])) end -= 1;
  return text.slice(start, end);
}

/** The ids before and after a text for a classifier or a BERT; `room`: the most ids of the text itself. */
export class Framing {
  /**
   * @param {Config} config
   * @param {Tokenizer} tokenizer
   */
  constructor(config, tokenizer) {
    const { specialTokens } = tokenizer;
    const bert = config.type === "bert";
    /** @param {string} name */
    const idOf = (name) => [specialTokens.get(name)].filter((id) => id !== undefined);
    this.before = /** @type {number[]} */ (bert ? idOf("[CLS]") : []);
    this.after = /** @type {number[]} */ (idOf("[SEP]"));
    if (!this.after.length && !bert) this.after = tokenizer.encode("\n").slice(-1);
    this.room = config.context_length - this.before.length - this.after.length;
  }

  /**
   * The ids of a text with those around it; a text that is too long loses its end.
   * @param {number[]} ids
   */
  frame(ids) {
    return [...this.before, ...ids.slice(0, this.room), ...this.after];
  }
}

/**
 * The id from which a text without a prompt is written: a newline, which precedes most lines, or a full stop.
 * @param {Tokenizer} tokenizer
 * @returns {number}
 */
export function startId(tokenizer) {
  for (const mark of ["\n", "."]) {
    const ids = tokenizer.encode(mark);
    if (ids.length) return ids[ids.length - 1];
  }
  throw new EngineError("engine.no_start");
}
