// Text to ids and back, as `jumok.tokenizers.Tokenizer`. The file is a tokenizer.json of Hugging Face; which of them can
// be read is in `jumok.view.page_tokenizer`, which Python asks before a page is written.

import { BytePairs } from "./byte_pairs.js";
import { EngineError } from "./errors.js";
import { TokenStream } from "./token_stream.js";
import { decodeUtf8, joinBytes } from "./utf8.js";

/** @typedef {"char" | "jamo" | "bpe" | "other"} Kind */

const NORMAL_FORMS = ["NFC", "NFD", "NFKC", "NFKD"];
const GPT2_PIECES = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const ROLES = /** @type {Record<string, string[]>} */ ({ pad: ["[PAD]", "<pad>"], mask: ["[MASK]", "<mask>"] });

/** The printable letter of each byte in byte-level pipelines (the table of GPT-2). */
function byteLetters() {
  let other = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte < 0xad) || byte >= 0xae;
    return String.fromCharCode(printable ? byte : other++);
  });
}

const BYTE_LETTERS = byteLetters();
const BYTE_OF_LETTER = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));

/**
 * A pattern of the `tokenizers` library (Oniguruma) as a regular expression of JavaScript. White space differs: \s there
 * is the Unicode property, with U+0085 and without U+FEFF. A group without regard to case is spelled out.
 * @param {string} pattern @returns {RegExp}
 */
