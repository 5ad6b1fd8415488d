// The pictures of attention: from the norm of a layer to the vector that its heads give together.

import { headColour, hex, sequential } from "../base/colours.js";
import { count, decimal, percent, t } from "../base/words.js";
import { dotProducts, largest, listedKeys, normOf, products, rotations, softmaxParts } from "./step_numbers.js";
import { paintChain, quoted, sizesOf } from "./step_pictures.js";
import { eased, phase, short } from "./step_scene.js";

/** @typedef {import("./step_data.js").StepData} StepData */
/** @typedef {import("./step_scene.js").Scene} Scene */
/** @typedef {(scene: Scene, data: StepData) => void} Picture */

const LISTED_KEYS = { wide: 12, narrow: 9 };
const MOST_CIRCLES = 8;
const WRITTEN = 32; // numbers of a vector, where several vectors have to be seen at once

/** q, k and v of the chosen head, and small those of all heads. @type {Picture} */
function paintProjections(scene, { about, features, layer, head }) {
  const { C, H, G, D } = sizesOf(about);
  const { theme } = scene;
  const product = (/** @type {string} */ name, /** @type {string} */ letter, /** @type {number} */ heads) => [
    { name: `W_${name}`, rows: C, columns: heads * D, letters: `C, ${letter}·D` },
    "→",
    { name, rows: heads, columns: D, letters: `${letter}, D` },
  ];
  scene.shapes([
    { name: "x", rows: 1, columns: C, letters: "C" },
    "×",
    ...product("q", "H", H),
    ...(scene.narrow ? [] : [" ", ...product("k", "G", G), " ", ...product("v", "G", G)]),
  ]);
  const colour = headColour(head.head, theme);
  const vectors = [
    { name: t("step.name.query"), letter: "q", values: head.qProjected },
    { name: t("step.name.key"), letter: "k", values: head.kProjected },
    { name: t("step.name.value"), letter: "v", values: head.v },
  ];
  vectors.forEach(({ name, letter, values }, i) =>
    scene.strip(`${name} · ${t("step.head")} ${i ? head.group : head.head}`, values, {
      shape: `(D) = (${D})`,
      how: `x · W_${letter}${features.qkv_bias ? ` + b_${letter}` : ""}`,
      colour,
      shown: eased(phase(scene.progress, i, vectors.length)),
    }),
  );
  const grids = /** @type {[string, Float32Array, number, number][]} */ ([
    ["q", layer.q_projected ?? layer.q, H, head.head],
    ["k", layer.k_projected ?? layer.k, G, head.group],
    ["v", layer.v, G, head.group],
  ]);
  paintGrids(scene, grids, D);
  if (G < H) {
    const each = H / G;
    scene.caption(
      t("step.sharedKeys", { first: head.group * each, last: (head.group + 1) * each - 1, group: head.group }),
    );
  }
}

/** q and k of the chosen head, each divided by its root mean square. @type {Picture} */
function paintHeadNorms(scene, { features, head }) {
  const pairs = /** @type {[string, string, Float32Array, Float32Array][]} */ ([
    ["q", t("step.name.query"), head.qProjected, head.q],
    ["k", t("step.name.key"), head.kProjected, head.k],
  ]);
  const vectors = pairs.flatMap(([letter, name, before, after]) => {
    const { divisor } = normOf(before, "rms", features.qk_norm_eps ?? 0);
    return [
      { name: `${name} = x · W_${letter}`, values: before },
      {
        name: t("step.name.headNormed", { name }),
        values: after,
        sign: "↓",
        about: `÷ ${short(divisor)} × w_${letter}`,
      },
    ];
  });
  const colour = headColour(head.head, scene.theme);
  paintChain(
    scene,
    vectors.map((vector) => ({ ...vector, shape: `(D) = (${head.d})`, colour })),
  );
}

