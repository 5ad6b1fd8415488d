// @ts-check
// `model/window.js` and `model/layers.js`, where they can be checked without a model.

import assert from "node:assert/strict";
import { test } from "node:test";

import { erf } from "../../src/jumok/view/assets/model/layers.js";
import { Reading, windowStart } from "../../src/jumok/view/assets/model/window.js";

test("the window moves on by half a context", () => {
  const starts = [1, 8, 9, 12, 13, 16, 17].map((length) => windowStart(length, 8));
  assert.deepEqual(starts, [0, 0, 4, 4, 8, 8, 12]);
  assert.equal(windowStart(5, 1), 4);
});

/** A GPT that keeps the ids that it read, in place of keys and values. */
class Listener {
  constructor() {
    this.config = { context_length: 8 };
    /** @type {number[][]} */
    this.reads = [];
  }

  newCache() {
    return {
      /** @type {number[]} */
      ids: [],
      truncate(/** @type {number} */ length) {
        this.ids.length = Math.min(length, this.ids.length);
      },
    };
  }

  read(/** @type {number[]} */ ids, /** @type {{ids: number[]}} */ cache) {
    this.reads.push([...ids]);
    cache.ids.push(...ids);
    return Float32Array.from(cache.ids);
  }
}

/** @param {Listener} model */
function readingOf(model) {
  return new Reading(/** @type {any} */ (model));
}

test("what two texts have in common is read once", () => {
  const model = new Listener();
  const reading = readingOf(model);
  assert.deepEqual([...reading.next([1, 2, 3])], [1, 2, 3]);
  assert.deepEqual([...reading.next([1, 2, 3, 4])], [1, 2, 3, 4]);
  assert.deepEqual([...reading.next([1, 2, 5])], [1, 2, 5]);
  assert.deepEqual([...reading.next([1, 2, 5])], [1, 2, 5]);
  assert.deepEqual([...reading.next([1])], [1]);
  assert.deepEqual(model.reads, [[1, 2, 3], [4], [5], [5], [1]]);
});

test("a window that moved, or other heads that are off, are read anew", () => {
  const model = new Listener();
  const reading = readingOf(model);
  reading.next([1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual([...reading.next([1, 2, 3, 4, 5, 6, 7, 8, 9])], [5, 6, 7, 8, 9]);
  assert.deepEqual([...reading.next([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])], [5, 6, 7, 8, 9, 10]);
  assert.deepEqual([...reading.next([1, 2], { off: [[0, 1]] })], [1, 2]);
  assert.deepEqual([...reading.next([1, 2], { off: [[0, 1]] })], [1, 2]);
  assert.deepEqual([...reading.next([1, 2])], [1, 2]);
  assert.deepEqual(model.reads.slice(1), [[5, 6, 7, 8, 9], [10], [1, 2], [2], [1, 2]]);
});

test("a text in parts", () => {
  const model = new Listener();
  const reading = readingOf(model);
  const ids = [1, 2, 3, 4, 5, 6, 7];
  assert.equal(reading.readPart(ids, 4), true);
  assert.equal(reading.readPart(ids, 4), false);
  assert.deepEqual([...reading.next(ids)], ids);
  assert.deepEqual(model.reads, [[1, 2, 3, 4], [5, 6], [7]]);
});

test("erf", () => {
  for (const [x, value] of [
    [0, 0],
    [0.5, 0.5204998778],
    [1, 0.8427007929],
    [-2, -0.995322265],
    [9, 1],
  ]) {
    assert.ok(Math.abs(erf(x) - value) < 2e-7, `erf(${x})`);
  }
});
