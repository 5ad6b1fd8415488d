// The state that a link carries (location.hash): the text and how it came about, the sliders, what is switched off.

import { readPath, writePath } from "./path.js";

/** @import { Sampling, Head } from "./engine_types.js" */

/**
 * @typedef {object} State
 * @property {string} [view]
 * @property {string} [language]
 * @property {string} [theme]
 * @property {string} [text] the prompt.
 * @property {number} [tokens] to write at once.
 * @property {import("./path.js").Step[]} [path] how the text goes on after the prompt.
 * @property {string} [sum] a checksum of the ids of the whole text.
 * @property {boolean} [cut] whether the text was too long for an address, and is missing.
 * @property {Sampling} [sampling] of the sliders.
 * @property {Head[]} [off]
 */

const LONGEST = 30_000; // characters: programs cut longer addresses
const MOST_TOKENS = 2000;
const MOST_HEADS = 256;

/** @type {[keyof Sampling, string, number, number][]} field, name in the link, least, most */
const NUMBERS = [
  ["temperature", "t", 0, 100],
  ["top_k", "k", 0, 1e6],
  ["top_p", "p", 1e-6, 1],
  ["min_p", "m", 0, 1],
  ["repetition_penalty", "r", 0.01, 100],
  ["seed", "seed", 0, 2 ** 31],
];

/**
 * A link without the #. If the text does not fit, it is left out whole, and the link says so by `cut`.
 * @param {State} state @returns {string}
 */
export function writeState(state) {
  const { view, language, theme, text, tokens, path, sum, cut, sampling = {}, off = [] } = state;
  const link = new URLSearchParams();
  if (view) link.set("view", view);
  if (language) link.set("lang", language);
  if (theme && theme !== "auto") link.set("theme", theme);
  if (cut) link.set("cut", "1");
  if (sum) link.set("sum", sum); // before the text, so that a link that was cut off still has it
  for (const [field, name] of NUMBERS) {
    const value = sampling[field];
    if (value !== undefined && value !== null) link.set(name, String(value));
  }
  if (off.length) link.set("off", off.map((head) => head.join(".")).join("_"));
  if (tokens) link.set("n", String(tokens));
  if (text !== undefined) link.set("text", text);
  if (path?.length) link.set("path", writePath(path));
  const written = link.toString();
  if (written.length <= LONGEST || cut) return written;
  return writeState({ ...state, text: undefined, path: undefined, sum: undefined, cut: true });
}

/** What a link says; what makes no sense in it is left out. @param {string} hash @returns {State} */
export function readState(hash) {
  const link = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {State} */
  const state = {};
  const view = link.get("view");
  if (view && /^[a-z]{1,20}$/.test(view)) state.view = view;
  const [language, theme] = [link.get("lang"), link.get("theme")];
  if (language === "ko" || language === "en") state.language = language;
  if (theme === "light" || theme === "dark") state.theme = theme;
  const [text, path, sum] = ["text", "path", "sum"].map((name) => link.get(name));
  if (text !== null) state.text = text;
  if (sum) state.sum = sum;
  if (path !== null) state.path = readPath(path) ?? []; // of a damaged one, the checksum will differ
  if (link.has("cut")) state.cut = true;
  const tokens = number(link.get("n"), 1, MOST_TOKENS);
  if (tokens !== undefined) state.tokens = Math.round(tokens);
  /** @type {Sampling} */
  const sampling = {};
  for (const [field, name, least, most] of NUMBERS) {
    const value = number(link.get(name), least, most);
    if (value !== undefined) sampling[field] = field === "top_k" || field === "seed" ? Math.round(value) : value;
  }
  if (Object.keys(sampling).length) state.sampling = sampling;
  const off = link.get("off") ?? "";
  if (/^\d{1,3}\.\d{1,3}(_\d{1,3}\.\d{1,3})*$/.test(off)) {
    const heads = off.split("_").slice(0, MOST_HEADS);
    state.off = heads.map((head) => /** @type {Head} */ (head.split(".").map(Number)));
  }
  return state;
}

/** @param {string | null} text @param {number} least @param {number} most @returns {number | undefined} */
function number(text, least, most) {
  if (!text || !/^\d+(\.\d+)?(e-?\d+)?$/.test(text)) return undefined;
  const value = Number(text);
  return value >= least && value <= most ? value : undefined;
}