/** The vectors of all heads as small grids side by side, the chosen head framed. @param {Scene} scene @param {[string, Float32Array, number, number][]} grids @param {number} D */
function paintGrids(scene, grids, D) {
  const { theme, painter, width } = scene;
  const room = (width - 32) / grids.length;
  const tall = Math.max(...grids.map(([, , rows]) => rows));
  const height = Math.min(16, 130 / tall);
  const top = scene.y + 22;
  grids.forEach(([name, values, rows, chosen], i) => {
    const x = i * (room + 16);
    const letters = `${name} (${rows}, ${D})`;
    scene.text(letters, x, scene.y + 10, { size: 12, fill: theme.muted, family: "mono", maxWidth: room });
    const scale = largest(values);
    const shown = phase(scene.progress, i, grids.length);
    scene.cells(name, values, { x, y: top, width: room / D, height, columns: D, scale, shown });
    painter.rect(x - 1.5, top + chosen * (height + 1) - 1.5, room + 2, height + 3, {
      stroke: theme.ink,
      width: 2,
      radius: 2,
    });
  });
  scene.y = top + tall * (height + 1) + 14;
}

/** q and k before and after, and the pairs of q as arrows on circles. @type {Picture} */
function paintRotation(scene, { head }) {
  const { theme, painter, width, progress } = scene;
  const pairs = rotations(head.q, head.qRotated);
  const shown = pairs.slice(0, Math.min(MOST_CIRCLES, pairs.length));
  const columns = scene.narrow ? 4 : Math.min(MOST_CIRCLES, shown.length);
  const room = width / columns;
  const radius = Math.min(46, room / 2 - 6);
  scene.caption(t("step.caption.pairs"));
  const most = Math.max(...shown.map(({ from }) => Math.hypot(...from)), 1e-9);
  /** @type {import("./step_scene.js").Place[]} */
  const places = [];
  shown.forEach(({ from, to, angle }, i) => {
    const x = (i % columns) * room + room / 2;
    const y = scene.y + Math.floor(i / columns) * (2 * radius + 30) + radius;
    painter.circle(x, y, radius, { fill: theme.panel, stroke: theme.rule });
    const turn = angle * eased(progress);
    const arrow = (
      /** @type {[number, number]} */ [a, b],
      /** @type {string} */ stroke,
      /** @type {number} */ weight,
      /** @type {number} */ opacity,
    ) => {
      const [dx, dy] = [(a / most) * (radius - 3), (-b / most) * (radius - 3)];
      painter.line(x, y, x + dx, y + dy, { stroke, width: weight, opacity, cap: "round" });
      painter.circle(x + dx, y + dy, weight + 0.8, { fill: stroke, opacity });
    };
    arrow(from, theme.faint, 1.6, 0.75);
    const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
    arrow(progress >= 1 ? to : [from[0] * cos - from[1] * sin, from[0] * sin + from[1] * cos], theme.accent, 2.6, 1);
    const degrees = `${decimal((angle * 180) / Math.PI, 0)}°`;
    scene.text(`${i}, ${i + pairs.length}: ${degrees}`, x, y + radius + 13, {
      align: "center",
      size: 11.5,
      fill: theme.muted,
      maxWidth: room,
    });
    places.push({
      x: x - radius,
      y: y - radius,
      width: 2 * radius,
      height: 2 * radius,
      lines: [
        { text: `(q[${i}], q[${i + pairs.length}])`, value: degrees },
        { text: `(${short(from[0])}, ${short(from[1])}) → (${short(to[0])}, ${short(to[1])})` },
      ],
    });
  });
  scene.lists.push({ name: t("step.part.rotation"), places });
  scene.y += Math.ceil(shown.length / columns) * (2 * radius + 30) + 10;
  const colour = headColour(head.head, theme);
  const scale = Math.max(largest(head.q), largest(head.k));
  const share = eased(progress);
  const shape = `(D) = (${head.d})`;
  const how = { shape, scale, colour, numbers: WRITTEN };
  scene.strip(t("step.name.query"), head.q, how);
  scene.strip(t("step.name.rotatedQ"), head.qRotated, { ...how, shown: share });
  scene.strip(t("step.name.key"), head.k, how);
  scene.strip(t("step.name.rotatedK"), head.kRotated, { ...how, shown: share });
}

