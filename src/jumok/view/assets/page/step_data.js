// One step with what is chosen of it: what the pictures and the sums that are checked are made of.

import { count, decimal, percent, t } from "../base/words.js";
import {
  check,
  difference,
  dotProducts,
  headNumbers,
  lengthOf,
  normOf,
  silu,
  softmaxParts,
  strongest,
  sumOf,
  weightedSum,
} from "./step_numbers.js";
import { settingsWords } from "./sampling_panel.js";
import { short } from "./step_scene.js";

/** @import { About, Features, Next, Sampling, Segment, Step, StepLayer } from "./engine_types.js" */
/** @typedef {import("./step_numbers.js").Check} Check */

/**
 * How the token that comes next in the text came there. drawn: by a random number; greedy: as the likeliest; open: the
 * text ends here. sampling: the settings that it was drawn with, or would be. others: whether the sliders stand
 * elsewhere. heads: whether other heads were off.
 * @typedef {{kind: "drawn" | "greedy" | "typed" | "chosen" | "open", number: number | null, sampling: Sampling,
 *   others: boolean, heads: boolean}} Origin
 */

/**
 * @typedef {object} StepData
 * @property {About} about
 * @property {Step} step
 * @property {Features} features
 * @property {Next} next the distribution that is drawn from
 * @property {Origin} origin
 * @property {Required<StepLayer>} layer the one that is taken apart
 * @property {number} layerNumber
 * @property {import("./step_numbers.js").HeadNumbers} head
 * @property {number} focus the key that is looked at
 * @property {Float32Array} input of the model's first layer: the embedding, with that of the position
 * @property {boolean} off whether the head is switched off
 * @property {(head: number) => boolean} isOff
 * @property {{id: number, text: string} | null} following the token that comes next in the text
 * @property {Sampling} sliders
 * @property {(key: number) => void} choose look at another key
 */

/**
 * @param {Omit<StepData, "features" | "layer" | "head" | "focus" | "input" | "off"> & {headNumber: number, focus: number | null}} of
 * focus: null: the key with the largest weight, other than the token itself and the first if it can be
 * @returns {StepData}
 */
export function stepData({ headNumber, focus, ...of }) {
  const { step, about, layerNumber } = of;
  const layer = /** @type {Required<StepLayer>} */ (step.layers[layerNumber]);
  const head = headNumbers(layer, headNumber, about);
  const positions = step.position_embedding;
  return {
    ...of,
    features: /** @type {Features} */ (about.features),
    layer,
    head,
    focus: focus !== null && focus < head.length ? focus : telling(head.weights),
    input: positions ? sumOf(step.embedding, positions) : step.embedding,
    off: of.isOff(headNumber),
  };
}

/** @param {Float32Array} weights @returns {number} the key with the largest weight between the first and the last */
function telling(weights) {
  const last = weights.length - 1;
  let best = last;
  for (let key = 1; key < last; key += 1) if (best === last || weights[key] > weights[best]) best = key;
  return best;
}

/** The two sentences about a part, with the numbers of this step. @param {string} part @param {StepData} data @returns {string} */
export function sentences(part, data) {
  const { step, about, features, layer, head, layerNumber, following, origin } = data;
  const values = {
    position: step.position,
    token: `‘${step.token.text}’`,
    id: step.token.id,
    layer: layerNumber,
    head: head.head,
    C: about.n_embd,
    H: about.n_head,
    HD: about.n_head * about.head_dim,
    F: layer.mlp_hidden.length,
    V: count(step.logits.length),
    root: short(Math.sqrt(head.d)),
    f: ACTIVATIONS[features.activation],
    settings: settingsWords(origin.sampling),
    sliders: settingsWords(data.sliders),
    next: following ? `‘${following.text}’` : "",
  };
  if (part === "norm1" || part === "norm2") {
    const { mean, divisor } = normOf(
      part === "norm1" ? layer.input : layer.residual1,
      features.norm,
      features.norm_eps,
    );
    return t(`step.text.norm.${features.norm}`, { mean: short(mean), divisor: short(divisor) });
  }
  if (part === "qknorm") {
    const [q, k] = [head.qProjected, head.kProjected].map((x) => normOf(x, "rms", features.qk_norm_eps ?? 0).divisor);
    return t("step.text.qknorm", { q: short(q), k: short(k) });
  }
  if (part === "embedding" && step.position_embedding) return t("step.text.embedding.learned", values);
  if (part === "hidden") return t(features.gated ? "step.text.hidden.gated" : "step.text.hidden.plain", values);
  if (part === "softmax") {
    const { highest, sum } = softmaxParts(head.scores);
    return t("step.text.softmax", { highest: short(highest), sum: short(sum) });
  }
  const greedy = origin.sampling.temperature === 0;
  const drawn = origin.kind === "drawn" || origin.kind === "greedy";
  const sliders = drawn && origin.others ? t("step.text.sliders", values) : "";
  if (part === "probabilities") {
    const text = greedy ? "step.text.probabilities.greedy" : "step.text.probabilities";
    return [t(text, values), sliders].filter(Boolean).join(" ");
  }
  if (part === "draw") {
    const number = decimal(origin.number ?? 0, DRAW_DIGITS);
    const here = hitOf(data);
    const now = drawn && here && following && here.id !== following.id ? `‘${here.text}’` : "";
    return [
      t(greedy ? "step.text.draw.rule.greedy" : "step.text.draw", values),
      t(`step.text.draw.${origin.kind}`, { ...values, number }),
      origin.kind === "drawn" && now ? t("step.text.draw.now", { number, now }) : "",
      origin.kind === "greedy" && now ? t("step.text.draw.greedy.now", { now }) : "",
      origin.heads ? t("step.text.draw.heads") : "",
      sliders,
    ]
      .filter(Boolean)
      .join(" ");
  }
  return t(`step.text.${part}`, values);
}

