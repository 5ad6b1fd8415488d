// @ts-check
// How the distribution of the next token changes when heads are switched off.

import { windowStart } from "../model/window.js";

/** @typedef {import("./engine_types.js").Alternative} Alternative */

/**
 * The tokens of two distributions side by side, those that changed or were likely first. A token that is listed in one
 * only has at most the least probability of the other list, and is given none there.
 * @param {Alternative[]} before
 * @param {Alternative[]} after
 * @param {number} most
 * @returns {{id: number, text: string, before: number, after: number}[]}
 */
export function sideBySide(before, after, most) {
  /** @type {Map<number, {id: number, text: string, before: number, after: number}>} */
  const rows = new Map();
  for (const { id, text, probability } of before) rows.set(id, { id, text, before: probability, after: 0 });
  for (const { id, text, probability } of after) {
    const row = rows.get(id) ?? { id, text, before: 0, after: 0 };
    row.after = probability;
    rows.set(id, row);
  }
  const weight = (/** @type {{before: number, after: number}} */ row) => Math.max(row.before, row.after);
  return [...rows.values()].sort((a, b) => weight(b) - weight(a)).slice(0, most);
}

/**
 * The share of the probability that moved to other tokens, 0 to 1: half the sum of the differences, with all that is not
 * listed taken as one token.
 * @param {{before: number, after: number}[]} rows
 */
export function movedShare(rows) {
  const rest = rows.reduce((sum, { before, after }) => sum + after - before, 0);
  return (rows.reduce((sum, { before, after }) => sum + Math.abs(after - before), 0) + Math.abs(rest)) / 2;
}

/**
 * What is recorded of a text: `ids` from the place `start` of it on.
 * @typedef {{ids: number[], start: number, off: string}} Recorded
 */

/**
 * What is to be recorded of a text, given what is recorded already. next: the ids from `from` on, one after the other.
 * all: anew, from `start` on, where the window of the model begins.
 * @param {number[]} ids of the whole text
 * @param {Recorded | null} known
 * @param {{off: string, context: number}} how off: the heads that are switched off, as a text
 * @returns {{kind: "nothing"} | {kind: "next", from: number} | {kind: "all", start: number}}
 */
export function recordingPlan(ids, known, { off, context }) {
  const start = windowStart(ids.length, context);
  const end = known ? known.start + known.ids.length : 0;
  const usable = known && known.off === off && known.start === start && end <= ids.length;
  if (usable && known.ids.every((id, i) => id === ids[start + i])) {
    return end === ids.length ? { kind: "nothing" } : { kind: "next", from: end };
  }
  return { kind: "all", start };
}
