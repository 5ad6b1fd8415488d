// One score of a trained head: q·k element by element, the sum so far, and the division by √D.

import { decimal, signed, t } from "../base/words.js";
import { products, sum } from "./arithmetic.js";
import { cell, drawing, rect, text } from "./drawing.js";
import { KEYS, QUERIES, TOKENS } from "./recorded.js";

const D = QUERIES[0].length;
const ROW = 24;
const TOP = 30;
const [LARGEST, LARGEST_PRODUCT] = [3.2, 8];

/** @type {(value: number) => string} */
const position = (value) => `${value}: ${TOKENS[value]}`;

/** @type {import("./frame.js").Piece} */
export const dotPiece = {
  name: "dot",
  start: { query: 5, key: 4, step: 0 },
  still: { query: 5, key: 4, step: D + 1 },
  controls: () => [
    { kind: "slider", key: "query", label: t("dot.query"), first: 0, last: TOKENS.length - 1, said: position },
    { kind: "slider", key: "key", label: t("dot.key"), first: 0, last: TOKENS.length - 1, said: position },
    {
      kind: "steps",
      key: "step",
      label: t("piece.step"),
      first: 0,
      last: D + 1,
      said: (value) => `${value} / ${D + 1}`,
    },
  ],
  draw({ query, key, step }) {
    const [q, k] = [QUERIES[query], KEYS[key]];
    const terms = products(q, k);
    const rows = terms.map((term, i) => {
      const y = TOP + i * ROW;
      const done = i < step;
      return [
        text(0, y + 16, String(i), "n"),
        ...cell(22, y, 66, ROW, decimal(q[i], 2), q[i] / LARGEST),
        text(97, y + 16, "×", "", "middle"),
        ...cell(106, y, 66, ROW, decimal(k[i], 2), k[i] / LARGEST),
        text(182, y + 16, "=", "", "middle"),
        ...cell(192, y, 72, ROW, done ? signed(term, 2) : "", done ? term / LARGEST_PRODUCT : 0),
        text(352, y + 16, done ? decimal(sum(terms.slice(0, i + 1)), 2) : "", "m", "end"),
      ];
    });
    const y = TOP + D * ROW;
    const score = sum(terms);
    const now = Math.min(step, D) - 1;
    return drawing(y + 54, [
      text(55, 18, `q: ${TOKENS[query]}`, "t", "middle"),
      text(139, 18, `k: ${TOKENS[key]}`, "t", "middle"),
      text(228, 18, t("dot.product"), "t", "middle"),
      text(352, 18, t("dot.sum"), "t", "end"),
      ...rows,
      text(352, y + 20, step >= D ? `q·k = ${decimal(score, 2)}` : "", "t", "end"),
      text(
        352,
        y + 42,
        step > D ? `${decimal(score, 2)} ÷ √${D} = ${decimal(score / Math.sqrt(D), 2)}` : "",
        "t",
        "end",
      ),
      rect(22, TOP + Math.max(0, now) * ROW, 336, ROW, now < 0 ? "none" : "on"),
    ]);
  },
  say({ query, key, step }) {
    const [q, k] = [QUERIES[query], KEYS[key]];
    const terms = products(q, k);
    const i = step - 1;
    if (step === 0) return t("dot.begin", { query: TOKENS[query], key: TOKENS[key], D });
    if (step > D) return t("dot.divided", { D, score: decimal(sum(terms) / Math.sqrt(D), 2) });
    return t("dot.said", {
      i,
      q: decimal(q[i], 2),
      k: decimal(k[i], 2),
      product: decimal(terms[i], 2),
      sum: decimal(sum(terms.slice(0, step)), 2),
    });
  },
};
