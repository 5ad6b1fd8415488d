// Tokens as a person can read them, and where they stand in the text: as `jumok.view.token_text`. Places are code points
// of the text, as in a trace.

import { startsAnew } from "./boundaries.js";
import { isJamo, isSyllable } from "./hangul.js";
import { joinBytes, utf8Characters } from "./utf8.js";
import { hexBytes, visible, visibleBytes } from "./visible.js";

/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {{id: number, text: string, piece: string, start: number, stop: number, special: boolean}} Piece */
/** @typedef {{text: string, tokens: Piece[]}} Pieces */
/** @typedef {[number, number]} Place */

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
    const { text, places } = this.places(ids);
    const tokens = ids.map((id, i) => ({
      id,
      text: this.name(id),
      piece: readable(this.tokenizer.bytesOf([id])[0]),
      start: places[i][0],
      stop: places[i][1],
      special: this.tokenizer.specialIds.has(id),
    }));
    return { text: text.join(""), tokens };
  }

  /**
   * The characters that ids spell, and for each id the characters that it is a part of.
   * @param {number[]} ids @param {boolean} [shown] special tokens have characters, too
   */
  places(ids, shown = false) {
    /** @type {string[]} */
    const text = [];
    /** @type {Place[]} */
    const places = [];
    const { specialIds } = this.tokenizer;
    for (let from = 0; from < ids.length;) {
      const special = specialIds.has(ids[from]);
      let to = from + 1;
      while (to < ids.length && specialIds.has(ids[to]) === special) to += 1;
      const part = ids.slice(from, to);
      if (special) {
        for (const id of part) {
          const start = text.length;
          if (shown) text.push(...this.tokenizer.tokens[id]);
          places.push([start, text.length]);
        }
      } else {
        const spelled = this._spelled(part);
        const offset = text.length;
        for (const [start, stop] of spelled.places) places.push([offset + start, offset + stop]);
        for (const character of spelled.text) text.push(character);
      }
      from = to;
    }
    return { text, places };
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
