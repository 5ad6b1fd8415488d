// @ts-check
// The answers of a beam search as a tree: what several begin with stands once, and branches where they part.

import { element } from "../base/controls.js";
import { decimal, percent, t } from "../base/words.js";

/** @typedef {{text: string, ids: number[], score: number, finish: "stop" | "length"}} Answer */
/**
 * A part of one or more answers.
 * @typedef {object} Node
 * @property {string} text
 * @property {number} probability of all answers that go on from here.
 * @property {boolean} best whether the best answer is one of them.
 * @property {Answer | null} answer that ends here.
 * @property {Node[]} children
 */
/** @typedef {{answer: Answer, best: boolean, rest: string[]}} Path the characters that are not in the tree yet */

const END = "∎"; // of an answer with which a longer one begins

/**
 * The trees of some answers, one for each first character.
 * @param {Answer[]} answers the best first.
 * @returns {Node[]}
 */
export function beamTrees(answers) {
  return branched(answers.map((answer, i) => ({ answer, best: i === 0, rest: Array.from(answer.text) })));
}

/** @param {Path[]} paths @returns {Node[]} */
function branched(paths) {
  /** @type {Map<string, Path[]>} */
  const groups = new Map();
  paths.forEach((path, i) => {
    const key = path.rest[0] ?? `${END}${i}`; // two answers with one text, of other tokens, stay two
    groups.set(key, [...(groups.get(key) ?? []), path]);
  });
  return Array.from(groups.values(), nodeOf);
}

/** @param {Path[]} paths that begin alike @returns {Node} */
function nodeOf(paths) {
  const [{ rest: first, answer }] = paths;
  let shared = 0;
  while (shared < first.length && paths.every(({ rest }) => rest[shared] === first[shared])) shared += 1;
  const single = paths.length === 1;
  return {
    text: first.slice(0, shared).join(""),
    probability: paths.reduce((sum, path) => sum + probabilityOf(path.answer), 0),
    best: paths.some(({ best }) => best),
    answer: single ? answer : null,
    children: single ? [] : branched(paths.map((path) => ({ ...path, rest: path.rest.slice(shared) }))),
  };
}

/** The probability of all tokens of an answer together. @param {Answer} answer */
export function probabilityOf({ score, ids }) {
  return Math.exp(score * ids.length);
}

/** @param {Node[]} nodes @returns {HTMLElement} nested lists */
export function beamList(nodes) {
  return element(
    "ul",
    {},
    nodes.map(({ text, probability, best, answer, children }) =>
      element("li", { class: [best ? "on" : "", answer ? "beam-end" : ""].join(" ").trim() || null }, [
        element("span", { class: "beam-text", text: text.trim() ? text : text ? "␣".repeat(text.length) : END }),
        element("span", { class: "figures", text: percent(probability) }),
        answer ? element("span", { class: "figures", text: figuresOf(answer) }) : null,
        children.length ? beamList(children) : null,
      ]),
    ),
  );
}

/** @param {Answer} answer */
function figuresOf({ score, finish }) {
  const parts = [t("answer.score", { n: decimal(score, 2) }), finish === "length" ? t("answer.unfinished") : null];
  return parts.filter(Boolean).join(" · ");
}
