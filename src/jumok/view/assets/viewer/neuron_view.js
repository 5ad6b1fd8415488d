// How one weight comes about, in columns as the formula reads: k, q∘k, their sum over √D, and the softmax.
// Each key is a row; the query stands above. Scores are computed here, from q and k as the model's product saw them; the
// weights are those that all views show.

import { button, choice, element } from "../base/controls.js";
import { scaleTable } from "../base/colours.js";
import { Bitmap } from "../base/painter.js";
import { decimal, t, trueDecimals } from "../base/words.js";
import { weightText } from "./inspector.js";

/** @import { Theme } from "../base/colours.js" */
/** @import { Box, Painter } from "../base/painter.js" */
/** @import { TipLine } from "../base/tooltip.js" */
/** @import { Store } from "./store.js" */
/** @import { Token, Trace, Vectors, Weights } from "./trace.js" */
/** @import { Host } from "./view.js" */

/**
 * @typedef {{product: Float32Array, dot: Float64Array, score: Float64Array, exponential: Float64Array,
 *   total: number, allowed: number, shift: number}} Scores what one query makes of all keys
 */
/**
 * @typedef {{name: string, vectors: Vectors, query: number, row: Scores & {weight: Float32Array}, weights: Weights,
 *   queries: Token[], keys: Token[], keyHead: number|null}} Computed weight: the row of the query
 */
/** @typedef {{name: string, vectors: null, query?: undefined}} Missing a head whose vectors are not in the file */
/**
 * @typedef {{wide: boolean, narrow: boolean, x: Columns, lists: {queries: number, fan: number}, keys: number,
 *   queries: number, d: number, width: number, row: number, strip: number, score: number, weight: number,
 *   label: number, end: number, line: number, header: number, margin: number}} NeuronLayout
 */
/**
 * @typedef {{queries: number, fan: number, label: number, key: number, product: number, score: number,
 *   weight: number}} Columns where each column begins
 */
/**
 * @typedef {{text: string, colour?: "positive"|"negative"|"accent", strong?: boolean, muted?: boolean,
 *   indent?: number}} Part of a line of the formula
 */
/** @typedef {Part[] & {findLastIndex: (test: (part: Part, i: number) => boolean) => number}} Searchable */
/** @typedef {{key: number, query?: undefined, dimension?: number}} KeyPlace under the pointer: a row, and its column */
/** @typedef {{query: number, key?: undefined, dimension?: undefined}} QueryPlace under the pointer: a query */

const NEURON_WIDE = 900;
const NEURON_NARROW = 560;
const NEURON_BARS = 40; // height of the bars above a column
const NEURON_KEPT = 6; // heads whose vectors stay decoded

/**
 * A positive number as e is written: in full while short, with a power of ten beyond; only its true digits.
 * @param {number} value @param {number} error of its logarithm
 */
export function neuronExponential(value, error) {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(value));
  const decimals = trueDecimals(value * Math.expm1(error), Math.max(0, 3 - power));
  if (value >= 1e-2 && value < 1e5 && decimals >= 0) return decimal(value, Math.min(decimals, value >= 100 ? 1 : 9));
  const digits = Math.min(2, decimals + power);
  const [shown, raised] = value.toExponential(Math.max(0, digits)).split("e");
  const sign = [...String(Number(raised))].map((one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(one)] ?? "⁻").join("");
  return digits < 0 ? `≈10${sign}` : `${shown}×10${sign}`;
}

/**
 * The size that almost no number exceeds: one outlier must not leave all others pale.
 * @param {ArrayLike<number>} values
 */
