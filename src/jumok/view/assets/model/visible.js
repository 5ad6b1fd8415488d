// Text and bytes in which everything can be seen: as `jumok.view.token_text.visible`.

import { utf8Characters } from "./utf8.js";

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

const EMPTY = "∅"; // a token that stands for nothing
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

/** @param {number} code */
function chr(code) {
  return String.fromCodePoint(code);
}

/**
 * Text in which everything can be seen, on one line, in the order in which it is written; never empty.
 * @param {string} text @returns {string}
 */
export function visible(text) {
  return visibleBytes(new TextEncoder().encode(text));
}

/** As `visible`, of bytes; one that is part of no whole character is <EA>. @param {Uint8Array} bytes */
export function visibleBytes(bytes) {
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
export function hexBytes(bytes) {
  return Array.from(bytes, (byte) => `<${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}
