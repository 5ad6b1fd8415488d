// The text that one reads and types. A text field takes what is typed, so that input methods, selections and screen
// readers work as everywhere; its letters are transparent. The same text stands behind it in coloured cells.

import { element } from "../base/controls.js";
import { markOf, surpriseOf, tintOf } from "./cells.js";

/** @typedef {import("./cells.js").Cell} Cell */
/** @typedef {import("./tree.js").Token} Token */

const MOST_CELLS = 6000; // a longer text begins as plain text
const END = "\u200b"; // gives an empty last line its height

/** @typedef {{cell: Cell, text: string, span: HTMLElement, look: string}} Shown */

export class Surface {
  /**
   * @param {object} listeners
   * @param {(text: string) => void} listeners.onEdit the text was typed over, and no letter is being composed.
   * @param {(place: number | null) => void} listeners.onPlace the token at the caret, null at the end.
   */
  constructor({ onEdit, onPlace }) {
    this.onEdit = onEdit;
    this.onPlace = onPlace;
    /** @type {HTMLTextAreaElement} */
    this.field = element("textarea", {
      class: "field",
      id: "prompt",
      rows: 1,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      "data-label": "write.text",
      "data-placeholder": "write.placeholder",
    });
    this.early = element("span", { class: "out" });
    this.body = element("span");
    this.rest = document.createTextNode("");
    this.mirror = element("div", { class: "mirror", "aria-hidden": "true" }, [this.early, this.body, this.rest, END]);
    this.host = element("div", { class: "paper" }, [this.mirror, this.field]);
    this.text = "";
    /** @type {Shown[]} */
    this.shown = [];
    this.skipped = 0; // cells in `early`
    this.dimmed = 0; // of `shown`, those that have fallen out of the context
    /** @type {HTMLElement[]} */
    this.marked = [];
    this.coarse = matchMedia("(pointer: coarse)");
    this.relock = () => this.lock();
    this.editing = false;
    this.busy = false;
    this.composing = false;
    this.caret = -1; // where it was when its token was looked at
    this.listen();
  }

  listen() {
    const { field } = this;
    field.addEventListener("input", () => this.typed());
    field.addEventListener("compositionstart", () => {
      this.composing = true;
    });
    field.addEventListener("compositionend", () => {
      this.composing = false;
      this.typed();
    });
    field.addEventListener("keyup", ({ key }) => /^(Arrow|Home|End|Page)/.test(key) && this.lookAtCaret());
    field.addEventListener("click", (event) => this.clicked(event));
    field.addEventListener("blur", () => this.edit(false));
    this.coarse.addEventListener("change", this.relock);
  }

  /** Forget what is outside of the field. */
  close() {
    this.coarse.removeEventListener("change", this.relock);
  }

  /** The field has another text. A letter that is being composed is shown, and read when it is whole. */
  typed() {
    const { value } = this.field;
    this.caret = this.field.selectionStart;
    this.pend(value);
    if (!this.composing) this.onEdit(value);
  }

  /**
   * Show a text at once: what it shares with the text so far keeps its cells, the rest is plain until it is read.
   * @param {string} text
   */
  pend(text) {
    const { shown } = this;
    let kept = 0;
    while (kept < shown.length && shown[kept].text === text.slice(shown[kept].cell.start, shown[kept].cell.end))
      kept += 1;
    const early = this.early.textContent ?? "";
    if (!text.startsWith(early)) {
      this.early.textContent = "";
      this.skipped = 0;
      kept = 0;
    }
    this.cut(kept);
    const at = this.shown.at(-1)?.cell.end ?? this.early.textContent?.length ?? 0;
    this.rest.data = text.slice(at);
    this.text = text;
  }

  /** Keep the first cells only. @param {number} count */
  cut(count) {
    for (const { span } of this.shown.splice(count)) span.remove();
    this.dimmed = Math.min(this.dimmed, count);
    this.marked = this.marked.filter((span) => span.isConnected);
  }

  /**
   * Show a text in cells. What is the same stays as it is.
   * @param {string} text @param {Cell[]} cells
   * @param {Token[]} tokens of the whole path.
   */
  show(text, cells, tokens) {
    const skipped = Math.max(0, cells.length - MOST_CELLS);
    const start = skipped ? cells[skipped - 1].end : 0;
    if (skipped !== this.skipped || this.early.textContent !== text.slice(0, start)) {
      this.cut(0);
      this.early.textContent = text.slice(0, start);
      this.skipped = skipped;
    }
    const { shown } = this;
    let kept = 0;
    for (; kept < shown.length && kept + skipped < cells.length; kept += 1) {
      const [one, cell] = [shown[kept], cells[kept + skipped]];
      if (one.cell.start !== cell.start || one.text !== text.slice(cell.start, cell.end)) break;
      one.cell = cell;
      this.dress(one, tokens);
    }
    this.cut(kept);
    const made = cells.slice(kept + skipped).map((cell) => this.made(cell, text.slice(cell.start, cell.end), tokens));
    this.add(made);
    this.rest.data = text.slice(cells.at(-1)?.end ?? 0);
    this.text = text;
  }

