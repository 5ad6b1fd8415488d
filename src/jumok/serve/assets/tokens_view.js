// A text in the tokens of any runs, one below the other.

import { element } from "../../view/assets/base/controls.js";
import { count, decimal, t } from "../../view/assets/base/words.js";
import { readable } from "./column.js";
import { ask, post } from "./server.js";

const WAIT = 250; // milliseconds after a key
const FIRST = 2; // runs that are chosen at first
const HUES = 6;

/** @typedef {import("./shell.js").Shell} Shell */

export class TokensView {
  /** @param {HTMLElement} host @param {Shell} shell */
  constructor(host, shell) {
    this.host = host;
    this.shell = shell;
    this.text = t("tokens.first");
    /** @type {string[]} */
    this.names = [];
    /** @type {Set<string>} */
    this.chosen = new Set();
    this.timer = 0;
    this.asking = new AbortController();
    this.results = element("div", { class: "token-results" });
    void this.begin();
  }

  close() {
    clearTimeout(this.timer);
    this.asking.abort();
  }

  async begin() {
    await this.shell.trying(async () => {
      const { data } = await ask("models");
      this.names = data.map((/** @type {any} */ { id }) => id);
      this.chosen = new Set(this.names.slice(0, FIRST));
      this.show();
    });
  }

  show() {
    const field = element("textarea", {
      id: "tokens-text",
      rows: 3,
      spellcheck: "false",
      "aria-label": t("tokens.text"),
      oninput: (/** @type {any} */ { target }) => {
        this.text = target.value;
        clearTimeout(this.timer);
        this.timer = window.setTimeout(() => this.split(), WAIT);
      },
    });
    field.value = this.text;
    const boxes = this.names.map((name) =>
      element("label", { class: "check" }, [
        element("input", {
          type: "checkbox",
          checked: this.chosen.has(name),
          onchange: (/** @type {any} */ { target }) => this.choose(name, target.checked),
        }),
        element("span", { text: name }),
      ]),
    );
    this.host.replaceChildren(
      element("div", { class: "headline" }, [element("h2", { text: t("tokens.title") })]),
      element("section", { class: "box" }, [
        field,
        element("fieldset", { class: "checks" }, [element("legend", { text: t("tokens.runs") }), ...boxes]),
      ]),
      this.results,
    );
    void this.split();
  }

  /** @param {string} name @param {boolean} on */
  choose(name, on) {
    if (on) this.chosen.add(name);
    else this.chosen.delete(name);
    void this.split();
  }

  async split() {
    this.asking.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    await this.shell.trying(async () => {
      const characters = [...this.text].length;
      const names = this.names.filter((name) => this.chosen.has(name));
      const found = await Promise.all(names.map((name) => post("tokenize", { model: name, input: this.text }, signal)));
      this.results.replaceChildren(
        ...(found.length
          ? found.map((one) => shown(one, characters))
          : [element("p", { class: "nothing", text: t("tokens.none") })]),
      );
    }, signal);
  }
}

/** @param {{model: string, ids: number[], tokens: string[]}} found @param {number} characters */
function shown({ model, ids, tokens }, characters) {
  const each = ids.length ? characters / ids.length : 0;
  return element("section", { class: "box" }, [
    element("div", { class: "line" }, [
      element("h3", { text: model }),
      element("span", { class: "muted", text: t("tokens.count", { n: count(ids.length), m: decimal(each, 2) }) }),
    ]),
    element(
      "p",
      { class: "pieces" },
      tokens.map((token, i) =>
        element("span", { class: `piece hue-${i % HUES}`, title: `${ids[i]}`, text: readable(token) }),
      ),
    ),
  ]);
}
