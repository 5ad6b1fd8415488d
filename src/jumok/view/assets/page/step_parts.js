// The parts of one step in their order, and which of them a model and a layer have.

/** @typedef {import("./engine_types.js").Step} Step */

/**
 * Where a part belongs: to what comes in, to the attention or the MLP of the layer, or to what goes out.
 * @typedef {"input" | "attention" | "mlp" | "output"} Group
 */

/** @type {readonly [Group, string[]][]} */
const GROUPED = [
  ["input", ["token", "embedding", "before"]],
  [
    "attention",
    ["norm1", "qkv", "qknorm", "rotation", "scores", "scale", "softmax", "values", "join", "output", "residual1"],
  ],
  ["mlp", ["norm2", "hidden", "mlp", "residual2"]],
  ["output", ["after", "norm", "logits", "probabilities", "draw"]],
];

export const GROUPS = Object.freeze(GROUPED.map(([group]) => group));

/** @type {readonly {id: string, group: Group}[]} */
export const PARTS = Object.freeze(GROUPED.flatMap(([group, ids]) => ids.map((id) => ({ id, group }))));

/**
 * @param {{layer: number, layers: number, rotary: boolean, qkNorm: boolean}} of @returns {{id: string, group: Group}[]}
 */
export function partsOf({ layer, layers, rotary, qkNorm }) {
  const absent = new Set([
    ...(rotary ? [] : ["rotation"]),
    ...(qkNorm ? [] : ["qknorm"]),
    ...(layer > 0 ? [] : ["before"]),
    ...(layer < layers - 1 ? [] : ["after"]),
  ]);
  return PARTS.filter(({ id }) => !absent.has(id));
}
