// The KV cache fills while tokens come: what each step computes with a cache and without one.

import { count, t } from "../base/words.js";
import { multiplications, work } from "./arithmetic.js";
import { drawing, rect, text } from "./drawing.js";

const TOKENS = [..."토끼가␣물을␣주었어요"];
const LONGEST_PROMPT = 6;
const SIDE = 16;
const TOP = 68; // of the keys and values
const GRID = TOP + SIDE + 26;
const PANELS = [0, 184];
const T = TOKENS.length - 1; // the last token is written, but never read

/** The model of the counts: the one whose queries and keys are in recorded.js. */
export const SIZES = {
  nLayer: 2,
  nEmbd: 96,
  nHead: 6,
  nKvHead: 6,
  headDim: 8,
  mlpWidth: 384,
  gated: false,
  vocabSize: 867,
};

/**
 * One panel: keys and values above, below them the pairs of queries (rows) and keys (columns) of this step.
 * @param {number} left @param {boolean} cached @param {number} prompt
 * @param {number} step from 1
 */
function panel(left, cached, prompt, step) {
  const read = prompt + step - 1; // tokens that the model has read after this step
  const first = cached && step > 1 ? read - 1 : 0; // the first position that is computed in it
  const tokens = TOKENS.slice(0, T).map((token, i) => {
    const x = left + i * SIDE;
    const state = i >= read ? "" : i >= first ? "computed" : "kept";
    return [
      rect(x, TOP, SIDE, SIDE, state === "computed" ? "positive" : "none"),
      rect(x, TOP, SIDE, SIDE, state === "kept" ? "seen" : "cell"),
      text(x + SIDE / 2, TOP - 6, i < read ? token : "", "n", "middle"),
      text(x + SIDE / 2, TOP + 12, state === "kept" ? "·" : "", "s", "middle"),
    ];
  });
  const grid = Array.from({ length: T * T }, (_, at) => {
    const [row, column] = [Math.floor(at / T), at % T];
    const [x, y] = [left + column * SIDE, GRID + row * SIDE];
    const done = row >= first && row < read && column < read;
    return [rect(x, y, SIDE, SIDE, done ? "positive" : "none"), rect(x, y, SIDE, SIDE, "cell")];
  });
  const foot = GRID + T * SIDE;
  const [before, after] = [work(prompt, step - 1, cached), work(prompt, step, cached)];
  return [
    text(left, 14, t(cached ? "cache.with" : "cache.without"), "t"),
    text(left, 34, t("cache.keys"), "n"),
    ...tokens.flat(),
    text(left, GRID - 8, t("cache.grid"), "n"),
    ...grid.flat(),
    text(left, foot + 18, t("cache.positions", { n: after.positions - before.positions }), "n"),
    text(left, foot + 34, t("cache.pairs", { n: after.pairs - before.pairs }), "n"),
    text(left, foot + 54, t("cache.total"), "n"),
    text(left, foot + 70, count(multiplications(SIZES, after)), "t"),
  ];
}

/** @type {import("./frame.js").Piece} */
export const cachePiece = {
  name: "cache",
  start: { prompt: 4, step: 1 },
  still: { prompt: 4, step: 4 },
  controls: ({ prompt }) => [
    {
      kind: "slider",
      key: "prompt",
      label: t("cache.prompt"),
      first: 1,
      last: LONGEST_PROMPT,
      said: (value) => TOKENS.slice(0, value).join(""),
    },
    {
      kind: "steps",
      key: "step",
      label: t("cache.step"),
      first: 1,
      last: TOKENS.length - prompt,
      said: (value) => `${value} / ${TOKENS.length - prompt}`,
    },
  ],
  draw({ prompt, step }) {
    return drawing(GRID + T * SIDE + 78, [
      ...panel(PANELS[0], false, prompt, step),
      ...panel(PANELS[1], true, prompt, step),
    ]);
  },
  say({ prompt, step }) {
    const [without, cached] = [false, true].map((kept) => multiplications(SIZES, work(prompt, step, kept)));
    return t(step === 1 ? "cache.first" : "cache.said", {
      token: TOKENS[prompt + step - 1],
      step,
      read: prompt + step - 1,
      last: TOKENS[prompt + step - 2],
      factor: (without / cached).toFixed(1),
    });
  },
};
