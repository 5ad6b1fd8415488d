/**
 * The product of a matrix with vectors, in plain JavaScript and in WebAssembly with SIMD.
 * Both hold all matrices in one memory. A row takes a multiple of 16 numbers there, and those behind its end are zero,
 * so that the SIMD loops have no remainder. Numbers of a row are 8-bit integers with one float32 factor for the row, or
 * float32. Vectors and sums are float32 (plain JavaScript sums in float64). The products of attention are in
 * `products.js`.
 */

import { assemble, f32, f32x4, i32, i32x4, localsOf, repeat, v128 } from "./assembler.js";
import { PlainProducts, SimdProducts } from "./products.js";

/** @typedef {import("./assembler.js").Code} Code */
/** @typedef {{weights: Int8Array | Float32Array, scales: Float32Array | null, rows: number, columns: number}} Rows */
/**
 * @typedef {object} Kernels
 * @property {string} name "javascript" or "simd"
 * @property {ArrayBuffer} memory for the matrices
 * @property {WebAssembly.Module | null} module
 * @property {(matrix: Rows, x: Float32Array, out: Float32Array) => void} multiply x (T, columns), out (T, rows)
 */

const STEP = 16; // numbers of a row in one turn of the inner loop
const TOGETHER = 4; // vectors that are multiplied while a row is in the registers
const PAGE = 65536; // bytes, the unit of WebAssembly's memory

/** How many numbers a row takes. @param {number} columns @returns {number} */
export function strideOf(columns) {
  return Math.ceil(columns / STEP) * STEP;
}

/**
 * The product of a row and a vector. The two functions are alike; each sees one type of numbers only, which makes the
 * compiled code several times faster. Four sums, because an addition waits for the one before it.
 * @param {Int8Array} weights
 * @param {number} start of the row
 * @param {Float64Array} x @returns {number}
 */
function dotOfBytes(weights, start, x) {
  const even = x.length - (x.length % 4);
  let [a, b, c, d] = [0, 0, 0, 0];
  for (let i = 0, j = start; i < even; i += 4, j += 4) {
    a += weights[j] * x[i];
    b += weights[j + 1] * x[i + 1];
    c += weights[j + 2] * x[i + 2];
    d += weights[j + 3] * x[i + 3];
  }
  for (let i = even; i < x.length; i++) a += weights[start + i] * x[i];
  return a + b + (c + d);
}

/** @param {Float32Array} weights @param {number} start @param {Float64Array} x @returns {number} */
function dotOfFloats(weights, start, x) {
  const even = x.length - (x.length % 4);
  let [a, b, c, d] = [0, 0, 0, 0];
  for (let i = 0, j = start; i < even; i += 4, j += 4) {
    a += weights[j] * x[i];
    b += weights[j + 1] * x[i + 1];
    c += weights[j + 2] * x[i + 2];
    d += weights[j + 3] * x[i + 3];
  }
  for (let i = even; i < x.length; i++) a += weights[start + i] * x[i];
  return a + b + (c + d);
}

/** Products in plain JavaScript. @implements {Kernels} */
export class PlainKernels {
  /** @param {number} bytes of all matrices */
  constructor(bytes) {
    this.name = "javascript";
    /** @type {WebAssembly.Module | null} */
    this.module = null;
    this.memory = new ArrayBuffer(bytes);
  }

  /** @param {Rows} matrix @param {Float32Array} x (T, columns) @param {Float32Array} out (T, rows) */
  multiply({ weights, scales, rows, columns }, x, out) {
    const stride = strideOf(columns);
    const count = x.length / columns;
    for (let t = 0; t < count; t++) {
      const vector = new Float64Array(x.subarray(t * columns, (t + 1) * columns)); // converted once, not for each row
      const dot = scales ? dotOfBytes : dotOfFloats;
      for (let row = 0; row < rows; row++) {
        const sum = dot(/** @type {any} */ (weights), row * stride, vector);
        out[t * rows + row] = scales ? sum * scales[row] : sum;
      }
    }
  }
}

/** Products in WebAssembly with SIMD. @implements {Kernels} */
export class SimdKernels {
  /**
   * @param {number} bytes of all matrices
   * @param {number} longest the most rows or columns of one
   * @param {WebAssembly.Module} [module] of this file, compiled
   */
  constructor(bytes, longest, module = new WebAssembly.Module(MODULE)) {
    this.name = "simd";
    this.module = module;
    const [places, room] = [Math.ceil(bytes / 16) * 16, TOGETHER * strideOf(longest)];
    const memory = new WebAssembly.Memory({ initial: Math.ceil((places + 8 * room) / PAGE) });
    this.memory = memory.buffer;
    this.input = new Float32Array(this.memory, places, room);
    this.output = new Float32Array(this.memory, places + 4 * room, room);
    const { exports } = new WebAssembly.Instance(module, { page: { memory } });
    this.calls = /** @type {Record<string, (...numbers: number[]) => void>} */ (exports);
  }

