// @ts-check
// A text in the tokens of any runs, one below the other.

import { element } from "../../view/assets/base/controls.js";
import { count, decimal, t } from "../../view/assets/base/words.js";
import { ask, post } from "./server.js";

const WAIT = 250; // milliseconds after a key
const FIRST = 3; // runs that are chosen at first
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
      const { runs } = await ask("runs");
      this.names = runs.filter((/** @type {any} */ run) => run.tokenizer).map((/** @type {any} */ run) => run.name);
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
      const names = this.names.filter((name) => this.chosen.has(name));
      const found = await Promise.all(names.map((name) => post("runs/tokenize", { name, text: this.text }, signal)));
      this.results.replaceChildren(
        ...(found.length ? found.map(shown) : [element("p", { class: "nothing", text: t("tokens.none") })]),
      );
    }, signal);
  }
}

/** @param {any} found */
function shown({ name, kind, text, pieces }) {
  const each = pieces.length ? [...text].length / pieces.length : 0;
  return element("section", { class: "box" }, [
    element("div", { class: "line" }, [
      element("h3", { text: name }),
      element("span", {
        class: "muted",
        text: `${kind} · ${t("tokens.count", { n: count(pieces.length), m: decimal(each, 2) })}`,
      }),
    ]),
    element(
      "p",
      { class: "pieces" },
      pieces.map((/** @type {any} */ piece, /** @type {number} */ i) =>
        element("span", { class: `piece hue-${i % HUES}`, title: `${piece.id}`, text: piece.text }),
      ),
    ),
  ]);
}