  /**
   * Add cells to the end, as they are written.
   * @param {{cell: Cell, text: string}[]} cells
   * @param {Token[]} tokens of the whole path.
   */
  append(cells, tokens) {
    this.rest.data = "";
    this.add(cells.map(({ cell, text }) => this.made(cell, text, tokens)));
    for (const { text } of cells) this.text += text;
  }

  /** @param {Shown[]} made */
  add(made) {
    this.body.append(...made.map(({ span }) => span));
    for (const one of made) this.shown.push(one);
  }

  /** @param {Cell} cell @param {string} text @param {Token[]} tokens @returns {Shown} */
  made(cell, text, tokens) {
    const one = { cell, text, span: element("span", { text }), look: "" };
    this.dress(one, tokens);
    return one;
  }

  /** @param {Shown} one @param {Token[]} tokens */
  dress(one, tokens) {
    const surprise = surpriseOf(tokens.slice(one.cell.from, one.cell.to));
    const look = surprise === undefined ? "" : `t${tintOf(surprise)} m${markOf(surprise)}`;
    if (look === one.look) return;
    if (one.look) one.span.classList.remove(...one.look.split(" "));
    if (look) one.span.classList.add(...look.split(" "));
    one.look = look;
  }

  /** Colour the cells anew. @param {Token[]} tokens of the whole path. */
  redress(tokens) {
    for (const one of this.shown) this.dress(one, tokens);
  }

  /** Grey the cells before a token: they have fallen out of the context. @param {number} from */
  dim(from) {
    const { shown } = this;
    while (this.dimmed < shown.length && shown[this.dimmed].cell.to <= from) {
      shown[this.dimmed].span.classList.add("out");
      this.dimmed += 1;
    }
    while (this.dimmed > 0 && shown[this.dimmed - 1].cell.to > from) {
      this.dimmed -= 1;
      shown[this.dimmed].span.classList.remove("out");
    }
  }

  /** Mark the cell of a token. @param {number | null} place */
  mark(place) {
    for (const span of this.marked) span.classList.remove("chosen");
    const one = place === null ? undefined : this.shown[this.indexOf(place, "from")];
    this.marked = one && place !== null && place < one.cell.to ? [one.span] : [];
    for (const span of this.marked) {
      span.classList.add("chosen");
      span.scrollIntoView({ block: "nearest" });
    }
  }

  /** The last cell that begins at a value or before it. @param {number} value @param {"from" | "start"} end */
  indexOf(value, end) {
    let [low, high] = [0, this.shown.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.shown[middle].cell[end] <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  lookAtCaret() {
    const at = this.field.selectionStart;
    if (this.busy || at === this.caret) return;
    this.caret = at;
    const one = this.shown[this.indexOf(at, "start")];
    this.onPlace(one && at < one.cell.end ? one.cell.from : null);
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (this.field.selectionStart !== this.field.selectionEnd) return;
    const one = this.under(event.clientX, event.clientY);
    this.caret = -1;
    if (one) this.onPlace(one.cell.from);
    else this.lookAtCaret();
  }

  /** The cell at a point of the window. @param {number} x @param {number} y @returns {Shown | undefined} */
  under(x, y) {
    const span = document.elementsFromPoint(x, y).find(({ parentNode }) => parentNode === this.body);
    return span && this.shown.find((one) => one.span === span);
  }

  /** While the model writes, the field waits. @param {boolean} busy */
  setBusy(busy) {
    this.busy = busy;
    this.lock();
    this.host.classList.toggle("busy", busy);
    if (!busy) this.fill();
  }

  /** Give the field the text that is shown, if it has another. */
  fill() {
    const { field } = this;
    const text = this.text.replace(/\r\n?/g, "\n"); // as a field has it
    if (field.value === text) return;
    const [start, atEnd] = [field.selectionStart, field.selectionStart === field.value.length];
    const before = field.value.slice(0, start).normalize("NFC").length;
    field.value = text;
    const caret = atEnd ? text.length : Math.min(before, text.length);
    field.setSelectionRange(caret, caret);
  }

  /** On a touch screen a tap looks at a token; the keyboard comes up when one asks for it. @param {boolean} editing */
  edit(editing) {
    this.editing = editing;
    this.lock();
    if (editing) this.field.focus();
  }

  lock() {
    const reading = this.coarse.matches && !this.editing && this.text !== "";
    this.field.readOnly = this.busy || reading;
  }
}
