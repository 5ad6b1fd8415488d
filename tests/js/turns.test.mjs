import assert from "node:assert/strict";
import test from "node:test";

import { Queue } from "../../src/jumok/view/assets/model/turns.js";

test("calls that share a state run one after the other, also behind one that fails", async () => {
  const queue = new Queue();
  const order = [];
  const slow = async (name) => {
    order.push(`${name} begins`);
    await new Promise((resolve) => setTimeout(resolve, 5));
    order.push(`${name} ends`);
    if (name === "b") throw new Error("b");
    return name;
  };
  const results = await Promise.allSettled(["a", "b", "c"].map((name) => queue.run(() => slow(name))));
  assert.deepEqual(order, ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
  assert.deepEqual(
    results.map(({ status, value }) => value ?? status),
    ["a", "rejected", "c"],
  );
});
