// The heads of one layer: tokens that look on the left, tokens looked at on the right, a line for each weight.

import { headColour } from "../base/colours.js";
import { InspectingView, WEIGHT_DIGITS, inspectRow, tokenName, weightText } from "./inspector.js";
import { measureText } from "../base/painter.js";
import { decimal, percent, t } from "../base/words.js";

/** @import { Shown } from "./inspector.js" */
/** @import { Attention } from "./trace.js" */

/** @import { Theme } from "../base/colours.js" */
/** @import { TipLine } from "../base/tooltip.js" */
/** @import { Box, Painter, Style, TextStyle } from "../base/painter.js" */
/** @import { Store } from "./store.js" */
/** @import { Token, Trace } from "./trace.js" */
/** @import { Host } from "./view.js" */

const HEAD_VIEW_TOP = 36; // the headings, which stay when the rows scroll
const HEAD_VIEW_LINES = 2400; // lines painted at most; beyond that the weakest are left out
const HEAD_VIEW_FAINTEST = 0.01; // weights below are not drawn as lines
const HEAD_VIEW_FONT = { size: 13 };

export class HeadView extends InspectingView {
  /** @type {Shown[]} */
  shown = [];
  /** @type {{block: string, layer: number, grouping: string}} */ place;
  /** @type {Attention} */ attention;
  /** @type {Token[]} */ queries;
  /** @type {Token[]} */ keys;
  /** @type {Record<string, any>} */ layout;
  /** @type {Box} */ window;

  /** @param {Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    super(trace, store, host);
    this.threshold = HEAD_VIEW_FAINTEST;
    this.window = { x: 0, y: 0, width: 0, height: 0 };
  }

  controls() {
    return [];
  }

  /** @param {number} width @param {number} height */
  async prepare(width, height) {
    this.turn += 1;
    const { turn } = this;
    const { block, layer, heads, grouping } = this.store.state;
    const present = heads.filter((head) => this.trace.has(block, layer, head));
    const shown = await Promise.all(
      present.map(async (head) => ({ head, weights: await this.trace.grouped(block, layer, head, grouping) })),
    );
    if (turn !== this.turn) return null;
    this.shown = shown;
    this.place = { block, layer, grouping };
    this.attention = this.trace.attention(block);
    this.queries = this.trace.tokens(this.attention.queries, grouping);
    this.keys = this.trace.tokens(this.attention.keys, grouping);
    this.layout = this.layOut(width, height);
    return { width, height: this.layout.height };
  }

  /** @param {number} width @param {number} height */
  layOut(width, height) {
    const narrow = width < 560;
    const rows = Math.max(this.queries.length, this.keys.length);
    // A few tokens take the room there is, many scroll.
    const row = Math.max(narrow ? 25 : 23, Math.min(32, Math.floor((height - HEAD_VIEW_TOP - 24) / rows)));
    /** @param {Token[]} tokens */
    const widest = (tokens) => tokens.reduce((most, { text }) => Math.max(most, measureText(text, HEAD_VIEW_FONT)), 0);
    const limit = narrow ? 74 : Math.min(190, width * 0.17);
    const left = Math.min(limit, Math.max(22, widest(this.queries))) + 16;
    const right = Math.min(limit, Math.max(22, widest(this.keys))) + 16;
    const bar = narrow ? 48 : Math.min(150, width * 0.13);
    const figures = 46;
    const sides = [narrow ? bar + 6 : bar + figures, bar + figures];
    const margin = narrow ? 4 : 16;
    const lines = Math.max(60, Math.min(460, width - 2 * margin - left - right - sides[0] - sides[1]));
    const used = left + right + lines + sides[0] + sides[1];
    const start = Math.max(margin, (width - used) / 2);
    const x1 = Math.round(start + sides[0] + left);
    const x2 = Math.round(x1 + lines);
    return {
      width,
      row,
      bar,
      narrow,
      left,
      right,
      x1,
      x2,
      leftBars: x1 - left,
      rightBars: x2 + right,
      from: start,
      to: start + used,
      height: HEAD_VIEW_TOP + rows * row + 16,
    };
  }

