// What the pages of models that do not write on have in common: a note of the author, a field for a text, and its state.

import { element } from "../base/controls.js";
import { textField } from "./labels.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./frame.js").Frame} Frame */

const PAUSE = 150; // milliseconds without a key press

export class FieldView {
  /**
   * @param {HTMLElement} host @param {Session} session @param {Frame} frame
   * @param {string} label key of the field's name
   * @param {string} placeholder key of what stands in it while it is empty
   */
  constructor(host, session, frame, label, placeholder) {
    this.host = host;
    this.session = session;
    this.frame = frame;
    this.field = textField(label, placeholder);
    this.turn = 0; // of asking: what comes after a later text is dropped
    this.waiting = 0;
  }

  /** @param {(HTMLElement | null)[]} sheet what stands below the field @param {HTMLElement | null} [wide] and below that */
  mount(sheet, wide = null) {
    const { note } = this.session.engine.about;
    const about = note ? element("p", { class: "note", text: note }) : null;
    this.host.append(
      element("div", { class: "desk" }, [element("div", { class: "sheet" }, [about, this.field, ...sheet]), wide]),
    );
  }

  /** Put the caret into the field, except on a touch screen, where that would bring up the keyboard. */
  show() {
    if (!matchMedia("(pointer: coarse)").matches) this.field.focus({ preventScroll: true });
  }

  hide() {}

  state() {
    return { text: this.field.value };
  }

  /** The text is another one. */
  changed() {
    this.frame.noteState();
    clearTimeout(this.waiting);
    this.turn += 1;
  }

  /** When nothing more is typed for a moment. @param {() => void} body */
  afterPause(body) {
    this.waiting = setTimeout(body, PAUSE);
  }

  /**
   * What the model finds, unless the text is another one by then. An error is told.
   * @template T
   * @param {Promise<T>} asked
   * @returns {Promise<T | null>}
   */
  async latest(asked) {
    const { turn } = this;
    try {
      const found = await asked;
      return turn === this.turn ? found : null;
    } catch (error) {
      if (turn === this.turn) this.frame.failed(error);
      return null;
    }
  }
}
