// @ts-check
// Computes what tests/view/test_model_page_arithmetic.py asks for: JSON on stdin, and on stdout an answer for each ask.

import { readFileSync } from "node:fs";

import { build } from "../../src/jumok/view/assets/model/models.js";
import { readParameters } from "../../src/jumok/view/assets/model/reader.js";
import { Recording } from "../../src/jumok/view/assets/model/recording.js";
import { stepOf } from "../../src/jumok/view/assets/model/step.js";
import { Reading } from "../../src/jumok/view/assets/model/window.js";

/** @type {Record<string, (model: any, ask: any) => any>} */
const ANSWERS = {
  read: (model, { ids, off = [] }) => model.read(ids, undefined, { all: true, off }),
  // The same text in several calls, after a part of another text was read and forgotten.
  cached: (model, { ids, cuts }) => {
    const cache = model.newCache({ lasting: true });
    model.read([...ids.slice(0, cuts[0]), ...ids.slice(0, 3)], cache);
    cache.truncate(cuts[0]);
    const parts = cuts.map((/** @type {number} */ cut, /** @type {number} */ i) => ids.slice(cut, cuts[i + 1]));
    return parts.flatMap((/** @type {number[]} */ part) => [...model.read(part, cache, { all: true })]);
  },
  greedy: (model, { ids, tokens }) => {
    const [text, reading] = [[...ids], new Reading(model)];
    for (let i = 0; i < tokens; i++) {
      const logits = reading.next(text);
      text.push(logits.indexOf(Math.max(...logits)));
    }
    return text;
  },
  // A long text, read in parts as a worker does, and then changed at its end.
  changed: (model, { ids, other }) => {
    const reading = new Reading(model);
    while (reading.readPart(ids, 3));
    const first = reading.next(ids);
    return [...first, ...reading.next(other), ...reading.next(ids, { off: [[0, 0]] }), ...reading.next(ids)];
  },
  record: (model, { ids, source, off = [] }) => {
    const record = new Recording();
    if (source) model.decodeStep(ids, model.newCache(model.encode(source, { record, off })), { record, off });
    else if (model.read) model.read(ids, undefined, { record, off });
    else model.hidden(ids, { record, off });
    const notes = [...record.notes].map(([key, { arrays }]) => [key, listed(arrays)]);
    return { model: listed(record.model.arrays), ...Object.fromEntries(notes) };
  },
  step: (model, { ids, layer }) => {
    const { layers, ...step } = stepOf(new Reading(model), ids, { layer });
    return { ...listed(step), layers: layers.map(listed) };
  },
  classify: (model, { ids }) => model.classify(ids),
  predict: (model, { ids, positions }) => model.predict(ids, positions),
  answer: (model, { source, ids, off = [] }) => {
    const cache = model.newCache(model.encode(source, { off }));
    return ids.flatMap((/** @type {number} */ id) => [...model.decodeStep([id], cache, { off })]);
  },
};

/** @param {Record<string, any>} arrays */
function listed(arrays) {
  const plain = (/** @type {any} */ value) =>
    ArrayBuffer.isView(value) ? Array.from(/** @type {any} */ (value)) : value;
  return Object.fromEntries(Object.entries(arrays).map(([name, value]) => [name, plain(value)]));
}

const results = [];
for (const { header, base64, kernels, asks } of JSON.parse(readFileSync(0, "utf8"))) {
  const model = build(header.config, await readParameters(header, base64, { kernels }));
  for (const ask of asks) {
    const found = ANSWERS[ask.what](model, ask);
    results.push(ArrayBuffer.isView(found) ? Array.from(/** @type {any} */ (found)) : found);
  }
}
console.log(JSON.stringify(results));
