/** The parameters of a model by their names: matrices, which know how to multiply, and vectors. */

import { EngineError } from "./errors.js";

/** @typedef {import("./kernels.js").Kernels} Kernels */

/** A matrix (rows, columns) in the memory of its kernels. Each row begins at a multiple of `stride` numbers. */
export class Matrix {
  /**
   * @param {Kernels} kernels @param {Int8Array | Float32Array} weights
   * @param {Float32Array | null} scales (rows), factors of 8-bit integers; null for floats
   * @param {number} rows @param {number} columns
   */
  constructor(kernels, weights, scales, rows, columns) {
    this.kernels = kernels;
    this.weights = weights;
    this.scales = scales;
    this.rows = rows;
    this.columns = columns;
    this.stride = weights.length / rows;
  }

  /**
   * x Wᵀ + b, as `torch.nn.functional.linear`: (T, columns) -> (T, rows).
   * @param {Float32Array} x
   * @param {Float32Array | null} [bias] (rows)
   * @returns {Float32Array}
   */
  times(x, bias = null) {
    const out = new Float32Array((x.length / this.columns) * this.rows);
    this.kernels.multiply(this, x, out);
    if (bias) addRow(out, bias);
    return out;
  }

  /**
   * Add a row to an array: the lookup of an embedding.
   * @param {number} row @param {Float32Array} out
   * @param {number} [start] where in `out`
   */
  addRowTo(row, out, start = 0) {
    const scale = this.scales ? this.scales[row] : 1;
    const place = row * this.stride;
    for (let i = 0; i < this.columns; i++) out[start + i] += scale * this.weights[place + i];
  }
}

/** A linear layer: a matrix and perhaps a bias. */
export class Linear {
  /** @param {Parameters} parameters @param {string} name */
  constructor(parameters, name) {
    this.weight = parameters.matrix(`${name}.weight`);
    this.bias = parameters.optional(`${name}.bias`);
  }

  /** @param {Float32Array} x (T, columns) @returns {Float32Array} (T, rows) */
  forward(x) {
    return this.weight.times(x, this.bias);
  }
}

/** The parameters of a model, by the names of its state dict. */
export class Parameters {
  /**
   * @param {Map<string, Matrix>} matrices @param {Map<string, Float32Array>} vectors
   * @param {Kernels} kernels that hold the matrices
   */
  constructor(matrices, vectors, kernels) {
    this.matrices = matrices;
    this.vectors = vectors;
    this.kernels = kernels;
  }

  /** @param {string} name @returns {Matrix} */
  matrix(name) {
    const found = this.matrices.get(name);
    if (!found) throw new EngineError("engine.damaged", { reason: `${name} is missing` });
    return found;
  }

  /** @param {string} name @returns {Float32Array} */
  vector(name) {
    const found = this.vectors.get(name);
    if (!found) throw new EngineError("engine.damaged", { reason: `${name} is missing` });
    return found;
  }

  /** @param {string} name @returns {Float32Array | null} */
  optional(name) {
    return this.vectors.get(name) ?? null;
  }
}

/**
 * Add a vector to each row of an array, in place.
 * @param {Float32Array} rows (T, C)
 * @param {Float32Array} vector (C)
 */
export function addRow(rows, vector) {
  for (let start = 0; start < rows.length; start += vector.length) {
    for (let i = 0; i < vector.length; i++) rows[start + i] += vector[i];
  }
}

/** The sum of two arrays. @param {Float32Array} x @param {Float32Array} y @returns {Float32Array} */
export function sum(x, y) {
  const out = x.slice();
  for (let i = 0; i < out.length; i++) out[i] += y[i];
  return out;
}

/** The product of two vectors. @param {ArrayLike<number>} x (C) @param {ArrayLike<number>} y (C) @returns {number} */
export function dot(x, y) {
  let total = 0;
  for (let i = 0; i < x.length; i++) total += x[i] * y[i];
  return total;
}

/** Turn numbers into their softmax, in place. @param {Float32Array} row */
export function softmax(row) {
  let largest = -Infinity;
  for (const value of row) if (value > largest) largest = value;
  let total = 0;
  for (let i = 0; i < row.length; i++) {
    row[i] = Math.exp(row[i] - largest);
    total += row[i];
  }
  for (let i = 0; i < row.length; i++) row[i] /= total;
}