/** The keys that are listed in a picture. @param {Scene} scene @param {StepData} data */
function keysOf(scene, { head, focus }) {
  return listedKeys(head.weights, scene.narrow ? LISTED_KEYS.narrow : LISTED_KEYS.wide, focus);
}

/** @param {Scene} scene @param {StepData} data @param {number[]} listed */
function paintOmitted(scene, { head }, listed) {
  const omitted = head.length - listed.length;
  const sentences = [t("step.chooseKey"), omitted > 0 ? t("step.more", { n: count(omitted) }) : ""];
  scene.caption(sentences.filter(Boolean).join(" "));
}

/** @param {StepData} data @param {number} key */
function rowOf({ step, focus, choose }, key) {
  return { label: step.texts[key], chosen: key === focus, choose: () => choose(key) };
}

/** @param {StepData} data @param {number} key @param {Float32Array} rows */
function vectorOf({ head: { d } }, key, rows) {
  return rows.subarray(key * d, (key + 1) * d);
}

/** @type {Picture} */
function paintScores(scene, data) {
  const { head, step, focus, about, features } = data;
  const { D } = sizesOf(about);
  const { progress, theme } = scene;
  const key = vectorOf(data, focus, head.keys);
  const parts = products(head.qRotated, key);
  const scale = Math.max(largest(head.qRotated), largest(key));
  const shape = `(D) = (${D})`;
  const colour = headColour(head.head, theme);
  const revealed = phase(progress, 0, 2);
  const numbers = WRITTEN;
  const [query, keyOf] = features.rotary
    ? ["step.name.rotatedQ", "step.name.rotatedKeyOf"]
    : ["step.name.query", "step.name.keyOf"];
  scene.strip(t(query), head.qRotated, { shape, scale, colour, numbers });
  scene.strip(t(keyOf, { token: quoted(step.texts[focus]) }), key, { shape, scale, sign: "×", numbers });
  scene.strip(t("step.name.products"), parts, { shape, sign: "=", shown: revealed, numbers });
  const sum = revealed >= 1 ? short(parts.reduce((total, value) => total + value, 0)) : "…";
  const terms = [...parts.slice(0, 3)].map(short).join(" + ").replaceAll("+ −", "− ");
  scene.formula(`q · k = ${terms}${D > 3 ? " + …" : ""} = ${sum}`);
  const listed = keysOf(scene, data);
  const dots = dotProducts(head);
  const most = largest(listed.map((other) => dots[other]));
  scene.rows(
    t("step.part.scores"),
    listed.map((other) => ({
      ...rowOf(data, other),
      strip: vectorOf(data, other, head.keys),
      text: short(dots[other]),
      value: dots[other],
      lines: [
        { text: quoted(step.texts[other]), strong: true },
        { text: "q · k", value: decimal(dots[other], 4) },
      ],
    })),
    {
      scale: largest(head.keys),
      most,
      shown: phase(progress, 1, 2),
      colour: theme.positive,
      head: [`k  (T, D) = (${head.length}, ${D})`, "q · k", ""],
    },
  );
  paintOmitted(scene, data, listed);
}

