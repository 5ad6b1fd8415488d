// One step of training, with every number: forward, loss, gradients, update, and the loss after it.

import { decimal, percent, signed, t } from "../base/words.js";
import { sum } from "./arithmetic.js";
import { cell, drawing, rect, text } from "./drawing.js";
import { backward, forward, update } from "./tiny_model.js";

const TOKENS = ["학", "교", "에", "서"];
const [TOKEN, TARGET] = [0, 1]; // 학 is read, 교 follows
const RATES = [0.1, 0.3, 1, 3];
const UPDATES = 4;
const PHASES = 5; // embedding, logits, loss, gradients, update
const [ROW, SIDE] = [26, 42];
const COLUMNS = { embedding: 26, head: 26 + 2 * SIDE + 12, logit: 26 + 4 * SIDE + 24, probability: 26 + 5 * SIDE + 36 };
const [FORWARD, BACKWARD] = [40, 196];
const LARGEST = 1.5;

/** @type {import("./tiny_model.js").Parameters} */
export const START = {
  embedding: [
    [0.8, -0.4],
    [-0.3, 0.9],
    [0.5, 0.6],
    [-0.7, -0.2],
  ],
  head: [
    [0.6, 0.3],
    [-0.5, 0.2],
    [0.9, -0.6],
    [0.1, 0.7],
  ],
};

/**
 * The numbers at a step: `update` of them are done, and `phase` says how far the next one is.
 * @param {import("./frame.js").State} state
 */
export function training({ rate, step }) {
  const [done, phase] = [Math.floor(step / PHASES), step % PHASES];
  let parameters = START;
  for (let i = 0; i < done; i++) parameters = update(parameters, backward(parameters, TOKEN, TARGET), RATES[rate]);
  const gradients = backward(parameters, TOKEN, TARGET);
  const after = update(parameters, gradients, RATES[rate]);
  return {
    done,
    phase,
    parameters,
    gradients,
    after,
    now: forward(parameters, TOKEN, TARGET),
    then: forward(after, TOKEN, TARGET),
  };
}

/** @type {(x: number, y: number, rows: number[][], written: (value: number) => string) => import("./drawing.js").Shape[]} */
const matrix = (x, y, rows, written) =>
  rows.flatMap((values, v) =>
    values.flatMap((value, c) => cell(x + c * SIDE, y + v * ROW, SIDE, ROW, written(value), value / LARGEST)),
  );

/** @type {(y: number, names: string[]) => import("./drawing.js").Shape[]} the names of the tokens and of the columns */
const heads = (y, [embedding, head, logit, probability]) => [
  ...TOKENS.map((token, v) => text(0, y + v * ROW + 18, token)),
  text(COLUMNS.embedding + SIDE, y - 8, embedding, "n", "middle"),
  text(COLUMNS.head + SIDE, y - 8, head, "n", "middle"),
  text(COLUMNS.logit + SIDE / 2, y - 8, logit, "n", "middle"),
  text(COLUMNS.probability + SIDE / 2, y - 8, probability, "n", "middle"),
];

/** @type {(value: number) => string} */
const two = (value) => decimal(value, 2);
/** @type {(value: number) => string} */
const slope = (value) => signed(value, 2);

/** @type {import("./frame.js").Piece} */
export const trainingPiece = {
  name: "training",
  start: { rate: 1, step: 0 },
  still: { rate: 1, step: 4 },
  controls: () => [
    {
      kind: "slider",
      key: "rate",
      label: t("training.rate"),
      first: 0,
      last: RATES.length - 1,
      said: (value) => String(RATES[value]),
    },
    {
      kind: "steps",
      key: "step",
      label: t("piece.step"),
      first: 0,
      last: PHASES * UPDATES - 1,
      said: (value) =>
        t("training.step", { n: Math.floor(value / PHASES) + 1, part: (value % PHASES) + 1, parts: PHASES }),
    },
  ],
  draw(state) {
    const { phase, parameters, gradients, after, now, then } = training(state);
    const shown = phase === 4 ? after : parameters;
    const current = phase === 4 ? then : now;
    /** @type {(x: number, y: number, values: number[], written: (value: number) => string, from: number) => import("./drawing.js").Shape[]} */
    const column = (x, y, values, written, from) =>
      matrix(
        x,
        y,
        values.map((value) => [value]),
        (value) => (phase >= from ? written(value) : ""),
      );
    const loss = phase < 2 ? "" : t("training.loss", { loss: decimal(now.loss, 4) });
    return drawing(BACKWARD + 4 * ROW + 36, [
      text(0, 12, t(phase === 4 ? "training.updated" : "training.forward"), "t"),
      ...heads(FORWARD, ["E", "W", t("training.logit"), t("training.probability")]),
      ...matrix(COLUMNS.embedding, FORWARD, shown.embedding, two),
      ...matrix(COLUMNS.head, FORWARD, shown.head, two),
      ...column(COLUMNS.logit, FORWARD, phase >= 1 ? current.logits : [0, 0, 0, 0], two, 1),
      ...column(COLUMNS.probability, FORWARD, phase >= 2 ? current.probabilities : [0, 0, 0, 0], percent, 2),
      rect(COLUMNS.embedding, FORWARD + TOKEN * ROW, 2 * SIDE, ROW, "on"),
      rect(COLUMNS.probability, FORWARD + TARGET * ROW, SIDE, ROW, phase >= 2 ? "on" : "none"),
      text(0, BACKWARD - 28, t("training.backward"), "t"),
      ...heads(BACKWARD, ["∂L/∂E", "∂L/∂W", t("training.slope"), ""]),
      ...matrix(COLUMNS.embedding, BACKWARD, phase >= 3 ? gradients.embedding : zeros(), (value) =>
        phase >= 3 ? slope(value) : "",
      ),
      ...matrix(COLUMNS.head, BACKWARD, phase >= 3 ? gradients.head : zeros(), (value) =>
        phase >= 3 ? slope(value) : "",
      ),
      ...column(COLUMNS.logit, BACKWARD, phase >= 3 ? gradients.logits : [0, 0, 0, 0], slope, 3),
      text(0, BACKWARD + 4 * ROW + 26, phase === 4 ? `${loss} → ${decimal(then.loss, 4)}` : loss, "t"),
    ]);
  },
  say(state) {
    const { phase, parameters, gradients, now, then } = training(state);
    const change = [...gradients.head, ...gradients.embedding].map((row) => sum(row.map((value) => value * value)));
    return t(`training.phase${phase}`, {
      token: TOKENS[TOKEN],
      target: TOKENS[TARGET],
      x: parameters.embedding[TOKEN].map(two).join(", "),
      probability: percent(now.probabilities[TARGET]),
      loss: decimal(now.loss, 4),
      slope: slope(gradients.logits[TARGET]),
      rate: RATES[state.rate],
      before: decimal(now.loss, 4),
      after: decimal(then.loss, 4),
      expected: signed(-RATES[state.rate] * sum(change), 4),
      change: signed(then.loss - now.loss, 4),
    });
  },
};

/** @type {() => number[][]} */
const zeros = () => TOKENS.map(() => [0, 0]);