  /** @param {Rows} matrix @param {Float32Array} x (T, columns) @param {Float32Array} out (T, rows) */
  multiply({ weights, scales, rows, columns }, x, out) {
    const { input, output } = this;
    const stride = strideOf(columns);
    const count = x.length / columns;
    for (let t = 0; t < count;) {
      const n = count - t < TOGETHER ? 1 : TOGETHER;
      for (let i = 0; i < n; i++) {
        input.set(x.subarray((t + i) * columns, (t + i + 1) * columns), i * stride);
        input.fill(0, i * stride + columns, (i + 1) * stride); // what is left of others may be Infinity
      }
      const places = [weights.byteOffset, input.byteOffset, output.byteOffset, 4 * rows, 4 * stride];
      if (scales) this.calls[`int8_${n}`](...places, scales.byteOffset);
      else this.calls[`float32_${n}`](...places, 0);
      out.set(output.subarray(0, n * rows), t * rows);
      t += n;
    }
  }
}

/**
 * The fastest kernels that compute correctly here.
 * @param {number} bytes of all matrices
 * @param {number} longest the most rows or columns of one
 * @param {"simd" | "javascript"} [wanted] for tests; otherwise what works
 * @returns {Kernels}
 */
export function makeKernels(bytes, longest, wanted) {
  const module = wanted === "javascript" ? null : compiled();
  return module ? new SimdKernels(bytes, longest, module) : new PlainKernels(bytes);
}

/**
 * The module, if WebAssembly with SIMD is there and computes what plain JavaScript computes.
 * @returns {WebAssembly.Module | null}
 */
export function compiled() {
  const [rows, columns, count, width] = [3, 21, 5, 32];
  try {
    const module = new WebAssembly.Module(MODULE);
    const kinds = [new PlainKernels(PAGE), new SimdKernels(PAGE, columns, module)];
    const products = [new PlainProducts(), new SimdProducts(module, 4 * rows * width, rows, width)];
    const results = [0, 1].map((kind) => [
      ...testProduct(kinds[kind], Int8Array, rows, columns, count),
      ...testProduct(kinds[kind], Float32Array, rows, columns, count),
      ...testAttention(products[kind], rows, width),
    ]);
    return results[0].every((value, i) => value === results[1][i]) ? module : null; // whole numbers, so they are equal
  } catch {
    return null;
  }
}

/** Whole numbers that are not all alike. @param {number} count @returns {Float32Array} */
function testNumbers(count) {
  return Float32Array.from({ length: count }, (_, i) => ((i * 29) % 64) - 32);
}

/**
 * @param {Kernels} kernels @param {typeof Int8Array | typeof Float32Array} type @param {number} rows
 * @param {number} columns
 * @param {number} count of vectors
 */
function testProduct(kernels, type, rows, columns, count) {
  const stride = strideOf(columns);
  const weights = new type(kernels.memory, 16, rows * stride);
  const scales = type === Int8Array ? new Float32Array(kernels.memory, 0, rows) : null;
  scales?.set([0.5, 1, 2]);
  for (let i = 0; i < weights.length; i++) weights[i] = i % stride < columns ? ((i * 37) % 255) - 127 : 0;
  const out = new Float32Array(count * rows);
  kernels.multiply({ weights, scales, rows, columns }, testNumbers(count * columns), out);
  return out;
}

/** @param {import("./products.js").Products} products @param {number} seen @param {number} width a multiple of 16 */
function testAttention(products, seen, width) {
  const rows = products.room(2 * seen * width); // of two heads
  rows.set(testNumbers(rows.length));
  const q = testNumbers(width).map((value) => Math.sqrt(width) * value);
  const scores = products.scores(q, rows, width, 2 * width, seen);
  scores.forEach((value, i) => (scores[i] = Math.round(value)));
  const out = new Float32Array(width);
  products.mix(out, scores, rows, width, 2 * width);
  return [...scores, ...out];
}

// --- the WebAssembly module ------------------------------------------------------------------------------------------

/**
 * The kernel for some vectors at a time:
 * for each row: for each vector: out[vector][row] = scale[row] · Σ weights[row][i] · x[vector][i]
 * Between rows of floats, which may be the keys of a head, there may be a gap.
 * @param {"int8" | "float32"} type of the weights
 * @param {number} count of vectors
 * @returns {import("./assembler.js").Kernel}
 */
