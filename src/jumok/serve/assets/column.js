// One model at work on a prompt, through the API of the server: a text that grows, an answer, classes, or filled masks.

import { element } from "../../view/assets/base/controls.js";
import { count, decimal, percent, t } from "../../view/assets/base/words.js";
import { tokenCell } from "../../view/assets/chat/token_cell.js";
import { visible, visibleBytes } from "../../view/assets/model/visible.js";
import { listen, post } from "./server.js";

const LIKELY = 8; // candidates that are asked for with each token
const MEASURED = 0.02; // seconds: what arrives in less, such as all at once, has no speed

/** @typedef {{id: string, task: string | null, chat: boolean}} Model */
/** @typedef {{prompt: string, tokens: number, temperature: number, top_p: number, seed: number}} Settings */

// A token begins at a place in the text, in characters. The first one of a text has no log-probability. The likely ones are
// candidates with their log-probabilities, the likeliest first. One that is given is of the prompt.
/** @typedef {{name: string, at: number, logprob: number | null, likely: [string, number][], given: boolean}} Token */

export class Column {
  /** @param {Model} model @param {(column: Column, place: number) => void} onlook a token was chosen. */
  constructor(model, onlook) {
    this.model = model;
    this.onlook = onlook;
    /** @type {Token[]} */
    this.tokens = [];
    /** @type {string[]} the characters of the text */
    this.characters = [];
    this.prompt = "";
    this.seconds = 0;
    this.drawn = 0; // tokens that are in the page
    this.held = 0; // surprise of tokens before the first character that they make
    this.writing = new AbortController();
    this.output = element("div", { class: "written", lang: "ko" });
    this.figures = element("p", { class: "muted", role: "status" });
  }

  /** Whether the model continues a prompt; otherwise it answers, classifies or fills. */
  get continues() {
    return this.model.task === "lm";
  }

  /** The text between two tokens. @param {number} from @param {number} [to] */
  textOf(from, to = this.tokens.length) {
    return this.characters.slice(this.tokens[from]?.at ?? 0, this.tokens[to]?.at).join("");
  }

  stop() {
    this.writing.abort();
  }

  /** @param {Settings} settings @returns {Promise<void>} */
  async work(settings) {
    this.stop();
    this.writing = new AbortController();
    const { signal } = this.writing;
    Object.assign(this, { tokens: [], characters: [], drawn: 0, held: 0, seconds: 0, prompt: settings.prompt });
    this.output.replaceChildren();
    this.figures.textContent = t("write.working");
    try {
      if (this.model.task === "classify") this.showClasses(await this.ask("classify", {}, signal));
      else if (this.model.task === "mlm") this.showFilled(await this.ask("fill-mask", { top: LIKELY }, signal));
      else await this.write(settings, signal);
    } catch (error) {
      if (signal.aborted) return;
      this.figures.textContent = "";
      throw error;
    }
  }

  /** @param {string} path @param {object} more @param {AbortSignal} signal */
  ask(path, more, signal) {
    return post(path, { model: this.model.id, input: this.prompt, ...more }, signal);
  }

  /** @param {Settings} settings @param {AbortSignal} signal */
  async write({ prompt, tokens, ...sampling }, signal) {
    const shared = { model: this.model.id, max_tokens: tokens, stream: true, ...sampling };
    let began = 0;
    const hear = (/** @type {any} */ { choices: [choice] }) => {
      if (!choice || signal.aborted) return;
      began ||= performance.now();
      this.seconds = (performance.now() - began) / 1000;
      if (this.continues) this.takeText(choice);
      else this.takeAnswer(choice);
      this.draw();
    };
    if (this.continues) {
      this.output.append(...(prompt ? [] : [element("span", { class: "muted", text: t("write.new") })]));
      await listen("completions", { ...shared, prompt, echo: prompt !== "", logprobs: LIKELY }, hear, signal);
    } else {
      const messages = [{ role: "user", content: prompt }];
      const body = { ...shared, messages, logprobs: true, top_logprobs: LIKELY };
      await listen("chat/completions", body, hear, signal);
    }
  }

  /** @param {any} choice of a completion */
  takeText({ text, logprobs }) {
    const given = !this.tokens.length && this.prompt !== ""; // the first piece has the prompt
    this.characters.push(...text);
    if (!logprobs) return; // the last piece, which has the reason of the end alone
    logprobs.tokens.forEach((/** @type {string} */ name, /** @type {number} */ i) => {
      const likely = /** @type {[string, number][]} */ (Object.entries(logprobs.top_logprobs[i] ?? {}));
      likely.sort((a, b) => b[1] - a[1]);
      this.tokens.push({ name, at: logprobs.text_offset[i], logprob: logprobs.token_logprobs[i], likely, given });
    });
  }