  /** @param {number} index */
  rowY(index) {
    return HEAD_VIEW_TOP + (index + 0.5) * this.layout.row;
  }

  /** Lines between the same two tokens lie beside each other, so that each head is seen. @param {number} which */
  lineShift(which) {
    const count = this.shown.length;
    return (which - (count - 1) / 2) * Math.min(2.4, (this.layout.row - 8) / count);
  }

  /** The first and the last row that a window shows. @param {Box} window @param {number} count */
  visible(window, count) {
    const { row } = this.layout;
    const first = Math.max(0, Math.floor((window.y - HEAD_VIEW_TOP) / row));
    return [first, Math.min(count - 1, Math.ceil((window.y + window.height - HEAD_VIEW_TOP) / row))];
  }

  /** What is pinned: {side, index} of the group of tokens, or null. */
  pinned() {
    const { token, key } = this.store.state;
    const { grouping } = this.place; // of what is shown; the next one may still be on its way
    if (this.store.state["x.side"] === "key" && key !== null && key < this.attention.s) {
      return { side: "key", index: this.trace.groupOf(this.attention.keys, grouping, key) };
    }
    if (token !== null && token < this.attention.t) {
      return { side: "query", index: this.trace.groupOf(this.attention.queries, grouping, token) };
    }
    return null;
  }

  /** @param {any} pick */
  focus(pick) {
    return pick?.focus ?? this.pinned();
  }

  /** @param {number} weight @param {number} head @param {Theme} theme @param {boolean} many */
  style(weight, head, theme, many) {
    const strength = Math.min(1, weight);
    return {
      stroke: headColour(head, theme),
      width: 0.7 + 2.6 * strength,
      opacity: Math.min(1, (many ? 0.06 : 0.14) + (many ? 0.74 : 0.86) * strength ** 0.8),
    };
  }