/** @type {Record<Features["activation"], string>} */
export const ACTIVATIONS = { relu: "ReLU", silu: "SiLU", gelu: "GELU", gelu_tanh: "GELU" };

/** Decimals of a random number on a page. */
export const DRAW_DIGITS = 6;

/** The segment that the random number falls into, or of the token that is taken; null where nothing was drawn. @param {StepData} data @returns {Segment | null} */
export function hitOf({ next, origin: { kind, number } }) {
  if (kind === "greedy") return next.ruler[0] ?? null;
  if (kind !== "drawn" || number === null) return null;
  return next.ruler.find(({ from, to }) => from <= number && number < to) ?? null;
}

/** The sums of a part, made here from what comes before it, beside the model's own. @type {Record<string, (data: StepData) => Check[]>} */
const CHECKS = {
  embedding: ({ layerNumber, input, layer }) =>
    layerNumber === 0 ? [check("step.check.input", difference(input, layer.input), 0, {}, lengthOf(input))] : [],
  rotation: ({ head }) => [check("step.check.turn", lengthOf(head.qRotated), lengthOf(head.q))],
  scores: (data) => [scoreCheck(data)],
  scale: (data) => [scoreCheck(data)],
  softmax: ({ head, focus }) => {
    const { powers, sum, weights } = softmaxParts(head.scores);
    const total = head.weights.reduce((all, weight) => all + weight, 0);
    return [
      check("step.check.weight", weights[focus], head.weights[focus], { power: powers[focus], sum }),
      check("step.check.one", total, 1),
    ];
  },
  values: ({ head, off }) => {
    if (off) return [];
    const sum = weightedSum(head.weights, head.values, head.d);
    return [check("step.check.values", difference(sum, head.output), 0, {}, lengthOf(sum))];
  },
  join: ({ head, layer }) => {
    const from = head.head * head.d;
    const there = layer.joined.subarray(from, from + head.d);
    return [
      check("step.check.join", difference(there, head.output), 0, { head: head.head, from, to: from + head.d - 1 }),
    ];
  },
  hidden: ({ layer, features }) => {
    if (!features.gated) return [];
    const product = layer.mlp_up.map((value, i) => silu(layer.mlp_gate[i]) * value);
    return [check("step.check.gated", difference(product, layer.mlp_hidden), 0, {}, lengthOf(product))];
  },
  residual1: ({ layer }) => [residualCheck(layer.input, layer.attention_out, layer.residual1)],
  residual2: ({ layer }) => [residualCheck(layer.residual1, layer.mlp_out, layer.residual2)],
  probabilities: ({ step }) => {
    const { weights } = softmaxParts(step.logits);
    const [best] = step.top;
    return [check("step.check.probability", weights[best.id], best.probability, { logit: best.logit })];
  },
};

/** @param {StepData} data */
function scoreCheck({ head, focus }) {
  const [product, root] = [dotProducts(head)[focus], Math.sqrt(head.d)];
  return check("step.check.score", product / root, head.scores[focus], { dot: product, root });
}

/** @param {Float32Array} a @param {Float32Array} b @param {Float32Array} sum */
function residualCheck(a, b, sum) {
  return check("step.check.residual", difference(sumOf(a, b), sum), 0, {}, lengthOf(sum));
}

/** @param {string} part @param {StepData} data @returns {Check[]} */
export function checksOf(part, data) {
  return CHECKS[part]?.(data) ?? [];
}

/** A check as a sentence. @param {Check} found @returns {string} */
export function checkSentence({ word, values }) {
  const whole = new Set(["head", "from", "to"]);
  const written = Object.entries(values).map(([name, value]) => [name, whole.has(name) ? value : exact(value)]);
  return t(word, Object.fromEntries(written));
}

/** @param {number} value */
function exact(value) {
  return value !== 0 && Math.abs(value) < 0.00005 ? value.toExponential(1).replace("-", "−") : decimal(value, 4);
}

const OF_KEYS = new Set(["scores", "scale", "softmax", "values"]);
const OF_TOKENS = new Set(["logits", "probabilities", "draw"]);
const OF_LAYERS = new Set(["before", "after"]);

/**
 * What the picture of a part shows, in words.
 * @param {string} part @param {StepData} data @param {[string, ArrayLike<number>][]} vectors that the picture shows
 * @returns {string}
 */
export function summary(part, data, vectors) {
  const { step, head } = data;
  if (OF_KEYS.has(part)) {
    const list = strongest(head.weights, 3).map((key) => `‘${step.texts[key]}’ ${percent(head.weights[key])}`);
    return t("step.sum.keys", { list: list.join(", ") });
  }
  if (OF_TOKENS.has(part)) {
    const list = step.top.slice(0, 3).map(({ text, probability }) => `‘${text}’ ${percent(probability)}`);
    return t("step.sum.tokens", { list: list.join(", ") });
  }
  if (OF_LAYERS.has(part)) {
    return layersOf(part, data)
      .map(({ layer, norms }) =>
        t("step.sum.layer", { n: layer, attention: short(norms.attention), mlp: short(norms.mlp) }),
      )
      .join("; ");
  }
  if (part === "token") return t("step.token", { position: step.position, token: `‘${step.token.text}’` });
  return vectors
    .map(([name, values]) => {
      const [least, most] = [Math.min, Math.max].map((end) => short(end(...Array.from(values))));
      return t("step.sum.vector", { name, n: values.length, length: short(lengthOf(values)), least, most });
    })
    .join(" ");
}

/** @param {string} part @param {StepData} data */
function layersOf(part, { step, layerNumber }) {
  return step.layers.filter((_, i) => (part === "before" ? i < layerNumber : i > layerNumber));
}
