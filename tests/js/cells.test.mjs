import assert from "node:assert/strict";
import test from "node:test";

import { TINTS } from "../../src/jumok/view/assets/base/page_chrome.js";
import { cellsOf, Gatherer, markOf, surpriseOf, tintOf } from "../../src/jumok/view/assets/page/cells.js";

const pieces = (...places) => places.map(([start, end]) => ({ id: 0, text: "", start, end }));
const short = (cells) => cells.map(({ from, to, start, end }) => [from, to, start, end]);

test("letters of a syllable, bytes of a character and a mark without text are one cell with what they belong to", () => {
  assert.deepEqual(short(cellsOf(pieces([0, 1], [1, 3]))), [
    [0, 1, 0, 1],
    [1, 2, 1, 3],
  ]);
  assert.deepEqual(short(cellsOf(pieces([0, 1], [0, 1], [0, 1], [1, 2]))), [
    [0, 3, 0, 1],
    [3, 4, 1, 2],
  ]);
  assert.deepEqual(short(cellsOf(pieces([0, 2], [1, 3], [3, 4]))), [
    [0, 2, 0, 3],
    [2, 3, 3, 4],
  ]);
  assert.deepEqual(short(cellsOf(pieces([0, 0], [0, 1], [1, 1], [1, 2]))), [
    [0, 2 + 1, 0, 1],
    [3, 4, 1, 2],
  ]);
  assert.deepEqual(short(cellsOf(pieces([0, 1]), 5)), [[5, 6, 0, 1]]);
});

function gathered(...tokens) {
  const gatherer = new Gatherer(10, 4);
  return tokens.map(([text, added]) => gatherer.push({ text, added })).flatMap((cell) => (cell ? short([cell]) : []));
}

test("tokens are gathered into the text that they make final", () => {
  assert.deepEqual(gathered(["가", "가"], ["␣", " "]), [
    [10, 11, 4, 5],
    [11, 12, 5, 6],
  ]);
  assert.deepEqual(gathered(["<EA>", ""], ["<B0>", ""], ["<80>", "가"]), [[10, 13, 4, 5]]);
  // 나 is final when the letter of the next syllable is there, 안 with the blank
  assert.deepEqual(gathered(["ㄴ", ""], ["ㅏ", ""], ["ㅇ", "나"], ["ㅏ", ""], ["ㄴ", ""], ["␣", "안 "]), [
    [10, 12, 4, 5],
    [12, 16, 5, 7],
  ]);
});

test("the surprise of a cell is the sum of its tokens, not known while one is not", () => {
  assert.equal(surpriseOf([{ surprise: 1 }, { surprise: 2.5 }]), 3.5);
  assert.equal(surpriseOf([{ surprise: 1 }, {}]), undefined);
  assert.equal(surpriseOf([{ hidden: true }, { surprise: 2 }]), 2);
});

test("tints and marks", () => {
  assert.deepEqual([0, 7.99, 100].map(tintOf), [0, TINTS - 1, TINTS - 1]);
  assert.deepEqual([0, 1.99, 2, 4, 6, 60].map(markOf), [0, 0, 1, 2, 3, 3]);
});
