// The distribution of a token as bars: what the model says, and what is left to draw from after temperature and filters.

import { element } from "../base/controls.js";
import { count, decimal, percent, t } from "../base/words.js";

/** @import { Alternative, Next } from "./engine_types.js" */

const NAT = 1 / Math.LN2; // bits

/** @typedef {{line: HTMLElement, button: HTMLButtonElement, text: HTMLElement, raw: HTMLElement, drawn: HTMLElement, values: HTMLElement}} Row */

export class Distribution {
  /** @param {(alternative: Alternative) => void} onChoose */
  constructor(onChoose) {
    this.list = element("ol", { class: "candidates", "data-label": "distribution" });
    this.figures = element("p", { class: "figures" });
    const key = (/** @type {string} */ name) =>
      element("span", { class: `key ${name}` }, [element("i"), element("span", { "data-word": `bars.${name}` })]);
    this.scale = element("span");
    const keys = element("p", { class: "keys", "aria-hidden": "true" }, [key("raw"), key("drawn"), this.scale]);
    this.host = element("div", { class: "distribution" }, [keys, this.list, this.figures]);
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Alternative[]} */
    this.shown = [];
    this.list.addEventListener("click", (/** @type {MouseEvent} */ { target }) => {
      const line = /** @type {Element} */ (target).closest("li");
      const found = line && this.shown[[...this.list.children].indexOf(line)];
      if (found) onChoose(found);
    });
  }

  /**
   * @param {Pick<Next, "alternatives"> & Partial<Next>} next
   * @param {{chosen?: number | null, vocabulary: number, enabled?: boolean}} settings chosen: the id that stands there.
   */
  show({ alternatives, entropy, kept }, { chosen = null, vocabulary, enabled = true }) {
    this.shown = alternatives;
    while (this.rows.length < alternatives.length) this.rows.push(this.row());
    for (const { line } of this.rows.splice(alternatives.length)) line.remove();
    const most = Math.max(1e-9, ...alternatives.flatMap((one) => [one.probability, one.chosen_probability]));
    this.scale.textContent = t("bars.scale", { p: percent(most) });
    alternatives.forEach((one, i) => this.fill(this.rows[i], one, most, one.id === chosen, enabled));
    const figures = [];
    if (entropy !== undefined) {
      figures.push(t("figures.entropy", { nats: decimal(entropy, 2), bits: decimal(entropy * NAT, 2) }));
    }
    if (kept !== undefined) figures.push(t("figures.kept", { kept: count(kept), all: count(vocabulary) }));
    this.figures.textContent = figures.join(" · ");
  }

  /** @returns {Row} */
  row() {
    const [text, raw, drawn, values] = ["candidate-text", "bar raw", "bar drawn", "candidate-values"].map((name) =>
      element("span", { class: name }),
    );
    const button = element("button", { type: "button", class: "candidate" }, [
      text,
      element("span", { class: "candidate-bars" }, [raw, drawn]),
      values,
    ]);
    const line = element("li", {}, [button]);
    this.list.append(line);
    return { line, button, text, raw, drawn, values };
  }

  /** @param {Row} row @param {Alternative} one @param {number} most @param {boolean} chosen @param {boolean} enabled */
  fill({ button, text, raw, drawn, values }, one, most, chosen, enabled) {
    const out = one.chosen_probability === 0;
    text.textContent = one.text;
    raw.style.width = `${(100 * one.probability) / most}%`;
    drawn.style.width = `${(100 * one.chosen_probability) / most}%`;
    const after = out ? t("bars.out") : percent(one.chosen_probability);
    values.replaceChildren(element("span", { text: percent(one.probability) }), element("b", { text: after }));
    button.classList.toggle("candidate-out", out);
    button.disabled = !enabled;
    button.setAttribute("aria-pressed", String(chosen));
    button.setAttribute(
      "aria-label",
      t("bars.row", {
        text: one.text,
        raw: percent(one.probability),
        drawn: out ? t("bars.out") : percent(one.chosen_probability),
      }),
    );
  }
}
