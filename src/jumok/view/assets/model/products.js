/**
 * The two products of attention, for one query and one head: with the keys, and of its weights with the values. In plain
 * JavaScript, and in WebAssembly with SIMD for keys and values that are in its memory.
 * Keys and values are (S, G, D). Those of a head begin at `first`, and are `step` numbers apart.
 */

/**
 * @typedef {object} Products
 * @property {(count: number) => Float32Array} room memory for keys or values, zeros
 * @property {(q: Float32Array, keys: Float32Array, first: number, step: number, seen: number) => Float32Array} scores
 *   q (D) to q kᵀ / sqrt(D), (seen); good until the next call
 * @property {(out: Float32Array, weights: Float32Array, values: Float32Array, first: number, step: number) => void} mix
 *   out (D) becomes the sum of the values, weighted by what `scores` returned
 */
/** @typedef {(...numbers: number[]) => void} Call */

const STEP = 16; // numbers in one turn of the inner loop
const PAGE = 65536; // bytes, the unit of WebAssembly's memory

/** @implements {Products} */
export class PlainProducts {
  /** @param {number} count */
  room(count) {
    return new Float32Array(count);
  }

  /**
   * @param {Float32Array} q (D)
   * @param {Float32Array} keys @param {number} first @param {number} step
   * @param {number} seen positions
   * @returns {Float32Array} (seen)
   */
  scores(q, keys, first, step, seen) {
    const width = q.length;
    const paired = width - (width % 2);
    const scale = width ** -0.5;
    const out = new Float32Array(seen);
    for (let s = 0, place = first; s < seen; s++, place += step) {
      let even = 0;
      let odd = 0; // two sums, because an addition waits for the one before it
      for (let i = 0; i < paired; i += 2) {
        even += q[i] * keys[place + i];
        odd += q[i + 1] * keys[place + i + 1];
      }
      if (paired < width) even += q[paired] * keys[place + paired];
      out[s] = (even + odd) * scale;
    }
    return out;
  }

  /**
   * @param {Float32Array} out (D)
   * @param {Float32Array} weights (seen)
   * @param {Float32Array} values @param {number} first @param {number} step
   */
  mix(out, weights, values, first, step) {
    const width = out.length;
    const paired = weights.length - (weights.length % 2);
    out.fill(0);
    for (let s = 0, place = first; s < paired; s += 2, place += 2 * step) {
      const [one, other] = [weights[s], weights[s + 1]]; // two positions in one pass over the sums
      for (let i = 0; i < width; i++) out[i] += one * values[place + i] + other * values[place + step + i];
    }
    if (paired === weights.length) return;
    for (let i = 0, place = first + paired * step; i < width; i++) out[i] += weights[paired] * values[place + i];
  }
}

/**
 * Has a memory of its own. It does not grow, because that would end the views of it; what is not used takes no room.
 * @implements {Products}
 */
export class SimdProducts {
  /**
   * @param {WebAssembly.Module} module of `kernels.js`
   * @param {number} count numbers of all keys and values
   * @param {number} seen the most positions
   * @param {number} width D, for which `canBeSimd` holds
   */
  constructor(module, count, seen, width) {
    const memory = new WebAssembly.Memory({ initial: Math.ceil((4 * (2 * width + seen + count)) / PAGE) });
    const { exports } = new WebAssembly.Instance(module, { page: { memory } });
    this.calls = /** @type {Record<string, Call>} */ (exports);
    this.memory = memory.buffer;
    this.used = 0; // bytes
    this.q = this.room(width);
    this.sum = this.room(width);
    this.row = this.room(seen);
    this.scale = width ** -0.5;
  }

  /** @param {number} count */
  room(count) {
    const found = new Float32Array(this.memory, this.used, count);
    this.used += found.byteLength;
    return found;
  }

  /**
   * @param {Float32Array} q (D)
   * @param {Float32Array} keys @param {number} first @param {number} step @param {number} seen
   * @returns {Float32Array} (seen)
   */
  scores(q, keys, first, step, seen) {
    const width = q.length;
    for (let i = 0; i < width; i++) this.q[i] = q[i] * this.scale;
    const places = [keys.byteOffset + 4 * first, this.q.byteOffset, this.row.byteOffset];
    this.calls.float32_1(...places, 4 * seen, 4 * width, 4 * (step - width));
    return this.row.subarray(0, seen);
  }

  /**
   * @param {Float32Array} out (D)
   * @param {Float32Array} weights (seen)
   * @param {Float32Array} values @param {number} first @param {number} step
   */
  mix(out, weights, values, first, step) {
    const places = [values.byteOffset + 4 * first, weights.byteOffset, this.sum.byteOffset];
    this.calls.mix(...places, 4 * weights.length, 4 * out.length, 4 * step);
    out.set(this.sum);
  }
}

/** Whether SIMD can multiply heads of a width. @param {number} width D @returns {boolean} */
export function canBeSimd(width) {
  return width % STEP === 0;
}