/** @type {Picture} */
function paintScale(scene, data) {
  const { head, step } = data;
  const { theme, progress, painter, width } = scene;
  const listed = keysOf(scene, data);
  const dots = dotProducts(head);
  const root = Math.sqrt(head.d);
  const share = eased(phase(progress, 0, 1.3));
  scene.formula(`q · k ÷ √D = q · k ÷ √${head.d} = q · k ÷ ${short(root)}`);
  const most = largest(listed.map((other) => dots[other]));
  scene.rows(
    t("step.part.scale"),
    listed.map((other) => {
      const score = head.scores[other];
      const now = share >= 1 || !Number.isFinite(score) ? score : dots[other] + (score - dots[other]) * share;
      return {
        ...rowOf(data, other),
        text: short(share >= 1 ? score : dots[other]),
        value: now,
        pale: dots[other],
        lines: [
          { text: quoted(step.texts[other]), strong: true },
          { text: "q · k", value: decimal(dots[other], 4) },
          { text: t("step.caption.scores"), value: decimal(score, 4) },
        ],
      };
    }),
    { most, colour: theme.positive, head: ["", share >= 1 ? t("step.caption.scores") : "q · k", ""] },
  );
  paintOmitted(scene, data, listed);
  // The causal mask as a small square: row T is this token's; what lies right of the diagonal is later.
  const shown = Math.min(head.length, 12);
  const all = shown + 4;
  const cell = scene.narrow ? 9 : 12;
  const top = scene.y + 4;
  for (let row = 0; row < all; row += 1) {
    for (let column = 0; column < all; column += 1) {
      const seen = column <= row;
      const mine = row === shown - 1;
      const fill = !seen ? theme.surface : mine ? theme.accent : hex(sequential(0.3, theme));
      painter.rect(column * cell, top + row * cell, cell - 1.5, cell - 1.5, {
        fill,
        stroke: seen ? undefined : theme.rule,
      });
    }
  }
  const left = all * cell + 14;
  const middle = top + (shown - 0.5) * cell;
  scene.text(`${quoted(step.token.text)}  (T) = (${head.length})`, left, middle - 9, {
    size: 12.5,
    weight: 600,
    maxWidth: width - left,
  });
  scene.text(t("step.caption.masked"), left, middle + 9, { size: 12, fill: theme.muted, maxWidth: width - left });
  scene.y = top + all * cell + 10;
}

/** @type {Picture} */
function paintSoftmax(scene, data) {
  const { head, step } = data;
  const { progress } = scene;
  const { powers, sum, highest } = softmaxParts(head.scores);
  const listed = keysOf(scene, data);
  scene.formula(`e^(s − ${short(highest)}) ÷ Σ  (Σ = ${short(sum)})`);
  const divided = phase(progress, 1, 2);
  scene.rows(
    t("step.caption.weight"),
    listed.map((other) => ({
      ...rowOf(data, other),
      value: head.weights[other],
      text: divided > 0 ? `${short(powers[other])} → ${decimal(head.weights[other], 3)}` : short(powers[other]),
      lines: [
        { text: quoted(step.texts[other]), strong: true },
        { text: t("step.caption.scores"), value: decimal(head.scores[other], 4) },
        { text: t("step.caption.power"), value: decimal(powers[other], 4) },
        { text: t("step.caption.weight"), value: decimal(head.weights[other], 4) },
      ],
    })),
    {
      most: largest(head.weights),
      shown: phase(progress, 0, 1.5),
      text: scene.narrow ? 116 : 140,
      colour: headColour(head.head, scene.theme),
      head: ["", `e^(…) → ${t("step.caption.weight")}`, ""],
    },
  );
  const total = head.weights.reduce((all, weight) => all + weight, 0);
  scene.formula(`Σ = ${decimal(total, 4)}`);
  paintOmitted(scene, data, listed);
}

/** @type {Picture} */
function paintValues(scene, data) {
  const { head, step, off } = data;
  const { progress, theme } = scene;
  const listed = keysOf(scene, data);
  const most = largest(head.weights);
  const colour = headColour(head.head, theme);
  scene.rows(
    t("step.part.values"),
    listed.map((other) => ({
      ...rowOf(data, other),
      strip: vectorOf(data, other, head.values),
      faint: 0.12 + 0.88 * Math.min(1, head.weights[other] / most),
      text: `× ${decimal(head.weights[other], 3)}`,
      value: head.weights[other],
      lines: [
        { text: quoted(step.texts[other]), strong: true },
        { text: t("step.caption.weight"), value: percent(head.weights[other]) },
      ],
    })),
    {
      scale: largest(head.values),
      most,
      shown: phase(progress, 0, 1.5),
      colour,
      head: [`v  (T, D) = (${head.length}, ${head.d})`, t("step.caption.weight"), ""],
    },
  );
  paintOmitted(scene, data, listed);
  scene.gap(4);
  const name = t("step.name.headOut", { head: head.head });
  scene.strip(off ? `${name} · ${t("step.off")}` : name, head.output, {
    shape: `(D) = (${head.d})`,
    sign: "Σ",
    colour,
    shown: eased(phase(progress, 1, 2)),
  });
  if (off) scene.caption(t("step.offHead"), { fill: theme.negative, weight: 600 });
}

