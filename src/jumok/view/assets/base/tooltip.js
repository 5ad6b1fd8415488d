// The box of numbers that follows the pointer.

import { element } from "./controls.js";

/** @typedef {{text: string, value?: string|number|null, colour?: string|null, strong?: boolean, muted?: boolean}} TipLine */

export class Tooltip {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    this.size = { width: 0, height: 0 };
  }

  /**
   * Show lines (strings, or {text, value, colour, strong, muted}) near a point of the window.
   * @param {(string|TipLine)[]|null|undefined} lines @param {number} x @param {number} y @param {boolean} [touch]
   */
  show(lines, x, y, touch = false) {
    if (!lines?.length) {
      this.hide();
      return;
    }
    this.box.replaceChildren(...lines.map((line) => this.line(typeof line === "string" ? { text: line } : line)));
    this.box.hidden = false;
    this.size = this.box.getBoundingClientRect();
    this.move(x, y, touch);
  }

  /** @param {TipLine} line */
  line({ text, value = null, colour = null, strong = false, muted = false }) {
    const parts = [];
    if (colour) {
      const sign = element("span", { class: "tip-colour" });
      sign.style.background = colour;
      parts.push(sign);
    }
    parts.push(element("span", { class: "tip-text", text }));
    if (value !== null) parts.push(element("span", { class: "tip-value", text: String(value) }));
    return element("div", { class: `tip-line${strong ? " strong" : ""}${muted ? " muted" : ""}` }, parts);
  }

  /**
   * Beside the pointer and inside the window; above a finger, which would cover it.
   * @param {number} x @param {number} y @param {boolean} [touch]
   */
  move(x, y, touch = false) {
    if (this.box.hidden) return;
    const { width, height } = this.size;
    let left = touch ? x - width / 2 : x + 16;
    let top = touch ? y - height - 22 : y + 16;
    if (!touch && left + width > innerWidth - 8) left = x - width - 12;
    if (!touch && top + height > innerHeight - 8) top = y - height - 12;
    if (touch && top < 8) top = y + 30;
    left = Math.max(8, Math.min(left, innerWidth - width - 8));
    top = Math.max(8, Math.min(top, innerHeight - height - 8));
    this.box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hide() {
    this.box.hidden = true;
  }
}
