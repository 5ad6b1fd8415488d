// Online softmax: a tile of keys at a time, with the largest score, the sum and the weighted sum that are kept.

import { decimal, t } from "../base/words.js";
import { correction, dot, nothingSeen, result, see, softmax } from "./arithmetic.js";
import { WIDTH, drawing, line, rect, text } from "./drawing.js";

const SCORES = [0.5, 1.2, -0.6, 0.9, 2.1, 1, 0.2, 3, 1.4, -1, 2.2, 0.7];
const VALUES = [2, 5, 1, 4, 8, 3, 6, 9, 2, 7, 4, 5];
const SIZES = [1, 2, 3, 4, 6, 12]; // of a tile
const N = SCORES.length;
const SIDE = WIDTH / N;
const [ZERO, UNIT] = [84, 20];
const TABLE = 176;

/**
 * What is kept before and after a step, and by how much the older sums are multiplied.
 * @param {number} size of a tile
 * @param {number} step from 0: nothing seen
 */
export function steps(size, step) {
  let [before, after, factor] = [nothingSeen, nothingSeen, 1];
  for (let i = 0; i < step; i++) {
    const scores = SCORES.slice(i * size, (i + 1) * size);
    before = after;
    factor = correction(before, scores);
    after = see(before, scores, VALUES.slice(i * size, (i + 1) * size));
  }
  return { before, after, factor };
}

/** @type {(seen: number) => number} the plain softmax over the first keys */
export function plain(seen) {
  return dot(softmax(SCORES.slice(0, seen)), VALUES.slice(0, seen));
}

/** @type {(y: number, cells: string[], name: string) => import("./drawing.js").Shape[]} */
const row = (y, cells, name) =>
  cells.map((content, i) => text([0, 196, 270, 352][i], y, content, i ? `m ${name}` : name, i ? "end" : "start"));

/** @type {import("./frame.js").Piece} */
export const onlinePiece = {
  name: "online",
  start: { size: 1, step: 0 },
  still: { size: 1, step: 4 },
  controls: ({ size }) => [
    {
      kind: "slider",
      key: "size",
      label: t("online.size"),
      first: 0,
      last: SIZES.length - 1,
      said: (value) => t("online.keys", { n: SIZES[value] }),
    },
    {
      kind: "steps",
      key: "step",
      label: t("online.tile"),
      first: 0,
      last: N / SIZES[size],
      said: (value) => `${value} / ${N / SIZES[size]}`,
    },
  ],
  draw(state) {
    const size = SIZES[state.size];
    const seen = state.step * size;
    const { before, after, factor } = steps(size, state.step);
    const keys = SCORES.map((score, i) => {
      const x = i * SIDE;
      return [
        rect(x, 0, SIDE, 132, i < seen ? "seen" : "none"),
        rect(x + 7, ZERO, SIDE - 14, -UNIT * score, score < 0 ? "negative" : "positive"),
        text(x + SIDE / 2, score < 0 ? ZERO - 6 : ZERO + 14, decimal(score, 1), "m", "middle"),
        text(x + SIDE / 2, 126, String(VALUES[i]), "m", "middle"),
      ];
    });
    const began = state.step > 0;
    const [y, gap] = [TABLE, 22];
    const number = decimal(factor, 4);
    return drawing(y + 5 * gap - 8, [
      ...keys,
      line(0, ZERO, WIDTH, ZERO, "axis"),
      rect(Math.max(0, seen - size) * SIDE + 1, 1, size * SIDE - 2, 130, began ? "on" : "none"),
      text(0, 146, t("online.rows"), "n"),
      ...row(y, ["", t("online.before"), t("online.factor"), t("online.after")], "t"),
      ...row(
        y + gap,
        [t("online.largest"), began ? decimal(before.largest, 2) : "", "", decimal(after.largest, 2)],
        "",
      ),
      ...row(
        y + 2 * gap,
        [t("online.total"), began ? decimal(before.total, 4) : "", began ? `× ${number}` : "", decimal(after.total, 4)],
        "",
      ),
      ...row(
        y + 3 * gap,
        [
          t("online.gathered"),
          began ? decimal(before.gathered, 4) : "",
          began ? `× ${number}` : "",
          decimal(after.gathered, 4),
        ],
        "",
      ),
      ...row(y + 4 * gap, [t("online.result"), "", "", began ? decimal(result(after), 4) : ""], "t"),
    ]);
  },
  say(state) {
    const size = SIZES[state.size];
    if (state.step === 0) return t("online.begin");
    const { before, after } = steps(size, state.step);
    const seen = state.step * size;
    const grown = before.largest !== -Infinity && after.largest > before.largest;
    const first = state.step === 1 ? "online.first" : grown ? "online.grown" : "online.same";
    const values = {
      old: decimal(before.largest, 1),
      now: decimal(after.largest, 1),
      seen,
      result: decimal(result(after), 4),
      plain: decimal(plain(seen), 4),
    };
    return `${t(first, values)} ${t(seen === N ? "online.end" : "online.said", values)}`;
  },
};