/** The outputs of all heads, which move together into one vector. @type {Picture} */
function paintJoin(scene, { about, layer, head, isOff }) {
  const { H, D } = sizesOf(about);
  const { theme, painter, progress, width, narrow } = scene;
  const scale = largest(layer.heads);
  scene.shapes([
    { name: t("step.heads"), rows: H, columns: D, letters: "H, D" },
    "→",
    { name: t("step.name.joined"), rows: 1, columns: H * D, letters: "H·D" },
  ]);
  const label = narrow ? 78 : 120;
  const height = Math.max(9, Math.min(22, 250 / H));
  const top = scene.y;
  for (let other = 0; other < H; other += 1) {
    const y = top + other * (height + 5);
    const values = layer.heads.subarray(other * D, (other + 1) * D);
    const colour = headColour(other, theme);
    const name = `${t("step.head")} ${other}${isOff(other) ? ` · ${t("step.off")}` : ""}`;
    painter.rect(0, y, 4, height, { fill: colour, radius: 2 });
    scene.text(name, 10, y + height / 2, {
      size: Math.min(13, height + 2),
      weight: other === head.head ? 700 : 400,
      maxWidth: label - 12,
    });
    scene.cells(name, values, { x: label, y, width: Math.min(20, (width - label) / D), height, columns: D, scale });
  }
  scene.y = top + H * (height + 5) + 6;
  scene.operator("↓");
  scene.heading(t("step.name.joined"), `(H·D) = (${H * D})`);
  scene.vectors.push([t("step.name.joined"), layer.joined]);
  const cell = width / (H * D);
  for (let other = 0; other < H; other += 1) {
    const come = eased(phase(progress, other, H));
    const values = layer.heads.subarray(other * D, (other + 1) * D);
    const x = other * D * cell;
    if (come > 0) {
      const y = scene.y - (1 - come) * 60;
      const at = { x, y, width: cell, height: 24, columns: D, scale, opacity: come, first: other * D };
      scene.cells(t("step.name.joined"), values, at);
      painter.rect(x, scene.y + 27, D * cell - 1, 4, { fill: headColour(other, theme) });
    }
  }
  scene.y += 40;
}

/** @type {Record<string, Picture>} */
export const ATTENTION_PICTURES = {
  qkv: paintProjections,
  qknorm: paintHeadNorms,
  rotation: paintRotation,
  scores: paintScores,
  scale: paintScale,
  softmax: paintSoftmax,
  values: paintValues,
  join: paintJoin,
  output: (scene, { about, features, layer }) => {
    const { C, H, D } = sizesOf(about);
    scene.shapes([
      { name: t("step.name.joined"), rows: 1, columns: H * D, letters: "H·D" },
      "×",
      { name: "W_o", rows: H * D, columns: C, letters: "H·D, C" },
      "→",
      { name: t("step.name.attentionOut"), rows: 1, columns: C, letters: "C" },
    ]);
    paintChain(scene, [
      { name: t("step.name.joined"), values: layer.joined, shape: "(H·D)" },
      {
        name: t("step.name.attentionOut"),
        values: layer.attention_out,
        sign: "↓",
        about: features.out_bias ? "· W_o + b_o" : "· W_o",
      },
    ]);
  },
};
