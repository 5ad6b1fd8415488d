// Scores and weights of a trained head on a Korean sentence, with the causal mask and without it.

import { decimal, percent, t } from "../base/words.js";
import { attentionScores, causalMask, maskScores, softmax, sum } from "./arithmetic.js";
import { cell, drawing, rect, text } from "./drawing.js";
import { KEYS, QUERIES, TOKENS } from "./recorded.js";

const T = TOKENS.length;
const LEFT = 34;
const TOP = 44;
const [SIDE, ROW] = [42, 30];
const STRONGEST_SCORE = 7;

const SCORES = attentionScores(QUERIES, KEYS); // (T, S)
const MASK = causalMask(T, T);

/** The scores and the weights of a state. @param {import("./frame.js").State} state */
export function tables(state) {
  const scores = state.masked ? maskScores(SCORES, MASK) : SCORES;
  return { scores, weights: scores.map(softmax) };
}

/** @type {import("./frame.js").Piece} */
export const maskPiece = {
  name: "mask",
  start: { masked: 0, shown: 0, query: 3 },
  still: { masked: 1, shown: 1, query: 3 },
  controls: () => [
    { kind: "switch", key: "masked", label: t("mask.masked") },
    { kind: "choice", key: "shown", label: t("mask.shown"), options: [t("mask.scores"), t("mask.weights")] },
    {
      kind: "slider",
      key: "query",
      label: t("mask.query"),
      first: 0,
      last: T - 1,
      said: (value) => `${value}: ${TOKENS[value]}`,
    },
  ],
  draw(state) {
    const { scores, weights } = tables(state);
    const rows = TOKENS.map((token, row) => {
      const y = TOP + row * ROW;
      const cells = TOKENS.map((_, column) => {
        const x = LEFT + column * SIDE;
        const [score, weight] = [scores[row][column], weights[row][column]];
        const masked = score === -Infinity;
        const share = state.shown ? weight : masked ? 0 : score / STRONGEST_SCORE;
        return [
          rect(x, y, SIDE, ROW, masked ? "masked" : "none"),
          ...cell(x, y, SIDE, ROW, state.shown ? percent(weight) : decimal(score, 1), share),
          rect(x + 3, y + 3, SIDE - 6, ROW - 6, column > row && !masked ? "future" : "none"),
        ];
      });
      return [text(LEFT - 8, y + 20, token, state.query === row ? "s" : "", "end"), ...cells.flat()];
    });
    return drawing(TOP + T * ROW + 4, [
      text(LEFT, 14, t("mask.axes"), "n"),
      ...TOKENS.map((token, column) => text(LEFT + (column + 0.5) * SIDE, TOP - 8, token, "", "middle")),
      ...rows,
      rect(LEFT, TOP + state.query * ROW, T * SIDE, ROW, "on"),
    ]);
  },
  say(state) {
    const weights = tables(state).weights[state.query];
    const largest = weights.indexOf(Math.max(...weights));
    const future = sum(weights.slice(state.query + 1));
    return t(state.query === T - 1 ? "mask.last" : state.masked ? "mask.on" : "mask.off", {
      token: TOKENS[state.query],
      key: TOKENS[largest],
      weight: percent(weights[largest]),
      future: percent(future),
    });
  },
};
