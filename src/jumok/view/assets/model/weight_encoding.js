// @ts-check
// Attention weights, queries and keys as text, in the encodings of a trace that need no search (docs/viewer.md).

const LEVELS = 255;
const STORED_MOST = 65535; // bytes of a block of the deflate format that is not compressed
const PLAIN = 0;

/**
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/**
 * Bytes in the raw deflate format, as they are: what stays in a page need not be small.
 * @param {Uint8Array} bytes
 */
function stored(bytes) {
  const blocks = Math.max(1, Math.ceil(bytes.length / STORED_MOST));
  const out = new Uint8Array(bytes.length + 5 * blocks);
  for (let block = 0; block < blocks; block += 1) {
    const part = bytes.subarray(block * STORED_MOST, (block + 1) * STORED_MOST);
    const at = block * (STORED_MOST + 5);
    const { length } = part;
    const last = block === blocks - 1 ? 1 : 0;
    out.set([last, length & 255, length >> 8, ~length & 255, (~length >> 8) & 255], at);
    out.set(part, at + 5);
  }
  return out;
}

/**
 * A row of weights as bytes: round(255 · sqrt(w)).
 * @param {Float32Array} weights
 * @returns {Uint8Array}
 */
export function rootsOf(weights) {
  const roots = Uint8Array.from(weights, (weight) => Math.round(LEVELS * Math.sqrt(weight)));
  if (roots.some((root) => root > 0)) return roots;
  const mean = weights.reduce((sum, weight) => sum + weight, 0) / weights.length;
  return mean > 0 ? Uint8Array.from(weights, (weight) => (weight >= mean ? 1 : 0)) : roots; // a long row of small ones
}

/** The weights of one head, row by row, and the numbers of it that a trace has. */
export class HeadRows {
  constructor() {
    /** @type {Uint8Array[]} */
    this.rows = [];
    this.sums = { entropy: 0, distance: 0, first: 0, previous: 0, self: 0 };
    this.counts = { all: 0, previous: 0 };
    this.error = { max: 0, sum: 0 };
  }

  /**
   * @param {Float32Array} weights of one query, those that it may see
   * @param {number} place of the query among the keys
   * @param {boolean} counts whether the query had a choice
   */
  add(weights, place, counts) {
    const roots = rootsOf(weights);
    this.rows.push(roots);
    const total = roots.reduce((sum, root) => sum + root * root, 0);
    let [entropy, distance] = [0, 0];
    for (let key = 0; key < weights.length; key += 1) {
      const weight = weights[key];
      const off = Math.abs((total ? (roots[key] * roots[key]) / total : 0) - weight);
      this.error.max = Math.max(this.error.max, off);
      this.error.sum += off / 2;
      if (weight > 0) entropy -= weight * Math.log(weight);
      distance += weight * Math.abs(place - key);
    }
    if (!counts) return;
    const { sums } = this;
    this.counts.all += 1;
    this.counts.previous += place > 0 ? 1 : 0;
    sums.entropy += entropy;
    sums.distance += distance;
    sums.first += weights[0];
    sums.previous += weights[place - 1] ?? 0;
    sums.self += weights[place] ?? 0;
  }

  /**
   * The mean of a number over the queries.
   * @param {"entropy" | "distance" | "first" | "previous" | "self"} name
   */
  mean(name) {
    return this.sums[name] / Math.max(1, name === "previous" ? this.counts.previous : this.counts.all);
  }

  /** The encoded weights. */
  text() {
    const bytes = new Uint8Array(1 + this.rows.reduce((sum, row) => sum + row.length, 0));
    bytes[0] = PLAIN;
    let at = 1;
    for (const row of this.rows) {
      bytes.set(row, at);
      at += row.length;
    }
    return toBase64(stored(bytes));
  }
}

/**
 * Vectors of one head in 16 bits: value = scale · integer.
 * @param {Float32Array} rows (T, heads, D)
 * @param {number} head
 * @param {number} heads
 * @param {number} width D
 * @returns {{scale: number, text: string}}
 */
export function encodeVectors(rows, head, heads, width) {
  const count = rows.length / (heads * width);
  const vectors = new Float32Array(count * width);
  for (let row = 0; row < count; row += 1) {
    const from = (row * heads + head) * width;
    vectors.set(rows.subarray(from, from + width), row * width);
  }
  const scale = vectors.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 32767 || 1;
  const view = new DataView(new ArrayBuffer(2 * vectors.length));
  vectors.forEach((value, i) => view.setInt16(2 * i, Math.round(value / scale), true));
  return { scale, text: toBase64(stored(new Uint8Array(view.buffer))) };
}