  /** Lines with an end in the window, the weakest left out if there are too many. @param {Box} window */
  collect(window) {
    const [firstQuery, lastQuery] = this.visible(window, this.queries.length);
    const [firstKey, lastKey] = this.visible(window, this.keys.length);
    /** @type {any[]} */
    const found = [];
    const counts = new Uint32Array(1001);
    this.shown.forEach(({ weights }, which) => {
      const { t: rows, s: columns, data } = weights;
      for (let i = 0; i < rows; i += 1) {
        const whole = i >= firstQuery && i <= lastQuery;
        const end = whole ? columns - 1 : Math.min(columns - 1, lastKey);
        for (let j = whole ? 0 : firstKey; j <= end; j += 1) {
          const weight = data[i * columns + j];
          if (weight >= HEAD_VIEW_FAINTEST) {
            found.push(which, i, j);
            counts[Math.min(1000, Math.floor(weight * 1000))] += 1;
          }
        }
      }
    });
    let kept = 0;
    let bin = 1000;
    while (bin > 0 && kept + counts[bin] <= HEAD_VIEW_LINES) {
      kept += counts[bin];
      bin -= 1;
    }
    this.threshold = Math.max(HEAD_VIEW_FAINTEST, (bin + 1) / 1000);
    return found;
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paint(painter, theme, window) {
    const { layout } = this;
    this.window = window;
    const [firstQuery, lastQuery] = this.visible(window, this.queries.length);
    const [firstKey, lastKey] = this.visible(window, this.keys.length);
    const top = window.y + HEAD_VIEW_TOP;
    painter.clip(window.x, top, window.width, window.height - HEAD_VIEW_TOP, () => {
      const found = this.collect(window);
      for (let n = 0; n < found.length; n += 3) {
        const { head, weights } = this.shown[found[n]];
        const weight = weights.data[found[n + 1] * weights.s + found[n + 2]];
        if (weight < this.threshold) continue;
        const shift = this.lineShift(found[n]);
        const style = this.style(weight, head, theme, true);
        painter.curve(layout.x1, this.rowY(found[n + 1]) + shift, layout.x2, this.rowY(found[n + 2]) + shift, style);
      }
      for (let i = firstQuery; i <= lastQuery; i += 1) this.paintToken(painter, theme, "query", i);
      for (let j = firstKey; j <= lastKey; j += 1) this.paintToken(painter, theme, "key", j);
    });
    this.paintHeadings(painter, theme, window);
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paintHeadings(painter, theme, window) {
    const { layout } = this;
    const y = window.y + 20;
    const style = { fill: theme.muted, size: 12, weight: 600 };
    painter.rect(window.x, window.y, window.width, HEAD_VIEW_TOP - 2, { fill: theme.surface });
    const names = this.headings();
    painter.text(names[0], layout.x1 - 9, y, { ...style, align: "end", maxWidth: layout.x1 - 12 });
    painter.text(names[1], layout.x2 + 9, y, { ...style, maxWidth: layout.width - layout.x2 - 12 });
  }

  headings() {
    const { block } = this.place;
    const narrow = this.layout.narrow;
    const names = narrow ? [t("query"), t("key")] : [t("looks"), t("looked")];
    return block === "cross" ? [`${t("target")} · ${names[0]}`, `${t("source")} · ${names[1]}`] : names;
  }

  /**
   * @param {Painter} painter @param {Theme} theme @param {string} side @param {number} index @param {TextStyle} [style]
   */
  paintToken(painter, theme, side, index, style = {}) {
    const { layout } = this;
    const token = (side === "query" ? this.queries : this.keys)[index];
    const y = this.rowY(index);
    const fill = style.fill ?? (token.special ? theme.muted : theme.ink);
    if (token.generated) {
      // What the model wrote itself is marked by a line along its outer edge.
      const x = side === "query" ? layout.x1 - 3 : layout.x2 + 1;
      painter.rect(x, y - layout.row / 2, 2, layout.row, { fill: theme.accent, opacity: 0.55 });
    }
    painter.text(token.text, side === "query" ? layout.x1 - 9 : layout.x2 + 9, y, {
      ...HEAD_VIEW_FONT,
      ...style,
      fill,
      align: side === "query" ? "end" : "start",
      maxWidth: (side === "query" ? layout.left : layout.right) - 14,
    });
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window @param {any} pick */
  paintHover(painter, theme, window, pick) {
    const focus = this.focus(pick);
    if (!focus || !this.shown.length) {
      if (focus) this.markToken(painter, theme, focus);
      return;
    }
    const { layout } = this;
    const { side, index } = focus;
    const fromQuery = side === "query";
    const top = window.y + HEAD_VIEW_TOP;
    const height = window.height - HEAD_VIEW_TOP;
    const others = fromQuery ? this.keys : this.queries;
    const [first, last] = this.visible(window, others.length);
    const list = inspectRow(this.shown, side, index);
    const largest = Math.max(...list.map(({ mean }) => mean), 1e-6);
    painter.clip(window.x, top, window.width, height, () => {
      // All that is not meant steps back; it was painted below and is not painted again.
      painter.rect(layout.x1, top, layout.x2 - layout.x1, height, { fill: theme.surface, opacity: 0.9 });
      const column = fromQuery ? [layout.x2 + 3, layout.right] : [layout.leftBars, layout.left - 4];
      painter.rect(column[0], top, column[1], height, { fill: theme.surface, opacity: 0.5 });
      for (const { index: other, values } of list) {
        values.forEach((weight, which) => {
          if (weight < 0.004) return;
          const [i, j] = fromQuery ? [index, other] : [other, index];
          const shift = this.lineShift(which);
          const style = this.style(weight, this.shown[which].head, theme, false);
          painter.curve(layout.x1, this.rowY(i) + shift, layout.x2, this.rowY(j) + shift, style);
        });
      }
      for (let other = first; other <= last; other += 1) this.paintBar(painter, theme, focus, list[other], largest);
      this.markToken(painter, theme, focus);
      const { token, key } = this.store.state;
      const { grouping } = this.place;
      const partner = fromQuery ? key : token;
      if (!pick && partner !== null && partner < (fromQuery ? this.attention.s : this.attention.t)) {
        const sequence = fromQuery ? this.attention.keys : this.attention.queries;
        this.frameToken(painter, theme, fromQuery ? "key" : "query", this.trace.groupOf(sequence, grouping, partner));
      }
    });
    this.paintHeadings(painter, theme, window);
  }

  /** @param {string} side @param {number} index @returns {[number, number, number, number]} */
  tokenBox(side, index) {
    const { layout } = this;
    const token = (side === "query" ? this.queries : this.keys)[index];
    const room = (side === "query" ? layout.left : layout.right) - 2;
    const width = Math.min(room, measureText(token.text, { ...HEAD_VIEW_FONT, weight: 700 }) + 12);
    const x = side === "query" ? layout.x1 - 3 - width : layout.x2 + 3;
    return [x, this.rowY(index) - layout.row / 2 + 1, width, layout.row - 2];
  }

  /** @param {Painter} painter @param {Theme} theme @param {{side: string, index: number}} options */
  markToken(painter, theme, { side, index }) {
    painter.rect(...this.tokenBox(side, index), { fill: theme.accent, radius: 5 });
    this.paintToken(painter, theme, side, index, { fill: theme.accentInk, weight: 600 });
  }

  /** @param {Painter} painter @param {Theme} theme @param {string} side @param {number} index */
  frameToken(painter, theme, side, index) {
    painter.rect(...this.tokenBox(side, index), { stroke: theme.accent, width: 1.5, radius: 5 });
  }

  /**
   * The weights of one token beside it: one bar made of the heads' colours, and their mean.
   * @param {Painter} painter @param {Theme} theme @param {{side: string}} options
   * @param {{index: number, values: number[], mean: number, error: number}} options @param {number} largest
   */
  paintBar(painter, theme, { side }, { index, values, mean, error }, largest) {
    if (mean < 0.0005) return;
    const { layout } = this;
    const other = side === "query" ? "key" : "query";
    const strong = mean >= 0.25 * largest;
    this.paintToken(painter, theme, other, index, { weight: strong ? 600 : 400 });
    const y = this.rowY(index);
    const unit = layout.bar / (largest * values.length);
    let at = 0;
    values.forEach((value, which) => {
      const length = value * unit;
      if (length < 0.15) return;
      const x = other === "key" ? layout.rightBars + at : layout.leftBars - at - length;
      painter.rect(x, y - 4.5, length, 9, { fill: headColour(this.shown[which].head, theme) });
      at += length;
    });
    if (mean < 0.005 || (layout.narrow && other === "query")) return;
    const x = other === "key" ? layout.rightBars + at + 5 : layout.leftBars - at - 5;
    const style = { fill: strong ? theme.ink : theme.muted, size: 11, align: other === "key" ? "start" : "end" };
    painter.text(percent(mean, error), x, y, style);
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    const { layout } = this;
    if (!layout || y < this.window.y + HEAD_VIEW_TOP) return null;
    const index = Math.floor((y - HEAD_VIEW_TOP) / layout.row);
    const middle = (layout.x1 + layout.x2) / 2;
    if (x < layout.from || x > layout.to || Math.abs(x - middle) < (layout.x2 - layout.x1) * 0.3) return null;
    const side = x < middle ? "query" : "key";
    const token = (side === "query" ? this.queries : this.keys)[index];
    if (!token) return null;
    const pinned = this.pinned();
    const same = pinned?.side === side && pinned.index === index;
    return {
      id: `${side} ${index}`,
      focus: { side, index },
      tooltip: this.tooltip(side, index, token, pinned),
      select: this.selection(side, token, same),
      cursor: "pointer",
    };
  }

  /** @param {string} side @param {Token} token @param {unknown} same */
  selection(side, token, same) {
    if (side === "query") return { token: same ? null : token.first, "x.side": null };
    return same ? { key: null, "x.side": null } : { key: token.first, "x.side": "key" };
  }

  /**
   * @param {string} side @param {number} index @param {Token} token @param {{side: string, index: number}|null} pinned
   */
  tooltip(side, index, token, pinned) {
    const { theme } = this.host;
    /** @type {TipLine[]} */
    const lines = [{ text: tokenName(token), value: t("position.n", { n: token.first }), strong: true }];
    if (token.generated) lines.push({ text: t("text.generated"), muted: true });
    // With a token pinned on the other side, the pair is what one wants to read.
    if (pinned && pinned.side !== side) {
      const [i, j] = side === "key" ? [pinned.index, index] : [index, pinned.index];
      lines.push({ text: `${tokenName(this.queries[i])} → ${tokenName(this.keys[j])}`, muted: true });
      for (const { head, weights } of this.shown) {
        const colour = headColour(head, theme);
        lines.push({ colour, text: t("head.n", { n: head }), value: weightText(weights, i, j) });
      }
      return lines;
    }
    const others = side === "query" ? this.keys : this.queries;
    const list = inspectRow(this.shown, side, index);
    lines.push({ text: t(side === "query" ? "tip.looksAt" : "tip.lookedAtBy"), muted: true });
    this.shown.slice(0, 12).forEach(({ head }, which) => {
      let best = 0;
      list.forEach(({ values }, other) => {
        if (values[which] > list[best].values[which]) best = other;
      });
      const { values, errors } = list[best];
      const text = `${t("head.n", { n: head })} ${side === "query" ? "→" : "←"} ${others[best].text}`;
      lines.push({
        colour: headColour(head, theme),
        text,
        value: decimal(values[which], WEIGHT_DIGITS, errors[which]),
      });
    });
    return lines;
  }

  key() {
    return false;
  }

  /** Where a token stands in the picture, for tests and for scrolling to it. */
  locate({ token = null, key = null }) {
    const { grouping } = this.place;
    const side = key === null ? "query" : "key";
    const sequence = side === "query" ? this.attention.queries : this.attention.keys;
    const index = this.trace.groupOf(sequence, grouping, key ?? token ?? 0);
    const { x1, x2 } = this.layout;
    return { x: side === "query" ? x1 - 14 : x2 + 14, y: this.rowY(index), height: this.layout.row };
  }

  /** @override */
  inspected() {
    const pinned = this.pinned();
    const shown = { shown: this.shown, attention: this.attention, block: this.place.block };
    if (!pinned) return { ...shown, side: "query", token: null, others: this.keys };
    const query = pinned.side === "query";
    const token = (query ? this.queries : this.keys)[pinned.index];
    return { ...shown, side: pinned.side, token, others: query ? this.keys : this.queries };
  }

  /** @override */
  placeText() {
    const { layer } = this.place;
    const heads = this.shown.map(({ head }) => head);
    if (heads.length === 1) return t("place", { layer, head: heads[0] });
    const all = heads.length === this.trace.heads(this.place.block, layer).length;
    return `${t("layer.n", { n: layer })} · ${all ? t("heads.all") : t("heads.list", { list: heads.join(", ") })}`;
  }

  legend() {
    return this.shown.map(({ head }) => ({
      colour: headColour(head, this.host.theme),
      text: t("head.n", { n: head }),
    }));
  }

  note() {
    const notes = [];
    if (this.threshold > HEAD_VIEW_FAINTEST) notes.push(t("threshold.about", { value: decimal(this.threshold, 2) }));
    if (this.queries.some(({ generated }) => generated)) notes.push(t("heads.generated"));
    return notes.join(" ");
  }
}
