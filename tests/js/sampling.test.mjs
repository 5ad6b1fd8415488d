// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import {
  drawn,
  filtered,
  likeliest,
  Random,
  segmentsOf,
  settingsOf,
  softmax,
} from "../../src/jumok/view/assets/model/sampling.js";

test("tokens are drawn as often as their probabilities say, and never one that was ruled out", () => {
  const logits = Float32Array.of(Math.log(0.5), Math.log(0.3), Math.log(0.15), Math.log(0.05));
  const settings = settingsOf({ temperature: 1, top_k: 3 });
  const choice = filtered(logits, settings);
  const random = new Random(1);
  const counts = [0, 0, 0, 0];
  for (let round = 0; round < 20_000; round += 1) counts[drawn(choice, settings, random.next())] += 1;
  [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0].forEach((share, id) =>
    assert.ok(Math.abs(counts[id] / 20_000 - share) < 0.015),
  );
  assert.equal(counts[3], 0);
});

test("the ruler has the likeliest at the left, and a number draws the token whose segment it falls into", () => {
  const random = new Random(2);
  for (const size of [3, 200, 5000]) {
    const logits = Float32Array.from({ length: size }, () => Math.round(6 * random.next())); // with ties
    const settings = settingsOf({ temperature: 1.3, top_p: 0.9 });
    const choice = filtered(logits, settings);
    const segments = [...segmentsOf(softmax(choice))];
    segments.forEach(({ id, from, to }, i) => {
      const before = segments[i - 1];
      assert.equal(from, before?.to ?? 0);
      if (before) assert.ok(choice[id] < choice[before.id] || (choice[id] === choice[before.id] && id > before.id));
      assert.equal(drawn(choice, settings, from), id);
      assert.equal(drawn(choice, settings, (from + to) / 2), id);
    });
    assert.ok(Math.abs(segments.at(-1).to - 1) < 1e-9);
  }
});

test("random numbers are the same for a seed, at least 0 and below 1, and even", () => {
  const [random, same] = [new Random(5), new Random(5)];
  const numbers = Array.from({ length: 10_000 }, () => random.next());
  assert.deepEqual(
    numbers.slice(0, 9),
    Array.from({ length: 9 }, () => same.next()),
  );
  assert.ok(Math.min(...numbers) >= 0 && Math.max(...numbers) < 1);
  assert.ok(Math.abs(numbers.reduce((sum, one) => sum + one, 0) / numbers.length - 0.5) < 0.01);
});

test("the likeliest come first, the lower id of two that are equal", () => {
  const logits = Float32Array.from({ length: 100 }, (_, id) => [3, 1, 3, 2][id % 4]);
  assert.deepEqual(likeliest(logits, 3), [0, 2, 4]);
  assert.deepEqual(likeliest(logits, 100).slice(0, 3), [0, 2, 4]);
  assert.deepEqual(likeliest(Float32Array.of(-Infinity, -Infinity, 1), 2), [2, 0]);
});

test("settings out of range are named", () => {
  for (const sampling of [{ temperature: -1 }, { top_p: 0 }, { top_p: 1.1 }, { min_p: NaN }, { top_k: -2 }]) {
    assert.throws(() => settingsOf(sampling), { code: "engine.sampling" });
  }
});
