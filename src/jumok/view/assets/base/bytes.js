// Numbers as a page carries them: base64 of the raw deflate format, and half-precision floats.

const CHUNK = 1 << 20; // characters of base64, a multiple of four

/** @param {string} text in base64 @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  const signs = text.trim();
  const native = /** @type {{fromBase64?: (text: string) => Uint8Array<ArrayBuffer>}} */ (Uint8Array).fromBase64;
  if (native) return native.call(Uint8Array, signs);
  const padding = signs.endsWith("==") ? 2 : signs.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array((signs.length / 4) * 3 - padding);
  for (let start = 0, place = 0; start < signs.length; start += CHUNK) {
    const part = atob(signs.slice(start, start + CHUNK));
    for (let i = 0; i < part.length; i++) bytes[place++] = part.charCodeAt(i);
  }
  return bytes;
}

/** @param {Uint8Array<ArrayBuffer>} packed @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function inflate(packed) {
  // Not by way of a Blob: WebKit cannot read one in a worker of a page that was opened from disk.
  const { readable, writable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  const written = writer.write(packed).then(() => writer.close());
  const [bytes] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(bytes);
}

/** The value of one half-precision number, given its sixteen bits. @param {number} bits */
export function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
