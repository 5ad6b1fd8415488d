// @ts-check
// The products of `model/kernels.js`, and the bytes of `model/assembler.js`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { signed, unsigned } from "../../src/jumok/view/assets/model/assembler.js";
import {
  compiled,
  makeKernels,
  PlainKernels,
  SimdKernels,
  strideOf,
} from "../../src/jumok/view/assets/model/kernels.js";
import { canBeSimd, PlainProducts, SimdProducts } from "../../src/jumok/view/assets/model/products.js";

/** @typedef {typeof PlainKernels | typeof SimdKernels} Kind */

/** Numbers between -1 and 1 that are the same each time. @param {number} count @param {number} seed */
function numbers(count, seed) {
  return Float32Array.from({ length: count }, (_, i) => Math.sin(seed + 12.9898 * i));
}

/** @param {Kind} Kind @param {"int8" | "float32"} type @param {number} rows @param {number} columns @param {Float32Array} x */
function product(Kind, type, rows, columns, x) {
  const [stride, behind] = [strideOf(columns), Math.ceil(rows / 4) * 16];
  const kernels = new Kind(behind + 4 * rows * stride, Math.max(rows, columns));
  const weights = new (type === "int8" ? Int8Array : Float32Array)(kernels.memory, behind, rows * stride);
  const scales = type === "int8" ? new Float32Array(kernels.memory, 0, rows) : null;
  scales?.set(numbers(rows, 3));
  for (let row = 0; row < rows; row++) {
    const values = numbers(columns, row).map((value) => (scales ? Math.round(127 * value) : value));
    weights.set(values, row * stride);
  }
  const out = new Float32Array((x.length / columns) * rows);
  kernels.multiply({ weights, scales, rows, columns }, x, out);
  const expected = out.map((_, place) => {
    const [t, row] = [Math.floor(place / rows), place % rows];
    let sum = 0;
    for (let i = 0; i < columns; i++) sum += weights[row * stride + i] * x[t * columns + i];
    return scales ? sum * scales[row] : sum;
  });
  return { out, expected };
}

for (const Kind of [PlainKernels, SimdKernels]) {
  for (const type of /** @type {const} */ (["int8", "float32"])) {
    test(`${Kind.name} multiplies ${type} matrices of any shape`, () => {
      for (const [rows, columns] of [
        [1, 1],
        [3, 16],
        [5, 17],
        [64, 30],
        [7, 131],
      ]) {
        for (const count of [1, 2, 4, 5, 9]) {
          const { out, expected } = product(Kind, type, rows, columns, numbers(count * columns, 5));
          const largest = Math.max(...expected.map(Math.abs));
          out.forEach((value, i) => assert.ok(Math.abs(value - expected[i]) <= 1e-5 * largest, `${rows}x${columns}`));
        }
      }
    });
  }

  test(`${Kind.name} does not carry an infinite number over to the next product`, () => {
    const kernels = new Kind(16 * 4 * 2, 16);
    const matrix = (/** @type {number} */ start, /** @type {number} */ columns) => ({
      weights: new Float32Array(kernels.memory, start, 16).fill(1, 0, columns),
      scales: null,
      rows: 1,
      columns,
    });
    const out = new Float32Array(1);
    kernels.multiply(matrix(0, 16), new Float32Array(16).fill(Infinity), out);
    assert.equal(out[0], Infinity);
    kernels.multiply(matrix(64, 3), Float32Array.of(1, 2, 3), out);
    assert.equal(out[0], 6);
  });
}

/** @param {PlainProducts | SimdProducts} products @param {number} seen @param {number} width @param {number} groups */
function attend(products, seen, width, groups) {
  const step = groups * width;
  const [keys, values] = [2, 3].map((seed) => {
    const rows = products.room(seen * step);
    rows.set(numbers(rows.length, seed));
    return rows;
  });
  const found = [];
  for (let head = 0; head < groups; head++) {
    const row = products.scores(numbers(width, head), keys, head * width, step, seen);
    found.push(...row);
    const out = new Float32Array(width).fill(7); // what stands there does not matter
    products.mix(out, row, values, head * width, step);
    found.push(...out);
  }
  const expected = [];
  for (let head = 0; head < groups; head++) {
    const q = numbers(width, head);
    const at = (/** @type {number} */ s, /** @type {number} */ i) => s * step + head * width + i;
    const row = Array.from({ length: seen }, (_, s) => {
      return q.reduce((sum, value, i) => sum + value * keys[at(s, i)], 0) / Math.sqrt(width);
    });
    const mixed = Array.from(q, (_, i) => row.reduce((sum, weight, s) => sum + weight * values[at(s, i)], 0));
    expected.push(...row, ...mixed);
  }
  return { found, expected };
}

test("the products of attention", () => {
  const module = /** @type {WebAssembly.Module} */ (compiled());
  for (const [seen, width, groups] of [
    [1, 16, 1],
    [5, 16, 3],
    [33, 64, 2],
    [4, 7, 2],
  ]) {
    const kinds = [new PlainProducts()];
    if (canBeSimd(width)) kinds.push(new SimdProducts(module, 2 * seen * width * groups, seen, width));
    for (const products of kinds) {
      const { found, expected } = attend(products, seen, width, groups);
      const largest = Math.max(...expected.map(Math.abs));
      found.forEach((value, i) => assert.ok(Math.abs(value - expected[i]) <= 1e-5 * largest, `${seen}x${width}`));
    }
  }
});

test("Node has SIMD, and it is chosen", () => {
  assert.ok(compiled());
  assert.equal(makeKernels(64, 16).name, "simd");
});

test("without WebAssembly, or with one that fails the self-test, the kernels are plain JavaScript", () => {
  const whole = globalThis.WebAssembly;
  try {
    // @ts-expect-error: as a browser without it
    delete globalThis.WebAssembly;
    assert.equal(makeKernels(64, 16).name, "javascript");
    // @ts-expect-error: as a browser without SIMD, where the module is not valid
    globalThis.WebAssembly = { ...whole, Memory: whole.Memory, Module: refused };
    assert.equal(makeKernels(64, 16).name, "javascript");
    const idle = { int8_1() {}, int8_4() {}, float32_1() {}, float32_4() {}, mix() {} };
    // @ts-expect-error: as a browser that computes something else
    globalThis.WebAssembly = { Memory: whole.Memory, Module: whole.Module, Instance: given({ exports: idle }) };
    assert.equal(makeKernels(64, 16).name, "javascript");
  } finally {
    globalThis.WebAssembly = whole;
  }
});

/** A constructor that throws. */
function refused() {
  throw new TypeError("invalid opcode");
}

/** A constructor that returns this. @param {object} value */
function given(value) {
  return function () {
    return value;
  };
}

test("integers are LEB128", () => {
  // The examples of the WebAssembly and DWARF specifications.
  assert.deepEqual(unsigned(624485), [0xe5, 0x8e, 0x26]);
  assert.deepEqual(unsigned(0), [0]);
  assert.deepEqual(unsigned(128), [0x80, 1]);
  assert.deepEqual(signed(-123456), [0xc0, 0xbb, 0x78]);
  assert.deepEqual(signed(63), [63]);
  assert.deepEqual(signed(64), [0xc0, 0]);
  assert.deepEqual(signed(-1), [0x7f]);
});