function kernel(type, count) {
  const [bytes, quads] = [type === "int8" ? 1 : 4, STEP / 4];
  const parameters = ["row", "x", "out", "rows", "width", type === "int8" ? "scale" : "gap"]; // rows, width, gap: bytes
  const sums = Array.from({ length: count * (count > 1 ? 1 : quads) }, (_, i) => `sum${i}`);
  /** @type {Record<string, "i32" | "v128">} */
  const locals = { lastOut: "i32", lastX: "i32", at: "i32", eight: "v128", four: "v128" };
  for (const sum of sums) locals[sum] = "v128";
  for (let n = 0; n < count; n++) locals[`x${n}`] = "i32";
  const { get, set } = localsOf(parameters, locals);
  const plus = (/** @type {string} */ name, /** @type {number} */ bytes) =>
    set(name, i32.add(get(name), i32.constant(bytes)));

  /** @type {Code[]} Four weights at a time into `four`, then times four numbers of each vector. */
  const turn = [];
  for (let quad = 0; quad < quads; quad++) {
    if (type === "float32") turn.push(set("four", v128.load(get("row"), 16 * quad)));
    else {
      if (quad % 2 === 0) turn.push(set("eight", v128.loadBytes(get("row"), 4 * quad)));
      turn.push(set("four", f32x4.convert(i32x4[quad % 2 ? "high" : "low"](get("eight")))));
    }
    for (let n = 0; n < count; n++) {
      const sum = sums[count > 1 ? n : quad]; // several sums for one vector, because an addition waits for the last one
      turn.push(set(sum, f32x4.add(get(sum), f32x4.mul(get("four"), v128.load(get(`x${n}`), 16 * quad)))));
    }
  }
  for (let n = 0; n < count; n++) turn.push(plus(`x${n}`, 4 * STEP));

  /** @type {(of: string[]) => Code} */
  const total = (of) => {
    const all = of.slice(1).reduce((/** @type {Code} */ sum, name) => f32x4.add(sum, get(name)), get(of[0]));
    const lanes = [0, 1, 2, 3].map((lane) => f32x4.lane(lane, get("four")));
    return [set("four", all), f32.add(f32.add(lanes[0], lanes[1]), f32.add(lanes[2], lanes[3]))];
  };
  /** @type {Code[]} */
  const store = [set("at", get("out"))];
  for (let n = 0; n < count; n++) {
    const sum = total(count > 1 ? [sums[n]] : sums);
    store.push(f32.store(get("at"), type === "int8" ? f32.mul(sum, f32.load(get("scale"))) : sum));
    store.push(set("at", i32.add(get("at"), get("rows"))));
  }
  const eachRow = [
    ...sums.map((sum) => set(sum, f32x4.splat(f32.zero))),
    set("x0", get("x")),
    ...Array.from({ length: count - 1 }, (_, n) => set(`x${n + 1}`, i32.add(get(`x${n}`), get("width")))),
    repeat([turn, plus("row", STEP * bytes)], i32.lessThan(get("x0"), get("lastX"))),
    store,
    plus("out", 4),
    type === "int8" ? plus("scale", 4) : set("row", i32.add(get("row"), get("gap"))),
  ];
  const body = [
    set("lastOut", i32.add(get("out"), get("rows"))),
    set("lastX", i32.add(get("x"), get("width"))),
    repeat(eachRow, i32.lessThan(get("out"), get("lastOut"))),
  ];
  return { name: `${type}_${count}`, parameters, locals, body };
}

/**
 * The kernel of `SimdProducts.mix`, with 16 columns at a time in the registers:
 * for each column: out[column] = Σ weights[row] · values[row][column]
 * @returns {import("./assembler.js").Kernel}
 */
function mixKernel() {
  const parameters = ["column", "weights", "out", "rows", "width", "step"]; // the last three in bytes
  const sums = Array.from({ length: STEP / 4 }, (_, i) => `sum${i}`);
  /** @type {Record<string, "i32" | "v128">} */
  const locals = { lastOut: "i32", lastWeight: "i32", row: "i32", weight: "i32", four: "v128" };
  for (const sum of sums) locals[sum] = "v128";
  const { get, set } = localsOf(parameters, locals);
  const plus = (/** @type {string} */ name, /** @type {Code} */ bytes) => set(name, i32.add(get(name), bytes));
  const eachRow = [
    set("four", f32x4.splat(f32.load(get("weight")))),
    ...sums.map((sum, i) => set(sum, f32x4.add(get(sum), f32x4.mul(get("four"), v128.load(get("row"), 16 * i))))),
    plus("row", get("step")),
    plus("weight", i32.constant(4)),
  ];
  const eachPart = [
    ...sums.map((sum) => set(sum, f32x4.splat(f32.zero))),
    set("row", get("column")),
    set("weight", get("weights")),
    repeat(eachRow, i32.lessThan(get("weight"), get("lastWeight"))),
    ...sums.map((sum, i) => v128.store(get("out"), get(sum), 16 * i)),
    plus("column", i32.constant(4 * STEP)),
    plus("out", i32.constant(4 * STEP)),
  ];
  const body = [
    set("lastOut", i32.add(get("out"), get("width"))),
    set("lastWeight", i32.add(get("weights"), get("rows"))),
    repeat(eachPart, i32.lessThan(get("out"), get("lastOut"))),
  ];
  return { name: "mix", parameters, locals, body };
}

const MODULE = assemble([
  kernel("int8", 1),
  kernel("int8", TOGETHER),
  kernel("float32", 1),
  kernel("float32", TOGETHER),
  mixKernel(),
]);
