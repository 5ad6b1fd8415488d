// @ts-check
// The engine of a model that runs on the server. It has the methods of the engine in a page with a model, so the views
// of that page work with it.

import { listen, post } from "./server.js";

/** @typedef {import("../../view/assets/page/engine_types.js").About} About */
/** @typedef {import("../../view/assets/page/engine_types.js").Engine} Engine */
/** @typedef {import("../../view/assets/page/engine_types.js").Step} Step */
/** @typedef {import("../../view/assets/page/engine_types.js").Head} Head */

/** @implements {Engine} */
export class ServerEngine {
  /** @param {About} about */
  constructor(about) {
    this.about = about;
    /** @type {AbortController | null} of what is being written */
    this.writing = null;
    /** @type {Head[]} the heads that were off in the last recording */
    this.off = [];
  }

  /**
   * The engine of a run that the server has loaded.
   * @param {string} model
   * @returns {Promise<ServerEngine>}
   */
  static async open(model) {
    return new ServerEngine(await post("engine/about", { model }));
  }

  /** @type {Engine["encode"]} */
  encode(text) {
    return this._post("encode", { text });
  }

  /** @type {Engine["spell"]} */
  spell(ids) {
    return this._post("spell", { ids });
  }

  /** @type {Engine["decode"]} */
  async decode(ids) {
    return (await this._post("decode", { ids })).text;
  }

  /** @type {Engine["next"]} */
  next(ids, settings = {}) {
    return this._post("next", { ids, ...settings });
  }

  /** @type {Engine["score"]} */
  async score(ids, settings = {}) {
    return (await this._post("score", { ids, ...settings })).tokens;
  }

  /** @type {Engine["write"]} */
  async write(ids, settings = {}, onToken) {
    /** @type {number[]} */
    const written = [];
    let text = "";
    const ended = await this._listen("write", { ids, ...settings }, (token) => {
      written.push(token.id);
      text += token.added;
      onToken?.(token);
    });
    // The server's last token has what was held back; where it was stopped, another one would have brought it.
    const whole = ended === "stop" && written.length ? await this.decode(written) : text;
    return { ids: [...ids, ...written], ended, rest: whole.startsWith(text) ? whole.slice(text.length) : "" };
  }

  /** @type {Engine["record"]} */
  record(ids, settings = {}) {
    this.off = settings.off ?? [];
    return this._post("record", { ids, ...settings });
  }

  /** @type {Engine["step"]} */
  async step(ids, settings = {}) {
    const found = await this._post("step", { ids, ...settings });
    for (const part of [found, ...found.layers]) {
      for (const [name, value] of Object.entries(part)) if (typeof value === "string") part[name] = numbers(value);
    }
    return /** @type {Step} */ (found);
  }

  /** @type {Engine["classify"]} */
  classify(text, settings = {}) {
    return this._post("classify", { text, ...settings });
  }

  /** @type {Engine["answer"]} */
  async answer(text, settings = {}, onToken) {
    /** @type {any} */
    let last = { text: "", ids: [], score: 0, finish: "length", answers: [], cross: null };
    await this._listen("answer", { text, ...settings }, (event) => {
      if (event.finish) last = event;
      else {
        last = { ...last, text: last.text + event.added, ids: [...last.ids, event.id] };
        onToken?.(event);
      }
    });
    return last;
  }

  /** @type {Engine["fill"]} */
  fill(text, settings = {}) {
    return this._post("fill", { text, ...settings });
  }

  /** End what is being written. */
  async stop() {
    this.writing?.abort();
  }

  /**
   * @param {string} method
   * @param {object} body
   * @returns {Promise<any>}
   */
  _post(method, body) {
    return post(`engine/${method}`, { model: this.about.name, ...given(body) });
  }

  /**
   * @param {string} method
   * @param {object} body
   * @param {(event: any) => void} onEvent
   * @returns {Promise<"length" | "stop">} how it ended.
   */
  async _listen(method, body, onEvent) {
    const writing = new AbortController();
    this.writing = writing;
    const hear = (/** @type {any} */ event) => {
      if (!event.ended && !writing.signal.aborted) onEvent(event);
    };
    try {
      await listen(`engine/${method}`, { model: this.about.name, ...given(body) }, hear, writing.signal);
      return "length";
    } catch (error) {
      if (!writing.signal.aborted) throw error;
      return "stop";
    } finally {
      if (this.writing === writing) this.writing = null;
    }
  }
}

/** An object without what is null or undefined, which the server would refuse inside of another one. @param {any} value @returns {any} */
function given(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const kept = Object.entries(value).filter(([, one]) => one !== null && one !== undefined);
  return Object.fromEntries(kept.map(([name, one]) => [name, given(one)]));
}

/** Numbers of 32 bits, little-endian, in base64. @param {string} packed */
function numbers(packed) {
  const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}
