// @ts-check
// Two runs side by side: the same prompt, the same seed, the same settings; how well each expects what it writes.

import { button, element } from "../../view/assets/base/controls.js";
import { count, decimal, percent, t } from "../../view/assets/base/words.js";
import { surpriseOf, tintOf } from "../../view/assets/page/cells.js";
import { engineOf, runChoice, usableRuns, writes } from "./models.js";

const SIDES = 2;

/** @typedef {import("./shell.js").Shell} Shell */
/** @typedef {import("./models.js").Run} Run */
/** @typedef {import("../../view/assets/page/engine_types.js").Written} Written */

/**
 * One column.
 * @typedef {object} Side
 * @property {string} name of the run.
 * @property {import("./server_engine.js").ServerEngine | null} engine
 * @property {Written[]} tokens
 * @property {number | null} prompted the mean surprise of the prompt.
 * @property {symbol | null} turn what it writes now; null: nothing more.
 * @property {HTMLElement} text
 * @property {HTMLElement} figures
 */

export class CompareView {
  /** @param {HTMLElement} host @param {Shell} shell */
  constructor(host, shell) {
    this.host = host;
    this.shell = shell;
    this.prompt = t("compare.first");
    this.seed = 7;
    this.temperature = 0.8;
    this.tokens = 120;
    this.writing = false;
    /** @type {Run[]} */
    this.runs = [];
    /** @type {Side[]} */
    this.sides = [];
    this.detail = element("div", { class: "box alternatives", hidden: true, role: "status" });
    void this.begin();
  }

  close() {
    for (const side of this.sides) this.stop(side);
  }

  /** End what a side writes, or is about to write. @param {Side} side */
  stop(side) {
    side.turn = null;
    void side.engine?.stop();
  }

  async begin() {
    await this.shell.trying(async () => {
      this.runs = (await usableRuns()).filter(writes);
      this.sides = Array.from({ length: SIDES }, (_, i) => ({
        name: (this.runs[i] ?? this.runs[0])?.name ?? "",
        engine: null,
        tokens: [],
        prompted: null,
        turn: null,
        text: element("p", { class: "written", lang: "ko" }),
        figures: element("p", { class: "muted" }),
      }));
      this.show();
    });
  }

