/** Keys and values of the positions that were read, as in `jumok.nn.cache`. */

import { PlainProducts } from "./products.js";

/** @typedef {import("./products.js").Products} Products */

const FIRST_ROOM = 64; // positions allocated at first; doubled when needed

/** The keys and values of one attention layer, (length, G, D) each. */
export class LayerCache {
  /**
   * @param {number} width G·D
   * @param {Products} [products] that compute with it
   * @param {number} [room] positions; with products of WebAssembly there cannot be more
   */
  constructor(width, products = new PlainProducts(), room = FIRST_ROOM) {
    this.width = width;
    this.length = 0;
    this.products = products;
    this.keys = products.room(room * width);
    this.values = products.room(room * width);
  }

  /** @param {Float32Array} k (T, G, D) @param {Float32Array} v (T, G, D) */
  append(k, v) {
    const start = this.length * this.width;
    if (start + k.length > this.keys.length) {
      const room = Math.max(start + k.length, 2 * this.keys.length);
      this.keys = grown(this.keys, this.products.room(room));
      this.values = grown(this.values, this.products.room(room));
    }
    this.keys.set(k, start);
    this.values.set(v, start);
    this.length += k.length / this.width;
  }
}

/** One LayerCache for each layer of a decoder. */
export class KVCache {
  /** @param {number} layers @param {number} width G·D @param {Products} [products] @param {number} [room] positions */
  constructor(layers, width, products, room) {
    this.layers = Array.from({ length: layers }, () => new LayerCache(width, products, room));
  }

  /** Number of positions in use. */
  get length() {
    return this.layers[0].length;
  }

  /** Forget all positions from this one on. @param {number} length */
  truncate(length) {
    for (const layer of this.layers) layer.length = Math.min(layer.length, length);
  }
}

/** @param {Float32Array} old @param {Float32Array} larger @returns {Float32Array} */
function grown(old, larger) {
  larger.set(old);
  return larger;
}
