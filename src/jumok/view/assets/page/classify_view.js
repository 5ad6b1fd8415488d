// A text and its class: the probabilities while one types, and the words that decide.

import { element, tableElement } from "../base/controls.js";
import { count, decimal, percent, signed, t } from "../base/words.js";
import { FieldView } from "./field_view.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./engine_types.js").Classified} Classified */

const STRONGEST = 4; // levels of colour on each side
const LEAST = 0.02; // nats; less is no effect

export class ClassifyView extends FieldView {
  /** @param {HTMLElement} host @param {Session} session @param {Frame} frame */
  constructor(host, session, frame) {
    super(host, session, frame, "write.text", "classify.placeholder");
    /** @type {Classified | null} */
    this.found = null;
    this.labels = element("ol", { class: "labels", "data-label": "classify.labels" });
    this.words = element("p", { class: "decisive" });
    this.about = element("p", { class: "hint" });
    this.table = element("details", { class: "more", hidden: true });
    this.evidence = element("section", { hidden: true }, [
      element("h2", { "data-word": "classify.words" }),
      this.words,
      this.about,
      this.table,
    ]);
    this.cut = element("p", { class: "hint", hidden: true });
    this.mount([this.cut, element("h2", { "data-word": "classify.labels" }), this.labels, this.evidence]);
    this.field.addEventListener("input", () => this.typed());
    session.subscribe((changed) => changed.has("language") && this.render());
  }

  /** @param {{text?: string, example?: boolean}} state an example is replaced by what is typed. */
  begin({ text = "", example = false }) {
    this.field.value = text;
    if (example) this.field.setSelectionRange(0, text.length);
    this.typed();
  }

  /** The text is another: its class at once, the words when nothing more is typed for a moment. */
  typed() {
    this.changed();
    if (!this.field.value.trim()) {
      this.found = null;
      this.render();
      return;
    }
    void this.classify(false);
    this.afterPause(() => void this.classify(true));
  }

  /** @param {boolean} words */
  async classify(words) {
    const found = await this.latest(this.session.engine.classify(this.field.value, { words }));
    if (!found) return;
    this.found = found;
    this.render();
    if (!words) return;
    const best = likeliest(found);
    this.frame.announce(t("classify.announce", { label: best.label, p: percent(best.probability) }));
  }

  render() {
    const { found, session } = this;
    const shown = found?.labels ?? session.engine.about.labels.map((label) => ({ label, probability: 0 }));
    const best = found ? likeliest(found) : null;
    while (this.labels.childElementCount < shown.length) {
      this.labels.append(
        element("li", {}, [
          element("span", { class: "label-name" }),
          element("span", { class: "label-bar" }, [element("i")]),
          element("span", { class: "label-value" }),
        ]),
      );
    }
    shown.forEach((one, i) => {
      const line = this.labels.children[i];
      const [name, bar, value] = line.children;
      line.classList.toggle("best", one === best);
      name.textContent = one.label;
      /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${100 * one.probability}%`;
      value.textContent = found ? percent(one.probability) : "–";
    });
    this.cut.hidden = !found || found.read >= found.tokens;
    if (found) this.cut.textContent = t("classify.cut", { n: count(found.read), all: count(found.tokens) });
    this.renderWords(found, best?.label ?? "");
  }

  /** @param {Classified | null} found @param {string} label */
  renderWords(found, label) {
    const words = found?.words ?? [];
    if (!found) this.evidence.hidden = true;
    if (!words.length) return; // those of the text before stay until these are known
    this.evidence.hidden = false;
    const text = this.field.value;
    const most = Math.max(LEAST, ...words.map(({ effect }) => Math.abs(effect)));
    /** @type {(string | HTMLElement)[]} */
    const parts = [];
    let at = 0;
    for (const word of words) {
      const level = Math.abs(word.effect) < LEAST ? 0 : Math.ceil((STRONGEST * Math.abs(word.effect)) / most);
      const side = word.effect < 0 ? "for" : "against";
      const title = t("classify.word", { text: word.text, effect: signed(word.effect, 2) });
      parts.push(
        text.slice(at, word.start),
        element("span", { class: level ? `${side} e${level}` : null, text: word.text, title }),
      );
      at = word.end;
    }
    parts.push(text.slice(at));
    this.words.replaceChildren(...parts);
    this.about.textContent = t("classify.words.about", { label, most: decimal(most, 2) });
    const rows = [...words]
      .sort((a, b) => a.effect - b.effect)
      .slice(0, 100)
      .map(({ text: word, effect }) => [word, decimal(effect, 3)]);
    const columns = [t("classify.table.word"), t("classify.table.effect")];
    this.table.hidden = false;
    this.table.replaceChildren(
      element("summary", { text: t("table.show") }),
      tableElement({ caption: t("classify.words"), columns, rows }),
    );
  }
}

/** @param {Classified} found */
function likeliest({ labels }) {
  return labels.reduce((best, one) => (one.probability > best.probability ? one : best));
}
