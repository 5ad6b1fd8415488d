// Which tokens make a character or a word. A character comes with its marks; a word is what stands between blanks, with
// the blank before it. Tokens that share a character belong together, in both.

import { isBlank } from "../model/boundaries.js";
import { isJamo, isSyllable } from "../model/hangul.js";
import { REPLACED } from "../model/utf8.js";
import { visible } from "../model/visible.js";

/** @typedef {import("./trace.js").TokenJson} TokenJson */
/** @typedef {{numbers: number[], texts: string[]}} Groups the number of the group of each token, and what to show for each */

const JOINER = "\u200d"; // makes one picture of several
const LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029";
const MARK = /^\p{M}/u;
const LEAD = /^[\u1100-\u115f\ua960-\ua97c]/u;
const OLD_TAIL = /^[\u11c3-\u11ff\ud7cb-\ud7fb]/u;

/**
 * The groups of tokens; null where each token is a group of its own.
 * @param {string} text what the tokens spell @param {TokenJson[]} tokens @param {"character"|"word"} kind
 * @returns {Groups | null}
 */
export function groupTokens(text, tokens, kind) {
  const characters = [...text];
  const units = kind === "word" ? wordsOf(characters) : charactersOf(characters);
  const numbers = grouped(tokens, units);
  if (numbers.every((number, i) => number === i)) return null;
  return { numbers, texts: groupTexts(tokens, numbers, characters, kind === "word") };
}

/** The number of the character, with its marks, that each code point is a part of. @param {string[]} text */
function charactersOf(text) {
  /** @type {number[]} */
  const numbers = [];
  let syllable = false; // an old one, which Unicode has no single character for
  text.forEach((character, i) => {
    const leads = LEAD.test(character);
    const behind = i > 0 && isSyllable(text[i - 1]);
    const old = syllable ? isJamo(character) && !leads : behind && OLD_TAIL.test(character);
    const joined = MARK.test(character) || old || character === JOINER || text[i - 1] === JOINER;
    const joins = i > 0 && joined;
    numbers.push((i ? numbers[i - 1] : -1) + (joins ? 0 : 1));
    syllable = leads || (joins && syllable);
  });
  return numbers;
}

/**
 * The number of the word that each code point is a part of; line ends stand alone, blanks with what follows.
 * @param {string[]} text
 */
function wordsOf(text) {
  /** @type {number[]} */
  const numbers = [];
  let before = "";
  text.forEach((character, i) => {
    const kind = LINE_ENDS.includes(character) ? "line end" : isBlank(character) ? "blank" : "word";
    const anew = kind !== before && !(kind === "word" && before === "blank");
    numbers.push((i ? numbers[i - 1] : -1) + (anew ? 1 : 0));
    before = kind;
  });
  return numbers;
}

/**
 * The number of the group of each token: tokens that share a unit, one with the next, are one group.
 * @param {TokenJson[]} tokens @param {number[]} units
 */
function grouped(tokens, units) {
  /** @type {number[]} */
  const groups = [];
  let last = -1; // the last unit of the group so far
  tokens.forEach((token, i) => {
    const spells = token.start < token.stop; // a token that does not, goes with the one before it
    const anew = spells ? units[token.start] > last : token.special || last < 0;
    groups.push((i ? groups[i - 1] : -1) + (anew ? 1 : 0));
    if (token.special) last = -1;
    else if (spells) last = Math.max(last, units[token.stop - 1]);
  });
  return groups;
}

/**
 * What to show for each group.
 * @param {TokenJson[]} tokens @param {number[]} groups @param {string[]} text @param {boolean} isWord
 */
function groupTexts(tokens, groups, text, isWord) {
  const shown = [];
  for (let from = 0; from < tokens.length;) {
    let to = from + 1;
    while (to < tokens.length && groups[to] === groups[from]) to += 1;
    const inside = tokens.slice(from, to);
    const covered = text.slice(inside[0].start, Math.max(...inside.map(({ stop }) => stop))).join("");
    if (!covered || covered.includes(REPLACED)) shown.push(inside.map((token) => token.text).join(""));
    else shown.push(visible(isWord ? covered.replace(/^ +| +$/g, "") || covered : covered));
    from = to;
  }
  return shown;
}
