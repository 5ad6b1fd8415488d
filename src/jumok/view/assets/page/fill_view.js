// A text with blanks: what may stand in each, with probabilities; a click puts it in.

import { button, element } from "../base/controls.js";
import { percent, t } from "../base/words.js";
import { FieldView } from "./field_view.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./engine_types.js").Filled} Filled */

const LISTED = 8; // candidates
const MASK = "[MASK]";

export class FillView extends FieldView {
  /** @param {HTMLElement} host @param {Session} session @param {Frame} frame */
  constructor(host, session, frame) {
    super(host, session, frame, "write.text", "fill.placeholder");
    /** @type {Filled | null} */
    this.found = null;
    this.insert = button("", {
      id: "insert",
      class: "primary",
      "data-word": "fill.insert",
      onclick: () => this.insertMask(),
    });
    this.all = button("", { id: "fill-all", "data-word": "fill.all", onclick: () => this.fillAll() });
    this.blanks = element("div", { class: "blanks" });
    this.none = element("p", { class: "hint", "data-word": "fill.none" });
    this.whole = element("p", { class: "filled" });
    this.result = element("section", { hidden: true }, [element("h2", { "data-word": "fill.filled" }), this.whole]);
    const tools = element("div", { class: "row-tools" }, [this.insert, this.all]);
    this.mount([tools, this.none, this.blanks, this.result]);
    this.field.addEventListener("input", () => this.typed());
    this.blanks.addEventListener("click", (/** @type {MouseEvent} */ event) => this.chosen(event));
    session.subscribe((changed) => changed.has("language") && this.render());
  }

  /** @param {{text?: string}} state */
  begin({ text = "" }) {
    this.field.value = text;
    this.typed();
  }

  insertMask() {
    const { field } = this;
    field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    this.typed();
  }

  typed() {
    this.changed();
    this.stale(true);
    if (this.field.value.includes(MASK)) {
      this.afterPause(() => void this.predict());
      return;
    }
    this.found = null;
    this.render();
  }

  async predict() {
    const found = await this.latest(this.session.engine.fill(this.field.value, { top: LISTED }));
    if (!found) return;
    this.found = found;
    this.stale(false);
    this.render();
    this.frame.announce(found.text);
  }

  /** Candidates are put in at places of the text that was read, so none may be chosen for another text. @param {boolean} is */
  stale(is) {
    this.blanks.inert = is;
    this.all.disabled = is || !this.found;
  }

  render() {
    const { found } = this;
    this.insert.title = t("fill.insert.about", { mask: MASK });
    this.none.hidden = found !== null || this.field.value.includes(MASK);
    this.result.hidden = !found;
    this.blanks.replaceChildren(...(found?.masks ?? []).map(({ candidates }, i) => this.blank(candidates, i)));
    if (found) this.whole.replaceChildren(...this.filledParts(found));
  }

  /** @param {Filled["masks"][number]["candidates"]} candidates @param {number} i */
  blank(candidates, i) {
    const most = Math.max(1e-9, ...candidates.map(({ probability }) => probability));
    const rows = candidates.map(({ text, probability }, place) => {
      const bar = element("span", { class: "bar drawn" });
      bar.style.width = `${(100 * probability) / most}%`;
      return element("li", {}, [
        element(
          "button",
          {
            type: "button",
            class: "candidate",
            "data-blank": i,
            "data-candidate": place,
            "aria-label": t("fill.put", { text, p: percent(probability) }),
          },
          [
            element("span", { class: "candidate-text", text }),
            element("span", { class: "candidate-bars" }, [bar]),
            element("span", { class: "candidate-values" }, [element("b", { text: percent(probability) })]),
          ],
        ),
      ]);
    });
    return element("section", { class: "blank" }, [
      element("h2", { text: t("fill.blank", { n: i + 1 }) }),
      element("p", { class: "keys", text: t("bars.scale", { p: percent(most) }) }),
      element("ol", { class: "candidates" }, rows),
    ]);
  }

  /** The text with the likeliest candidates, which are marked. @param {Filled} found */
  filledParts({ masks }) {
    const text = this.field.value;
    /** @type {(string | HTMLElement)[]} */
    const parts = [];
    let at = 0;
    for (const { start, end, candidates } of masks) {
      parts.push(text.slice(at, start), element("mark", { text: plain(candidates[0]?.text ?? "") }));
      at = end;
    }
    return [...parts, text.slice(at)];
  }

  /** @param {MouseEvent} event */
  chosen({ target }) {
    const row = /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest("[data-blank]"));
    const mask = row && this.found?.masks[Number(row.dataset.blank)];
    if (!row || !mask) return;
    this.put([[mask, mask.candidates[Number(row.dataset.candidate)].text]]);
  }

  fillAll() {
    if (this.found) this.put(this.found.masks.map((mask) => [mask, mask.candidates[0]?.text ?? ""]));
  }

  /** @param {[Filled["masks"][number], string][]} choices */
  put(choices) {
    for (const [{ start, end }, text] of choices.reverse()) this.field.setRangeText(plain(text), start, end, "end");
    this.field.focus();
    this.typed();
  }
}

/** A readable token as text: a space before a word stands in the text already. @param {string} text */
function plain(text) {
  return text
    .replace(/^␣(?=.)/, "")
    .replace(/␣/g, " ")
    .replace(/⏎/g, "\n");
}
