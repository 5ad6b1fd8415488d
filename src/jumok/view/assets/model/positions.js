/** Rotary and sinusoidal positions, as in `jumok.nn.positions`. */

/** Cosines and sines of rotary positions, for heads of width D. */
export class Rotary {
  /** @param {number} length @param {number} width D @param {number} base */
  constructor(length, width, base) {
    const half = width / 2;
    this.half = half;
    this.cos = new Float32Array(length * half);
    this.sin = new Float32Array(length * half);
    for (let i = 0; i < half; i++) {
      // In float32 as in Python: at position 1,000 an angle in float64 would differ by up to 0.00006.
      const frequency = Math.fround(1 / Math.fround(base ** Math.fround((2 * i) / width)));
      for (let position = 0; position < length; position++) {
        const angle = Math.fround(position * frequency);
        this.cos[position * half + i] = Math.cos(angle);
        this.sin[position * half + i] = Math.sin(angle);
      }
    }
  }

  /**
   * Rotate each pair (x_i, x_{i+D/2}) of each head by the angle of its position.
   * @param {Float32Array} x (T, heads, D)
   * @param {number} heads
   * @param {number} start position of the first row
   * @returns {Float32Array} (T, heads, D)
   */
  rotate(x, heads, start) {
    const { half, cos, sin } = this;
    const out = new Float32Array(x.length);
    for (let place = 0, number = 0; place < x.length; place += 2 * half, number++) {
      const angles = (start + Math.floor(number / heads)) * half;
      for (let i = 0; i < half; i++) {
        const [left, right] = [x[place + i], x[place + i + half]];
        out[place + i] = left * cos[angles + i] - right * sin[angles + i];
        out[place + i + half] = right * cos[angles + i] + left * sin[angles + i];
      }
    }
    return out;
  }
}

/**
 * The position table of the Transformer of 2017.
 * @param {number} length @param {number} width
 * @returns {Float32Array} (length, width)
 */
export function sinusoidal(length, width) {
  const table = new Float32Array(length * width);
  for (let position = 0; position < length; position++) {
    for (let i = 0; i < width; i++) {
      const angle = position / 10_000 ** ((i - (i % 2)) / width);
      table[position * width + i] = i % 2 ? Math.cos(angle) : Math.sin(angle);
    }
  }
  return table;
}
