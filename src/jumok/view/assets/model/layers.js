/** Norms and MLPs, as in `jumok.nn.layers` and `jumok.nn.blocks`. Arrays are (T, C), row after row. */

import { Linear } from "./matrices.js";

/** @typedef {import("./matrices.js").Parameters} Parameters */
/** @typedef {import("./recording.js").Notes} Notes */
/** @typedef {{eps: number, forward: (x: Float32Array) => Float32Array}} Norm */
/** @typedef {"relu" | "silu" | "gelu" | "gelu_tanh"} Activation */

/** @type {Record<Activation, (x: number) => number>} */
const ACTIVATION = {
  relu: (x) => (x < 0 ? 0 : x),
  silu: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
};

/** x / sqrt(mean(x²) + eps) · weight */
export class RMSNorm {
  /** @param {Parameters} parameters @param {string} name @param {number} eps */
  constructor(parameters, name, eps) {
    this.weight = parameters.vector(`${name}.weight`);
    this.eps = eps;
  }

  /** @param {Float32Array} x (T, width) @returns {Float32Array} (T, width) */
  forward(x) {
    const { weight, eps } = this;
    const width = weight.length;
    const out = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += width) {
      let squares = 0;
      for (let i = start; i < start + width; i++) squares += x[i] * x[i];
      const scale = 1 / Math.sqrt(squares / width + eps);
      for (let i = 0; i < width; i++) out[start + i] = x[start + i] * scale * weight[i];
    }
    return out;
  }
}

/** (x - mean) / sqrt(variance + eps) · weight + bias */
export class LayerNorm {
  /** @param {Parameters} parameters @param {string} name @param {number} eps */
  constructor(parameters, name, eps) {
    this.weight = parameters.vector(`${name}.weight`);
    this.bias = parameters.vector(`${name}.bias`);
    this.eps = eps;
  }

  /** @param {Float32Array} x (T, width) @returns {Float32Array} (T, width) */
  forward(x) {
    const { weight, bias, eps } = this;
    const width = weight.length;
    const out = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += width) {
      let total = 0;
      for (let i = start; i < start + width; i++) total += x[i];
      const mean = total / width;
      let squares = 0;
      for (let i = start; i < start + width; i++) squares += (x[i] - mean) ** 2;
      const scale = 1 / Math.sqrt(squares / width + eps);
      for (let i = 0; i < width; i++) out[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
    }
    return out;
  }
}

/** Two linear layers with an activation between them. */
export class MLP {
  /** @param {Parameters} parameters @param {string} name @param {Activation} activation */
  constructor(parameters, name, activation) {
    this.up = new Linear(parameters, `${name}.up_proj`);
    this.down = new Linear(parameters, `${name}.down_proj`);
    this.activation = ACTIVATION[activation];
  }

  /** @param {Float32Array} x (T, C) @param {Notes | null} notes @returns {Float32Array} (T, C) */
  forward(x, notes) {
    const hidden = this.up.forward(x); // (T, M)
    notes?.keep("mlp_up", hidden);
    for (let i = 0; i < hidden.length; i++) hidden[i] = this.activation(hidden[i]);
    notes?.keep("mlp_hidden", hidden);
    return this.down.forward(hidden);
  }
}

/** An MLP whose hidden units are gated by a second projection, without biases. */
export class SwiGLU {
  /** @param {Parameters} parameters @param {string} name */
  constructor(parameters, name) {
    this.gate = new Linear(parameters, `${name}.gate_proj`);
    this.up = new Linear(parameters, `${name}.up_proj`);
    this.down = new Linear(parameters, `${name}.down_proj`);
  }

  /** @param {Float32Array} x (T, C) @param {Notes | null} notes @returns {Float32Array} (T, C) */
  forward(x, notes) {
    const hidden = this.up.forward(x); // (T, M)
    const gates = this.gate.forward(x); // (T, M)
    notes?.keep("mlp_up", hidden);
    notes?.keep("mlp_gate", gates);
    for (let i = 0; i < hidden.length; i++) hidden[i] *= gates[i] / (1 + Math.exp(-gates[i]));
    notes?.keep("mlp_hidden", hidden);
    return this.down.forward(hidden);
  }
}

/** GELU in its exact form, in place. @param {Float32Array} x */
export function gelu(x) {
  for (let i = 0; i < x.length; i++) x[i] = ACTIVATION.gelu(x[i]);
}

/**
 * The error function, to 1.2e-7. Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26.
 * @param {number} x @returns {number}
 */
export function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const size = 1 - series * Math.exp(-x * x);
  return x < 0 ? -size : size;
}