function neuronReach(values) {
  const sizes = Float32Array.from(values, Math.abs).sort();
  return sizes[Math.floor(0.995 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
}

/** @param {ArrayLike<number>} values @param {number} columns @param {number} reach @param {Theme} theme */
function neuronBitmap(values, columns, reach, theme) {
  const table = scaleTable("sign", theme);
  const rgba = new Uint8ClampedArray(4 * values.length);
  for (let i = 0; i < values.length; i += 1) {
    const share = Math.min(1, Math.max(-1, values[i] / reach));
    const at = 4 * Math.round(127.5 * (1 + share));
    rgba[4 * i] = table[at];
    rgba[4 * i + 1] = table[at + 1];
    rgba[4 * i + 2] = table[at + 2];
    rgba[4 * i + 3] = 255;
  }
  return new Bitmap(columns, values.length / columns, rgba);
}

/**
 * Scores of one query, from its vectors: product (s, d), dot, score and exponential (s), and its total.
 * A key beyond `allowed` may not be looked at.
 * @param {Vectors} vectors @param {number} query @param {number} allowed @returns {Scores}
 */
function attendFrom({ q, k, d, s, scale }, query, allowed) {
  const product = new Float32Array(s * d);
  const dot = new Float64Array(s);
  const score = new Float64Array(s);
  const exponential = new Float64Array(s);
  for (let j = 0; j < s; j += 1) {
    for (let i = 0; i < d; i += 1) {
      const part = q[query * d + i] * k[j * d + i];
      product[j * d + i] = part;
      dot[j] += part;
    }
    score[j] = dot[j] * scale;
  }
  let total = 0;
  let highest = -Infinity;
  for (let j = 0; j < allowed; j += 1) highest = Math.max(highest, score[j]);
  // The softmax does not change if all scores are moved; without that exp would overflow beyond 709.
  const shift = highest > 600 ? highest : 0;
  for (let j = 0; j < allowed; j += 1) {
    exponential[j] = Math.exp(score[j] - shift);
    total += exponential[j];
  }
  return { product, dot, score, exponential, total, allowed, shift };
}

export class NeuronView {
  /** @type {Map<string, Vectors|null>} */ vectors;
  /** @type {Computed|Missing|null} */ shown;
  /** @type {NeuronLayout|null} */ layout;
  /** @type {HTMLSelectElement|null} */ chooser;
  /** @type {string|null} */ chooserBlock;

  /** @param {Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    this.trace = trace;
    this.store = store;
    this.host = host;
    this.vectors = new Map(); // "block/layer/head" -> vectors, or null where the file has none
    this.turn = 0; // of preparing: what comes after a later choice is dropped
    this.shown = null; // what is on the page: vectors, the row, the query and the key
    /** @type {Map<string, Bitmap>} */
    this.bitmaps = new Map();
    this.layout = null;
    this.chooser = null;
    this.chooserBlock = null;
  }

  queryTokens() {
    return this.trace.tokens(this.trace.queries(this.store.get("block")), "token");
  }

  keyTokens() {
    return this.trace.tokens(this.trace.keys(this.store.get("block")), "token");
  }

  /** The chosen query, or one to begin with: the last where it sees the most, else the first that is a word. */
  query() {
    const tokens = this.queryTokens();
    const { token, block } = this.store.state;
    if (token !== null && token < tokens.length) return token;
    if (this.trace.attention(block).causal) return tokens.length - 1;
    return Math.max(
      0,
      tokens.findIndex(({ special }) => !special),
    );
  }

  /** @returns {Promise<Computed|Missing>} */
  async read() {
    const { block, layer, head } = this.store.state;
    const name = `${block}/${layer}/${head}`;
    const [query, queries, keys] = [this.query(), this.queryTokens(), this.keyTokens()];
    if (!this.vectors.has(name)) {
      const vectors = await this.trace.neurons(block, layer, head);
      const [oldest] = this.vectors.keys();
      if (this.vectors.size >= NEURON_KEPT) this.vectors.delete(oldest);
      this.vectors.set(name, vectors);
    }
    const vectors = this.vectors.get(name);
    if (!vectors) return { name, vectors: null };
    if (this.shown?.name === name && this.shown.query === query && this.shown.vectors === vectors) return this.shown;
    const { causal } = this.trace.attention(block);
    const allowed = causal ? Math.max(0, Math.min(vectors.s, vectors.s - vectors.t + query + 1)) : vectors.s;
    const weights = await this.trace.weights(block, layer, head);
    const weight = weights.data.subarray(query * weights.s, (query + 1) * weights.s);
    const row = { ...attendFrom(vectors, query, allowed), weight };
    return { name, vectors, query, row, weights, queries, keys, keyHead: this.trace.keyHead(block, head) };
  }

  /** @param {number} width @param {number} height */
  async prepare(width, height) {
    this.turn += 1;
    const { turn } = this;
    const shown = await this.read();
    if (turn !== this.turn) return null;
    if (shown !== this.shown) this.bitmaps.clear();
    this.shown = shown;
    this.fillChooser();
    if (!this.shown.vectors) {
      this.layout = null;
      return { width, height: Math.min(height, 170) };
    }
    const { d, t: queries, s: keys } = this.shown.vectors;
    const wide = width >= NEURON_WIDE;
    const narrow = width < NEURON_NARROW;
    const row = narrow ? 20 : 22;
    const gap = narrow ? 8 : 18;
    const lists = wide ? { queries: 104, fan: 76 } : { queries: 0, fan: 0 };
    const label = narrow ? 58 : 92;
    const score = narrow ? 44 : 132;
    const weight = narrow ? 48 : 140;
    const margin = narrow ? 8 : 20;
    const room = width - 2 * margin - lists.queries - lists.fan - label - score - weight - 3 * gap - 8;
    const strip = Math.max(d, Math.min(room / 2, 11 * d));
    const x = /** @type {Columns} */ ({});
    x.queries = margin;
    x.fan = x.queries + lists.queries;
    x.label = x.fan + lists.fan;
    x.key = x.label + label + 8;
    x.product = x.key + strip + gap;
    x.score = x.product + strip + gap;
    x.weight = x.score + score + gap;
    const end = x.weight + weight + margin;
    const line = narrow ? 19 : 23;
    const lines = this.formula(this.chosenKey(), { width: Math.max(240, width - 2 * margin), narrow }).length;
    const header = 8 + line * lines + 44 + NEURON_BARS;
    const rows = Math.max(keys, wide ? queries : 0);
    const measures = { width, row, strip, score, weight, label, end, line, header, margin };
    this.layout = { wide, narrow, x, lists, keys, queries, d, ...measures };
    return { width: Math.max(Math.ceil(end), narrow ? 0 : width), height: header + rows * row + 12 };
  }

  /** The chosen key, or the one that is looked at most. */
  chosenKey() {
    const { row } = /** @type {Computed} */ (this.shown);
    const { key } = this.store.state;
    if (key !== null && key < row.weight.length) return key;
    let best = 0;
    for (let j = 1; j < row.weight.length; j += 1) if (row.weight[j] > row.weight[best]) best = j;
    return best;
  }

  /** @param {number} key */
  masked(key) {
    return key >= /** @type {Computed} */ (this.shown).row.allowed;
  }

  // --- the numbers of a pair, each with the digits that are true ---

  /** @param {number} key @param {number} [digits] */
  dotText(key, digits = 3) {
    const { vectors, row } = /** @type {Computed} */ (this.shown);
    return decimal(row.dot[key], digits, vectors.errors.score / vectors.scale);
  }

  /** @param {number} key @param {number} [digits] */
  scoreText(key, digits = 3) {
    const { vectors, row } = /** @type {Computed} */ (this.shown);
    return decimal(row.score[key], digits, vectors.errors.score);
  }

  /** @param {number} key */
  weightText(key) {
    const { weights, query } = /** @type {Computed} */ (this.shown);
    return weightText(weights, query, key);
  }

  // --- the formula, with the numbers of a pair ---

  /**
   * Lines of parts {text, colour, strong}, broken before an equals sign where a line would not fit.
   * @param {number} key @param {{width: number, narrow: boolean}} options
   */
  formula(key, { width, narrow }) {
    const { vectors, query, row } = /** @type {Computed} */ (this.shown);
    const { d, scale, errors } = vectors;
    /** @param {number} value */
    const sign = (value) => (value < 0 ? "negative" : "positive");
    /** @param {string} text @param {number} value @returns {Part} */
    const number = (text, value) => ({ text, colour: sign(value) });
    /** @type {(value: number, error: number) => Part} */
    const ofVector = (value, error) => {
      const text = decimal(value, 2, error);
      return { text: value < 0 ? `(${text})` : text, colour: sign(value) };
    };
    const square = Math.abs(scale - d ** -0.5) < 1e-6;
    const by = square ? `÷ √${d}` : `× ${decimal(scale, 4)}`;
    /** @type {Part[][]} */
    const lines = [];
    /** @type {Part[]} */
    const dot = [{ text: "q · k", strong: true }];
    if (!narrow) {
      dot.push({ text: "= Σ qᵢkᵢ", muted: true }, { text: "=" });
      const shown = Math.min(d, 3);
      for (let i = 0; i < shown; i += 1) {
        if (i) dot.push({ text: "+" });
        const [q, k] = [vectors.q[query * d + i], vectors.k[key * d + i]];
        dot.push(ofVector(q, errors.q), { text: "·" }, ofVector(k, errors.k));
      }
      if (d > shown) dot.push({ text: "+ …", muted: true });
    }
    dot.push({ text: "=" }, number(this.dotText(key), row.dot[key]));
    lines.push(dot);
    lines.push([
      { text: t("neuron.score"), strong: true },
      { text: square ? "= q · k ÷ √D" : "= q · k × c", muted: true },
      { text: "=" },
      number(this.dotText(key), row.dot[key]),
      { text: by },
      { text: "=" },
      number(this.scoreText(key), row.score[key]),
    ]);
    if (this.masked(key)) {
      const why = { text: t("masked.future"), muted: true };
      lines.push([{ text: t("neuron.softmax"), strong: true }, { text: "= 0" }, why]);
    } else {
      const moved = row.shift ? ` − ${decimal(row.shift, 1)}` : "";
      lines.push([
        { text: t("neuron.softmax"), strong: true },
        { text: `= exp(${t("neuron.score").toLowerCase()}${moved}) ÷ Σ exp`, muted: true },
        { text: "=" },
        { text: neuronExponential(row.exponential[key], errors.score) },
        { text: "÷" },
        { text: neuronExponential(row.total, errors.score) },
        { text: "=" },
        { text: this.weightText(key), colour: "accent", strong: true },
      ]);
    }
    return lines.flatMap((parts) => this.broken(parts, width, narrow));
  }

  /** @param {Part[]} parts @param {number} width @param {boolean} narrow @returns {Part[][]} */
  broken(parts, width, narrow) {
    const size = narrow ? 12 : 14;
    const whole = parts.map((part) => part.text).join(" ");
    // Narrower than measured by a painter is not needed: a character is at most its size wide.
    const long = [...whole].reduce((sum, sign) => sum + (sign > "\u02ff" ? size : size * 0.58), 0);
    if (long <= width) return [parts];
    // Of ES2023, but older in browsers than the decompression that a trace needs.
    const at = /** @type {Searchable} */ (parts).findLastIndex(
      (part, i) => i > 1 && i < parts.length - 2 && part.text.startsWith("="),
    );
    if (at < 0) return [parts];
    return [parts.slice(0, at), [{ text: "", indent: 22 }, ...parts.slice(at)]];
  }

  /** @param {Painter} painter @param {Theme} theme @param {number} key @param {number} top */
  paintFormula(painter, theme, key, top) {
    const layout = /** @type {NeuronLayout} */ (this.layout);
    const { margin, line, narrow } = layout;
    const size = narrow ? 12 : 14;
    const lines = this.formula(key, { width: Math.max(240, layout.width - 2 * margin), narrow });
    lines.forEach((parts, i) => {
      let x = margin;
      const y = top + 8 + (i + 0.5) * line;
      for (const { text, colour, strong, muted, indent = 0 } of parts) {
        x += indent;
        const fill = colour ? theme[colour] : muted ? theme.muted : theme.ink;
        const style = { size, weight: strong ? 600 : 400, fill };
        painter.text(text, x, y, style);
        if (text) x += painter.measure(text, style) + size * 0.42;
      }
    });
    return lines.length;
  }

  // --- painting ---

  /** @param {string} kind @param {Theme} theme */
  bitmap(kind, theme) {
    const name = `${kind}/${theme.name}`;
    let made = this.bitmaps.get(name);
    if (!made) {
      const { vectors, row } = /** @type {Computed} */ (this.shown);
      const values = kind === "key" ? vectors.k : row.product;
      made = neuronBitmap(values, vectors.d, neuronReach(values), theme);
      this.bitmaps.set(name, made);
    }
    return made;
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paint(painter, theme, window) {
    if (!this.layout) {
      this.paintMissing(painter, theme);
      return;
    }
    const { row: height, header, keys, queries, lists } = this.layout;
    const first = Math.max(0, Math.floor((window.y - header) / height));
    const last = Math.min(Math.max(keys, queries), Math.ceil((window.y + window.height - header) / height));
    const chosen = this.chosenKey();
    if (chosen >= first && chosen < last) {
      painter.rect(this.layout.x.label, header + chosen * height, this.layout.end - this.layout.x.label, height, {
        fill: theme.highlight,
      });
    }
    if (lists.queries) this.paintQueries(painter, theme, first, last);
    this.paintRows(painter, theme, first, Math.min(last, keys));
    this.paintHeader(painter, theme, window, chosen);
  }

  /** @param {Painter} painter @param {Theme} theme @param {number} first @param {number} last */
  paintQueries(painter, theme, first, last) {
    const { x, row: height, header, lists, queries } = /** @type {NeuronLayout} */ (this.layout);
    const { query, row, queries: tokens } = /** @type {Computed} */ (this.shown);
    /** @param {number} i */
    const y = (i) => header + (i + 0.5) * height;
    for (let j = 0; j < row.weight.length; j += 1) {
      // Lines that end outside the window still pass through it.
      if (row.weight[j] < 0.003 || (j < first && query < first) || (j > last && query > last)) continue;
      painter.curve(x.fan + 4, y(query), x.label - 6, y(j), {
        stroke: theme.accent,
        width: Math.max(0.6, 5 * row.weight[j]),
        opacity: Math.min(0.9, 0.15 + 1.6 * row.weight[j]),
      });
    }
    for (let i = first; i < Math.min(last, queries); i += 1) {
      const here = i === query;
      if (here) {
        painter.rect(x.queries - 4, header + i * height + 1, lists.queries, height - 2, {
          fill: theme.accent,
          radius: 4,
        });
      }
      painter.text(tokens[i].text, x.queries + lists.queries - 12, y(i), {
        size: 13,
        fill: here ? theme.accentInk : theme.muted,
        weight: here ? 600 : 400,
        align: "end",
        maxWidth: lists.queries - 14,
      });
    }
  }

  /** @param {Painter} painter @param {Theme} theme @param {number} first @param {number} last */
  paintRows(painter, theme, first, last) {
    if (last <= first) return;
    const { x, row: height, header, strip, score, weight, label, narrow } = /** @type {NeuronLayout} */ (this.layout);
    const { row, vectors, keys: tokens } = /** @type {Computed} */ (this.shown);
    const count = last - first;
    const top = header + first * height;
    const source = [0, first, vectors.d, count];
    painter.image(this.bitmap("key", theme), x.key, top, strip, count * height, { source });
    painter.image(this.bitmap("product", theme), x.product, top, strip, count * height, { source });
    const reach = Math.max(...Array.from(row.score, Math.abs), 1e-9);
    const size = narrow ? 11 : 12;
    const barScore = narrow ? 0 : score - 58;
    const barWeight = narrow ? 0 : weight - 54;
    const chosen = this.chosenKey();
    for (let j = first; j < last; j += 1) {
      const y = header + j * height;
      const middle = y + height / 2;
      const masked = this.masked(j);
      const back = j === chosen ? theme.highlight : theme.surface;
      // The rows of a picture touch; a line between them makes them strips again.
      for (const left of [x.key, x.product]) {
        painter.rect(left - 1, y - 1.5, strip + 2, 3, { fill: theme.surface });
        if (j === chosen) painter.rect(left - 1, y, strip + 2, 1.5, { fill: back });
      }
      if (masked) {
        painter.rect(x.key, y + 1, strip, height - 2, { fill: theme.surface, opacity: 0.72 });
        painter.rect(x.product, y, strip, height, { fill: theme.surface });
        painter.rect(x.product, y + 2, strip, height - 4, { fill: theme.masked });
      }
      painter.text(tokens[j].text, x.label + label, middle, {
        size: 13,
        fill: masked ? theme.faint : theme.ink,
        align: "end",
        maxWidth: label - 4,
      });
      if (masked) {
        painter.text(narrow ? "–" : t("masked"), x.score + score, middle, { size, fill: theme.faint, align: "end" });
        painter.text("0", x.weight + weight, middle, { size, fill: theme.faint, align: "end" });
        continue;
      }
      const colour = row.score[j] < 0 ? theme.negative : theme.positive;
      if (barScore) {
        const zero = x.score + barScore / 2;
        const length = (row.score[j] / reach) * (barScore / 2);
        painter.rect(Math.min(zero, zero + length), y + 6, Math.abs(length), height - 12, { fill: colour });
        painter.line(zero, y, zero, y + height, { stroke: theme.rule });
        painter.rect(x.weight, y + 6, barWeight * row.weight[j], height - 12, { fill: theme.accent });
        painter.line(x.weight, y, x.weight, y + height, { stroke: theme.rule });
      } else {
        painter.rect(x.weight, y + 2, weight * row.weight[j], height - 4, { fill: theme.accent, opacity: 0.3 });
      }
      painter.text(this.scoreText(j, 2), x.score + score, middle, { size, fill: colour, align: "end" });
      painter.text(this.weightText(j), x.weight + weight, middle, {
        size,
        fill: theme.ink,
        align: "end",
        weight: row.weight[j] >= 0.1 ? 600 : 400,
      });
    }
  }

  /**
   * Formula, titles and the bars of q and of q∘k: it stays above the rows while they scroll.
   * @param {Painter} painter @param {Theme} theme @param {Box} window @param {number} key
   */
  paintHeader(painter, theme, window, key) {
    const layout = /** @type {NeuronLayout} */ (this.layout);
    const { x, strip, score, weight, header, lists, label, narrow, margin, d } = layout;
    const { vectors, query, row, queries, keys } = /** @type {Computed} */ (this.shown);
    const top = window.y;
    painter.rect(window.x, top, Math.max(window.width, layout.end), header - 2, { fill: theme.surface });
    this.paintFormula(painter, theme, key, top);
    const titles = top + header - NEURON_BARS - 24;
    const title = { size: narrow ? 11 : 12, fill: theme.muted };
    const vector = { ...title, fill: theme.ink, weight: 600, maxWidth: strip };
    const [queryToken, keyToken] = [queries[query].text, keys[key].text];
    painter.line(margin, titles - 12, layout.end - margin, titles - 12, { stroke: theme.rule });
    painter.text(narrow ? "q" : `q  ${queryToken}`, x.key, titles, vector);
    const product = narrow ? "q ∘ k" : `q ∘ k  ${keyToken}`;
    painter.text(product, x.product, titles, vector);
    painter.text(t("neuron.score"), x.score + score, titles, { ...title, align: "end", maxWidth: score + 8 });
    painter.text(t("neuron.softmax"), x.weight + weight, titles, { ...title, align: "end", maxWidth: weight + 8 });
    const list = { ...title, align: "end" };
    if (lists.queries) painter.text(t("query"), x.queries + lists.queries - 12, top + header - 14, list);
    painter.text(narrow ? "k ↓" : `${t("key")} k ↓`, x.label + label, top + header - 14, list);
    const base = titles + 12;
    this.paintBars(painter, theme, x.key, base, vectors.q.subarray(query * d, (query + 1) * d));
    if (!this.masked(key))
      this.paintBars(painter, theme, x.product, base, row.product.subarray(key * d, (key + 1) * d));
    if (!narrow && !this.masked(key)) {
      const big = { size: 17, weight: 600, align: "end" };
      const colour = row.score[key] < 0 ? theme.negative : theme.positive;
      const middle = base + NEURON_BARS / 2 + 2;
      painter.text(this.scoreText(key, 2), x.score + score, middle, { ...big, fill: colour });
      painter.text(this.weightText(key), x.weight + weight, middle, { ...big, fill: theme.accent });
    }
    painter.line(margin, top + header - 2.5, layout.end - margin, top + header - 2.5, { stroke: theme.rule });
  }

  /**
   * @param {Painter} painter @param {Theme} theme @param {number} left @param {number} top @param {Float32Array} values
   */
  paintBars(painter, theme, left, top, values) {
    const { strip } = /** @type {NeuronLayout} */ (this.layout);
    const reach = Math.max(...Array.from(values, Math.abs), 1e-9);
    const middle = top + NEURON_BARS / 2;
    const step = strip / values.length;
    const wide = Math.max(0.5, step - (step > 3 ? 1 : 0));
    values.forEach((value, i) => {
      const length = (value / reach) * (NEURON_BARS / 2 - 2);
      const fill = value < 0 ? theme.negative : theme.positive;
      painter.rect(left + i * step, Math.min(middle, middle - length), wide, Math.abs(length), { fill });
    });
    painter.line(left, middle, left + strip, middle, { stroke: theme.faint, opacity: 0.5 });
  }

  /** @param {Painter} painter @param {Theme} theme */
  paintMissing(painter, theme) {
    const { block, layer } = this.store.state;
    const room = this.host.window().width - 40;
    painter.text(t("neuron.missingTitle"), 20, 34, { size: 17, weight: 600, fill: theme.ink, maxWidth: room });
    const why = t("neuron.missingWhy", { block: t(`block.${block}`), layer });
    painter.text(why, 20, 64, { size: 13, fill: theme.muted, maxWidth: room });
    painter.text(t("neuron.missingHow"), 20, 96, { size: 13, fill: theme.muted, maxWidth: room });
    painter.text(`jumok view RUN "…" --layer ${layer}`, 20, 122, { size: 13, family: "mono", fill: theme.ink });
  }

  /**
   * @param {Painter} painter @param {Theme} theme @param {Box} window @param {{place: KeyPlace|QueryPlace}|null} pick
   */
  paintHover(painter, theme, window, pick) {
    if (!this.layout || !pick?.place) return;
    const { x, row: height, header, end, lists, strip, d } = this.layout;
    const { key, query, dimension } = pick.place;
    const stroke = theme.accent;
    if (query !== undefined) {
      painter.rect(x.queries - 4, header + query * height + 1, lists.queries, height - 2, { stroke, radius: 4 });
      this.paintHeader(painter, theme, window, this.chosenKey());
      return;
    }
    painter.rect(x.label, header + key * height + 0.5, end - x.label - 4, height - 1, { stroke, radius: 2 });
    this.paintHeader(painter, theme, window, key);
    if (dimension === undefined) return;
    const step = strip / d;
    for (const left of [x.key, x.product]) {
      const top = window.y + header - NEURON_BARS - 12;
      painter.rect(left + dimension * step - 0.5, top, Math.max(3, step), NEURON_BARS, { stroke, opacity: 0.8 });
    }
  }

  // --- pointing, keys, words ---

  /** @param {number} x @param {number} y */
  pick(x, y) {
    if (!this.layout) return null;
    const { layout } = this;
    const shown = /** @type {Computed} */ (this.shown);
    const { vectors, query } = shown;
    const { d, strip } = layout;
    const top = this.host.window().y;
    const inHeader = y < top + layout.header;
    const column =
      /** @type {const} */ (["key", "product"]).find((name) => x >= layout.x[name] && x < layout.x[name] + strip)
      ?? null;
    const dimension = column ? Math.min(d - 1, Math.floor(((x - layout.x[column]) / strip) * d)) : undefined;
    if (inHeader && (!column || y < top + layout.header - NEURON_BARS - 14)) return null;
    const line = Math.floor((y - layout.header) / layout.row);
    if (!inHeader && layout.lists.queries && x < layout.x.fan) {
      if (line < 0 || line >= layout.queries) return null;
      const token = shown.queries[line];
      return {
        id: `query ${line}`,
        place: { query: line },
        select: { token: line, key: null },
        cursor: "pointer",
        tooltip: [
          { text: `${t("query")} ${token.text}`, strong: true },
          { text: t("position"), value: String(line) },
        ],
      };
    }
    if (!inHeader && x < layout.x.label) return null;
    const key = inHeader ? this.chosenKey() : line;
    if (key < 0 || key >= layout.keys) return null;
    /** @type {TipLine[]} */
    const lines = [{ text: `${shown.queries[query].text} → ${shown.keys[key].text}`, strong: true }];
    if (dimension !== undefined) {
      lines.push({ text: t("neuron.dimension", { n: dimension }), muted: true });
      const [q, k] = [vectors.q[query * d + dimension], vectors.k[key * d + dimension]];
      const { errors } = vectors;
      const error = Math.abs(q) * errors.k + Math.abs(k) * errors.q + errors.q * errors.k;
      lines.push({ text: "q", value: decimal(q, 3, errors.q) });
      lines.push({ text: "k", value: decimal(k, 3, errors.k) });
      if (!this.masked(key)) lines.push({ text: "q ∘ k", value: decimal(q * k, 3, error) });
    } else if (this.masked(key)) {
      lines.push({ text: t("masked.future"), muted: true });
    } else {
      lines.push({ text: "q · k", value: this.dotText(key) });
      lines.push({ text: t("neuron.score"), value: this.scoreText(key) });
      lines.push({ text: t("neuron.softmax"), value: this.weightText(key), strong: true });
    }
    const id = `key ${key} ${dimension ?? ""} ${inHeader}`;
    return { id, place: { key, dimension }, tooltip: lines, select: { key }, cursor: "pointer" };
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    /** @type {Record<string, [name: "token"|"key", step: number]>} */
    const moves = { ArrowUp: ["token", -1], ArrowDown: ["token", 1], ArrowLeft: ["key", -1], ArrowRight: ["key", 1] };
    const move = moves[event.key];
    if (!move || !this.layout || event.ctrlKey || event.metaKey || event.altKey) return false;
    const [name, step] = move;
    const count = name === "token" ? this.layout.queries : this.layout.keys;
    const from = name === "token" ? /** @type {Computed} */ (this.shown).query : this.chosenKey();
    const next = Math.min(count - 1, Math.max(0, from + step));
    this.store.set(name === "token" ? { token: next, key: null } : { key: next });
    this.bringIntoSight(next);
    return true;
  }

  /** Scroll as far as needed to see a row below the formula. @param {number} line @param {boolean} [centred] */
  bringIntoSight(line, centred = false) {
    const { header, row } = /** @type {NeuronLayout} */ (this.layout);
    const seen = this.host.window();
    const y = header + line * row;
    const [above, below] = [y < seen.y + header, y + row > seen.y + seen.height];
    if (!above && !below) return;
    const middle = y - header - (seen.height - header - row) / 2;
    const to = centred ? middle : above ? y - header : y + row - seen.height + 8;
    this.host.scrollTo(seen.x, Math.max(0, to));
  }

  /** What was chosen in another view is seen at once in this one. */
  reveal() {
    if (this.layout)
      this.bringIntoSight(this.layout.wide ? /** @type {Computed} */ (this.shown).query : this.chosenKey(), true);
  }

  /** The list of queries follows the rest of the page. */
  fillChooser() {
    if (!this.chooser) return;
    const tokens = this.queryTokens();
    if (this.chooser.options.length !== tokens.length || this.chooserBlock !== this.store.get("block")) {
      this.chooserBlock = this.store.get("block");
      /** @param {{index: number, text: string}} options */
      const option = ({ index, text }) => element("option", { value: String(index), text: `${index} ${text}` });
      this.chooser.replaceChildren(...tokens.map(option));
    }
    this.chooser.value = String(this.query());
  }

  controls() {
    const tokens = this.queryTokens();
    const chooser = choice(
      t("query"),
      tokens.map(({ index, text }) => [index, `${index} ${text}`]),
      this.query(),
      () => this.store.set({ token: Number(/** @type {HTMLSelectElement} */ (this.chooser).value), key: null }),
    );
    this.chooser = chooser.querySelector("select");
    return [chooser];
  }

  title() {
    const { layer, head } = this.store.state;
    return `${t("tab.neurons")}: ${t("place", { layer, head })}`;
  }

  legend() {
    const { theme } = this.host;
    return [
      { colour: theme.positive, text: t("neuron.positive") },
      { colour: theme.negative, text: t("neuron.negative") },
      { colour: theme.accent, text: t("neuron.softmax") },
    ];
  }

  summary() {
    if (!this.layout) return t("neuron.missingTitle");
    const { query, queries, keys } = /** @type {Computed} */ (this.shown);
    const key = this.chosenKey();
    const pair = `${queries[query].text} → ${keys[key].text}`;
    const numbers = [`${t("neuron.score")} ${this.scoreText(key)}`, `${t("neuron.softmax")} ${this.weightText(key)}`];
    return `${this.title()}. ${pair}: ${numbers.join(", ")}.`;
  }

  table() {
    if (!this.layout) return null;
    const { query, queries, keys } = /** @type {Computed} */ (this.shown);
    const rows = keys.map(({ text }, j) =>
      this.masked(j) ? [j, text, "", "", "0"] : [j, text, this.dotText(j), this.scoreText(j), this.weightText(j)],
    );
    return {
      caption: t("table.caption", { token: queries[query].text }),
      columns: [t("position"), t("key"), "q · k", t("neuron.score"), t("neuron.softmax")],
      rows,
    };
  }

  /** What the numbers are, in the line below the picture. */
  note() {
    if (!this.layout) return "";
    const { vectors, keyHead } = /** @type {Computed} */ (this.shown);
    const notes = [t("neuron.rotated")];
    if (vectors.bits < 32) notes.push(t("neuron.rounding", { n: vectors.bits }));
    if (keyHead !== null) notes.unshift(t("neuron.headShared", { n: keyHead }));
    if (this.store.get("grouping") !== "token") notes.unshift(t("neuron.grouping"));
    return notes.join(" ");
  }

  /** Where a layer's vectors are missing, the way to one that has them. */
  panel() {
    if (this.layout) return null;
    const { block } = this.store.state;
    const layers = this.trace.attention(block).layers.filter((layer) => this.trace.hasNeurons(block, layer));
    if (!layers.length) return null;
    /** @param {number} layer */
    const go = (layer) => button(t("neuron.goToLayer", { n: layer }), { onclick: () => this.store.set({ layer }) });
    return element("div", { class: "panel-body" }, [
      element("h2", { text: t("neuron.missingLayers", { layers: layers.join(", ") }) }),
      ...layers.map(go),
    ]);
  }
}
