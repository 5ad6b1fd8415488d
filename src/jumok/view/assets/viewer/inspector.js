// The row under inspection as a sentence, as bars beside the picture, and as a table: what the head and the matrix view
// have in common.

import { button, element } from "../base/controls.js";
import { headColour } from "../base/colours.js";
import { decimal, percent, t } from "../base/words.js";
import { weightError } from "./trace.js";

/** @import { Theme } from "../base/colours.js" */
/** @import { Attention, Token, Weights } from "./trace.js" */

/** @typedef {{head: number, weights: Weights}} Shown */
/** @typedef {{shown: Shown[], side: string, token: Token|null, others: Token[]}} Inspecting */
/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./view.js").Host} Host */
/** @typedef {{index: number, values: number[], mean: number, errors: number[], error: number}} Inspected */
/** @typedef {{shown: Shown[], side: string, token: Token, others: Token[]}} Row */

const INSPECTED_MOST = 14;

export const WEIGHT_DIGITS = 4; // decimals of a weight, as far as they are true

/** A weight as it is written in every view. @param {Weights} weights @param {number} i @param {number} j */
export function weightText(weights, i, j) {
  return decimal(weights.data[i * weights.s + j], WEIGHT_DIGITS, weightError(weights, i, j));
}

/** A token as a short name for a sentence: “나” and where it stands. @param {Token} token */
export function tokenName(token) {
  return `‘${token.text}’`;
}

/**
 * Whether a query may look at a key: of a causal text, at what does not come later. Groups keep the order.
 * @param {Token} query @param {Token} key @param {boolean} causal
 */
export function mayLook(query, key, causal) {
  return !causal || key.first <= query.last;
}

/**
 * What one token looks at, or who looks at it, in each of some heads.
 * @param {Shown[]} shown with weights of the same shape
 * @param {string} side "query" (row `index`) or "key" (column `index`)
 * @param {number} index
 * @returns {Inspected[]} with one value per head and how far it may be off, in order of position
 */
export function inspectRow(shown, side, index) {
  if (!shown.length) return [];
  const { t: rows, s: columns } = shown[0].weights;
  const count = side === "query" ? columns : rows;
  const list = [];
  for (let other = 0; other < count; other += 1) {
    const at = side === "query" ? index * columns + other : other * columns + index;
    const values = shown.map(({ weights }) => weights.data[at]);
    const [i, j] = side === "query" ? [index, other] : [other, index];
    const errors = shown.map(({ weights }) => weightError(weights, i, j));
    list.push({ index: other, values, mean: meanOf(values), errors, error: meanOf(errors) });
  }
  return list;
}

/** @param {number[]} values */
const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Whether the order of two weights is not known. Of one head rounding keeps the order; of sums and means it may not.
 * @param {Inspected} a @param {Inspected} b @param {Shown[]} shown
 */
function tied(a, b, shown) {
  if (a.mean === b.mean) return a.mean > 0 && a.error > 0;
  const alone = shown.length === 1 && !shown[0].weights.grouped;
  return !alone && Math.abs(a.mean - b.mean) < a.error + b.error;
}

/** One sentence on the strongest of a row or of a column. @param {Row} row */
function inspectorSummary({ shown, side, token, others }) {
  const list = inspectRow(shown, side, token.index).sort((a, b) => b.mean - a.mean);
  const best = list.slice(0, 3).filter(({ mean }) => mean >= 0.005);
  const name = tokenName(token);
  if (!best.length)
    return t(`summary.${side}None`, { token: name, share: percent(list[0]?.mean ?? 0, list[0]?.error) });
  const signs = best.map((one, i) => (i ? (tied(best[i - 1], one, shown) ? " ≈ " : ", ") : ""));
  const named = best.map(
    ({ index, mean, error }, i) => `${signs[i]}${tokenName(others[index])} ${percent(mean, error)}`,
  );
  const sentence = t(`summary.${side}`, { token: name, list: named.join("") });
  return signs.includes(" ≈ ") ? `${sentence} ${t("inspect.tied")}` : sentence;
}

/**
 * What the bars do not show: for a query the rest of its row, for a key all that it receives.
 * @param {Row & {list: Inspected[], listed: Inspected[]}} row
 */
function inspectedRest({ shown, side, token, others, list, listed }) {
  const sum = (/** @type {Inspected[]} */ some, /** @type {"mean"|"error"} */ what = "mean") =>
    some.reduce((total, one) => total + one[what], 0);
  const { causal } = shown[0].weights;
  const seen = others.filter((other) =>
    side === "query" ? mayLook(token, other, causal) : mayLook(other, token, causal),
  );
  const total = sum(list);
  if (side === "key") return t("inspect.received", { n: seen.length, sum: decimal(total, 2, sum(list, "error")) });
  if (!total) return t("inspect.nothing");
  const rest = total - sum(listed);
  const n = seen.length - listed.length;
  // The whole row is one, so the rest is as far off as what is listed, and no farther than its own weights.
  const error = Math.min(sum(listed, "error"), sum(list, "error") - sum(listed, "error"));
  return n > 0 && rest >= 0.00005 ? t("inspect.rest", { n, share: percent(rest, error) }) : "";
}