  /** @param {any} choice of a chat */
  takeAnswer({ delta, logprobs }) {
    const at = this.characters.length; // of tokens that arrive together the last one has their text
    for (const { token, logprob, top_logprobs } of logprobs?.content ?? []) {
      const likely = top_logprobs.map((/** @type {any} */ one) => [one.token, one.logprob]);
      this.tokens.push({ name: token, at, logprob, likely, given: false });
    }
    this.characters.push(...(delta.content ?? ""));
  }

  // --- what stands there ---

  /** Draw the tokens that are new; the last one is drawn again, because its text may have grown. */
  draw() {
    const last = this.output.lastElementChild;
    if (this.drawn && last?.getAttribute("data-place") === String(this.drawn - 1)) {
      last.remove();
      this.drawn -= 1;
    }
    for (; this.drawn < this.tokens.length; this.drawn += 1) {
      const token = this.tokens[this.drawn];
      const text = this.textOf(this.drawn, this.drawn + 1);
      const surprise = this.held - (token.logprob ?? 0);
      this.held = text ? 0 : surprise;
      if (!text) continue;
      const place = this.drawn;
      const look = () => this.onlook(this, place);
      const seen = token.logprob === null ? null : surprise;
      const cell = tokenCell(text, seen, look, token.given ? "token given" : "token");
      cell.dataset.place = String(place);
      this.output.append(cell);
    }
    this.count();
  }

  count() {
    const mean = (/** @type {Token[]} */ tokens) => {
      const known = tokens.filter(({ logprob }) => logprob !== null);
      return known.reduce((sum, { logprob }) => sum - Number(logprob), 0) / Math.max(1, known.length);
    };
    const given = this.tokens.filter((token) => token.given);
    const own = this.tokens.filter((token) => !token.given);
    const speed = this.seconds < MEASURED ? null : t("write.speed", { n: count(own.length / this.seconds) });
    const parts = [
      given.length > 1 ? t("write.prompted", { surprise: decimal(mean(given), 2) }) : null,
      own.length > 1 ? t("write.figures", { surprise: decimal(mean(own), 2), n: count(own.length) }) : null,
      speed,
    ];
    this.figures.textContent = parts.filter(Boolean).join(" · ");
  }

  /** @param {any} found */
  showClasses({ data: [{ label, probabilities, cut }] }) {
    const rows = /** @type {[string, number][]} */ (Object.entries(probabilities));
    rows.sort((a, b) => b[1] - a[1]);
    this.output.replaceChildren(sharesOf(rows, label));
    this.figures.textContent = cut ? t("write.cut") : "";
  }

  /** @param {any} found */
  showFilled({ text, masks }) {
    const lists = masks.map((/** @type {any} */ { candidates }) =>
      sharesOf(
        candidates.map((/** @type {any} */ one) => [one.token, one.probability]),
        candidates[0]?.token,
      ),
    );
    this.output.replaceChildren(element("p", { text }), ...lists);
    this.figures.textContent = "";
  }
}

/** Names with bars for their probabilities. @param {[string, number][]} rows @param {string} chosen @param {(name: string) => void} [onpick] makes the names buttons */
export function sharesOf(rows, chosen, onpick) {
  return element(
    "ol",
    { class: "shares" },
    rows.map(([name, share]) => {
      const bar = element("span", { class: "share-bar", "aria-hidden": "true" });
      bar.style.width = `${Math.max(0.5, 100 * share)}%`;
      const shown = readable(name);
      return element("li", { class: name === chosen ? "chosen" : "" }, [
        onpick && !name.startsWith("bytes:")
          ? element("button", { type: "button", class: "share-token", text: shown, onclick: () => onpick(name) })
          : element("span", { class: "share-token", text: shown }),
        element("span", { class: "share-track" }, [bar]),
        element("span", { class: "share-value", text: percent(share) }),
      ]);
    }),
  );
}

/** A token in which everything can be seen; the server writes a part of a character as "bytes:\\xEB". @param {string} token */
export function readable(token) {
  if (!token.startsWith("bytes:")) return visible(token);
  return visibleBytes(Uint8Array.from(token.matchAll(/\\x(..)/g), ([, byte]) => parseInt(byte, 16)));
}
