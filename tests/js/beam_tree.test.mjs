// @ts-check
// The tree of the answers of a beam search.

import assert from "node:assert/strict";
import { test } from "node:test";

import { beamTrees, probabilityOf } from "../../src/jumok/view/assets/page/beam_tree.js";

/** @typedef {import("../../src/jumok/view/assets/page/beam_tree.js").Node} Node */

/** @param {string} text @param {number} score */
function answer(text, score) {
  return { text, ids: Array.from(text, (_, i) => i), score, finish: /** @type {const} */ ("stop") };
}

/** @param {Node[]} nodes @returns {any[]} */
function outline(nodes) {
  return nodes.map(({ text, best, answer: end, children }) =>
    children.length ? [text, best, outline(children)] : [text, best, end?.text],
  );
}

test("what answers begin with stands once, and the best one is marked on its way", () => {
  const answers = [
    answer("나는 갔다", -0.1),
    answer("나는 간다", -0.2),
    answer("너는 갔다", -0.3),
    answer("나는", -0.9),
  ];
  assert.deepEqual(outline(beamTrees(answers)), [
    [
      "나는",
      true,
      [
        [
          " ",
          true,
          [
            ["갔다", true, "나는 갔다"],
            ["간다", false, "나는 간다"],
          ],
        ],
        ["", false, "나는"],
      ],
    ],
    ["너는 갔다", false, "너는 갔다"],
  ]);
});

test("a part has the probability of all answers that go on from it", () => {
  const answers = [answer("가나", Math.log(0.5)), answer("가다", Math.log(0.4)), answer("나", Math.log(0.1))];
  const [shared, other] = beamTrees(answers);
  assert.ok(Math.abs(shared.probability - (0.25 + 0.16)) < 1e-12);
  assert.ok(Math.abs(other.probability - 0.1) < 1e-12);
  assert.ok(Math.abs(probabilityOf(answers[0]) - 0.25) < 1e-12);
});

test("answers with one text stay two, and characters outside of the BMP stay whole", () => {
  const twins = beamTrees([answer("가", -0.1), answer("가", -0.2)]);
  assert.deepEqual(outline(twins), [
    [
      "가",
      true,
      [
        ["", true, "가"],
        ["", false, "가"],
      ],
    ],
  ]);
  const faces = beamTrees([answer("😀", -0.1), answer("😃", -0.2), answer("", -3)]);
  assert.deepEqual(outline(faces), [
    ["😀", true, "😀"],
    ["😃", false, "😃"],
    ["", false, ""],
  ]);
});