export function translatePattern(pattern) {
  const spelled = pattern.replace(/\(\?i:([a-z'|]*)\)/g, (_, group) => `(?:${group.replace(/[a-z]/g, bothCases)})`);
  const replaced = spelled.replace(/\\[^]/g, (escape) => {
    if (escape === "\\s") return "\\p{White_Space}";
    if (escape === "\\S") return "\\P{White_Space}";
    return escape === "\\d" ? "\\p{Nd}" : escape;
  });
  return new RegExp(replaced, "gu");
}

/** A class of a letter in upper and lower case. @param {string} letter */
function bothCases(letter) {
  return `[${letter}${letter.toUpperCase()}${letter === "s" ? "\u017f" : ""}]`;
}

/** @param {any} json a part of a tokenizer.json, which may be a sequence of parts @returns {any[]} */
function partsOf(json) {
  if (!json) return [];
  return json.type === "Sequence" ? (json.normalizers ?? json.pretokenizers ?? []).flatMap(partsOf) : [json];
}

/** A tokenizer. */
export class Tokenizer {
  /**
   * @param {any} json the content of tokenizer.json.
   * @param {Kind} kind as `Tokenizer.kind` in Python.
   */
  constructor(json, kind) {
    this.kind = kind;
    /** @type {Map<string, number>} */
    const vocab = new Map(Object.entries(json.model.vocab));
    /** @type {{id: number, content: string, special: boolean}[]} */
    const added = json.added_tokens ?? [];
    for (const { id, content } of added) vocab.set(content, id);
    /** @type {Map<string, number>} the special tokens and their ids */
    this.specialTokens = new Map(added.filter(({ special }) => special).map(({ content, id }) => [content, id]));
    this.specialIds = new Set(this.specialTokens.values());
    this.vocabSize = [...vocab.values()].reduce((most, id) => Math.max(most, id), 0) + 1;
    this.spellsCharacters = kind === "char" || kind === "jamo";
    /** @type {string[]} the token of each id, as the file has it */
    this.tokens = new Array(this.vocabSize).fill("");
    for (const [token, id] of vocab) this.tokens[id] = token;
    const whole = new Set(added.map(({ id }) => id));
    this.bytes = this.tokens.map((token, id) => this._spelled(token, whole.has(id)));
    /** @type {string[]} */
    this.forms = partsOf(json.normalizer).map(({ type }) => type);
    if (!this.forms.every((form) => NORMAL_FORMS.includes(form))) throw unsupported(this.forms.join(", "));
    this.byteIds = (this.spellsCharacters ? BYTE_LETTERS.map((_, byte) => byteToken(byte)) : BYTE_LETTERS).map(
      (token) => vocab.get(token) ?? -1,
    );
    if (this.byteIds.includes(-1)) throw unsupported(json.model.type);
    /** @type {Map<string, number>} the ids of characters; none if the tokens are joined bytes */
    this.characters = new Map(this.spellsCharacters ? [...vocab].filter(([token]) => [...token].length === 1) : []);
    this.pairs = new BytePairs(vocab, json.model.merges ?? []);
    this.wholes = json.model.ignore_merges ? new Map([...vocab].filter(([, id]) => !whole.has(id))) : null;
    /** @type {{pattern: RegExp | null, prefix: boolean}[]} */
    this.cuts = partsOf(json.pre_tokenizer).map(cutOf);
    this.added = [...added].sort((a, b) => b.content.length - a.content.length);
  }

  /** @param {string} token @param {boolean} whole whether it is written as it is @returns {Uint8Array} */
  _spelled(token, whole) {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    if (!whole && this.spellsCharacters && byte) return Uint8Array.of(parseInt(byte[1], 16));
    const letters = Array.from(token, (letter) => BYTE_OF_LETTER.get(letter) ?? -1);
    if (!whole && !this.spellsCharacters && !letters.includes(-1)) return Uint8Array.from(letters);
    return new TextEncoder().encode(token);
  }

  /**
   * The ids of a text, without special tokens around it.
   * @param {string} text
   * @param {boolean} [ordinary] added tokens in the text, such as "[MASK]", are ordinary characters; in a prompt that
   * depends on the model, see `Tokenizer.encode_prompt` in Python.
   * @returns {number[]}
   */
  encode(text, ordinary = this.kind !== "other") {
    const at = loneSurrogate(text);
    if (at >= 0) throw new EngineError("engine.surrogate", { position: at });
    /** @type {number[]} */
    const ids = [];
    for (const { part, id } of ordinary ? [{ part: text, id: null }] : this._outside(text)) {
      if (id !== null) ids.push(id);
      else if (part) this._encodePart(this.normalised(part), ids);
    }
    return ids;
  }

  /** A text in the normal form of the tokenizer. @param {string} text */
  normalised(text) {
    return this.forms.reduce((found, form) => found.normalize(form), text);
  }

  /**
   * The parts of a text between added tokens.
   * @param {string} text @returns {{part: string, id: number | null}[]}
   */
  _outside(text) {
    const parts = [];
    let from = 0;
    for (let at = 0; at < text.length && this.added.length;) {
      const here = at;
      const token = this.added.find(({ content }) => text.startsWith(content, here));
      if (token) {
        parts.push({ part: text.slice(from, at), id: null }, { part: "", id: token.id });
        at += token.content.length;
        from = at;
      } else at += 1;
    }
    parts.push({ part: text.slice(from), id: null });
    return parts;
  }

  /** @param {string} text normalised @param {number[]} ids are added here */
  _encodePart(text, ids) {
    const encoder = new TextEncoder();
    if (this.spellsCharacters) {
      for (const character of text) {
        const id = this.characters.get(character);
        if (id !== undefined) ids.push(id);
        else for (const byte of encoder.encode(character)) ids.push(this.byteIds[byte]);
      }
      return;
    }
    let pieces = [text];
    for (const { pattern, prefix } of this.cuts) {
      pieces = pieces.flatMap((piece) => {
        const given = prefix && !piece.startsWith(" ") ? ` ${piece}` : piece;
        return pattern ? cutAt(given, pattern) : [given];
      });
    }
    for (const piece of pieces) {
      const bytes = encoder.encode(piece);
      const known = this.wholes?.get(Array.from(bytes, (byte) => BYTE_LETTERS[byte]).join(""));
      if (known !== undefined) ids.push(known);
      else for (const id of this.pairs.join(Array.from(bytes, (byte) => this.byteIds[byte]))) ids.push(id);
    }
  }

  /** The bytes of each id. @param {number[]} ids @returns {Uint8Array[]} */
  bytesOf(ids) {
    return ids.map((id) => {
      if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize) {
        throw new EngineError("engine.id", { id, last: this.vocabSize - 1 });
      }
      return this.bytes[id];
    });
  }

  /** The text of ids, special tokens included; U+FFFD for bytes that are no character. @param {number[]} ids */
  decode(ids) {
    const text = decodeUtf8(joinBytes(this.bytesOf(ids)));
    return this.kind === "jamo" ? text.normalize("NFC") : text;
  }

  /** As `decode`, without a last character whose bytes are not complete. @param {number[]} ids */
  decodeWhole(ids) {
    const stream = this.stream();
    const pushed = ids.map((id) => stream.push(id)).join("");
    return pushed + stream.finish();
  }

  /** An incremental decoder for one text. */
  stream() {
    return new TokenStream((id) => this.bytesOf([id])[0], this.kind === "jamo");
  }

  /**
   * The id of the first of the usual names of a role that the tokenizer has, and that name; null: none.
   * @param {"pad" | "mask"} role @returns {{id: number, name: string} | null}
   */
  role(role) {
    const name = ROLES[role].find((one) => this.specialTokens.has(one));
    return name === undefined ? null : { id: this.specialTokens.get(name) ?? 0, name };
  }
}

/** @param {number} byte */
function byteToken(byte) {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/** @param {string} what */
function unsupported(what) {
  return new EngineError("engine.tokenizer", { what });
}

/** How a pre-tokenizer cuts a text. @param {any} json @returns {{pattern: RegExp | null, prefix: boolean}} */
function cutOf(json) {
  if (json.type === "ByteLevel") {
    const uses = json.use_regex ?? true;
    return { pattern: uses ? translatePattern(GPT2_PIECES) : null, prefix: json.add_prefix_space };
  }
  if (json.type === "Split" && json.behavior === "Isolated" && !json.invert && json.pattern.Regex !== undefined) {
    return { pattern: translatePattern(json.pattern.Regex), prefix: false };
  }
  throw unsupported(json.type);
}

/** The parts of a text that match, and those between them. @param {string} text @param {RegExp} pattern */
function cutAt(text, pattern) {
  const parts = [];
  let from = 0;
  for (const { 0: part, index } of text.matchAll(pattern)) {
    if (index > from) parts.push(text.slice(from, index));
    if (part) parts.push(part);
    from = index + part.length;
  }
  if (from < text.length) parts.push(text.slice(from));
  return parts;
}

/** Where half of a surrogate pair stands in a text, counted in characters; -1: nowhere. @param {string} text */
function loneSurrogate(text) {
  if (!/[\ud800-\udfff]/.test(text)) return -1;
  let place = 0;
  for (const character of text) {
    if (character >= "\ud800" && character <= "\udfff" && character.length === 1) return place;
    place += 1;
  }
  return -1;
}
