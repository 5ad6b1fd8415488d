// @ts-check
// Asks engines what tests/view/test_page_engine.py asks for: JSON on stdin, and on stdout an answer for each ask.

import { readFileSync } from "node:fs";

import { openModel } from "../../src/jumok/view/assets/model/engine.js";
import { filtered, settingsOf, softmax } from "../../src/jumok/view/assets/model/sampling.js";
import { Trace } from "../../src/jumok/view/assets/viewer/trace.js";

/** What JSON can hold. @param {string} _ @param {any} value */
function plain(_, value) {
  if (ArrayBuffer.isView(value)) return Array.from(/** @type {any} */ (value));
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

/** A trace as the viewer reads it: its tokens, predictions, and the weights of all heads. @param {any} json */
async function viewed(json) {
  const trace = new Trace(structuredClone(json));
  /** @type {Record<string, any>} */
  const weights = {};
  for (const block of trace.blocks) {
    for (const layer of trace.attention(block).layers) {
      for (const head of trace.heads(block, layer)) {
        weights[`${block} ${layer} ${head}`] = (await trace.weights(block, layer, head)).data;
        const neurons = await trace.neurons(block, layer, head);
        if (neurons) weights[`q ${block} ${layer} ${head}`] = neurons.q;
      }
    }
  }
  const { sequences, predictions } = trace.json;
  return { sequences, predictions, weights, stats: trace.json.attentions.map((/** @type {any} */ one) => one.stats) };
}

/** @type {Record<string, (engine: any, ...args: any[]) => Promise<any>>} */
const OTHERS = {
  viewed: async (engine, ids, settings) => viewed(await engine.record(ids, settings)),
  answeredTrace: async (engine, text) => viewed((await engine.answer(text, { trace: true })).cross),
  stoppedAfter: async (engine, ids, count) => {
    let left = count;
    const stop = () => (left -= 1) === 0 && engine.stop();
    return engine.write(ids, { tokens: 100_000 }, stop);
  },
  interleaved: async (engine, ids, settings, others) => {
    const writing = engine.write(ids, settings);
    for (const other of others) await Promise.all([engine.next(other), engine.score(other), engine.record(other)]);
    return writing;
  },
  scoredAgain: async (engine, texts) => {
    const found = [];
    for (const ids of texts) found.push(await engine.score(ids));
    return found;
  },
  sampled: async (_, logits, settings) =>
    softmax(filtered(Float32Array.from(logits), settingsOf(settings), settings.seen)),
};

const results = [];
for (const { header, base64, asks } of JSON.parse(readFileSync(0, "utf8"))) {
  const engine = await openModel(JSON.stringify(header), base64);
  for (const { method, args } of asks) {
    /** @type {any[]} */
    const events = [];
    try {
      const own = OTHERS[method];
      const found = own
        ? await own(engine, ...args)
        : await /** @type {any} */ (engine)[method](...args, (/** @type {any} */ event) => events.push(event));
      results.push({ found, events });
    } catch (error) {
      const { code, values, stack } = /** @type {any} */ (error);
      results.push({ code, values, stack });
    }
  }
}
console.log(JSON.stringify(results, plain));
