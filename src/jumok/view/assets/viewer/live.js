// A live stream: JSON lines, first a trace, then events. docs/viewer.md says what they hold.

import { Trace, TraceError } from "./trace.js";

/** @typedef {ReadableStream<Uint8Array>|Iterable<string|Uint8Array>|AsyncIterable<string|Uint8Array>} Source */

/**
 * The lines of a ReadableStream of bytes, or of any (async) iterable of texts, wherever it was cut.
 * @param {Source} source
 */
async function* liveLines(source) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of liveParts(source)) {
    const lines = (rest + (typeof part === "string" ? part : decoder.decode(part, { stream: true }))).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim()) yield line;
  }
  rest += decoder.decode();
  if (rest.trim()) yield rest;
}

/** @param {Source} source */
async function* liveParts(source) {
  if (!("getReader" in source)) {
    yield* source;
    return;
  }
  const reader = source.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.releaseLock();
  }
}

/** @param {string} line */
function parsedLine(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new TraceError("error.data", { detail: /** @type {Error} */ (error).message });
  }
}

/**
 * Follow a stream. `onTrace` gets the Trace made of the first line (build a Shell on it); each later event is appended to
 * it, and whoever listens to the trace repaints.
 * @param {Source} source
 * @param {(trace: Trace) => unknown} [onTrace]
 * @returns the trace, when the stream has ended
 */
export async function followStream(source, onTrace = () => {}) {
  let trace = null;
  for await (const line of liveLines(source)) {
    const value = parsedLine(line);
    if (trace === null) {
      trace = new Trace(value);
      trace.ended = false;
      await onTrace(trace);
    } else {
      trace.append(value);
    }
  }
  if (trace === null) throw new TraceError("error.format");
  if (!trace.ended) trace.append({ event: "end" });
  return trace;
}
