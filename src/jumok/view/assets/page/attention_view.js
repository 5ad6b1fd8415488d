// The attention of every head on the text, in the viewer's own views; heads can be switched off.

import { button, element } from "../base/controls.js";
import { messageOf, percent, setLanguage, t } from "../base/words.js";
import { Shell } from "../viewer/shell.js";
import { Trace } from "../viewer/trace.js";
import { offChips } from "./write_parts.js";

/** @typedef {import("./session.js").Session} Session */
/** @import { Alternative, Next } from "./engine_types.js" */

const COMPARED = 1000; // tokens whose probability is compared before and after
const LISTED = 6; // of them, those that are shown
const VISIBLE = 0.001; // a probability below this is not listed, unless the list were empty

export class AttentionView {
  /** @param {HTMLElement} host @param {Session} session */
  constructor(host, session) {
    this.session = session;
    this.visible = false;
    /** @type {Shell | null} */
    this.shell = null;
    this.known = ""; // what was recorded: the ids and the heads that were off
    this.working = false;
    this.turn = 0; // of comparing: a result that comes too late is not shown
    /** @type {{before: Next, after: Next} | null} */
    this.effect = null;
    this.status = element("p", { class: "attention-status", role: "status" });
    this.switches = element("div", { class: "attention-switches" });
    this.frame = element("div", { class: "attention-frame", hidden: true });
    this.announcer = element("p", { class: "step-announcer", "aria-live": "polite" });
    const parts = [this.status, this.switches, this.frame, this.announcer];
    this.root = element("section", { class: "attention", hidden: true }, parts);
    host.append(this.root);
    session.subscribe((changed) => this.changed(changed));
  }

  show() {
    this.visible = true;
    this.root.hidden = false;
    this.render();
    return this.follow();
  }

  hide() {
    this.visible = false;
    this.root.hidden = true;
  }

  /** Forget what is outside of the view. */
  close() {
    this.shell?.close();
  }

  // --- following the text ---

  /** @param {Set<string>} changed */
  changed(changed) {
    const has = (/** @type {string[]} */ ...names) => names.some((name) => changed.has(name));
    if (!this.visible) return;
    if (has("language", "theme")) this.render();
    if (has("path", "token", "off", "writing")) void this.follow();
    if (!has("off")) return;
    const list = this.session.off.map(([layer, head]) => `${layer}.${head}`).join(", ");
    this.announcer.textContent = list ? t("attention.switchedOff", { list }) : t("attention.switchedOn");
    this.renderSwitches();
  }

  /** Record the text if it is not being written. It may change while that takes its time: the last one is recorded. */
  async follow() {
    const { session } = this;
    if (this.working || !this.visible) return;
    this.working = true;
    try {
      for (;;) {
        const { ids, off, writing } = session;
        const wanted = JSON.stringify([ids, off]);
        if (!this.visible || writing || !ids.length || wanted === this.known) break;
        const json = /** @type {any} */ (await session.engine.record([...ids], { off }));
        this.known = wanted;
        await this.put(new Trace(json));
      }
      this.note();
    } catch (error) {
      this.failed(error);
    } finally {
      this.working = false;
    }
    await this.compare();
  }

  /** @param {Trace} trace */
  async put(trace) {
    const { session } = this;
    this.frame.hidden = false;
    if (this.shell) {
      await this.shell.replace(trace);
      return;
    }
    const heads = {
      isOff: (/** @type {number} */ layer, /** @type {number} */ head) => this.isOff(layer, head),
      toggle: (/** @type {number} */ layer, /** @type {number} */ head) => session.toggleHead(layer, head),
    };
    const { language, theme } = session;
    this.shell = new Shell(trace, { language, theme }, { root: this.frame, heads });
    await this.shell.start();
  }

  /** What is to be said where there is nothing to see. */
  note() {
    const empty = !this.session.ids.length;
    this.frame.hidden = empty || !this.shell;
    this.status.textContent = empty ? t("attention.empty") : this.known ? "" : t("attention.working");
  }

  /** @param {any} error */
  failed(error) {
    this.known = "";
    this.status.textContent = t("attention.failed", { detail: messageOf(error) });
    if (!error?.code) throw error;
  }

  // --- heads that are switched off ---

  /** @param {number} layer @param {number} head */
  isOff(layer, head) {
    return this.session.off.some(([l, h]) => l === layer && h === head);
  }

