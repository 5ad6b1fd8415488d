// The text as a row of tokens, of which one is chosen: the one that is read last.

import { element } from "../base/controls.js";
import { t } from "../base/words.js";

const OFFERED = 240; // tokens around the chosen one

export class Places {
  /** @param {(position: number) => void} onchoose */
  constructor(onchoose) {
    this.onchoose = onchoose;
    this.position = 0;
    this.length = 0;
    this.element = element("div", { class: "step-places", role: "listbox", tabindex: 0 });
    this.element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.keyed(event));
    this.element.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const { position } = /** @type {HTMLElement} */ (event.target).dataset;
      if (position !== undefined) this.onchoose(Number(position));
    });
  }

  /** @param {{text?: string}[]} tokens of the whole text @param {number} position */
  render(tokens, position) {
    this.position = position;
    this.length = tokens.length;
    const from = Math.max(0, Math.min(position - OFFERED / 2, tokens.length - OFFERED));
    const options = tokens.slice(from, from + OFFERED).map(({ text }, i) =>
      element("span", {
        class: "step-place",
        role: "option",
        id: `step-place-${from + i}`,
        "data-position": from + i,
        "aria-selected": String(from + i === position),
        text: text || "·",
      }),
    );
    const { element: row } = this;
    row.setAttribute("aria-label", t("step.text"));
    row.replaceChildren(...options);
    row.hidden = !options.length;
    const chosen = options[position - from];
    if (!chosen) return;
    row.setAttribute("aria-activedescendant", chosen.id);
    row.scrollLeft += chosen.getBoundingClientRect().left - row.getBoundingClientRect().left - row.clientWidth / 2;
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    const last = this.length - 1;
    const { position } = this;
    const to = { ArrowLeft: position - 1, ArrowRight: position + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.onchoose(Math.min(last, Math.max(0, to)));
  }
}
