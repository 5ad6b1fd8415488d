// The pictures of the parts that a token goes through outside attention: from its embedding to the next token.

import { hex, sequential } from "../base/colours.js";
import { measureText } from "../base/painter.js";
import { count, decimal, percent, t } from "../base/words.js";
import { ACTIVATIONS, DRAW_DIGITS, hitOf } from "./step_data.js";
import { largest, normOf, silu, strongest } from "./step_numbers.js";
import { eased, phase, short } from "./step_scene.js";

/** @typedef {import("./step_data.js").StepData} StepData */
/** @typedef {import("./step_scene.js").Scene} Scene */
/** @typedef {(scene: Scene, data: StepData) => void} Picture */

const LEAST = 1e-9; // of 0 to 1: less is an error of rounding

/** @param {string} text */
export function quoted(text) {
  return `‘${text}’`;
}

/** The tokens of the window as boxes, the one that is read in colour. @type {Picture} */
function paintToken(scene, { step }) {
  const { painter, theme, width, progress } = scene;
  const size = scene.narrow ? 15 : 19;
  const most = scene.narrow ? 60 : 150;
  const window = step.length > most ? "step.caption.window.end" : "step.caption.window";
  scene.caption(t(window, { n: count(step.length), last: count(most) }));
  const from = Math.max(0, step.texts.length - most);
  const places = [];
  let x = 0;
  const height = size + 15;
  for (let i = from; i < step.texts.length; i += 1) {
    const last = i === step.texts.length - 1;
    const wide = Math.max(22, measureText(step.texts[i], { size }) + 12);
    if (x + wide > width) {
      x = 0;
      scene.y += height + 5;
    }
    const come = eased(phase(progress, last ? 1 : 0, 2));
    painter.rect(x, scene.y, wide - 3, height, {
      fill: last && come > 0 ? theme.accent : theme.panel,
      stroke: last ? theme.accent : theme.rule,
      radius: 5,
    });
    scene.text(step.texts[i], x + (wide - 3) / 2, scene.y + height / 2, {
      align: "center",
      size,
      weight: last ? 700 : 400,
      fill: last && come > 0 ? theme.accentInk : theme.ink,
    });
    places.push({
      x,
      y: scene.y,
      width: wide,
      height,
      lines: [{ text: t("step.token", { position: i, token: quoted(step.texts[i]) }) }],
    });
    x += wide;
  }
  scene.y += height + 18;
  scene.lists.push({ name: t("step.text"), places });
  const known = phase(progress, 1, 2) > 0;
  scene.formula(`${quoted(step.token.text)} → ${known ? step.token.id : "…"}`);
}

/** @type {Picture} */
function paintEmbedding(scene, { about, step, input }) {
  const { C } = sizesOf(about);
  const { progress } = scene;
  paintTable(scene, { id: step.token.id, rows: about.vocab_size, columns: C });
  const learned = step.position_embedding;
  const scale = Math.max(largest(step.embedding), learned ? largest(learned) : 0);
  scene.strip(t("step.caption.table", { id: step.token.id }), step.embedding, {
    shape: `(C)`,
    scale,
    shown: phase(progress, 0, learned ? 3 : 1),
  });
  if (!learned) return;
  scene.strip(t("step.name.position"), learned, { shape: "(C)", sign: "+", scale, shown: phase(progress, 1, 3) });
  scene.strip(t("step.name.x"), input, { shape: "(C)", sign: "=", shown: phase(progress, 2, 3) });
}

