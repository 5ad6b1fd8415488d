// Requests to the server of this page: the key, the language of messages, errors, and streams of events.

import { EngineError } from "../../view/assets/model/errors.js";

const KEY = "jumok-key"; // in the storage of this tab; a key is forgotten with it
const BASE = "/v1/";
const PIECE = "data: ";
const DONE = "data: [DONE]";

let language = "en";

/** The language of the server's messages. @param {string} wanted */
export function speak(wanted) {
  language = wanted;
}

/** Send this key from now on; "" for none. @param {string} key */
export function useKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** @param {Record<string, string>} more @returns {Record<string, string>} */
function headers(more) {
  const key = sessionStorage.getItem(KEY);
  return { "Accept-Language": language, ...(key ? { Authorization: `Bearer ${key}` } : {}), ...more };
}

/** A response without an error. @param {string} path behind /v1/ @param {RequestInit} options */
async function send(path, options) {
  let response;
  try {
    response = await fetch(BASE + path, { ...options, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new EngineError("server.gone", {});
  }
  if (response.ok) return response;
  if (response.status === 401) throw new EngineError("server.key", {});
  const told = await response.json().catch(() => null);
  throw new EngineError("server.said", {
    message: told?.error?.message ?? `HTTP ${response.status}`,
    code: told?.error?.code,
    status: response.status,
  });
}

/** Whether the server said that what was asked for is not there, so that to ask again is of no use. @param {any} error */
export function isGone(error) {
  return error?.code === "server.said" && error.values.status === 404;
}

/** Ask for JSON. @param {string} path @param {Record<string, string>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, query = {}, signal) {
  return (await send(`${path}?${new URLSearchParams(query)}`, { headers: headers({}), signal })).json();
}

/** Send JSON, and return the JSON of the answer. @param {string} path @param {object} body @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function post(path, body, signal) {
  return (await send(path, posted(body, signal))).json();
}

/** @param {object} body @param {AbortSignal} [signal] @returns {RequestInit} */
const posted = (body, signal) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: headers({ "Content-Type": "application/json" }),
  signal,
});

/** Send a text, and return what the server found in it. @param {File} file @returns {Promise<any>} */
export async function upload(file) {
  const query = new URLSearchParams({ name: file.name });
  const options = { method: "POST", body: file, headers: headers({ "Content-Type": "application/octet-stream" }) };
  return (await send(`jumok/uploads?${query}`, options)).json();
}

/** Ask for a page, and return its HTML. @param {string} path @param {object} body */
export async function page(path, body) {
  return (await send(path, posted(body))).text();
}

/** Call a function with each event of a stream. @param {string} path @param {object} body @param {(event: any) => void} onEvent @param {AbortSignal} signal ends it */
export async function listen(path, body, onEvent, signal) {
  const response = await send(path, posted(body, signal));
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + decoder.decode(value, { stream: true })).split("\n\n");
    text = /** @type {string} */ (parts.pop());
    for (const part of parts) {
      if (!part.startsWith(PIECE) || part === DONE) continue;
      const event = JSON.parse(part.slice(PIECE.length));
      if (event.error) throw new EngineError("server.said", { message: event.error.message });
      onEvent(event);
    }
  }
}
