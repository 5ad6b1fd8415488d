// How the text that is shown came about, as a link carries it: what was typed, and how each branch on the path from the
// root to the current one was written. A page with the same model makes the same text from it.

import { crc32 } from "../model/reader.js";

/** @import { Head, Sampling } from "./engine_types.js" */
/** @import { Branch, Tree } from "./tree.js" */

/**
 * One step of a path, which keeps the first `at` tokens of what the steps before it made. begin: the tokens that a text
 * begins with which is empty; typed: tokens that were typed or edited; written: tokens that were drawn, after one that
 * was chosen by hand if there is one.
 * @typedef {{kind: "begin"}
 *   | {kind: "typed", at: number, ids: number[]}
 *   | {kind: "written", at: number, tokens: number, chosen: number | null, sampling: Sampling, off: Head[]}} Step
 */

/** @type {readonly ("seed" | "temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty")[]} in the order of a link */
const SETTINGS = ["seed", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"];
const RADIX = 36; // of ids
const NUMBER = /^\d+(\.\d+)?(e-?\d+)?$/;

/**
 * The text that a path begins with, the steps after it, and a checksum of the ids that they give.
 * @param {Tree} tree @returns {{text: string, path: Step[], sum: string}}
 */
export function pathOf(tree) {
  /** @type {Branch[]} */
  const branches = [];
  for (let branch = /** @type {Branch | null} */ (tree.current); branch; branch = branch.parent)
    branches.unshift(branch);
  let text = "";
  const path = branches.flatMap((branch, i) => {
    const kept = branch.tokens.slice(0, (branches[i + 1]?.start ?? branch.end) - branch.start);
    if (!kept.length) return [];
    if (branch.kind !== "typed") return [writtenStep(branch, kept.length)];
    if (branch.start === 0 && branch.text !== undefined) {
      text = branch.text;
      return [];
    }
    const hidden = kept.filter((token) => token.hidden).length;
    const ids = kept.slice(hidden).map(({ id }) => id);
    return /** @type {Step[]} */ ([
      ...(hidden ? [{ kind: "begin" }] : []),
      ...(ids.length ? [{ kind: "typed", at: branch.start + hidden, ids }] : []),
    ]);
  });
  return { text, path, sum: sumOf(tree.path().map(({ id }) => id)) };
}

/** @param {Branch} branch @param {number} length of what is kept of it @returns {Step} */
function writtenStep({ kind, start: at, tokens, how: { sampling = {}, off = [] } }, length) {
  const chosen = kind === "chosen" ? tokens[0].id : null;
  return { kind: "written", at, tokens: length - (chosen === null ? 0 : 1), chosen, sampling, off };
}

/** A checksum of ids. @param {number[]} ids */
export function sumOf(ids) {
  return crc32(new Uint8Array(Uint32Array.from(ids).buffer)).toString(RADIX);
}

/** Steps in the characters that an address leaves as they are: letters, digits and -_.* @param {Step[]} path */
export function writePath(path) {
  return path
    .map((step) => {
      if (step.kind === "begin") return "b";
      if (step.kind === "typed") return ["t", step.at, writeIds(step.ids)].join("*");
      const settings = SETTINGS.map((name) => step.sampling[name] ?? "");
      const off = step.off.map((head) => head.join(".")).join("-");
      const chosen = step.chosen === null ? "" : writeIds([step.chosen]);
      return ["w", step.at, step.tokens, chosen, off, ...settings].join("*");
    })
    .join("_");
}

/** @param {number[]} ids */
function writeIds(ids) {
  return ids.map((id) => id.toString(RADIX)).join("-");
}

/** The steps that `writePath` has written; null if the text is not whole. @param {string} text @returns {Step[] | null} */
export function readPath(text) {
  const path = text ? text.split("_").map(readStep) : [];
  return path.includes(null) ? null : /** @type {Step[]} */ (path);
}

/** @param {string} text @returns {Step | null} */
function readStep(text) {
  const [kind, ...fields] = text.split("*");
  if (kind === "b" && !fields.length) return { kind: "begin" };
  const at = whole(fields[0]);
  if (kind === "t" && fields.length === 2) {
    const ids = readIds(fields[1]);
    return at === null || !ids ? null : { kind: "typed", at, ids };
  }
  if (kind !== "w" || fields.length !== 4 + SETTINGS.length) return null;
  const [, count, first, heads, ...numbers] = fields;
  const tokens = whole(count);
  const chosen = first ? readIds(first) : [];
  const good = numbers.every((number) => !number || NUMBER.test(number));
  if (at === null || tokens === null || !chosen || !good || !/^(\d+\.\d+(-\d+\.\d+)*)?$/.test(heads)) return null;
  const settings = SETTINGS.flatMap((name, i) => (numbers[i] ? [[name, Number(numbers[i])]] : []));
  const off = heads ? heads.split("-").map((head) => /** @type {Head} */ (head.split(".").map(Number))) : [];
  return { kind: "written", at, tokens, chosen: chosen[0] ?? null, sampling: Object.fromEntries(settings), off };
}

/** @param {string | undefined} text */
function whole(text) {
  return text && /^\d{1,9}$/.test(text) ? Number(text) : null;
}

/** @param {string} text @returns {number[] | null} */
function readIds(text) {
  return /^[0-9a-z]{1,6}(-[0-9a-z]{1,6})*$/.test(text) ? text.split("-").map((id) => parseInt(id, RADIX)) : null;
}