/** The table of embeddings, with the row of the token. @param {Scene} scene @param {{id: number, rows: number, columns: number}} table */
function paintTable(scene, { id, rows, columns }) {
  const { painter, theme, progress, width } = scene;
  scene.heading(t("step.name.table"), `(V, C) = (${count(rows)}, ${columns})`);
  const [wide, tall] = [Math.min(width * 0.5, 300), 132];
  const share = eased(phase(progress, 0, 1.6));
  const row = 5 + (tall - 10) * Math.min(1, id / Math.max(1, rows - 1));
  const at = scene.y + row * share;
  painter.rect(0, scene.y, wide, tall, { fill: hex(sequential(0.12, theme)), stroke: theme.accent, radius: 4 });
  for (let line = 1; line < 16; line += 1) {
    painter.line(0, scene.y + (line * tall) / 16, wide, scene.y + (line * tall) / 16, {
      stroke: theme.accent,
      opacity: 0.18,
    });
  }
  painter.rect(0, at - 4, wide, 8, { fill: theme.accent });
  scene.text(`← ${id}`, wide + 10, Math.min(scene.y + tall - 8, Math.max(scene.y + 8, at)), {
    weight: 700,
    size: 15,
    fill: theme.accent,
  });
  scene.y += tall + 22;
}

/** @param {import("./engine_types.js").About} about */
export function sizesOf(about) {
  return { C: about.n_embd, H: about.n_head, G: about.n_kv_head, D: about.head_dim, V: about.vocab_size };
}

/** What each of some layers adds to the residual stream. @param {Scene} scene @param {StepData} data @param {number[]} layers */
function paintLayers(scene, { step }, layers) {
  const kinds = /** @type {const} */ (["attention", "mlp", "residual"]);
  const most = Math.max(...layers.flatMap((layer) => kinds.map((kind) => step.layers[layer].norms[kind])));
  const rows = layers.flatMap((layer) =>
    kinds.map((kind) => {
      const value = step.layers[layer].norms[kind];
      const name = t(`step.caption.${kind}`);
      return {
        label: kind === "attention" ? `${t("step.caption.layer", { n: layer })} · ${name}` : `\u3000${name}`,
        text: short(value),
        value,
        chosen: kind === "residual",
        lines: [{ text: `${t("step.caption.layer", { n: layer })} · ${name}`, value: decimal(value, 3) }],
      };
    }),
  );
  const label = scene.narrow ? 124 : 190;
  scene.rows(t("step.part.before"), rows, {
    most,
    label,
    shown: scene.progress,
    head: ["", t("step.table.length"), ""],
  });
}

/** @param {Scene} scene @param {{name: string, values: ArrayLike<number>, sign?: string, about?: string, shape?: string, colour?: string}[]} vectors */
export function paintChain(scene, vectors) {
  vectors.forEach(({ name, values, sign, about, shape = "(C)", colour }, i) => {
    scene.strip(name, values, {
      shape,
      colour,
      sign,
      how: about,
      shown: eased(phase(scene.progress, i, vectors.length)),
    });
  });
}

/** A vector before and after a norm, and what it is divided by. @param {Scene} scene @param {StepData} data @param {{name: string, values: Float32Array}} before @param {Float32Array} after */
function paintNorm(scene, { features }, before, after) {
  const { mean, divisor } = normOf(before.values, features.norm, features.norm_eps);
  const sign = mean < 0 ? "+" : "−";
  const how =
    features.norm === "rms"
      ? `x ÷ ${short(divisor)} × w`
      : `(x ${sign} ${short(Math.abs(mean))}) ÷ ${short(divisor)} × w + b`;
  paintChain(scene, [before, { name: t("step.name.normed"), values: after, sign: "↓", about: how }]);
}

/** Vectors that are added, in one scale. @param {Scene} scene @param {{name: string, values: ArrayLike<number>}[]} vectors */
function paintSum(scene, vectors) {
  const scale = Math.max(...vectors.map(({ values }) => largest(values)));
  vectors.forEach(({ name, values }, i) => {
    const sign = i === 0 ? undefined : i === vectors.length - 1 ? "=" : "+";
    scene.strip(name, values, { shape: "(C)", scale, sign, shown: eased(phase(scene.progress, i, vectors.length)) });
  });
}

