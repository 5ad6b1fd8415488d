// The parts of one step in their order, and which of them a model and a layer have.

/** @typedef {import("./engine_types.js").Step} Step */

/**
 * Where a part belongs: to what comes in, to the attention or the MLP of the layer, or to what goes out.
 * @typedef {"input" | "attention" | "mlp" | "output"} Group
 */

/** @type {readonly {id: string, group: Group}[]} */
export const PARTS = Object.freeze([
  { id: "token", group: "input" },
  { id: "embedding", group: "input" },
  { id: "before", group: "input" },
  { id: "norm1", group: "attention" },
  { id: "qkv", group: "attention" },
  { id: "rotation", group: "attention" },
  { id: "scores", group: "attention" },
  { id: "scale", group: "attention" },
  { id: "softmax", group: "attention" },
  { id: "values", group: "attention" },
  { id: "join", group: "attention" },
  { id: "output", group: "attention" },
  { id: "residual1", group: "attention" },
  { id: "norm2", group: "mlp" },
  { id: "hidden", group: "mlp" },
  { id: "mlp", group: "mlp" },
  { id: "residual2", group: "mlp" },
  { id: "after", group: "output" },
  { id: "norm", group: "output" },
  { id: "logits", group: "output" },
  { id: "probabilities", group: "output" },
  { id: "draw", group: "output" },
]);

/** @type {readonly Group[]} */
export const GROUPS = Object.freeze(["input", "attention", "mlp", "output"]);

/** @param {{layer: number, layers: number, rotary: boolean}} of @returns {{id: string, group: Group}[]} */
export function partsOf({ layer, layers, rotary }) {
  const absent = new Set([
    ...(rotary ? [] : ["rotation"]),
    ...(layer > 0 ? [] : ["before"]),
    ...(layer < layers - 1 ? [] : ["after"]),
  ]);
  return PARTS.filter(({ id }) => !absent.has(id));
}
