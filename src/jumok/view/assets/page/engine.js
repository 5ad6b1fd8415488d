// The engine of a page that holds its model: in a worker, or in the page itself where workers are refused.

import { EngineError } from "../model/errors.js";
import { openModel } from "../model/engine.js";
import { crc32 } from "../model/reader.js";

/** @import { About, Engine } from "./engine_types.js" */
/** @typedef {{resolve: (value: any) => void, reject: (error: Error) => void, onEvent?: (event: any) => void}} Call */

/** The engine of this page. @param {Document} [page] @returns {Promise<Engine>} */
export async function openEngine(page = document) {
  const [header, parameters, code] = ["jumok-model", "jumok-parameters", "jumok-worker"].map(
    (id) => page.getElementById(id)?.textContent ?? "",
  );
  const checksum = page.getElementById("jumok-model")?.dataset.crc32;
  if (checksum && crc32(new TextEncoder().encode(header)) !== Number(checksum)) {
    throw new EngineError("engine.damaged", { reason: "the checksum of the header differs" });
  }
  const worker = code ? startWorker(code) : null;
  if (!worker) return openModel(header, parameters);
  try {
    return await WorkerEngine.open(worker, header, parameters);
  } catch (error) {
    if (/** @type {any} */ (error).code !== "engine.no_worker") throw error;
    return openModel(header, parameters);
  }
}

/** A worker that runs this text, or null where there may be none. @param {string} code @returns {Worker | null} */
function startWorker(code) {
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    return new Worker(url);
  } catch {
    return null;
  }
}

/** The methods of an engine that are sent to the worker, each with its subject, its settings and a listener. */
export const ENGINE_METHODS = Object.freeze(
  "encode spell decode prompt next score write record step classify answer fill".split(" "),
);

/** The engine of a model in a worker. Each method of the interface sends a message, and waits for its answer. */
export class WorkerEngine {
  /** @param {Worker} worker @param {About} about */
  constructor(worker, about) {
    this.worker = worker;
    this.about = about;
    /** @type {Map<number, Call>} */
    this.calls = new Map();
    this.count = 0;
    worker.onmessage = ({ data }) => this._receive(data);
    worker.onerror = (event) => this._fail(event.message);
    for (const method of ENGINE_METHODS) {
      /** @type {any} */ (this)[method] = (
        /** @type {any} */ subject,
        settings = {},
        /** @type {Call["onEvent"]} */ onEvent,
      ) => this._call(method, [subject, settings], onEvent);
    }
  }

  /**
   * Give a worker its model.
   * @param {Worker} worker @param {string} header @param {string} parameters @returns {Promise<Engine>}
   */
  static open(worker, header, parameters) {
    return new Promise((resolve, reject) => {
      worker.onerror = (event) => {
        event.preventDefault?.();
        worker.terminate();
        reject(new EngineError("engine.no_worker", { detail: event.message ?? "" }));
      };
      worker.onmessage = ({ data }) => {
        if (data.ready) return resolve(/** @type {any} */ (new WorkerEngine(worker, data.ready)));
        worker.terminate();
        reject(new EngineError(data.failed.code, data.failed.values));
      };
      worker.postMessage({ start: { header, parameters } });
    });
  }

  /** End what is being written. */
  async stop() {
    this.worker.postMessage({ stop: true });
  }

  /** @param {string} method @param {any[]} args @param {(event: any) => void} [onEvent] @returns {Promise<any>} */
  _call(method, args, onEvent) {
    return new Promise((resolve, reject) => {
      const call = (this.count += 1);
      this.calls.set(call, { resolve, reject, onEvent });
      this.worker.postMessage({ call, method, args });
    });
  }

  /** @param {{call: number, events?: any[], result?: any, error?: {code: string, values: Record<string, unknown>}}} data */
  _receive({ call, events, result, error }) {
    const waiting = this.calls.get(call);
    if (!waiting) return;
    if (events) return events.forEach((event) => waiting.onEvent?.(event));
    this.calls.delete(call);
    if (error) waiting.reject(new EngineError(error.code, error.values));
    else waiting.resolve(result);
  }

  /** @param {string} detail */
  _fail(detail) {
    for (const { reject } of this.calls.values()) reject(new EngineError("engine.failed", { detail }));
    this.calls.clear();
  }
}
