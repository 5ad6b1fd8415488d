// Two branches side by side, from where they part.

import { button, element } from "../base/controls.js";
import { decimal, t } from "../base/words.js";
import { cellsOf, markOf, surpriseOf, tintOf } from "./cells.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./tree.js").Branch} Branch */

const LONGEST = 1500; // tokens behind the fork
const BEFORE = 24; // characters before it

export class Comparison {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.columns = element("div", { class: "columns" });
    this.close = button("×", { class: "icon quiet", "data-label": "close", onclick: () => this.show(null) });
    this.host = element("section", { class: "comparison", hidden: true, "aria-live": "off" }, [
      element("div", { class: "section-head" }, [element("h2", { "data-word": "comparison" }), this.close]),
      this.columns,
    ]);
    /** @type {[Branch, Branch] | null} */
    this.pair = null;
  }

  /** @param {[Branch, Branch] | null} pair */
  async show(pair) {
    this.pair = pair;
    this.host.hidden = pair === null;
    if (!pair) return;
    const fork = this.session.tree.fork(...pair);
    const columns = await Promise.all(pair.map((branch) => this.column(branch, fork)));
    if (this.pair === pair) this.columns.replaceChildren(...columns);
  }

  /** @param {Branch} branch @param {number} fork */
  async column(branch, fork) {
    const tokens = this.session.tree.path(branch).slice(0, fork + LONGEST);
    const { text, pieces } = await this.session.engine.spell(tokens.map(({ id }) => id));
    const cells = cellsOf(pieces);
    const first = cells.findIndex(({ to }) => to > fork);
    const begins = first < 0 ? text.length : cells[first].start;
    const before = text.slice(0, begins);
    const shared = before.length > BEFORE ? `…${before.slice(-BEFORE)}` : before;
    const spans = (first < 0 ? [] : cells.slice(first)).map((cell) => {
      const surprise = surpriseOf(tokens.slice(cell.from, cell.to));
      const look = surprise === undefined ? null : `t${tintOf(surprise)} m${markOf(surprise)}`;
      return element("span", { class: look, text: text.slice(cell.start, cell.end) });
    });
    const { sampling, off } = branch.how;
    const facts = [
      off?.length
        ? t("comparison.without", { heads: off.map(([layer, head]) => `${layer}.${head}`).join(", ") })
        : t("comparison.all"),
      sampling?.seed === undefined ? null : t("comparison.seed", { seed: sampling.seed }),
      Number.isFinite(branch.meanSurprise) ? t("branch.mean", { nats: decimal(branch.meanSurprise, 2) }) : null,
    ].filter(Boolean);
    return element("article", { class: "column" }, [
      element("p", { class: "column-head", text: facts.join(" · ") }),
      element("p", { class: "column-text" }, [element("span", { class: "out", text: shared }), ...spans]),
    ]);
  }
}
