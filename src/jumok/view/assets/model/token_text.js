// @ts-check
// Tokens as a person can read them, where they stand in the text, and which of them make a character or a word: as
// `jumok.view.token_text`. Places are code points of the text, as in a trace.

import { isBlank, startsAnew } from "./boundaries.js";
import { joinBytes, REPLACED, utf8Characters } from "./utf8.js";

/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {{id: number, text: string, piece: string, start: number, stop: number, special: boolean}} Piece */
/** @typedef {{text: string, tokens: Piece[], groups: Record<string, number[]>, group_texts: Record<string, string[]>}} Pieces */
/** @typedef {[number, number]} Place */

const LEADS = [..."ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"];
const VOWELS = [..."ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"];
const TAILS = [..."ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"];
const JAMO = new Map([
  ...LEADS.map((letter, i) => /** @type {[number, string]} */ ([0x1100 + i, letter])),
  ...VOWELS.map((letter, i) => /** @type {[number, string]} */ ([0x1161 + i, letter])),
  ...TAILS.map((letter, i) => /** @type {[number, string]} */ ([0x11a8 + i, letter])),
  [0x119e, "ㆍ"],
  [0x11a1, "ㆎ"],
  [0x11d9, "ㅭ"],
  [0x11eb, "ㅿ"],
  [0x11f0, "ㆁ"],
  [0x11f9, "ㆆ"],
]); // conjoining letters, which stand badly alone, as the letters people type