  /** The next token with all heads and without those that are off. */
  async compare() {
    const { engine, ids, off, writing } = this.session;
    this.turn += 1;
    const { turn } = this;
    if (writing || !this.visible) return;
    if (!off.length || !ids.length) {
      this.effect = null;
      this.renderSwitches();
      return;
    }
    const text = [...ids];
    const before = await engine.next(text, { top: COMPARED });
    const after = await engine.next(text, { off, top: COMPARED });
    if (turn !== this.turn) return;
    this.effect = { before, after };
    this.renderSwitches();
    this.announcer.textContent += ` ${this.switches.querySelector(".attention-effect p")?.textContent ?? ""}`;
  }

  render() {
    setLanguage(this.session.language);
    const { language, theme } = this.session;
    this.root.setAttribute("aria-label", t("attention.view"));
    this.shell?.store.set({ language, theme });
    this.note();
    this.renderSwitches();
  }

  renderSwitches() {
    const { off } = this.session;
    const all =
      off.length > 1
        ? button(t("attention.allOn"), { "data-off": "none", onclick: () => this.session.set({ off: [] }) })
        : null;
    this.switches.replaceChildren(
      element(
        "div",
        { class: "attention-line" },
        [
          element("span", { class: "control-label", text: t("off.heads") }),
          ...(off.length
            ? [...offChips(this.session), all]
            : [element("span", { class: "attention-hint", text: t("attention.offHint") })]),
        ].filter(Boolean),
      ),
      ...(this.effect && off.length ? [this.effectElement(this.effect)] : []),
    );
    this.shell?.renderControls();
  }

  /** Before and after as a table with bars. @param {{before: Next, after: Next}} effect */
  effectElement({ before, after }) {
    const rows = sideBySide(before.alternatives, after.alternatives, COMPARED * 2);
    const listed = rows.slice(0, LISTED).filter((row, i) => i < 2 || Math.max(row.before, row.after) >= VISIBLE);
    const [old, token] = [before.alternatives[0], after.alternatives[0]];
    const moved = percent(movedShare(rows));
    const sentence = t(old.id === token.id ? "attention.effect.same" : "attention.effect.other", {
      old: `‘${old.text}’`,
      token: `‘${token.text}’`,
      before: percent(old.probability),
      after: percent(token.probability),
      moved,
    });
    const bar = (/** @type {number} */ value, /** @type {string} */ name) => {
      const made = element("i", { class: `attention-bar ${name}` });
      made.style.width = `${100 * value}%`;
      return element("td", { class: "attention-cell" }, [
        element("span", { class: "attention-track", "aria-hidden": "true" }, made),
        element("span", { class: "attention-value", text: percent(value) }),
      ]);
    };
    const head = (/** @type {string} */ word) => element("th", { scope: "col", text: t(word) });
    return element("div", { class: "attention-effect", "data-effect": moved }, [
      element("p", { text: sentence }),
      element("table", {}, [
        element("caption", { text: t("attention.effect") }),
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            ["token", "before", "after"].map((name) => head(`attention.effect.${name}`)),
          ),
        ),
        element(
          "tbody",
          {},
          listed.map((row) =>
            element("tr", { "data-id": row.id }, [
              element("th", { scope: "row", text: row.text }),
              bar(row.before, "before"),
              bar(row.after, "after"),
            ]),
          ),
        ),
      ]),
    ]);
  }
}

/**
 * The tokens of two distributions side by side, those that changed or were likely first. A token that is listed in one
 * only has at most the least probability of the other list, and is given none there.
 * @param {Alternative[]} before @param {Alternative[]} after @param {number} most
 * @returns {{id: number, text: string, before: number, after: number}[]}
 */
export function sideBySide(before, after, most) {
  /** @type {Map<number, {id: number, text: string, before: number, after: number}>} */
  const rows = new Map();
  for (const { id, text, probability } of before) rows.set(id, { id, text, before: probability, after: 0 });
  for (const { id, text, probability } of after) {
    const row = rows.get(id) ?? { id, text, before: 0, after: 0 };
    row.after = probability;
    rows.set(id, row);
  }
  const weight = (/** @type {{before: number, after: number}} */ row) => Math.max(row.before, row.after);
  return [...rows.values()].sort((a, b) => weight(b) - weight(a)).slice(0, most);
}

/**
 * The share of the probability that moved to other tokens, 0 to 1: half the sum of the differences, with all that is not
 * listed taken as one token.
 * @param {{before: number, after: number}[]} rows
 */
export function movedShare(rows) {
  const rest = rows.reduce((sum, { before, after }) => sum + after - before, 0);
  return (rows.reduce((sum, { before, after }) => sum + Math.abs(after - before), 0) + Math.abs(rest)) / 2;
}
