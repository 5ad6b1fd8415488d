// The arithmetic of one step taken apart, and the walk through its parts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { movedShare, sideBySide } from "../../src/jumok/view/assets/page/attention_view.js";
import { checksOf, hitOf, stepData } from "../../src/jumok/view/assets/page/step_data.js";
import * as numbers from "../../src/jumok/view/assets/page/step_numbers.js";
import { PARTS, partsOf } from "../../src/jumok/view/assets/page/step_parts.js";

/** Numbers that are the same each time, between -1 and 1. */
function series(n, seed) {
  let state = seed;
  return Float32Array.from({ length: n }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

const about = { n_head: 4, n_kv_head: 2, head_dim: 8, n_embd: 12, n_layer: 2, vocab_size: 5, family: "modern" };
about.features = {
  norm: "rms",
  norm_eps: 1e-6,
  rotary: true,
  qk_norm_eps: 1e-6,
  qkv_bias: false,
  out_bias: false,
  gated: true,
  activation: "silu",
  mlp_bias: false,
};
const T = 7;

/** A step that is computed here, by the definition of attention, one number after the other. */
function madeStep() {
  const { n_head: H, n_kv_head: G, head_dim: D, n_embd: C } = about;
  const [q, keys, values] = [series(H * D, 1), series(G * T * D, 2), series(G * T * D, 3)];
  const scores = new Float32Array(H * T);
  const weights = new Float32Array(H * T);
  const heads = new Float32Array(H * D);
  for (let h = 0; h < H; h += 1) {
    const g = Math.floor(h / 2);
    for (let s = 0; s < T; s += 1) {
      let sum = 0;
      for (let d = 0; d < D; d += 1) sum += q[h * D + d] * keys[(g * T + s) * D + d];
      scores[h * T + s] = sum / Math.sqrt(D);
    }
    const powers = Array.from(scores.subarray(h * T, (h + 1) * T), Math.exp);
    const total = powers.reduce((a, b) => a + b);
    powers.forEach((power, s) => {
      weights[h * T + s] = power / total;
      for (let d = 0; d < D; d += 1) heads[h * D + d] += (power / total) * values[(g * T + s) * D + d];
    });
  }
  const [input, added, mlp] = [series(C, 4), series(C, 5), series(C, 6)];
  const plus = (a, b) => Float32Array.from(a, (value, i) => value + b[i]);
  const residual1 = plus(input, added);
  const logits = series(about.vocab_size, 7);
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit), 0);
  const layer = {
    layer: 0,
    norms: { attention: 1, mlp: 1, residual: 1 },
    input,
    norm1: input,
    q,
    q_rotated: q,
    k: keys.subarray(0, G * D),
    k_rotated: keys.subarray(0, G * D),
    v: values.subarray(0, G * D),
    keys,
    values,
    scores,
    weights,
    heads,
    joined: heads,
    attention_out: added,
    residual1,
    norm2: residual1,
    mlp_gate: series(20, 9),
    mlp_up: series(20, 8),
    mlp_hidden: series(20, 8).map((value, i) => numbers.silu(series(20, 9)[i]) * value),
    mlp_out: mlp,
    residual2: plus(residual1, mlp),
  };
  return {
    token: { id: 3, text: "다" },
    position: T - 1,
    length: T,
    texts: [..."가나다라마바다"],
    layer: 0,
    embedding: input,
    position_embedding: null,
    layers: [layer, { layer: 1, norms: layer.norms }],
    norm: input,
    logits,
    top: [...logits.keys()]
      .map((id) => ({ id, text: String(id), logit: logits[id], probability: Math.exp(logits[id]) / total }))
      .sort((a, b) => b.probability - a.probability),
  };
}

function madeData(changes = {}) {
  return stepData({
    about,
    step: madeStep(),
    next: { alternatives: [], entropy: 0, kept: 1, ruler: [] },
    origin: { kind: "open", number: null, sampling: {}, others: false, heads: false },
    layerNumber: 0,
    headNumber: 2,
    focus: 3,
    isOff: () => false,
    following: null,
    sliders: {},
    choose: () => {},
    ...changes,
  });
}

test("a head reads the queries of its own and the keys of its group", () => {
  const step = madeStep();
  for (let head = 0; head < about.n_head; head += 1) {
    const found = numbers.headNumbers(step.layers[0], head, about);
    assert.equal(found.group, Math.floor(head / 2));
    assert.equal(found.length, T);
    const dots = numbers.dotProducts(found);
    found.scores.forEach((score, key) => assert.ok(Math.abs(dots[key] / Math.sqrt(8) - score) < 1e-6));
    const { weights } = numbers.softmaxParts(found.scores);
    assert.ok(numbers.difference(weights, found.weights) < 1e-6);
    assert.ok(numbers.difference(numbers.weightedSum(weights, found.values, 8), found.output) < 1e-6);
  }
});