const JOINER = "\u200d"; // makes one picture of several
const EMPTY = "∅"; // a token that stands for nothing
const LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029";
const SIGNS = new Map([
  ...Array.from({ length: 32 }, (_, code) => /** @type {[string, string]} */ ([chr(code), chr(0x2400 + code)])),
  [" ", "␣"],
  ["\n", "⏎"],
  ["\t", "⇥"],
  ["\x7f", "␡"],
]);
const MARK = /^\p{M}/u;
const INVISIBLE = /^[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;
const OLD_SYLLABLES =
  /([\u1100-\u115e\ua960-\ua97c]+[\u1161-\u11a7\ud7b0-\ud7c6]+[\u11a8-\u11ff\ud7cb-\ud7fb]*|[\uac00-\ud7a3][\u11c3-\u11ff\ud7cb-\ud7fb]+)/u;
const LEAD = /^[\u1100-\u115f\ua960-\ua97c]/u;
const OLD_TAIL = /^[\u11c3-\u11ff\ud7cb-\ud7fb]/u;

/** @param {number} code */
function chr(code) {
  return String.fromCodePoint(code);
}

/** Makes ids of one tokenizer readable. */
export class TokenNames {
  /** @param {Tokenizer} tokenizer */
  constructor(tokenizer) {
    this.tokenizer = tokenizer;
    /** @type {Map<number, string>} */
    this.names = new Map();
  }

  /** What to show for one token, alone. @param {number} id @returns {string} */
  name(id) {
    let name = this.names.get(id);
    if (name === undefined) {
      const { tokenizer } = this;
      name = tokenizer.specialIds.has(id) ? visible(tokenizer.tokens[id]) : visibleBytes(tokenizer.bytesOf([id])[0]);
      this.names.set(id, name);
    }
    return name;
  }

  /** The tokens of a text, from their ids. @param {number[]} ids @returns {Pieces} */
  read(ids) {
    const { text, places, fresh } = this.places(ids);
    const tokens = ids.map((id, i) => ({
      id,
      text: this.name(id),
      piece: readable(this.tokenizer.bytesOf([id])[0]),
      start: places[i][0],
      stop: places[i][1],
      special: this.tokenizer.specialIds.has(id),
    }));
    /** @type {Pieces} */
    const found = { text: text.join(""), tokens, groups: {}, group_texts: {} };
    for (const kind of ["character", "word"]) {
      const group = grouped(tokens, kind === "word" ? wordsOf(text, fresh) : charactersOf(text, fresh));
      if (group.every((number, i) => number === i)) continue;
      found.groups[kind] = group;
      found.group_texts[kind] = groupTexts(tokens, group, text, kind === "word");
    }
    return found;
  }

  /**
   * The characters that ids spell, without special tokens; for each id the characters that it is a part of; and the
   * characters that begin behind a special token.
   * @param {number[]} ids
   */
  places(ids) {
    /** @type {string[]} */
    const text = [];
    /** @type {Place[]} */
    const places = [];
    const fresh = new Set();
    const { specialIds } = this.tokenizer;
    for (let from = 0; from < ids.length;) {
      const special = specialIds.has(ids[from]);
      let to = from + 1;
      while (to < ids.length && specialIds.has(ids[to]) === special) to += 1;
      const part = ids.slice(from, to);
      fresh.add(text.length);
      if (special) part.forEach(() => places.push([text.length, text.length]));
      else {
        const spelled = this._spelled(part);
        const offset = text.length;
        for (const [start, stop] of spelled.places) places.push([offset + start, offset + stop]);
        for (const character of spelled.text) text.push(character);
      }
      from = to;
    }
    return { text, places, fresh };
  }

  /** The characters of ids without special tokens, and for each id those that it is a part of. @param {number[]} ids */
  _spelled(ids) {
    const spelled = this.tokenizer.bytesOf(ids);
    const characters = utf8Characters(joinBytes(spelled));
    const { text, owners } = composed(
      characters.map((one) => one.text),
      this.tokenizer.kind === "jamo",
    );
    /** @type {Place[]} */
    const ofByte = characters.flatMap(({ length }, i) => Array.from({ length }, () => owners[i]));
    /** @type {Place[]} */
    const places = [];
    let at = 0;
    for (const { length } of spelled) {
      const end = places.length ? places[places.length - 1][1] : 0;
      places.push(length ? [ofByte[at][0], ofByte[at + length - 1][1]] : [end, end]);
      at += length;
    }
    return { text, places };
  }
}

/**
 * Text in which everything can be seen, on one line, in the order in which it is written; never empty.
 * @param {string} text @returns {string}
 */
export function visible(text) {
  return visibleBytes(new TextEncoder().encode(text));
}

/** As `visible`, of bytes; one that is part of no whole character is <EA>. @param {Uint8Array} bytes */
function visibleBytes(bytes) {
  let shown = "";
  let text = "";
  let at = 0;
  for (const character of utf8Characters(bytes)) {
    if (character.broken) {
      shown += signsOf(text) + hexBytes(bytes.subarray(at, at + character.length));
      text = "";
    } else text += character.text;
    at += character.length;
  }
  shown += signsOf(text);
  if (!shown) return EMPTY;
  return MARK.test(shown) ? `◌${shown}` : shown;
}

/**
 * The name of a token, as the tokenizer of Python has it: its text, <EA> for a byte that is no whole character.
 * @param {Uint8Array} bytes
 */
function readable(bytes) {
  let at = 0;
  return utf8Characters(bytes)
    .map(({ text, length, broken }) => {
      at += length;
      return broken ? hexBytes(bytes.subarray(at - length, at)) : text;
    })
    .join("");
}

/** @param {string} text */
function signsOf(text) {
  // Each second part is an old syllable: its letters belong together as they are.
  const parts = text.split(OLD_SYLLABLES);
  return parts.map((part, i) => (i % 2 ? part : Array.from(part, signOf).join(""))).join("");
}

/** @param {string} character */
function signOf(character) {
  const code = character.codePointAt(0) ?? 0;
  const known = SIGNS.get(character) ?? JAMO.get(code);
  if (known !== undefined) return known;
  return INVISIBLE.test(character) ? `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩` : character;
}

/** @param {Uint8Array} bytes */
function hexBytes(bytes) {
  return Array.from(bytes, (byte) => `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}

/**
 * The characters that some make together, and for each the place that it went into.
 * @param {string[]} characters @param {boolean} composes @returns {{text: string[], owners: Place[]}}
 */
function composed(characters, composes) {
  if (!composes) return { text: characters, owners: characters.map((_, i) => [i, i + 1]) };
  /** @type {string[]} */
  const text = [];
  /** @type {Place[]} */
  const owners = [];
  let start = 0;
  for (let stop = 1; stop <= characters.length; stop += 1) {
    if (stop < characters.length && composesAt(characters, stop)) continue;
    const found = [...characters.slice(start, stop).join("").normalize("NFC")];
    for (let i = start; i < stop; i += 1) owners.push([text.length, text.length + found.length]);
    text.push(...found);
    start = stop;
  }
  return { text, owners };
}

/**
 * Whether the character at a place may become one with what stands before it.
 * @param {string[]} characters @param {number} at @returns {boolean}
 */
function composesAt(characters, at) {
  const [before, here] = [characters[at - 1], characters[at]];
  if (here >= "\u1161" && here <= "\u1175") return before >= "\u1100" && before <= "\u1112";
  if (here >= "\u11a8" && here <= "\u11c2") {
    const open = isSyllable(before) && (before.charCodeAt(0) - 0xac00) % 28 === 0;
    return open || (before >= "\u1161" && before <= "\u1175" && at > 1 && composesAt(characters, at - 1));
  }
  return !startsAnew(here) && !isJamo(here);
}

/** @param {string} character */
function isSyllable(character) {
  return character >= "\uac00" && character <= "\ud7a3";
}

/** @param {string} character */
function isJamo(character) {
  return /^[\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]/u.test(character);
}

/**
 * The number of the character, with its marks, that each code point is a part of.
 * @param {string[]} text @param {Set<number>} fresh
 */
function charactersOf(text, fresh) {
  /** @type {number[]} */
  const numbers = [];
  let syllable = false; // an old one, which Unicode has no single character for
  text.forEach((character, i) => {
    const leads = LEAD.test(character);
    const behind = i > 0 && isSyllable(text[i - 1]);
    const old = syllable ? isJamo(character) && !leads : behind && OLD_TAIL.test(character);
    const joined = MARK.test(character) || old || character === JOINER || text[i - 1] === JOINER;
    const joins = i > 0 && !fresh.has(i) && joined;
    numbers.push((i ? numbers[i - 1] : -1) + (joins ? 0 : 1));
    syllable = leads || (joins && syllable);
  });
  return numbers;
}

/**
 * The number of the word that each code point is a part of; line ends stand alone, blanks with what follows.
 * @param {string[]} text @param {Set<number>} fresh
 */
function wordsOf(text, fresh = new Set()) {
  /** @type {number[]} */
  const numbers = [];
  let before = "";
  text.forEach((character, i) => {
    const kind = LINE_ENDS.includes(character) ? "line end" : isBlank(character) ? "blank" : "word";
    const anew = fresh.has(i) || (kind !== before && !(kind === "word" && before === "blank"));
    numbers.push((i ? numbers[i - 1] : -1) + (anew ? 1 : 0));
    before = kind;
  });
  return numbers;
}

/**
 * The number of the group of each token: tokens that share a unit, one with the next, are one group.
 * @param {Piece[]} tokens @param {number[]} units
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
 * @param {Piece[]} tokens @param {number[]} groups @param {string[]} text @param {boolean} isWord
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
