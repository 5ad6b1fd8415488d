// Incremental decoding, as `jumok.tokenizers.Stream`.

import { isSettled, lastFreshStart } from "./boundaries.js";
import { decodeUtf8, incompleteEnd, joinBytes, withoutReplaced } from "./utf8.js";

/** Ids, one at a time, to text that is final. A character with missing bytes, and a syllable that may go on, wait. */
export class TokenStream {
  /** @param {(id: number) => Uint8Array} bytesOf @param {boolean} composes whether the text is composed (jamo) */
  constructor(bytesOf, composes) {
    this.bytesOf = bytesOf;
    this.composes = composes;
    this.pending = new Uint8Array(0); // bytes of a character that is not complete
    this.held = ""; // decomposed text whose last character may still change
  }

  /** Add one id and return the text that is now final, often "". @param {number} id @returns {string} */
  push(id) {
    const bytes = joinBytes([this.pending, this.bytesOf(id)]);
    const end = bytes.length - incompleteEnd(bytes);
    this.pending = bytes.slice(end);
    const text = decodeUtf8(bytes.subarray(0, end));
    if (!this.composes || !text) return text;
    const characters = [...text];
    const cut = isSettled(characters[characters.length - 1]) ? characters.length : lastFreshStart(characters);
    if (cut < 0) {
      this.held += text;
      return "";
    }
    const final = this.held + characters.slice(0, cut).join("");
    this.held = characters.slice(cut).join("");
    return final.normalize("NFC");
  }

  /** End the text: return what was held back, U+FFFD for a character that is not complete. @returns {string} */
  flush() {
    const text = this.held + decodeUtf8(this.pending);
    this.held = "";
    this.pending = new Uint8Array(0);
    return this.composes ? text.normalize("NFC") : text;
  }

  /** As `flush`, without a last character whose bytes are not complete. @returns {string} */
  finish() {
    return withoutReplaced(this.flush());
  }
}
