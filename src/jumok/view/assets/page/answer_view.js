// A model that answers: the input, the answer as it comes, and where the decoder looks.

import { button, element } from "../base/controls.js";
import { decimal, t } from "../base/words.js";
import { Shell } from "../viewer/shell.js";
import { Trace } from "../viewer/trace.js";
import { FieldView } from "./field_view.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./engine_types.js").Answered} Answered */

export class AnswerView extends FieldView {
  /** @param {HTMLElement} host @param {Session} session @param {Frame} frame */
  constructor(host, session, frame) {
    super(host, session, frame, "answer.source", "answer.placeholder");
    /** @type {Answered | null} */
    this.found = null;
    /** @type {Shell | null} */
    this.shell = null;
    this.run = button("", {
      id: "tool-answer",
      class: "primary",
      "data-word": "answer.run",
      onclick: () => void this.answer(),
    });
    this.stop = button("", {
      id: "tool-stop",
      class: "primary",
      "data-word": "tool.stop",
      hidden: true,
      onclick: () => void session.engine.stop(),
    });
    this.result = element("p", { class: "answer-text" });
    this.figures = element("p", { class: "figures" });
    this.now = element("section", { class: "answer", hidden: true }, [
      element("h2", { "data-word": "answer.result" }),
      this.result,
      this.figures,
    ]);
    this.traceHost = element("div", { class: "trace" });
    this.cross = element("section", { hidden: true }, [element("h2", { "data-word": "answer.cross" }), this.traceHost]);
    const tools = element("div", { class: "row-tools" }, [this.run, this.stop]);
    this.mount([tools, this.now], element("div", { class: "wide" }, [this.cross]));
    this.field.addEventListener("keydown", (event) => this.keyed(event));
    this.field.addEventListener("input", () => frame.noteState());
    session.subscribe((changed) => {
      if (changed.has("language")) this.render();
      if (changed.has("language") || changed.has("theme")) this.shell?.store.set(this.looks());
    });
    this.render();
  }

  /** Forget what is outside of the view. */
  close() {
    this.shell?.close();
  }

  looks() {
    return { language: this.session.language, theme: this.session.theme };
  }

  /** @param {{text?: string}} state */
  begin({ text = "" }) {
    this.field.value = text;
    if (text) void this.answer();
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    if (event.key === "Escape") void this.session.engine.stop();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    void this.answer();
  }

  render() {
    if (this.found) this.renderFound(this.found);
  }

  async answer() {
    const { session, field } = this;
    const text = field.value.trim();
    if (!text || session.writing) return;
    session.set({ writing: true });
    this.toggle(true);
    this.found = null;
    this.result.textContent = "";
    this.figures.textContent = "";
    this.now.hidden = false;
    try {
      const found = await session.engine.answer(text, { trace: true }, ({ added }) => this.result.append(added));
      this.found = found;
      this.renderFound(found);
      this.frame.announce(found.text);
      if (found.cross) await this.look(found.cross);
    } catch (error) {
      this.now.hidden = true;
      this.frame.failed(error);
    } finally {
      session.set({ writing: false });
      this.toggle(false);
    }
  }

  /** @param {boolean} busy */
  toggle(busy) {
    this.run.hidden = busy;
    this.stop.hidden = !busy;
  }

  /** @param {Answered} found */
  renderFound({ text, score, finish }) {
    this.result.textContent = text;
    const figures = [t("answer.score", { n: decimal(score, 2) }), finish === "length" ? t("answer.cut") : null];
    this.figures.textContent = figures.filter(Boolean).join(" · ");
  }

  /** Show where the model looked, in the viewer's views. @param {object} json */
  async look(json) {
    this.cross.hidden = false;
    const trace = new Trace(/** @type {any} */ (json));
    if (this.shell) {
      await this.shell.replace(trace);
      return;
    }
    this.shell = new Shell(trace, { view: "cross", ...this.looks() }, { root: this.traceHost });
    await this.shell.start();
  }
}
