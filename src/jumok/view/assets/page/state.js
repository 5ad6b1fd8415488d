// The state that a link carries (location.hash): the prompt, how the text is drawn, what is switched off.

/** @import { Sampling, Head } from "./engine_types.js" */

/**
 * @typedef {object} State
 * @property {string} [view]
 * @property {string} [language]
 * @property {string} [theme]
 * @property {string} [text] the prompt.
 * @property {number} [tokens] to write at once.
 * @property {Sampling} [sampling]
 * @property {Head[]} [off]
 */

const LONGEST_TEXT = 2000; // characters: browsers cut longer addresses
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

/** @param {State} state @returns {string} without the #. */
export function writeState({ view, language, theme, text, tokens, sampling = {}, off = [] }) {
  const link = new URLSearchParams();
  if (view) link.set("view", view);
  if (language) link.set("lang", language);
  if (theme && theme !== "auto") link.set("theme", theme);
  if (text) link.set("text", [...text].slice(0, LONGEST_TEXT).join(""));
  if (tokens) link.set("n", String(tokens));
  for (const [field, name] of NUMBERS) {
    const value = sampling[field];
    if (value !== undefined && value !== null) link.set(name, String(Number(value.toPrecision(6))));
  }
  if (off.length) link.set("off", off.map((head) => head.join(".")).join("_"));
  return link.toString();
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
  const text = link.get("text");
  if (text) state.text = [...text].slice(0, LONGEST_TEXT).join("");
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