  show() {
    if (!this.runs.length) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("compare.choose") }));
      return;
    }
    const prompt = element("textarea", {
      id: "compare-prompt",
      rows: 2,
      "aria-label": t("compare.prompt"),
      oninput: (/** @type {any} */ { target }) => {
        this.prompt = target.value;
      },
    });
    prompt.value = this.prompt;
    this.go = button(t(this.writing ? "compare.stop" : "compare.write"), {
      id: "compare-go",
      class: "primary",
      onclick: () => (this.writing ? this.close() : this.write()),
    });
    this.host.replaceChildren(
      element("div", { class: "headline" }, [element("h2", { text: t("compare.title") })]),
      element("section", { class: "box" }, [
        element("label", { class: "wide-field" }, [
          element("span", { class: "choice-label", text: t("compare.prompt") }),
          prompt,
        ]),
        element("div", { class: "line" }, [
          this.number("seed", 0, 2 ** 31 - 1, 1),
          this.number("temperature", 0, 2, 0.05),
          this.number("tokens", 1, 2000, 1),
          this.go,
        ]),
        element("p", { class: "remark", text: t("compare.colour") }),
      ]),
      element(
        "div",
        { class: "halves" },
        this.sides.map((side, i) =>
          element("section", { class: "box" }, [
            runChoice(`side-${i}`, t(i ? "compare.right" : "compare.left"), this.runs, side.name, (name) => {
              this.stop(side);
              Object.assign(side, { name, engine: null, tokens: [], prompted: null });
              this.draw(side);
            }),
            side.text,
            side.figures,
          ]),
        ),
      ),
      this.detail,
    );
    for (const side of this.sides) this.draw(side);
  }

  /** @param {"seed" | "temperature" | "tokens"} name @param {number} min @param {number} max @param {number} step */
  number(name, min, max, step) {
    const input = element("input", {
      id: `compare-${name}`,
      type: "number",
      min,
      max,
      step,
      value: this[name],
      onchange: (/** @type {any} */ { target }) => {
        this[name] = Math.min(max, Math.max(min, Number(target.value) || 0));
      },
    });
    return element("label", { class: "choice" }, [
      element("span", { class: "choice-label", text: t(`compare.${name}`) }),
      input,
    ]);
  }

  async write() {
    this.writing = true;
    this.detail.hidden = true;
    this.show();
    await Promise.all(this.sides.map((side) => this.shell.trying(() => this.writeOne(side))));
    this.writing = false;
    if (this.host.isConnected) this.show();
  }

  /** @param {Side} side */
  async writeOne(side) {
    const turn = Symbol(side.name);
    Object.assign(side, { tokens: [], prompted: null, turn });
    side.figures.textContent = t("write.loading", { name: side.name });
    const engine = side.engine ?? (await engineOf(side.name));
    if (side.turn !== turn) return;
    side.engine = engine;
    const { ids } = await engine.encode(this.prompt);
    const scored = (await engine.score(ids, { top: 1 })).filter((one) => one !== null);
    if (side.turn !== turn) return;
    side.prompted = scored.length ? scored.reduce((sum, one) => sum + one.surprise, 0) / scored.length : null;
    this.draw(side);
    const sampling = { temperature: this.temperature, seed: this.seed };
    await engine.write(ids, { tokens: this.tokens, sampling, top: 8 }, (token) => {
      side.tokens.push(token);
      this.add(side, token);
      this.count(side);
    });
  }

  // --- what stands there ---

  /** @param {Side} side */
  draw(side) {
    side.text.replaceChildren(element("span", { class: "prompt", text: this.prompt }));
    for (const token of side.tokens) this.add(side, token);
    this.count(side);
  }

  /** @param {Side} side @param {Written} token */
  add(side, token) {
    const shown = token.added || "";
    if (!shown) return;
    // No button: a line break in one does not break the line of the text.
    const cell = element("span", {
      role: "button",
      tabindex: 0,
      class: "token",
      text: shown,
      title: `${token.text} ${percent(token.probability)}`,
      onclick: () => this.look(token),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.look(token);
      },
    });
    cell.style.background = `var(--tint-${tintOf(surpriseOf([token]) ?? 0)})`;
    side.text.append(cell);
  }

  /** @param {Side} side */
  count(side) {
    const { tokens, prompted } = side;
    const mean = tokens.reduce((sum, { surprise }) => sum + surprise, 0) / Math.max(1, tokens.length);
    const last = tokens.at(-1);
    const parts = [
      prompted === null ? null : t("compare.prompted", { surprise: decimal(prompted, 2) }),
      last
        ? t("compare.figures", { surprise: decimal(mean, 2), n: count(tokens.length), speed: count(last.per_second) })
        : null,
    ];
    side.figures.textContent = parts.filter(Boolean).join(" · ");
  }

  /** @param {Written} token */
  look(token) {
    this.detail.hidden = false;
    this.detail.replaceChildren(
      element("h3", { text: t("compare.alternatives", { token: token.text }) }),
      element(
        "ol",
        { class: "shares" },
        token.alternatives.map((one) => {
          const bar = element("span", { class: "share-bar", "aria-hidden": "true" });
          bar.style.width = `${Math.max(0.5, 100 * one.probability)}%`;
          return element("li", { class: one.id === token.id ? "chosen" : "" }, [
            element("span", { class: "share-token", text: one.text }),
            element("span", { class: "share-track" }, [bar]),
            element("span", { class: "share-value", text: percent(one.probability) }),
          ]);
        }),
      ),
    );
  }
}
