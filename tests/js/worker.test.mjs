// @ts-check
// The messages between a page and the worker of its model. Both are here in one thread, with copied messages between.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ENGINE_METHODS, WorkerEngine } from "../../src/jumok/view/assets/page/engine.js";
import { LocalEngine } from "../../src/jumok/view/assets/model/engine.js";

/** A worker whose other end is the module worker.js, or a model that a test makes up. */
class FakeWorker {
  /** @param {(message: any, reply: (message: any) => void) => void} receive */
  constructor(receive) {
    this.receive = receive;
    this.ended = false;
    /** @type {(event: any) => void} */
    this.onmessage = () => {};
    /** @type {(event: any) => void} */
    this.onerror = () => {};
  }

  /** @param {any} message */
  postMessage(message) {
    const copy = structuredClone(message);
    setImmediate(() => this.receive(copy, (answer) => this.onmessage({ data: structuredClone(answer) })));
  }

  terminate() {
    this.ended = true;
  }
}

/** @param {(message: any, reply: (message: any) => void) => void} receive */
function opened(receive) {
  const worker = new FakeWorker((message, reply) => {
    if (message.start) reply({ ready: { kind: "gpt" } });
    else receive(message, reply);
  });
  return WorkerEngine.open(/** @type {any} */ (worker), "{}", "").then((engine) => ({ engine, worker }));
}

test("both engines have all methods", async () => {
  const { engine } = await opened(() => {});
  for (const one of [engine, LocalEngine.prototype]) {
    for (const method of [...ENGINE_METHODS, "stop"])
      assert.equal(typeof (/** @type {any} */ (one)[method]), "function");
  }
});

test("answers find their calls, and events come before them", async () => {
  /** @type {any[]} */
  const waiting = [];
  const { engine } = await opened((message, reply) => {
    waiting.push(message);
    if (waiting.length < 2) return;
    const [write, next] = waiting;
    reply({ call: next.call, result: { kept: 3 } });
    reply({ call: write.call, events: [{ id: 7 }] });
    reply({ call: write.call, result: { ids: [1, 7], ended: "length", rest: "" } });
  });
  /** @type {any[]} */
  const tokens = [];
  const written = engine.write([1], { tokens: 1 }, (token) => tokens.push(token));
  const next = engine.next([1]);
  assert.deepEqual(await next, { kept: 3 });
  assert.deepEqual((await written).ids, [1, 7]);
  assert.deepEqual(tokens, [{ id: 7 }]);
  assert.deepEqual(
    waiting.map(({ method, args }) => [method, args]),
    [
      ["write", [[1], { tokens: 1 }]],
      ["next", [[1], {}]],
    ],
  );
});

test("an error keeps its code and values; a worker that breaks fails all calls", async () => {
  const { engine, worker } = await opened(({ call, method }, reply) => {
    if (method === "fill") reply({ call, error: { code: "engine.no_masks", values: { a: 1 } } });
  });
  await assert.rejects(engine.fill("가"), { code: "engine.no_masks", values: { a: 1 } });
  const pending = engine.encode("가");
  worker.onerror({ message: "out of memory" });
  await assert.rejects(pending, { code: "engine.failed", values: { detail: "out of memory" } });
});

test("a worker that does not start is ended, and told apart from a model that is damaged", async () => {
  const refused = new FakeWorker(() => refused.onerror({ message: "refused" }));
  await assert.rejects(WorkerEngine.open(/** @type {any} */ (refused), "", ""), { code: "engine.no_worker" });
  assert.ok(refused.ended);
  const damaged = new FakeWorker((_, reply) => reply({ failed: { code: "engine.damaged", values: { reason: "x" } } }));
  await assert.rejects(WorkerEngine.open(/** @type {any} */ (damaged), "", ""), { code: "engine.damaged" });
  assert.ok(damaged.ended);
});

test("the worker answers with codes", async () => {
  const scope = /** @type {any} */ (globalThis);
  /** @type {any[]} */
  const sent = [];
  scope.postMessage = (/** @type {any} */ message) => sent.push(message);
  await import("../../src/jumok/view/assets/model/worker.js");
  scope.onmessage({ data: { start: { header: "no JSON", parameters: "" } } });
  scope.onmessage({ data: { call: 1, method: "encode", args: ["가"] } });
  for (let turn = 0; turn < 20 && sent.length < 2; turn += 1) await new Promise(setImmediate);
  const failed = sent.find((message) => message.failed);
  assert.equal(failed.failed.code, "engine.damaged");
  const answer = sent.find((message) => message.call === 1);
  assert.equal(answer.error.code, "engine.not_ready");
});
