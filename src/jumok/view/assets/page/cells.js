// Tokens and the characters they make. A cell is the smallest run of tokens that makes whole characters: one token that
// is a word, or three that are the letters of a syllable.

import { TINTS } from "../base/page_chrome.js";

/** @import { Piece, Written } from "./engine_types.js" */

/**
 * Tokens `from` to `to` (exclusive) of a path, and the characters `start` to `end` of its text that they make.
 * @typedef {{from: number, to: number, start: number, end: number}} Cell
 */

/** From which surprise, in nats, a token has the marks of the levels 1, 2 and 3. */
export const MARK_LEVELS = Object.freeze([2, 4, 6]);

/** The surprise, in nats, from which the colour is the strongest. */
export const MOST_SURPRISE = 8;

/**
 * @param {readonly Piece[]} pieces
 * @param {number} [offset] the place of the first piece in the path.
 * @returns {Cell[]}
 */
export function cellsOf(pieces, offset = 0) {
  /** @type {Cell[]} */
  const cells = [];
  pieces.forEach(({ start, end }, i) => {
    const last = cells[cells.length - 1];
    const shares = last && (start < last.end || end === start);
    if (shares) {
      last.to = offset + i + 1;
      last.end = Math.max(last.end, end);
    } else if (end > start) {
      // Tokens before the first character make nothing that is seen, and go with it.
      cells.push({ from: cells.length ? offset + i : offset, to: offset + i + 1, start, end });
    }
  });
  return cells;
}

/**
 * The surprise of a cell: of its tokens together, undefined if one is not known.
 * @param {{surprise?: number, hidden?: boolean}[]} tokens @returns {number | undefined}
 */
export function surpriseOf(tokens) {
  let sum = 0;
  for (const { surprise, hidden } of tokens) {
    if (surprise === undefined && !hidden) return undefined;
    sum += surprise ?? 0;
  }
  return sum;
}

/** The colour of a surprise, 0 to TINTS - 1. @param {number} surprise @returns {number} */
export function tintOf(surprise) {
  return Math.min(TINTS - 1, Math.floor((TINTS * surprise) / MOST_SURPRISE));
}

/** How many of the marks of MARK_LEVELS a surprise has. @param {number} surprise @returns {number} */
export function markOf(surprise) {
  return MARK_LEVELS.filter((least) => surprise >= least).length;
}

/**
 * Puts tokens that are being written together with the text that becomes final with them. What a token adds may be text
 * of the tokens before it only: the syllable of the letters so far, when a letter begins the next one. Exact places
 * come from the tokenizer when all is written.
 */
export class Gatherer {
  /** @param {number} from the place of the first token in the path. @param {number} start of its text. */
  constructor(from, start) {
    this.from = from;
    this.to = from;
    this.start = start;
  }

  /** @param {Pick<Written, "text" | "added">} token @returns {Cell | null} a cell if one is whole now. */
  push({ text, added }) {
    const held = this.to - this.from;
    this.to += 1;
    if (!added) return null;
    // A letter that begins the next syllable is not in the text yet.
    const begins = held > 0 && /^[ㄱ-ㅣ]$/.test(text) && [...added.normalize("NFD")].length <= held;
    const to = begins ? this.to - 1 : this.to;
    const cell = { from: this.from, to, start: this.start, end: this.start + added.length };
    this.from = to;
    this.start = cell.end;
    return cell;
  }
}