test("every sum that is shown is the model's, and a wrong one is said to be wrong", () => {
  const data = madeData();
  const found = PARTS.flatMap(({ id }) => checksOf(id, data));
  assert.equal(found.length, 12);
  assert.deepEqual(
    found.filter(({ agrees }) => !agrees),
    [],
  );
  const broken = madeStep();
  broken.layers[0].scores[2 * T + 3] += 0.01;
  broken.layers[0].residual1[1] += 0.01;
  broken.layers[0].heads[2 * 8] += 0.01;
  const wrong = PARTS.flatMap(({ id }) => checksOf(id, madeData({ step: broken })).filter(({ agrees }) => !agrees));
  const words = new Set(wrong.map(({ word }) => word));
  assert.deepEqual([...words].sort(), [
    "step.check.residual",
    "step.check.score",
    "step.check.values",
    "step.check.weight",
  ]);
});

test("a head that is switched off claims no weighted sum", () => {
  assert.deepEqual(checksOf("values", madeData({ isOff: (head) => head === 2 })), []);
});

test("masked scores get no weight", () => {
  const { weights, sum, highest } = numbers.softmaxParts([-Infinity, 1, 1]);
  assert.deepEqual([...weights], [0, 0.5, 0.5]);
  assert.deepEqual([highest, sum], [1, 2]);
  assert.deepEqual([...numbers.softmaxParts([-Infinity]).weights], [0]);
});

test("the angle of a rotation is found in the numbers, and the length stays", () => {
  const before = series(8, 9);
  const angles = [0.3, -2, 3, 0];
  const after = before.map((_, i) => {
    const [a, b, angle] = [before[i % 4], before[(i % 4) + 4], angles[i % 4]];
    return i < 4 ? a * Math.cos(angle) - b * Math.sin(angle) : a * Math.sin(angle) + b * Math.cos(angle);
  });
  numbers.rotations(before, after).forEach(({ angle }, i) => assert.ok(Math.abs(angle - angles[i]) < 1e-5));
  assert.ok(Math.abs(numbers.lengthOf(before) - numbers.lengthOf(after)) < 1e-6);
});

test("the keys that are listed are the strongest, the token itself and the chosen one, in the order of the text", () => {
  const weights = [0.1, 0.4, 0.05, 0.02, 0.3, 0.03, 0.1];
  assert.deepEqual(numbers.listedKeys(weights, 3), [1, 4, 6]);
  assert.deepEqual(numbers.listedKeys(weights, 3, 2), [1, 2, 6]);
  assert.deepEqual(numbers.listedKeys(weights, 99), [0, 1, 2, 3, 4, 5, 6]);
  assert.deepEqual(numbers.listedKeys([1], 5), [0]);
});

test("a norm divides by its root with epsilon, which counts where a vector is short", () => {
  assert.ok(Math.abs(numbers.normOf([3e-3, 4e-3], "rms", 1e-5).divisor - Math.sqrt(12.5e-6 + 1e-5)) < 1e-9);
  const { mean, divisor } = numbers.normOf([1, 3], "layer", 0.25);
  assert.deepEqual([mean, divisor], [2, Math.sqrt(1.25)]);
});

test("a token that came says how: drawn with its number, taken as the likeliest, typed, chosen, or not yet", () => {
  const ruler = [
    { id: 4, text: "d", from: 0, to: 0.6 },
    { id: 2, text: "b", from: 0.6, to: 0.9 },
    { id: 1, text: "c", from: 0.95, to: 0.97 },
  ];
  const data = (kind, number = null) =>
    madeData({
      next: { alternatives: [], entropy: 0, kept: 4, ruler },
      origin: { kind, number, sampling: {}, others: false },
    });
  assert.equal(hitOf(data("drawn", 0.6)).id, 2);
  assert.equal(hitOf(data("drawn", 0.96)).id, 1);
  assert.equal(hitOf(data("greedy")).id, 4);
  for (const kind of ["typed", "chosen", "open"]) assert.equal(hitOf(data(kind)), null);
});

test("a model has the parts that it computes", () => {
  const ids = (of) => partsOf(of).map(({ id }) => id);
  assert.equal(ids({ layer: 1, layers: 3, rotary: true, qkNorm: true }).length, PARTS.length);
  const first = ids({ layer: 0, layers: 3, rotary: false, qkNorm: false });
  assert.ok(
    !first.includes("qknorm") && !first.includes("before") && !first.includes("rotation") && first.includes("after"),
  );
  assert.ok(!ids({ layer: 2, layers: 3, rotary: true, qkNorm: true }).includes("after"));
});

test("two distributions side by side, and how much has moved", () => {
  const one = [
    { id: 1, text: "a", probability: 0.7 },
    { id: 2, text: "b", probability: 0.2 },
  ];
  const other = [
    { id: 2, text: "b", probability: 0.6 },
    { id: 3, text: "c", probability: 0.3 },
  ];
  const rows = sideBySide(one, other, 9);
  assert.deepEqual(
    rows.map(({ id, before, after }) => [id, before, after]),
    [
      [1, 0.7, 0],
      [2, 0.2, 0.6],
      [3, 0, 0.3],
    ],
  );
  assert.ok(Math.abs(movedShare(rows) - 0.7) < 1e-12);
  assert.equal(movedShare(sideBySide(one, one, 9)), 0);
});
