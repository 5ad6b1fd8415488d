// The interactive pieces of the chapters: their sums, and that each state can be drawn and said.

import assert from "node:assert/strict";
import { test } from "node:test";

import { contrast, rgb, themeColours } from "../../src/jumok/view/assets/base/colours.js";
import { setLanguage, t } from "../../src/jumok/view/assets/base/words.js";
import * as sums from "../../src/jumok/view/assets/chapters/arithmetic.js";
import { STRONGEST, asText } from "../../src/jumok/view/assets/chapters/drawing.js";
import { tables } from "../../src/jumok/view/assets/chapters/mask_piece.js";
import { plain, steps } from "../../src/jumok/view/assets/chapters/online_piece.js";
import { PIECES } from "../../src/jumok/view/assets/chapters/pieces.js";
import { score } from "../../src/jumok/view/assets/chapters/rope_piece.js";
import { numbers } from "../../src/jumok/view/assets/chapters/softmax_piece.js";
import { backward, forward, update } from "../../src/jumok/view/assets/chapters/tiny_model.js";
import { START, training } from "../../src/jumok/view/assets/chapters/training_piece.js";

const near = (one, other, tolerance = 1e-12) => assert.ok(Math.abs(one - other) <= tolerance, `${one} is not ${other}`);

test("a softmax", () => {
  sums.softmax([Math.log(1), Math.log(3), Math.log(2)]).forEach((weight, i) => near(weight, [1 / 6, 3 / 6, 2 / 6][i]));
  assert.deepEqual(sums.softmax([1000, -Infinity]), [1, 0]);
  assert.deepEqual(sums.softmax([-Infinity, -Infinity]), [0, 0]); // as in jumok.nn.attention
  near(sums.effectiveTokens([0.25, 0.25, 0.25, 0.25]), 4);
  near(sums.effectiveTokens([1, 0]), 1);
});

test("scores of coin flips are divided by √D and by the temperature", () => {
  const all = { width: 5, divided: 0, temperature: 3 };
  const { D, dots, weights } = numbers(all);
  assert.equal(D, 1024);
  assert.ok(dots.every((product) => Number.isInteger(product) && Math.abs(product) <= D));
  assert.ok(Math.max(...weights) > 0.99); // what the chapter says of wide vectors
  assert.ok(Math.max(...numbers({ ...all, divided: 1 }).weights) < 0.8);
  numbers({ ...all, divided: 1, temperature: 4 }).scores.forEach((scaled, i) => near(scaled, dots[i] / 32 / 2));
});

test("with the mask no weight is in the future, and what is left keeps its proportions", () => {
  const [masked, open] = [1, 0].map((on) => tables({ masked: on }).weights);
  masked.forEach((row, t) => {
    near(sums.sum(row), 1);
    near(sums.sum(row.slice(t + 1)), 0);
    const kept = sums.sum(open[t].slice(0, t + 1));
    row.slice(0, t + 1).forEach((weight, s) => near(weight, open[t][s] / kept));
  });
});

test("the score of rotated vectors depends on the distance only", () => {
  for (const distance of [0, 3, 20]) {
    for (const position of [1, 17, 40]) near(score(position, distance), score(0, distance));
  }
  near(score(5, 0), 4);
  const turns = sums.frequencies(8, 100);
  near(turns[3], 100 ** -0.75);
  const x = [1, 2, 3, 4, 5, 6, 7, 8];
  const turned = sums.rotate(x, 9, turns);
  near(sums.dot(turned, turned), sums.dot(x, x));
});

test("online softmax equals the plain one after each tile", () => {
  for (const size of [1, 2, 3, 4, 6, 12]) {
    for (let step = 1; step * size <= 12; step++) near(sums.result(steps(size, step).after), plain(step * size));
  }
  const seen = sums.see(sums.see(sums.nothingSeen, [0], [6]), [Math.log(3)], [12]); // the numbers of chapter 9
  near(seen.total, 4 / 3);
  near(seen.gathered, 14);
});

test("the gradients of the tiny model are finite differences", () => {
  const gradients = backward(START, 0, 1);
  const change = 1e-5;
  for (const matrix of ["embedding", "head"]) {
    START[matrix].forEach((row, v) =>
      row.forEach((_, c) => {
        const [more, less] = [change, -change].map((by) => {
          const moved = structuredClone(START);
          moved[matrix][v][c] += by;
          return forward(moved, 0, 1).loss;
        });
        near(gradients[matrix][v][c], (more - less) / (2 * change), 1e-9);
      }),
    );
  }
});

test("a step of training takes the rate times the gradient away and lowers the loss", () => {
  const { parameters, gradients, after, now, then } = training({ rate: 1, step: 0 });
  near(after.head[1][0], parameters.head[1][0] - 0.3 * gradients.head[1][0]);
  assert.ok(then.loss < now.loss);
  assert.deepEqual(training({ rate: 1, step: 5 }).parameters, update(START, backward(START, 0, 1), 0.3));
});

test("numbers can be read on the strongest colours in both themes", () => {
  for (const theme of ["light", "dark"].map(themeColours)) {
    for (const colour of [theme.positive, theme.negative]) {
      const below = rgb(theme.surface);
      const mixed = rgb(colour).map((part, i) => STRONGEST * part + (1 - STRONGEST) * below[i]);
      assert.ok(contrast(rgb(theme.ink), mixed) >= 4.5);
    }
    assert.ok(contrast(rgb(theme.muted), rgb(theme.masked)) >= 4.5);
  }
});

/** All states that differ from the first one in one control, and some that differ in all. */
function* states(piece) {
  const values = (control) =>
    control.kind === "switch"
      ? [0, 1]
      : control.kind === "choice"
        ? control.options.map((_, i) => i)
        : Array.from({ length: control.last - control.first + 1 }, (_, i) => control.first + i);
  yield piece.start;
  yield piece.still;
  for (const control of piece.controls(piece.start)) {
    for (const value of values(control)) {
      const state = { ...piece.start, [control.key]: value };
      yield state;
      const last = Object.fromEntries(piece.controls(state).map((other) => [other.key, values(other).at(-1)]));
      if (piece.controls({ ...last, [control.key]: value }).every((c) => !("last" in c) || last[c.key] <= c.last))
        yield { ...last, [control.key]: value };
    }
  }
}

const skeleton = (shape) => [shape.tag, ...shape.children.filter((child) => child.tag).map(skeleton)];

for (const piece of PIECES) {
  test(`each state of ${piece.name} can be drawn and said in both languages`, () => {
    for (const language of ["ko", "en"]) {
      setLanguage(language);
      const first = JSON.stringify(skeleton(piece.draw(piece.start)));
      let drawn = 0;
      for (const state of states(piece)) {
        const drawing = piece.draw(state);
        const said = `${asText(drawing)} ${piece.say(state)} ${t(`${piece.name}.title`)}`;
        const at = JSON.stringify(state);
        assert.doesNotMatch(said, /NaN|undefined|Infinity|\{|\}|object|\w\.[a-z]/, at);
        assert.equal(/[가-힣]{2}/.test(piece.say(state)), language === "ko", at);
        assert.equal(JSON.stringify(skeleton(drawing)), first, `other elements in ${at}`);
        const outside = drawing.children.filter(({ attributes: { x = 0, y = 0, width = 0, height = 0 } }) => {
          return x < 0 || x + width > 360.01 || y < 0 || y + height > drawing.attributes.height;
        });
        assert.deepEqual(outside, []);
        drawn += 1;
      }
      assert.ok(drawn > 4);
    }
  });
}
