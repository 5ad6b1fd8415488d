// A prompt for one model or for two side by side; candidates of each token; pages that show a model inside.

import { button, choice, element } from "../../view/assets/base/controls.js";
import { t } from "../../view/assets/base/words.js";
import { writeState } from "../../view/assets/page/state.js";
import { Column, sharesOf } from "./column.js";
import { settingFields } from "./fields.js";
import { ask, page } from "./server.js";

const TASKS = ["lm", "seq2seq", "classify", "mlm"];
const FRAME = "allow-scripts allow-downloads allow-modals allow-popups"; // it cannot reach this page, nor its key

/** @typedef {import("./shell.js").Shell} Shell */
/** @typedef {import("./column.js").Model} Model */

export class WriteView {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name the model to begin with; "": the first one */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.name = name;
    this.prompt = "";
    this.settings = { tokens: 100, temperature: 0.8, top_p: 1, seed: 7 };
    this.working = false;
    /** @type {Model[]} */
    this.models = [];
    /** @type {Column[]} one, or two that are compared */
    this.columns = [];
    this.detail = element("section", { class: "box", hidden: true, role: "status" });
    this.stage = element("section", { class: "box frame", hidden: true });
    this.stage.setAttribute("tabindex", "-1");
    this.address = ""; // of the page in the frame
    void this.begin();
  }

  close() {
    for (const column of this.columns) column.stop();
    this.closeFrame();
  }

  async begin() {
    await this.shell.trying(async () => {
      const { data } = await ask("models");
      this.models = data.filter((/** @type {Model} */ { task }) => task);
      const first = this.models.find(({ id }) => id === this.name) ?? this.models[0];
      if (first) this.setColumns([first]);
      else this.show();
    });
  }

  /** @param {Model[]} models */
  setColumns(models) {
    for (const column of this.columns) column.stop();
    this.columns = models.map((model) => new Column(model, (column, place) => this.look(column, place)));
    const examples = TASKS.map((task) => t(`write.example.${task}`));
    if (!this.prompt || examples.includes(this.prompt)) this.prompt = t(`write.example.${models[0].task}`);
    this.detail.hidden = true;
    this.show();
  }

  /** @param {number} place @param {string} id "": none */
  choose(place, id) {
    const models = this.columns.map(({ model }) => model);
    const model = this.models.find((one) => one.id === id);
    this.setColumns(model ? [...models.slice(0, place), model, ...models.slice(place + 1)] : models.slice(0, place));
  }

  show() {
    if (!this.columns.length) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("write.none") }));
      return;
    }
    const prompt = element("textarea", {
      id: "prompt",
      rows: 3,
      spellcheck: "false",
      oninput: (/** @type {any} */ { target }) => {
        this.prompt = target.value;
      },
    });
    prompt.value = this.prompt;
    const draws = this.columns.some(({ model }) => model.task === "lm" || model.task === "seq2seq");
    const [{ model }] = this.columns;
    this.host.replaceChildren(
      element("div", { class: "headline" }, [element("h2", { text: t("write.title") })]),
      element(
        "form",
        {
          class: "box form",
          onsubmit: (/** @type {Event} */ event) => {
            event.preventDefault();
            if (this.working) for (const column of this.columns) column.stop();
            else void this.work();
          },
        },
        [
          element("div", { class: "line" }, [this.modelChoice(0), this.modelChoice(1)]),
          element("label", { class: "wide-field" }, [
            element("span", { class: "choice-label", text: t(`write.prompt.${model.task}`) }),
            prompt,
          ]),
          element("div", { class: "line" }, [
            ...(draws ? settingFields(this.settings) : []),
            element("button", {
              type: "submit",
              id: "go",
              class: "button primary",
              text: t(this.working ? "write.stop" : `write.go.${model.task}`),
            }),
          ]),
          draws ? element("p", { class: "remark", text: t("write.colour") }) : null,
        ],
      ),
      element(
        "div",
        { class: this.columns.length > 1 ? "halves" : "whole" },
        this.columns.map((column, i) => this.columnBox(column, i)),
      ),
      this.detail,
      this.stage,
    );
  }

  /** @param {number} place */
  modelChoice(place) {
    const options = this.models.map(({ id, task }) => [id, `${id} (${t(`task.${task}`)})`]);
    if (place) options.unshift(["", t("write.compare.none")]);
    const label = t(place ? "write.compare" : "write.model");
    const value = this.columns[place]?.model.id ?? "";
    return choice(label, options, value, (id) => this.choose(place, id), { id: `model-${place}` });
  }

  /** @param {Column} column @param {number} i */
  columnBox(column, i) {
    const name = column.model.id;
    const shares = this.shell.about.shares
      ? button(t(column.continues ? "write.step" : "write.share"), {
          id: `share-${i}`,
          onclick: () => this.open(column, "share"),
        })
      : null;
    return element("section", { class: "box" }, [
      element("div", { class: "line" }, [
        element("h3", { text: name }),
        element("span", { class: "gap" }),
        button(t("write.attention"), { id: `view-${i}`, onclick: () => this.open(column, "view") }),
        shares,
      ]),
      column.output,
      column.figures,
    ]);
  }

  async work() {
    this.working = true;
    this.detail.hidden = true;
    this.show();
    const settings = { prompt: this.prompt.normalize("NFC"), ...this.settings };
    await Promise.all(this.columns.map((column) => this.shell.trying(() => column.work(settings))));
    this.working = false;
    if (this.host.isConnected) this.show();
    this.shell.announce(this.columns.map((column) => column.textOf(0)).join("\n"));
  }

  /** Show the candidates in place of a token; one that is chosen takes its place. @param {Column} column @param {number} place */
  look(column, place) {
    const { name, likely } = column.tokens[place];
    const rows = /** @type {[string, number][]} */ (likely.map(([one, value]) => [one, Math.exp(value)]));
    const pick = (/** @type {string} */ chosen) => {
      this.prompt = column.textOf(0, place) + chosen;
      void this.work();
    };
    this.detail.hidden = false;
    this.detail.replaceChildren(
      element("h3", { text: t("write.candidates", { token: name }) }),
      column.continues ? element("p", { class: "remark", text: t("write.pick") }) : "",
      sharesOf(rows, name, column.continues ? pick : undefined),
    );
  }

  // --- pages that show a model inside ---

  /** @param {Column} column @param {"view" | "share"} kind */
  async open(column, kind) {
    const { id: model, task } = column.model;
    const written = column.textOf(0);
    const text = task === "lm" && written ? written : this.prompt;
    const answer = task === "seq2seq" && written ? { target: written } : {};
    await this.shell.trying(async () => {
      this.shell.say(t("write.opening"));
      const html = await page(`jumok/${kind}`, kind === "view" ? { model, text, ...answer } : { model });
      if (!this.host.isConnected) return;
      this.closeFrame();
      this.address = URL.createObjectURL(new Blob([html], { type: "text/html" }));
      const theme = this.shell.dark ? "dark" : "light";
      const state = writeState({ view: task === "lm" ? "step" : "", language: this.shell.language, theme, text });
      const title = t(kind === "view" ? "write.attention" : task === "lm" ? "write.step" : "write.share");
      this.stage.replaceChildren(
        element("div", { class: "line" }, [
          element("h3", { text: `${title}: ${model}` }),
          element("span", { class: "gap" }),
          button(t("write.close"), { id: "close-frame", onclick: () => this.closeFrame() }),
        ]),
        element("iframe", { sandbox: FRAME, title, src: kind === "share" ? `${this.address}#${state}` : this.address }),
      );
      this.stage.hidden = false;
      this.shell.say("");
      this.stage.scrollIntoView({ behavior: "smooth", block: "start" });
      this.stage.focus({ preventScroll: true });
    });
  }

  closeFrame() {
    this.stage.replaceChildren();
    this.stage.hidden = true;
    URL.revokeObjectURL(this.address);
    this.address = "";
  }
}
