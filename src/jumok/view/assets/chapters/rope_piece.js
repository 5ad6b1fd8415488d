// Rotary positions: the pairs of q and k turn with their positions, and the score depends on the distance only.

import { decimal, t } from "../base/words.js";
import { dot, frequencies, rotate } from "./arithmetic.js";
import { WIDTH, drawing, line, shape, text } from "./drawing.js";

const D = 8;
const BASE = 100; // small, so that one sees the slow pairs turn as well
const TURNS = frequencies(D, BASE); // (D/2,) radians per position
const VECTOR = [1, 1, 1, 1, 0, 0, 0, 0]; // q and k: each pair is the point (1, 0)
const LAST_POSITION = 40;
const LAST_DISTANCE = 20;
const RADIUS = 32;
const NEAR = 0.93; // cosine of the angle below which the names of two hands would overlap
const [CENTRE, CURVE_TOP, CURVE_HEIGHT, CURVE_LEFT] = [66, 176, 84, 30];

/** @type {(position: number, distance: number) => {q: number[], k: number[]}} both turned */
export function turned(position, distance) {
  return { q: rotate(VECTOR, position + distance, TURNS), k: rotate(VECTOR, position, TURNS) };
}

/** @type {(position: number, distance: number) => number} */
export function score(position, distance) {
  const { q, k } = turned(position, distance);
  return dot(q, k);
}

/** @type {(distance: number) => number} */
const across = (distance) => CURVE_LEFT + (distance * (WIDTH - CURVE_LEFT - 8)) / LAST_DISTANCE;
/** @type {(value: number) => number} */
const up = (value) => CURVE_TOP + (CURVE_HEIGHT * (4 - value)) / 8;

/** @type {(centre: number, x: number, y: number, name: string, label: string) => import("./drawing.js").Shape[]} */
function hand(centre, x, y, name, label) {
  const further = (RADIUS + 8) / RADIUS;
  return [
    line(centre, CENTRE, centre + RADIUS * x, CENTRE - RADIUS * y, name),
    text(centre + RADIUS * further * x, CENTRE - RADIUS * further * y + 4, label, "m", "middle"),
  ];
}

/** @type {(position: number) => import("./drawing.js").Shape[]} the score for each distance, at this position */
function curve(position) {
  const points = Array.from({ length: LAST_DISTANCE * 4 + 1 }, (_, i) => i / 4).map(
    (distance) => `${across(distance).toFixed(1)},${up(score(position, distance)).toFixed(1)}`,
  );
  return [
    line(CURVE_LEFT, up(0), WIDTH - 8, up(0), "axis"),
    line(CURVE_LEFT, CURVE_TOP, CURVE_LEFT, CURVE_TOP + CURVE_HEIGHT, "axis"),
    text(CURVE_LEFT - 5, up(4) + 8, "4", "n", "end"),
    text(CURVE_LEFT - 5, up(0) + 4, "0", "n", "end"),
    text(CURVE_LEFT - 5, up(-4), "−4", "n", "end"),
    shape("polyline", { class: "q", points: points.join(" ") }),
    ...[0, 5, 10, 15, 20].map((distance) =>
      text(across(distance), CURVE_TOP + CURVE_HEIGHT + 15, String(distance), "n", "middle"),
    ),
    text(WIDTH - 8, CURVE_TOP + CURVE_HEIGHT + 31, t("rope.distanceAxis"), "n", "end"),
  ];
}

/** @type {import("./frame.js").Piece} */
export const ropePiece = {
  name: "rope",
  start: { position: 2, distance: 3 },
  still: { position: 2, distance: 3 },
  controls: () => [
    { kind: "slider", key: "position", label: t("rope.position"), first: 0, last: LAST_POSITION, said: String },
    { kind: "slider", key: "distance", label: t("rope.distance"), first: 0, last: LAST_DISTANCE, said: String },
  ],
  draw({ position, distance }) {
    const { q, k } = turned(position, distance);
    const half = D / 2;
    const pairs = TURNS.map((turn, i) => {
      const x = 48 + 88 * i;
      const near = Math.cos(distance * turn) > NEAR;
      return [
        text(x, 12, t("rope.turn", { turn: decimal(turn, 2) }), "n", "middle"),
        shape("circle", { class: "axis", cx: x, cy: CENTRE, r: RADIUS }),
        ...hand(x, k[i], k[i + half], "k", near ? "" : "k"),
        ...hand(x, q[i], q[i + half], "q", near ? "q,k" : "q"),
        text(x, CENTRE + RADIUS + 26, decimal(q[i] * k[i] + q[i + half] * k[i + half], 2), "m", "middle"),
        ...(i ? [text(x - 44, CENTRE + RADIUS + 26, "+", "m", "middle")] : []),
      ];
    });
    const whole = dot(q, k);
    return drawing(CURVE_TOP + CURVE_HEIGHT + 36, [
      ...pairs,
      text(WIDTH / 2, CENTRE + RADIUS + 50, t("rope.score", { score: decimal(whole, 2) }), "t", "middle"),
      ...curve(position),
      shape("circle", { class: "dot", cx: across(distance), cy: up(whole), r: 5 }),
    ]);
  },
  say({ position, distance }) {
    return t("rope.said", {
      key: position,
      query: position + distance,
      distance,
      score: decimal(score(position, distance), 2),
    });
  },
};
