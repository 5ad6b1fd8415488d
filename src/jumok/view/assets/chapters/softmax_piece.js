// Why scores are divided by √D, and what a temperature does: scores of one query with six keys, and their softmax.

import { decimal, percent, t } from "../base/words.js";
import { effectiveTokens, products, softmax, sum } from "./arithmetic.js";
import { WIDTH, drawing, line, rect, text } from "./drawing.js";

const WIDTHS = [1, 4, 16, 64, 256, 1024]; // D
const TEMPERATURES = [0.1, 0.25, 0.5, 1, 2, 4, 10];
const KEYS = 6;
const ROW = 26;
const TOP = 42;

/**
 * Coin flips: +1 or -1, the same ones each time (the generator mulberry32).
 * @param {number} count @param {number} seed @returns {number[]}
 */
function flips(count, seed) {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (mixed ^ (mixed >>> 14)) & 1 ? 1 : -1;
  });
}

const WIDEST = WIDTHS[WIDTHS.length - 1];
const QUERY = flips(WIDEST, 1);
const FLIPPED = Array.from({ length: KEYS }, (_, i) => flips(WIDEST, 1610 + i));

/**
 * The numbers of a state: dot products of the first D coin flips, scores after both divisions, and weights.
 * @param {import("./frame.js").State} state
 */
export function numbers(state) {
  const D = WIDTHS[state.width];
  const temperature = TEMPERATURES[state.temperature];
  const dots = FLIPPED.map((key) => sum(products(QUERY.slice(0, D), key)));
  const scores = dots.map((score) => score / (state.divided ? Math.sqrt(D) : 1) / temperature);
  return { D, temperature, dots, scores, weights: softmax(scores) };
}

/** @type {import("./frame.js").Piece} */
export const softmaxPiece = {
  name: "softmax",
  start: { width: 3, divided: 1, temperature: 3 },
  still: { width: 3, divided: 0, temperature: 3 },
  controls: () => [
    {
      kind: "slider",
      key: "width",
      label: t("softmax.width"),
      first: 0,
      last: WIDTHS.length - 1,
      said: (value) => `D = ${WIDTHS[value]}`,
    },
    {
      kind: "slider",
      key: "temperature",
      label: t("softmax.temperature"),
      first: 0,
      last: TEMPERATURES.length - 1,
      said: (value) => String(TEMPERATURES[value]),
    },
    { kind: "switch", key: "divided", label: t("softmax.divided") },
  ],
  draw(state) {
    const { D, temperature, dots, scores, weights } = numbers(state);
    const largest = Math.max(3, ...scores.map(Math.abs));
    const formula = `q·k${state.divided ? ` ÷ √${D}` : ""}${temperature === 1 ? "" : ` ÷ ${temperature}`}`;
    const rows = dots.map((score, i) => {
      const y = TOP + i * ROW;
      return [
        text(0, y + 17, t("softmax.key", { n: i + 1 })),
        text(88, y + 17, decimal(score, 0), "m", "end"),
        text(144, y + 17, decimal(scores[i], Math.abs(scores[i]) < 100 ? 2 : 0), "m", "end"),
        rect(192, y + 5, (38 * scores[i]) / largest, ROW - 10, scores[i] < 0 ? "negative" : "positive"),
        line(192, y, 192, y + ROW, "axis"),
        rect(244, y + 5, 70 * weights[i], ROW - 10, "positive"),
        line(244, y, 244, y + ROW, "axis"),
        text(WIDTH, y + 17, percent(weights[i]), "m", "end"),
      ];
    });
    const high = TOP + KEYS * ROW + 10;
    return drawing(high, [
      text(88, 32, "q·k", "t", "end"),
      text(144, 32, t("softmax.score"), "t", "end"),
      text(244, 32, t("softmax.weight"), "t"),
      text(0, 12, t("softmax.formula", { D, formula }), "n"),
      ...rows,
    ]);
  },
  say(state) {
    const { scores, weights } = numbers(state);
    const largest = Math.max(...weights);
    return t("softmax.said", {
      spread: decimal(Math.max(...scores) - Math.min(...scores), 1),
      largest: percent(largest),
      tokens: effectiveTokens(weights).toFixed(1),
      n: KEYS,
    });
  },
};
