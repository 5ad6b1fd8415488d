// A language model that is small enough to show each of its numbers, and one step of its training. The embedding turns
// the token into a vector x, the head turns x into one logit for each token, as in jumok.models with no block between.

import { dot, softmax } from "./arithmetic.js";

/** @typedef {{embedding: number[][], head: number[][]}} Parameters (V, C) each */
/** @typedef {{x: number[], logits: number[], probabilities: number[], loss: number}} Forward (C,), (V,), (V,) */
/** @typedef {{logits: number[], x: number[], head: number[][], embedding: number[][]}} Gradients */

/**
 * Predict the token after `token`.
 * @param {Parameters} parameters @param {number} token
 * @param {number} target the token that does follow
 * @returns {Forward} the loss is the cross-entropy in nats
 */
export function forward({ embedding, head }, token, target) {
  const x = embedding[token];
  const logits = head.map((row) => dot(row, x));
  const probabilities = softmax(logits);
  return { x, logits, probabilities, loss: -Math.log(probabilities[target]) };
}

/**
 * The gradients of the loss, from the logits back to the parameters.
 * @param {Parameters} parameters @param {number} token @param {number} target
 * @returns {Gradients} of the logits, of x, and of both matrices
 */
export function backward(parameters, token, target) {
  const { x, probabilities } = forward(parameters, token, target);
  const logits = probabilities.map((probability, v) => probability - (v === target ? 1 : 0));
  const head = logits.map((gradient) => x.map((value) => gradient * value));
  const ofX = x.map((_, c) =>
    dot(
      logits,
      parameters.head.map((row) => row[c]),
    ),
  );
  const embedding = parameters.embedding.map((row, v) => (v === token ? ofX : row.map(() => 0)));
  return { logits, x: ofX, head, embedding };
}

/**
 * One step of gradient descent: each parameter minus rate times its gradient.
 * @param {Parameters} parameters @param {Gradients} gradients @param {number} rate
 * @returns {Parameters} new ones
 */
export function update(parameters, gradients, rate) {
  /** @type {(values: number[][], slopes: number[][]) => number[][]} */
  const moved = (values, slopes) => values.map((row, v) => row.map((value, c) => value - rate * slopes[v][c]));
  return { embedding: moved(parameters.embedding, gradients.embedding), head: moved(parameters.head, gradients.head) };
}
