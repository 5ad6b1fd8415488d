// The entry of the worker that holds a page's model. Messages in: {start: {header, parameters}}, {call, method, args},
// {stop: true}. Messages out: {ready: about} or {failed: error}; for each call {call, events} for what comes meanwhile,
// then {call, result} or {call, error}.

import { openModel } from "./engine.js";
import { EngineError } from "./errors.js";

/** @typedef {{code: string, values: Record<string, unknown>, message: string}} Failure */

const TOGETHER = 30; // milliseconds; events that come sooner than this after a message wait for the next

/** @type {import("./engine.js").LocalEngine | null} */
let engine = null;

/** An error as a message has it. @param {any} error @returns {Failure} */
function failure(error) {
  const message = String(error?.message ?? error);
  return { code: error?.code ?? "engine.failed", values: error?.values ?? { detail: message }, message };
}

/** @param {any} message */
function send(message) {
  globalThis.postMessage(message);
}

/** @param {{header: string, parameters: string}} model */
async function start({ header, parameters }) {
  try {
    engine = await openModel(header, parameters);
    send({ ready: engine.about });
  } catch (error) {
    send({ failed: failure(error) });
  }
}

/** @param {{call: number, method: string, args: any[]}} request */
async function answer({ call, method, args }) {
  /** @type {any[]} */
  let events = [];
  let sent = -Infinity;
  const flush = () => {
    if (events.length) send({ call, events });
    events = [];
    sent = performance.now();
  };
  try {
    if (!engine) throw new EngineError("engine.not_ready");
    const target = /** @type {any} */ (engine);
    const result = await target[method](...args, (/** @type {any} */ event) => {
      events.push(event);
      if (performance.now() - sent >= TOGETHER) flush();
    });
    flush();
    send({ call, result });
  } catch (error) {
    flush();
    send({ call, error: failure(error) });
  }
}

globalThis.onmessage = (/** @type {MessageEvent} */ { data }) => {
  if (data.start) start(data.start);
  else if (data.stop) engine?.stop();
  else answer(data);
};