/** With a gate, two matrices make two vectors of which the product is taken; without, one. @type {Picture} */
function paintHidden(scene, { about, features, layer }) {
  const { C } = sizesOf(about);
  const { gated, mlp_bias: biased } = features;
  const F = layer.mlp_hidden.length;
  const f = ACTIVATIONS[features.activation];
  const product = (/** @type {string} */ W, /** @type {string} */ name) => [
    { name: W, rows: C, columns: F, letters: "C, F" },
    "→",
    { name, rows: 1, columns: F, letters: "F" },
  ];
  scene.shapes([
    { name: "x", rows: 1, columns: C, letters: "C" },
    "×",
    ...(gated ? [...product("W_gate", "g"), " ", ...product("W_up", "u")] : product("W", "u")),
  ]);
  const times = (/** @type {string} */ W, /** @type {string} */ b) => (biased ? `x · ${W} + ${b}` : `x · ${W}`);
  paintChain(scene, [
    { name: t("step.name.normed"), values: layer.norm2 },
    ...(gated
      ? [
          {
            name: t("step.name.gate"),
            values: layer.mlp_gate,
            sign: "↓",
            about: times("W_gate", "b_gate"),
            shape: "(F)",
          },
        ]
      : []),
    { name: t("step.name.up"), values: layer.mlp_up, sign: "↓", about: times(gated ? "W_up" : "W", "b"), shape: "(F)" },
    {
      name: t("step.name.hidden"),
      values: layer.mlp_hidden,
      sign: "↓",
      about: gated ? `h = ${f}(g) × u` : `h = ${f}(u)`,
      shape: "(F)",
    },
  ]);
  const active = Array.from(layer.mlp_hidden).filter((value) => Math.abs(value) > 0.1).length;
  scene.caption(t("step.caption.active", { n: count(active), all: count(F) }));
  const top = strongest(layer.mlp_hidden, 6);
  const sum = (/** @type {number} */ i) =>
    gated ? `${short(silu(layer.mlp_gate[i]))} × ${short(layer.mlp_up[i])} =` : `${f}(${short(layer.mlp_up[i])}) =`;
  scene.rows(
    t("step.name.hidden"),
    top.map((i) => ({
      label: `h[${i}]`,
      text: `${sum(i)} ${short(layer.mlp_hidden[i])}`,
      value: layer.mlp_hidden[i],
      lines: [
        { text: `${t("step.name.hidden")} [${i}]`, value: decimal(layer.mlp_hidden[i], 4) },
        ...(gated ? [{ text: `${t("step.name.gate")} [${i}]`, value: decimal(layer.mlp_gate[i], 4) }] : []),
        { text: `${t("step.name.up")} [${i}]`, value: decimal(layer.mlp_up[i], 4) },
      ],
    })),
    {
      most: Math.abs(layer.mlp_hidden[top[0]]),
      shown: scene.progress,
      colour: scene.theme.positive,
      text: scene.narrow ? 150 : 190,
      head: ["", gated ? `${f}(g) × u = h` : `${f}(u) = h`, ""],
    },
  );
}

/** @type {Picture} */
function paintLogits(scene, { about, step }) {
  const [C, V] = [about.n_embd, step.logits.length];
  scene.shapes([
    { name: "x", rows: 1, columns: C, letters: "C" },
    "×",
    { name: "W", rows: C, columns: V, letters: "C, V" },
    "→",
    { name: "logits", rows: 1, columns: V, letters: "V" },
  ]);
  const most = Math.max(...step.top.map(({ logit }) => Math.abs(logit)));
  scene.rows(
    t("step.part.logits"),
    step.top.slice(0, 10).map(({ id, text, logit }) => ({
      label: text,
      text: decimal(logit, 2),
      value: logit,
      lines: [{ text: `${quoted(text)} (${id})`, value: decimal(logit, 4) }],
    })),
    { most, shown: scene.progress, colour: scene.theme.positive, head: ["", t("step.caption.logit"), ""] },
  );
  if (step.logits.length <= 4096)
    scene.strip(t("step.name.allLogits"), step.logits, { shape: `(V)`, shown: scene.progress });
}

