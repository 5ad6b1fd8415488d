// The branches of a text, drawn small: a line for each, as long as its tokens. A click goes to the end of a branch.

import { element } from "../base/controls.js";
import { svg } from "../base/icons.js";
import { count, decimal, t } from "../base/words.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./tree.js").Branch} Branch */

const ROW = 30; // pixels
const EDGE = 10;
const WIDEST = 220; // pixels
const LINES = 0.32; // of the width; the rest is for what the branches say
const SNIPPET = 24; // tokens

export class TreeView {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.list = element("ul", { role: "tree", "data-label": "branches" });
    this.host = element("section", { class: "branches", hidden: true }, [
      element("h2", { "data-word": "branches" }),
      element("div", { class: "branch-drawing" }, [this.picture, this.list]),
    ]);
    /** @type {Map<Branch, string>} */
    this.snippets = new Map();
    /** @type {Branch[]} */
    this.shown = [];
    this.list.addEventListener("click", (/** @type {MouseEvent} */ event) => this.clicked(event));
    this.list.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.keyed(event));
    // In the next frame: a picture that changes the size at once is an error to Firefox and Safari.
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.host);
  }

  /** @param {Event} event */
  at(event) {
    const item = /** @type {Element} */ (event.target).closest("[role=treeitem]");
    return item ? this.shown.find(({ number }) => item.id === `branch-${number}`) : undefined;
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const branch = this.at(event);
    if (branch && !this.session.writing) this.session.go(branch);
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    const branch = this.at(event);
    if (!branch) return;
    const order = this.shown;
    const at = order.indexOf(branch);
    const { parent, children } = branch;
    const to = {
      ArrowUp: order[at - 1],
      ArrowDown: order[at + 1],
      ArrowLeft: parent,
      ArrowRight: children[0],
      Home: order[0],
      End: order.at(-1),
    }[event.key];
    if (to) document.getElementById(`branch-${to.number}`)?.focus();
    else if ((event.key === "Enter" || event.key === " ") && !this.session.writing) this.session.go(branch);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Show the tree as it is. */
  async show() {
    this.shown = this.session.tree.branches();
    this.host.hidden = this.shown.length < 2;
    if (this.host.hidden) return;
    await Promise.all(this.shown.map((branch) => this.read(branch)));
    this.draw();
  }

  /** What a branch begins with, once it is long enough not to change. @param {Branch} branch */
  async read(branch) {
    if (this.snippets.has(branch) && branch.kind !== "typed") return;
    const text = await this.session.engine.decode(
      branch.tokens
        .filter(({ hidden }) => !hidden)
        .slice(0, SNIPPET)
        .map(({ id }) => id),
    );
    if (branch.kind === "typed" || branch.tokens.length >= SNIPPET || !this.session.writing)
      this.snippets.set(branch, text.trim());
  }

  draw() {
    const { shown, host } = this;
    const width = host.hidden ? 0 : Math.min(WIDEST, Math.round(LINES * host.clientWidth));
    if (!width) return;
    const reach = Math.max(1, ...shown.map(({ end }) => end));
    const scale = (/** @type {number} */ at) => EDGE + (at / reach) * (width - 2 * EDGE);
    const rows = new Map(shown.map((branch, i) => [branch, i]));
    this.picture.setAttribute("width", String(width));
    this.picture.setAttribute("height", String(ROW * shown.length));
    this.picture.replaceChildren(...shown.flatMap((branch, i) => this.line(branch, i, rows, scale)));
    this.list.replaceChildren(...shown.map((branch) => this.item(branch)));
  }

  /**
   * @param {Branch} branch @param {number} i @param {Map<Branch, number>} rows @param {(at: number) => number} scale
   */
  line(branch, i, rows, scale) {
    const { tree } = this.session;
    const onPath = tree.leadsTo(branch);
    const next = onPath ? branch.children.find((child) => tree.leadsTo(child)) : undefined;
    const kind = onPath && !next ? "on" : "off"; // of its end: the text leaves it where the next one begins
    const [x, end, y] = [scale(branch.start), scale(branch.end), ROW * (i + 0.5)];
    const above = branch.parent ? ROW * ((rows.get(branch.parent) ?? i) + 0.5) : y;
    const bend = Math.min(10, Math.max(0, end - x));
    const path = (/** @type {number} */ to) =>
      `M${x} ${above}V${y - Math.min(8, y - above)}Q${x} ${y} ${x + bend} ${y}H${to}`;
    const parts = [svg("path", { class: `branch-line ${kind}`, d: path(end) })];
    if (next) parts.push(svg("path", { class: "branch-line on", d: path(Math.max(x + bend, scale(next.start))) }));
    parts.push(
      svg("circle", {
        class: `branch-end ${kind} ${branch === tree.current ? "here" : ""}`,
        cx: end,
        cy: y,
        r: branch === tree.current ? 5 : 3.5,
      }),
    );
    return parts;
  }

  /** @param {Branch} branch */
  item(branch) {
    const { tree } = this.session;
    const here = branch === tree.current;
    const text = this.snippets.get(branch) || "∅";
    const figures = [t(`branch.${branch.kind}`), t("branch.tokens", { n: count(branch.tokens.length) })];
    const mean = branch.meanSurprise;
    if (Number.isFinite(mean)) figures.push(t("branch.mean", { nats: decimal(mean, 2) }));
    if (branch.how.off?.length) figures.push(t("branch.off", { n: branch.how.off.length }));
    return element(
      "li",
      {
        role: "treeitem",
        id: `branch-${branch.number}`,
        tabindex: here ? 0 : -1,
        "aria-selected": String(here),
        "aria-label": [text, ...figures].join(", "),
      },
      [
        element("span", { class: "branch-text", text }),
        element("span", { class: "branch-figures", text: figures.join(" · ") }),
      ],
    );
  }
}