/**
 * The strongest of a row as bars, each made of the heads' colours.
 * @param {Inspecting & {place: string, theme: Theme, onchoose: (token: Token) => void}} options
 */
function inspectorElement({ shown, side, token, others, place, theme, onchoose }) {
  const body = element("div", { class: "panel-body", "data-inspector": side });
  if (token === null) {
    body.append(element("p", { class: "muted", text: t("hoverHint") }));
    return body;
  }
  const [before, after] = t(side === "query" ? "inspect.query" : "inspect.key").split("{token}");
  body.append(
    element("h2", {}, [before, element("span", { class: "token-sign", text: token.text }), after]),
    element("p", { class: "muted", text: `${t("position.n", { n: token.first })} · ${place}` }),
  );
  const list = inspectRow(shown, side, token.index);
  const strongest = list.filter(({ mean }) => mean >= 0.0005).sort((a, b) => b.mean - a.mean);
  const largest = Math.max(strongest[0]?.mean ?? 1, 1e-9);
  const bars = element("ol", { class: "bars" });
  const listed = strongest.slice(0, INSPECTED_MOST);
  for (const { index, values, mean, error } of listed) {
    const track = element("span", { class: "bar-track" });
    values.forEach((value, i) => {
      if (value < 0.0005) return;
      const part = element("i");
      part.style.width = `${(100 * value) / (shown.length * largest)}%`;
      part.style.background = headColour(shown[i].head, theme);
      track.append(part);
    });
    bars.append(
      element("li", { "data-key": others[index].first }, [
        button(others[index].text, {
          class: "quiet bar-text",
          title: t("position.n", { n: others[index].first }),
          "aria-label": others[index].text,
          onclick: () => onchoose(others[index]),
        }),
        track,
        element("span", { class: "bar-value", text: percent(mean, error) }),
      ]),
    );
  }
  body.append(bars);
  const rest = shown.length ? inspectedRest({ shown, side, token, others, list, listed }) : t("heads.empty");
  const notes = rest ? [rest] : [];
  if (shown.length > 1) notes.push(t("inspect.mean", { n: shown.length }));
  if (listed.some((one, i) => i && tied(listed[i - 1], one, shown))) notes.push(t("inspect.tied"));
  if (listed.length) notes.push(t("bars.full", { full: percent(listed[0].mean, listed[0].error) }));
  if (notes.length) body.append(element("p", { class: "muted", text: notes.join(" ") }));
  return body;
}

/** The same row as a table: every position, every head. @param {Inspecting} options */
function inspectorTable({ shown, side, token, others }) {
  if (token === null || !shown.length) return null;
  const columns = [t("table.position"), t("table.token"), ...shown.map(({ head }) => t("head.n", { n: head }))];
  if (shown.length > 1) columns.push(t("weight.mean"));
  const rows = inspectRow(shown, side, token.index).map(({ index, values, mean, errors, error }) => [
    others[index].first,
    others[index].text,
    ...values.map((value, i) => decimal(value, WEIGHT_DIGITS, errors[i])),
    ...(shown.length > 1 ? [decimal(mean, WEIGHT_DIGITS, error)] : []),
  ]);
  return {
    caption: t(side === "query" ? "table.caption" : "table.captionKey", { token: tokenName(token) }),
    columns,
    rows,
  };
}

/** A view of rows of weights, one of which may be pinned. */
export class InspectingView {
  /** @param {import("./trace.js").Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    this.trace = trace;
    this.store = store;
    this.host = host;
    this.turn = 0; // of preparing: what comes after a later choice is dropped
  }

  /** What is shown, and which row or column of it is pinned. @returns {Inspecting & {attention: Attention, block: string}} */
  inspected() {
    throw new Error("a view says what it shows");
  }

  /** The layer and the heads in words. @returns {string} */
  placeText() {
    throw new Error("a view says where it is");
  }

  title() {
    const { block } = this.inspected();
    return block === "self" ? this.placeText() : `${t(`block.${block}`)} · ${this.placeText()}`;
  }

  /** One sentence on what is pinned, for the line below the picture and for screen readers. */
  summary() {
    const { shown, side, token, others } = this.inspected();
    if (!shown.length) return t("heads.empty");
    return token ? inspectorSummary({ shown, side, token, others }) : t("hoverHint");
  }

  table() {
    return inspectorTable(this.inspected());
  }

  panel() {
    const inspected = this.inspected();
    return inspectorElement({
      ...inspected,
      theme: this.host.theme,
      place: this.title(),
      onchoose: ({ first }) => this.store.set(inspected.side === "query" ? { key: first } : { token: first }),
    });
  }
}