/** The softmax of the logits, then what temperature and filters make of it. @type {Picture} */
function paintProbabilities(scene, { next, origin: { sampling } }) {
  const tokens = next.alternatives;
  const { progress, theme, narrow } = scene;
  const share = eased(phase(progress, 1, 2));
  const most = Math.max(...tokens.flatMap(({ probability, chosen_probability: drawn }) => [probability, drawn ?? 0]));
  const { temperature = 1, repetition_penalty: penalty = 1 } = sampling;
  const after = temperature === 0 ? t("step.caption.greedy") : `e^(logit ÷ ${temperature}) ÷ Σ …`;
  scene.formula(`p = e^(logit) ÷ Σ e^(logit)   →   ${after}`);
  if (penalty !== 1) scene.caption(t("step.caption.penalty", { penalty }));
  scene.rows(
    t("step.part.probabilities"),
    tokens.map(({ id, text, logit, probability, chosen_probability: drawn = probability }) => {
      const after = drawn ? percent(drawn) : t("step.caption.cut");
      return {
        label: text,
        text: share > 0 ? `${percent(probability)} → ${after}` : percent(probability),
        value: probability + (drawn - probability) * share,
        pale: probability,
        lines: [
          { text: `${quoted(text)} (${id})`, strong: true },
          { text: t("step.caption.logit"), value: decimal(logit, 3) },
          { text: t("step.caption.probability"), value: percent(probability) },
          { text: t("step.caption.drawn"), value: after },
        ],
      };
    }),
    {
      most,
      shown: phase(progress, 0, 2),
      colour: theme.positive,
      say: percent,
      text: narrow ? 132 : 170,
      head: ["", `${t("step.caption.probability")} → ${t("step.caption.drawn")}`, ""],
    },
  );
  scene.caption(t("step.caption.kept", { n: count(next.kept) }));
}

/** The tokens as segments of 0 to 1, and the random number that drew the token that came. @type {Picture} */
function paintDraw(scene, data) {
  const { next, following, origin } = data;
  const { theme, painter, width, progress } = scene;
  const hit = hitOf(data);
  const [top, height] = [scene.y + 40, 70];
  // The segments in a row at the left; that of the token that came may lie apart from them.
  const joined = next.ruler.filter(({ from }, i) => from === (next.ruler[i - 1]?.to ?? 0));
  const rest = joined.at(-1)?.to ?? 0;
  const shares = next.ruler.map(({ from, to }) => to - from);
  const shown = next.ruler.map((segment, i) => ({ segment, odd: i % 2 === 1 }));
  const places = [];
  if (rest < 1 - LEAST) {
    const share = 1 - shares.reduce((sum, one) => sum + one, 0);
    const others = { x: rest * width, wide: (1 - rest) * width, top, height, name: t("step.caption.rest"), share };
    paintSegment(scene, { ...others, fill: theme.masked, ink: theme.muted });
    const { x, wide, name } = others;
    places.push({ x, y: top, width: wide, height, lines: [{ text: name, value: percent(share) }] });
  }
  for (const { segment, odd } of shown) {
    const { id, text, from, to } = segment;
    const chosen = id === hit?.id && progress >= 1;
    const colours = {
      fill: chosen ? theme.accent : odd ? theme.panel : theme.rule,
      ink: chosen ? theme.accentInk : theme.ink,
    };
    const [x, wide] = [from * width, Math.max((to - from) * width, chosen ? 2 : 0)];
    paintSegment(scene, { x, wide, top, height, name: text, share: to - from, ...colours });
    places.unshift({ x, y: top, width: wide, height, lines: [{ text: quoted(text), value: percent(to - from) }] });
  }
  painter.rect(0, top, width, height, { stroke: theme.faint });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const align = share === 0 ? "start" : share === 1 ? "end" : "center";
    scene.text(String(share), share * width, top + height + 15, { align, size: 12, fill: theme.muted });
  }
  const { number } = origin;
  if (number !== null) {
    // The needle swings over the ruler and comes to rest at the random number.
    const swing = progress >= 1 ? 0 : (1 - progress) * 0.5 * Math.sin(progress * 14);
    const at = width * Math.min(1, Math.max(0, number + swing));
    painter.polygon(
      [
        [at - 8, top - 20],
        [at + 8, top - 20],
        [at, top - 4],
      ],
      { fill: theme.negative },
    );
    painter.line(at, top - 6, at, top + height, { stroke: theme.negative, width: 2 });
  }
  scene.lists.push({ name: t("step.part.draw"), places: places.sort((a, b) => a.x - b.x) });
  scene.y = top + height + 44;
  if (hit && number !== null) {
    const [from, to] = [hit.from, hit.to].map((end) => decimal(end, DRAW_DIGITS));
    scene.formula(`${from} ≤ ${decimal(number, DRAW_DIGITS)} < ${to}   →   ${quoted(hit.text)}`);
  } else if (following) {
    const segment = next.ruler.find(({ id }) => id === following.id);
    const share = segment ? percent(segment.to - segment.from) : t("step.caption.cut");
    scene.formula(`${quoted(following.text)}  ${share}`);
  }
}

