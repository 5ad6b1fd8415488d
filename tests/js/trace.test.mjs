// The trace: numbers that a page decodes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { halfToNumber } from "../../src/jumok/view/assets/viewer/trace.js";

test("half-precision numbers", () => {
  assert.equal(halfToNumber(0x3c00), 1);
  assert.equal(halfToNumber(0xc000), -2);
  assert.equal(halfToNumber(0x0001), 2 ** -24);
  assert.equal(halfToNumber(0x7bff), 65504);
  assert.equal(halfToNumber(0x7c00), Infinity);
  assert.ok(Number.isNaN(halfToNumber(0x7e00)));
});
