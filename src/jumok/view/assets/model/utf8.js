// Bytes and characters, as `bytes.decode` of Python has them.

/** What stands in a text for bytes that are no character. */
export const REPLACED = "\ufffd";

/**
 * How many continuation bytes follow a first byte, and the range of the first of them (The Unicode Standard, table 3-7).
 * @param {number} first
 * @returns {[number, number, number]} 0 continuation bytes for a byte that begins no character of several
 */
function continuation(first) {
  if (first >= 0xc2 && first <= 0xdf) return [1, 0x80, 0xbf];
  if (first >= 0xe0 && first <= 0xef) return [2, first === 0xe0 ? 0xa0 : 0x80, first === 0xed ? 0x9f : 0xbf];
  if (first >= 0xf0 && first <= 0xf4) return [3, first === 0xf0 ? 0x90 : 0x80, first === 0xf4 ? 0x8f : 0xbf];
  return [0, 0, 0];
}

/**
 * Each character of some bytes and the number of its bytes; U+FFFD, and `broken`, for each longest part that begins a
 * character and does not end it, and for each other byte.
 * @param {Uint8Array} bytes @returns {{text: string, length: number, broken: boolean}[]}
 */
export function utf8Characters(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length;) {
    const first = bytes[at];
    const [count, least, most] = continuation(first);
    let length = 1;
    let code = count ? first & (0x3f >> count) : first;
    while (length <= count && at + length < bytes.length) {
      const byte = bytes[at + length];
      if (byte < (length === 1 ? least : 0x80) || byte > (length === 1 ? most : 0xbf)) break;
      code = (code << 6) | (byte & 0x3f);
      length += 1;
    }
    const broken = count ? length <= count : first >= 0x80;
    found.push({ text: broken ? REPLACED : String.fromCodePoint(code), length, broken });
    at += length;
  }
  return found;
}

/**
 * How many of the last bytes may begin a character that goes on. Half of a surrogate pair is known to be no character
 * after its second byte; the decoder of Python waits for the third, and so does this.
 * @param {Uint8Array} bytes
 */
export function incompleteEnd(bytes) {
  const { length } = bytes;
  if (length > 1 && bytes[length - 2] === 0xed && bytes[length - 1] >= 0xa0 && bytes[length - 1] < 0xc0) return 2;
  const last = utf8Characters(bytes.subarray(Math.max(0, length - 3))).pop();
  return last?.broken && continuation(bytes[length - last.length])[0] ? last.length : 0;
}

/** The text of bytes, U+FFFD for those that are no character. @param {Uint8Array} bytes */
export function decodeUtf8(bytes) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** @param {Uint8Array[]} parts @returns {Uint8Array} */
export function joinBytes(parts) {
  const joined = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** A text without the U+FFFD at its end. @param {string} text */
export function withoutReplaced(text) {
  let end = text.length;
  while (text[end - 1] === REPLACED) end -= 1;
  return text.slice(0, end);
}