/** @param {Scene} scene @param {{x: number, wide: number, top: number, height: number, name: string, share: number, fill: string, ink: string}} segment */
function paintSegment(scene, { x, wide, top, height, name, share, fill, ink }) {
  scene.painter.rect(x, top, wide, height, { fill, stroke: scene.theme.surface });
  if (wide <= 22) return;
  const style = { align: "center", fill: ink };
  scene.text(name, x + wide / 2, top + 25, { ...style, size: 18, weight: 700, maxWidth: wide - 6 });
  if (wide > 42) scene.text(percent(share), x + wide / 2, top + 51, { ...style, size: 12, maxWidth: wide - 4 });
}

/** @type {Record<string, Picture>} */
export const PLAIN_PICTURES = {
  token: paintToken,
  embedding: paintEmbedding,
  before: (scene, data) =>
    paintLayers(
      scene,
      data,
      data.step.layers.slice(0, data.layerNumber).map((_, i) => i),
    ),
  after: (scene, data) =>
    paintLayers(
      scene,
      data,
      data.step.layers.map((_, i) => i).filter((i) => i > data.layerNumber),
    ),
  norm1: (scene, data) =>
    paintNorm(scene, data, { name: t("step.name.input"), values: data.layer.input }, data.layer.norm1),
  norm2: (scene, data) =>
    paintNorm(scene, data, { name: t("step.name.residual1"), values: data.layer.residual1 }, data.layer.norm2),
  residual1: (scene, { layer }) =>
    paintSum(scene, [
      { name: t("step.name.input"), values: layer.input },
      { name: t("step.name.attentionOut"), values: layer.attention_out },
      { name: t("step.name.residual1"), values: layer.residual1 },
    ]),
  hidden: paintHidden,
  mlp: (scene, { about, features, layer }) => {
    const [C, F] = [about.n_embd, layer.mlp_hidden.length];
    scene.shapes([
      { name: "h", rows: 1, columns: F, letters: "F" },
      "×",
      { name: "W", rows: F, columns: C, letters: "F, C" },
      "→",
      { name: t("step.name.mlpOut"), rows: 1, columns: C, letters: "C" },
    ]);
    paintChain(scene, [
      { name: t("step.name.hidden"), values: layer.mlp_hidden, shape: "(F)" },
      {
        name: t("step.name.mlpOut"),
        values: layer.mlp_out,
        sign: "↓",
        about: features.mlp_bias ? "h · W + b" : "h · W",
      },
    ]);
  },
  residual2: (scene, { layer }) =>
    paintSum(scene, [
      { name: t("step.name.residual1"), values: layer.residual1 },
      { name: t("step.name.mlpOut"), values: layer.mlp_out },
      { name: t("step.name.residual2"), values: layer.residual2 },
    ]),
  norm: (scene, { step }) => paintChain(scene, [{ name: t("step.name.final"), values: step.norm }]),
  logits: paintLogits,
  probabilities: paintProbabilities,
  draw: paintDraw,
};
