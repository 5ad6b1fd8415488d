// The form of a text as input of a model: special ids before and after it, which the header names, and truncation.

import { isBlank } from "./boundaries.js";

/** @typedef {import("./reader.js").Config} Config */

/** A text without white space around it. @param {string} text */
export function stripped(text) {
  let [start, end] = [0, text.length];
  while (start < end && isBlank(text[start])) start += 1;
  while (end > start && isBlank(text[end - 1])) end -= 1;
  return text.slice(start, end);
}

/** The ids before and after a text; `room`: the most ids of the text itself. */
export class Framing {
  /** @param {Config} config */
  constructor(config) {
    this.before = /** @type {number[]} */ (config.frame.before);
    this.after = /** @type {number[]} */ (config.frame.after);
    this.room = config.context_length - this.before.length - this.after.length;
  }

  /** The ids of a text with those around it; a text that is too long loses its end. @param {number[]} ids */
  frame(ids) {
    return [...this.before, ...ids.slice(0, this.room), ...this.after];
  }
}
