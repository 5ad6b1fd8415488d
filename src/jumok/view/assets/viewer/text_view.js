// The text as the model read it: how surprising each token was, what else it would have put, what it would have said at
// each layer (the logit lens), and which heads mattered.

import { button, element } from "../base/controls.js";
import { hex, inkOn, sequential, warm } from "../base/colours.js";
import { measureText } from "../base/painter.js";
import { decimal, percent, signed, t } from "../base/words.js";

/** @import { Theme } from "../base/colours.js" */
/** @import { Box, Font, Painter } from "../base/painter.js" */
/** @import { TipLine } from "../base/tooltip.js" */
/** @import { State, Store } from "./store.js" */
/** @import { Prediction, Token, Trace } from "./trace.js" */
/** @import { Host } from "./view.js" */

/** @typedef {Prediction & {p: number, rank: number, nats: number}} Expected of a token whose probability is known */
/**
 * @typedef {{position: number, token: Token, shown: string, guess: string|null, x: number, y: number, width: number,
 *   height: number}} Place where a token stands in its text
 */
/** @typedef {{places: Place[], first: number, bottom: number}} Flow */
/** @typedef {Flow & {number: number, top: number, several: boolean}} Passage one sequence of the trace */
/** @typedef {{lines: string[], cells: number}} Explained the lines below a heading, and where the cells begin */
/**
 * @typedef {{width: number, narrow: boolean, margin: number, size: number, line: number, texts: Passage[], cell: number,
 *   row: number, gutter: number, about: {size: number, line: number},
 *   lens?: Explained & {top: number, sequence: number, rows: number}}} TextLayout
 */
/** @typedef {NonNullable<TextLayout["lens"]>} LensPlace */
/** @typedef {NonNullable<Trace["lens"]>} Lens */
/** @typedef {NonNullable<Trace["predictions"]>} Predictions */
/** @typedef {{sequence: number, position: number, layer?: number}} Pointed what is under the pointer */

const TEXT_FULL_SURPRISE = 7; // nats at which the tint is full: a chance of one in a thousand
const TEXT_RANKED = 12; // heads shown before "show all"
const TEXT_BLANK = "␣";
const TEXT_LINE_END = "⏎";

/** Whether a token stands for one that was masked. @param {Token} token */
function textIsMask(token) {
  return token.special && /mask/i.test(token.piece ?? token.text);
}

/**
 * Whether the token that stands there has a probability: of a masked one only the prediction is known.
 * @param {Prediction|null} prediction @returns {prediction is Expected}
 */
function textWasExpected(prediction) {
  return prediction?.p !== null && prediction?.p !== undefined;
}

/** What the view shows of a model, as the key of its sentence. @param {Trace} trace */
export function textAbout({ predictions, classes }) {
  if (predictions) return predictions.kind === "here" ? "about.textHidden" : "about.text";
  return classes ? "about.textClasses" : "about.textOnly";
}

/**
 * The probability of each class, as bars.
 * @param {[label: string, p: number][]} classes @param {Theme} theme
 */
function textClasses(classes, theme) {
  const list = element("ol", { class: "bars" });
  for (const [label, p] of classes) {
    const part = element("i");
    part.style.width = `${Math.max(0.5, 100 * p)}%`;
    part.style.background = theme.accent;
    list.append(
      element("li", {}, [
        element("span", { class: "bar-text", text: label }),
        element("span", { class: "bar-track" }, [part]),
        element("span", { class: "bar-value", text: percent(p) }),
      ]),
    );
  }
  return element("section", { class: "panel-body", "data-panel": "classes" }, [
    element("h2", { text: t("text.classes") }),
    list,
    element("p", { class: "muted", text: t("bars.full", { full: percent(1) }) }),
  ]);
}

/**
 * A sentence in lines of at most so many pixels, broken between words.
 * @param {string} text @param {number} width @param {Font} font
 */
function textInLines(text, width, font) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && measureText(longer, font) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/**
 * What the model thought likely, as a list of bars; the token that stands there is marked.
 * @param {Prediction|null} prediction
 * @param {Token|null} token nothing stands yet where the text goes on
 * @param {string} heading @param {string} explanation @param {Theme} theme
 */
function textCandidates(prediction, token, heading, explanation, theme) {
  const body = element("section", { class: "panel-body", "data-panel": "candidates" }, [
    element("h2", { text: heading }),
    element("p", { class: "muted", text: explanation }),
  ]);
  if (!prediction) return body;
  const list = element("ol", { class: "bars" });
  const most = Math.max(prediction.top[0]?.[2] ?? 0, 1e-9);
  const known = token !== null && textWasExpected(prediction);
  /** @param {string} text @param {number} p @param {boolean} actual */
  const bar = (text, p, actual) => {
    const part = element("i");
    part.style.width = `${Math.max(0.5, (100 * p) / most)}%`;
    part.style.background = actual ? theme.negative : theme.accent;
    const name = element("span", { class: "bar-text", text, title: actual ? t("text.actual") : null });
    name.style.fontWeight = actual ? "700" : "400";
    list.append(
      element("li", { "data-actual": actual }, [
        name,
        element("span", { class: "bar-track" }, [part]),
        element("span", { class: "bar-value", text: percent(p) }),
      ]),
    );
  };
  for (const [id, text, p] of prediction.top) bar(text, p, known && id === token.id);
  if (known && !prediction.top.some(([id]) => id === token.id)) bar(token.text, prediction.p, true);
  body.append(list);
  if (prediction.top.length)
    body.append(element("p", { class: "muted", text: t("bars.full", { full: percent(most) }) }));
  if (known) {
    const facts = [
      `${t("text.actual")} ${token.text}`,
      percent(prediction.p),
      t("rank.n", { n: prediction.rank }),
      t("unit.nats", { n: decimal(prediction.nats, 2) }),
    ];
    body.append(element("p", { class: "muted", text: facts.join(" · ") }));
  }
  return body;
}

export class TextView {
  /** @type {TextLayout} */ layout;
  /** @type {string|null} */ followed;

  /** @param {Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    this.trace = trace;
    this.store = store;
    this.host = host;
    this.rankedAll = false;
    this.followed = null; // the place that the grids were last scrolled to
  }

  /** The sequence whose tokens were predicted; without predictions the last one. */
  predicted() {
    return this.trace.predictions?.sequence ?? this.trace.sequences.length - 1;
  }

  /** @param {number} position */
  prediction(position) {
    return this.trace.predictions?.tokens[position] ?? null;
  }

  /** The chosen token: {sequence, position}. What is chosen elsewhere is a query of the block on show. */
  chosen() {
    const { block, token } = this.store.state;
    const sequence = this.trace.queries(block);
    const tokens = this.trace.tokens(sequence);
    if (token !== null && token < tokens.length) return { sequence, position: token };
    return { sequence: this.predicted(), position: null };
  }

  /**
   * The change of state that chooses a token: in a block whose queries are of its sequence.
   * @param {number} sequence @param {number} position
   */
  choosing(sequence, position) {
    const { block, layer, head } = this.store.state;
    /** @type {Partial<State>} */
    const patch = { token: position, key: null };
    if (this.trace.queries(block) === sequence) return patch;
    const other = this.trace.blocks.find((name) => this.trace.queries(name) === sequence);
    if (!other) return patch;
    patch.block = other;
    if (!this.trace.has(other, layer, head)) {
      const [first] = this.trace.attention(other).layers;
      Object.assign(patch, { layer: first, head: this.trace.heads(other, first)[0] ?? 0, heads: [] });
    }
    return patch;
  }

  /** @param {number} width */
  async prepare(width) {
    const narrow = width < 560;
    const margin = narrow ? 12 : 20;
    const size = narrow ? 15 : 17;
    const line = narrow ? 30 : 34;
    /** @type {Passage[]} */
    const texts = [];
    const cells = { cell: narrow ? 56 : 66, row: 25 };
    const layout = /** @type {TextLayout} */ ({ width, narrow, margin, size, line, texts, ...cells });
    const names = this.trace.lens?.names.map((_, i) => measureText(this.lensName(i), { size: 12 })) ?? [];
    layout.gutter = Math.ceil(Math.max(narrow ? 52 : 76, ...names)) + margin;
    let y = 14;
    this.trace.sequences.forEach((sequence, number) => {
      const several = this.trace.sequences.length > 1;
      const flow = this.flow(number, layout, y + 34, width);
      layout.texts.push({ number, top: y, several, ...flow });
      y = flow.bottom + (flow.places.some(({ token }) => token.generated) ? 34 : 22);
    });
    let right = width;
    const about = { size: narrow ? 11.5 : 12.5, line: narrow ? 16 : 18 };
    layout.about = about;
    if (this.trace.lens) {
      const { names, sequence } = this.trace.lens;
      const lines = textInLines(t("lens.about"), width - 2 * margin, about);
      layout.lens = { top: y, sequence, rows: names.length, lines, cells: y + 24 + lines.length * about.line + 4 };
      right = Math.max(right, layout.gutter + this.trace.lens.top[0].length * layout.cell + margin);
      y = layout.lens.cells + (names.length + 1) * layout.row + 20;
    }
    this.layout = layout;
    this.followColumn();
    return { width: right, height: Math.ceil(y) };
  }

  /**
   * Where each token of a text goes: lines broken between tokens, and where the text has a line end.
   * @param {number} number @param {{margin: number, size: number, line: number}} options @param {number} top
   * @param {number} width @returns {Flow}
   */
  flow(number, { margin, size, line }, top, width) {
    /** @type {Place[]} */
    const places = [];
    const right = width - margin;
    let [x, row] = [margin, 0];
    this.trace.tokens(number).forEach((token, position) => {
      const ends = !token.special && token.text.endsWith(TEXT_LINE_END);
      const shown = token.special ? token.text : token.text.replaceAll(TEXT_BLANK, " ");
      const guess = textIsMask(token) ? (this.prediction(position)?.top[0]?.[1] ?? null) : null;
      const font = { size: token.special ? size - 4 : size };
      const measured = measureText(shown, font) + (guess ? measureText(guess, { size, weight: 600 }) + 8 : 0);
      const wide = Math.min(right - margin, Math.max(measured, 5) + (token.special ? 14 : 3));
      if (x + wide > right && x > margin) [x, row] = [margin, row + 1];
      places.push({ position, token, shown, guess, x, y: top + row * line, width: wide, height: line - 6 });
      x += wide;
      if (ends) [x, row] = [margin, row + 1];
    });
    const last = places.at(-1);
    return { places, first: top, bottom: last ? last.y + line : top + line };
  }

  /** The chosen token in the text, and its column where the grids are wider than the window. */
  reveal() {
    if (!this.layout) return;
    const { sequence, position } = this.chosen();
    if (position === null) return;
    const seen = this.host.window();
    let [x, y] = [seen.x, seen.y];
    const place = this.layout.texts.find(({ number }) => number === sequence)?.places[position];
    if (place && (place.y < y || place.y + place.height > y + seen.height)) y = Math.max(0, place.y - seen.height / 3);
    if (this.layout.lens?.sequence === sequence) x = this.columnInSight(position, seen);
    if (x !== seen.x || y !== seen.y) this.host.scrollTo(x, y);
  }

  /** A token that was just chosen takes the grids along. */
  followColumn() {
    const { sequence, position } = this.chosen();
    const before = this.followed;
    this.followed = `${sequence}/${position}`;
    const grid = this.layout.lens;
    if (before === null || before === this.followed || position === null || grid?.sequence !== sequence) return;
    const seen = this.host.window();
    const x = this.columnInSight(position, seen);
    if (x !== seen.x) this.host.scrollTo(x, seen.y);
  }

  /**
   * How far to scroll to the right for the column of a token; not at all if it is seen.
   * @param {number} position @param {{x: number, width: number}} options
   */
  columnInSight(position, { x, width }) {
    const { gutter, cell } = this.layout;
    const left = gutter + position * cell;
    if (left >= x + gutter && left + cell <= x + width) return x;
    return Math.max(0, left - gutter - (width - gutter - cell) / 2);
  }

  // --- painting ---

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paint(painter, theme, window) {
    if (!this.layout) return;
    // What is wider than the window scrolls; the text does not.
    painter.group({ translate: [window.x, 0] }, () => {
      for (const text of this.layout.texts) this.paintText(painter, theme, text, window);
    });
    if (this.layout.lens) this.paintLens(painter, theme, window);
  }

  /** @param {Painter} painter @param {Theme} theme @param {string} text @param {number} y @param {string[]} [lines] */
  paintHeading(painter, theme, text, y, lines = []) {
    const { margin, about } = this.layout;
    painter.text(text, margin, y + 8, { size: 14, weight: 700, fill: theme.ink });
    const style = { size: about.size, fill: theme.muted };
    lines.forEach((line, i) => painter.text(line, margin, y + 30 + i * about.line, style));
  }

  /** @param {Painter} painter @param {Theme} theme @param {Passage} text @param {Box} window */
  paintText(painter, theme, { number, top, several, places }, window) {
    const { margin, size, width } = this.layout;
    const isPredicted = this.trace.predictions && number === this.predicted();
    const heading = several ? t(this.trace.sequences[number].name) : t("text");
    this.paintHeading(painter, theme, heading, top);
    if (isPredicted) this.paintScale(painter, theme, top, painter.measure(heading, { size: 14, weight: 700 }));
    const chosen = this.chosen();
    for (const place of places) {
      const { token, position, x, y } = place;
      if (y + 40 < window.y || y > window.y + window.height) continue;
      const prediction = isPredicted ? this.prediction(position) : null;
      const hidden = textIsMask(token);
      if (textWasExpected(prediction) && !token.special) {
        const tint = hex(warm(Math.min(1, prediction.nats / TEXT_FULL_SURPRISE), theme));
        painter.rect(x + 0.5, y, place.width - 1, place.height, { fill: tint, radius: 3 });
      }
      if (token.special) {
        const frame = hidden ? { stroke: theme.accent, dash: [4, 3] } : { fill: theme.masked };
        painter.rect(x + 1, y + 1, place.width - 2, place.height - 2, { ...frame, radius: 4 });
      }
      const middle = y + place.height / 2;
      const sign = token.text === TEXT_LINE_END;
      const style = { size: token.special ? size - 4 : size, fill: sign || token.special ? theme.faint : theme.ink };
      const left = x + (token.special ? 7 : 1.5);
      painter.text(place.shown, left, middle, place.guess ? style : { ...style, maxWidth: place.width });
      if (place.guess) {
        painter.text(place.guess, x + place.width - 7, middle, { size, weight: 600, fill: theme.accent, align: "end" });
      }
      if (token.generated) painter.rect(x, y + place.height + 1, place.width, 2, { fill: theme.accent });
      if (chosen.sequence === number && chosen.position === position) {
        painter.rect(x - 0.5, y - 1, place.width + 1, place.height + 2, { stroke: theme.accent, width: 2, radius: 4 });
      }
    }
    if (places.some(({ token }) => token.generated)) {
      const text = t("text.generated");
      const right = width - margin;
      const last = places[places.length - 1];
      const y = last.y + last.height + 14;
      painter.rect(right - painter.measure(text, { size: 11 }) - 26, y - 1, 20, 2, { fill: theme.accent });
      painter.text(text, right, y, { size: 11, fill: theme.muted, align: "end" });
    }
  }

  /**
   * The scale of surprise and its mean, right of the heading.
   * @param {Painter} painter @param {Theme} theme @param {number} top @param {number} after
   */
  paintScale(painter, theme, top, after) {
    const { margin, width, narrow } = this.layout;
    const { tokens } = /** @type {Predictions} */ (this.trace.predictions);
    const counted = tokens.filter(
      (prediction, i) => textWasExpected(prediction) && !this.trace.tokens(this.predicted())[i].special,
    );
    const nats = /** @type {Expected[]} */ (counted).map((prediction) => prediction.nats);
    const y = top + 8;
    const font = { size: 11, fill: theme.muted };
    const right = width - margin;
    const high = t("surprise.high");
    const highWidth = painter.measure(high, font);
    const bar = narrow ? 54 : 120;
    const from = Math.round(right - highWidth - 8 - bar);
    for (let i = 0; i < bar; i += 3) painter.rect(from + i, y - 5, 3, 10, { fill: hex(warm(i / (bar - 3), theme)) });
    painter.rect(from - 0.5, y - 5.5, bar + 1, 11, { stroke: theme.rule });
    painter.text(high, right, y, { ...font, align: "end" });
    painter.text(t("surprise.low"), from - 8, y, { ...font, align: "end" });
    if (!nats.length || narrow) return;
    const mean = nats.reduce((sum, value) => sum + value, 0) / nats.length;
    const text = `${t("text.mean")} ${t("text.meanValue", { n: decimal(mean, 2) })}`;
    painter.text(text, margin + after + 16, y, { size: 12, fill: theme.muted });
  }

  /** @param {Box} window @param {number} count */
  columns(window, count) {
    const { gutter, cell } = this.layout;
    const first = Math.max(0, Math.floor((window.x - 4) / cell));
    return [first, Math.min(count, Math.ceil((window.x + window.width - gutter) / cell) + 1)];
  }

  /**
   * @param {Painter} painter @param {Theme} theme @param {number} sequence @param {number} top @param {number[]} list
   */
  paintTokensRow(painter, theme, sequence, top, [first, last]) {
    const { gutter, cell, row } = this.layout;
    const tokens = this.trace.tokens(sequence);
    const chosen = this.chosen();
    for (let i = first; i < last; i += 1) {
      const here = chosen.sequence === sequence && chosen.position === i;
      painter.text(tokens[i].text, gutter + (i + 0.5) * cell, top + row / 2, {
        size: 12,
        weight: here ? 700 : 400,
        fill: here ? theme.accent : theme.muted,
        align: "center",
        maxWidth: cell - 6,
      });
    }
  }

  /**
   * The names of the rows stay at the left edge.
   * @param {Painter} painter @param {Theme} theme @param {Box} window @param {number} top @param {string[]} labels
   */
  paintGutter(painter, theme, window, top, labels) {
    const { gutter, row, margin } = this.layout;
    painter.rect(window.x, top, gutter - 4, labels.length * row, { fill: theme.surface });
    labels.forEach((label, i) => {
      if (label) {
        painter.text(label, window.x + gutter - 10, top + (i + 0.5) * row, {
          size: 12,
          fill: theme.muted,
          align: "end",
          maxWidth: gutter - margin / 2 - 8,
        });
      }
    });
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window */
  paintLens(painter, theme, window) {
    const { gutter, cell, row } = this.layout;
    const lens = /** @type {LensPlace} */ (this.layout.lens);
    const { top, names } = /** @type {Lens} */ (this.trace.lens);
    painter.group({ translate: [window.x, 0] }, () =>
      this.paintHeading(painter, theme, t("lens"), lens.top, lens.lines),
    );
    const range = this.columns(window, top[0].length);
    const tokens = this.trace.tokens(lens.sequence);
    this.paintTokensRow(painter, theme, lens.sequence, lens.cells, range);
    const chosen = this.chosen();
    for (let layer = 0; layer < names.length; layer += 1) {
      const y = lens.cells + (layer + 1) * row;
      if (y + row < window.y || y > window.y + window.height) continue;
      for (let i = range[0]; i < range[1]; i += 1) {
        const best = top[layer][i]?.[0];
        const x = gutter + i * cell;
        if (!best) {
          painter.rect(x + 0.5, y + 0.5, cell - 1, row - 1, { fill: theme.masked });
          continue;
        }
        const [id, text, p] = best;
        const colour = sequential(p, theme);
        painter.rect(x + 0.5, y + 0.5, cell - 1, row - 1, { fill: hex(colour) });
        const style = { size: 12, fill: inkOn(colour), align: "center", maxWidth: cell - 6 };
        painter.text(text, x + cell / 2, y + row / 2, style);
        if (id === tokens[i].id && !textIsMask(tokens[i])) {
          painter.rect(x + 1.5, y + 1.5, cell - 3, row - 3, { stroke: theme.negative, width: 1.5, radius: 2 });
        }
      }
    }
    if (chosen.sequence === lens.sequence && chosen.position !== null) {
      painter.rect(gutter + chosen.position * cell - 0.5, lens.cells, cell + 1, (names.length + 1) * row, {
        stroke: theme.accent,
        width: 1.5,
        radius: 3,
      });
    }
    this.paintGutter(painter, theme, window, lens.cells, ["", ...names.map((_, i) => this.lensName(i))]);
  }

  /** Layers count from 0; what stands before them is the embedding. @param {number} row */
  lensName(row) {
    return row ? t("lens.layer", { n: row - 1 }) : t("lens.embedding");
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window @param {{place: Pointed}|null} pick */
  paintHover(painter, theme, window, pick) {
    if (!this.layout || !pick?.place) return;
    const { sequence, position, layer } = pick.place;
    const { gutter, cell, row, lens } = this.layout;
    const text = this.layout.texts.find(({ number }) => number === sequence);
    const place = text?.places[position];
    const frame = { stroke: theme.ink, width: 1.5, radius: 3 };
    if (place) {
      painter.rect(window.x + place.x - 0.5, place.y - 1, place.width + 1, place.height + 2, frame);
    }
    if (lens?.sequence === sequence && layer !== undefined) {
      painter.rect(gutter + position * cell, lens.cells + (layer + 1) * row, cell, row, frame);
    }
  }

  // --- pointing, keys, words ---

  /** @param {number} x @param {number} y */
  pick(x, y) {
    if (!this.layout) return null;
    const inGrid = this.pickGrid(x, y);
    if (inGrid) return inGrid;
    const left = x - this.host.window().x;
    for (const { number, places } of this.layout.texts) {
      const inLine = places.filter((one) => y >= one.y - 3 && y < one.y + one.height + 3);
      const place = inLine.find((one) => left >= one.x && left < one.x + one.width);
      if (place) return this.pickToken(number, place.position);
    }
    return null;
  }

  /** @param {number} x @param {number} y */
  pickGrid(x, y) {
    const { gutter, cell, row, lens } = this.layout;
    const position = Math.floor((x - gutter) / cell);
    if (x - this.host.window().x < gutter || position < 0) return null;
    const found = this.trace.lens;
    const inLens = lens && y >= lens.cells && y < lens.cells + (lens.rows + 1) * row;
    if (inLens && found && position < found.top[0].length) {
      const layer = Math.floor((y - lens.cells) / row) - 1;
      if (layer < 0) return this.pickToken(lens.sequence, position);
      const token = this.trace.tokens(lens.sequence)[position];
      /** @type {TipLine[]} */
      const lines = [{ text: `${this.lensName(layer)} · ${t("position.n", { n: position })}`, strong: true }];
      for (const [id, text, p] of found.top[layer][position] ?? []) {
        lines.push({ text, value: percent(p), strong: id === token.id });
      }
      const p = found.p?.[layer]?.[position];
      if (p !== null && p !== undefined) {
        lines.push({ text: t("lens.actual", { token: token.text }), value: percent(p), muted: true });
      }
      return {
        id: `lens ${layer} ${position}`,
        place: { sequence: lens.sequence, position, layer },
        tooltip: lines,
        select: this.choosing(lens.sequence, position),
        cursor: "pointer",
      };
    }
    return null;
  }

  /** @param {number} sequence @param {number} position */
  pickToken(sequence, position) {
    const token = this.trace.tokens(sequence)[position];
    const prediction = sequence === this.predicted() ? this.prediction(position) : null;
    /** @type {TipLine[]} */
    const lines = [
      { text: token.text, strong: true },
      { text: t("position"), value: String(position) },
    ];
    if (textWasExpected(prediction)) {
      lines.push({ text: t("probability"), value: percent(prediction.p) });
      lines.push({ text: t("rank"), value: String(prediction.rank) });
      lines.push({ text: t("surprise"), value: t("unit.nats", { n: decimal(prediction.nats, 2) }) });
    } else if (prediction) {
      for (const [, text, p] of prediction.top.slice(0, 3)) lines.push({ text, value: percent(p) });
    } else if (this.trace.predictions && sequence === this.predicted()) {
      lines.push({ text: t(position ? "text.notPredictedSpecial" : "text.notPredicted"), muted: true });
    }
    return {
      id: `token ${sequence} ${position}`,
      place: { sequence, position },
      tooltip: lines,
      select: this.choosing(sequence, position),
      cursor: "pointer",
    };
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.layout || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { sequence, position } = this.chosen();
    const text = this.layout.texts.find(({ number }) => number === sequence);
    if (!text?.places.length) return false;
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    let next;
    if (event.key in steps) {
      next = position === null ? 0 : position + steps[event.key];
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const from = text.places[position ?? 0];
      const y = from.y + (event.key === "ArrowUp" ? -1 : 1) * this.layout.line;
      const inLine = text.places.filter((place) => place.y === y);
      const middle = from.x + from.width / 2;
      /** @param {Place} place */
      const distance = (place) => Math.abs(place.x + place.width / 2 - middle);
      const nearest = inLine.sort((a, b) => distance(a) - distance(b))[0];
      next = nearest?.position ?? null;
    } else {
      return false;
    }
    if (next === null || !text.places[next]) return true;
    this.store.set(this.choosing(sequence, next));
    this.reveal();
    return true;
  }

  /** Ways down the page, to what a long text pushes out of sight. */
  controls() {
    /** @type {[name: string, top: () => number][]} */
    const parts = [["text", () => 0]];
    if (this.trace.lens) parts.push(["lens", () => /** @type {LensPlace} */ (this.layout.lens).top]);
    if (parts.length < 2) return [];
    /** @param {() => number} top */
    const go = (top) => this.layout && this.host.scrollTo(this.host.window().x, Math.max(0, top() - 12));
    return parts.map(([name, top]) => button(t(name), { onclick: () => go(top) }));
  }

  title() {
    return t("tab.text");
  }

  legend() {
    if (!this.trace.predictions) return [];
    const parts = [{ scale: "warm", from: "0", to: `≥ ${TEXT_FULL_SURPRISE}`, text: t("surprise.about") }];
    if (this.trace.lens) {
      parts.push({ scale: "sequential", from: "0", to: "1", text: `${t("lens")} (${t("probability")})` });
    }
    return parts;
  }

  summary() {
    const { sequence, position } = this.chosen();
    const { predictions, classes } = this.trace;
    if (classes) return `${t("text.class")}: ${classes.map(([label, p]) => `${label} ${percent(p)}`).join(", ")}.`;
    if (!predictions) return t("text.missingWhy");
    const prediction = sequence === this.predicted() && position !== null ? this.prediction(position) : null;
    if (!prediction || position === null) return t(textAbout(this.trace));
    const token = this.trace.tokens(sequence)[position];
    const facts = textWasExpected(prediction)
      ? [percent(prediction.p), t("rank.n", { n: prediction.rank }), t("unit.nats", { n: decimal(prediction.nats, 2) })]
      : prediction.top.slice(0, 3).map(([, text, p]) => `${text} ${percent(p)}`);
    return `${token.text}: ${facts.join(", ")}.`;
  }

  table() {
    const { classes } = this.trace;
    if (classes) {
      const rows = classes.map(([label, p]) => [label, percent(p)]);
      return { caption: t("text.classes"), columns: [t("text.class"), t("probability")], rows };
    }
    if (!this.trace.predictions) return null;
    const tokens = this.trace.tokens(this.predicted());
    const rows = tokens.map(({ text }, i) => {
      const found = this.prediction(i);
      if (!found) return [i, text, "", "", "", ""];
      const best = found.top[0]?.[1] ?? "";
      if (!textWasExpected(found)) return [i, text, "", "", "", best];
      return [i, text, percent(found.p), found.rank, decimal(found.nats, 2), best];
    });
    const columns = [t("position"), t("token"), t("probability"), t("rank"), t("nats"), t("text.candidates")];
    return { caption: t("tab.text"), columns, rows };
  }

  // --- beside the picture ---

  panel() {
    const theme = this.host.theme;
    const children = [this.candidates(theme), this.following(theme), this.ranking(theme)].filter(Boolean);
    return children.length ? element("div", {}, children) : null;
  }

  /** @param {Theme} theme */
  candidates(theme) {
    const { predictions, classes } = this.trace;
    if (classes) return textClasses(classes, theme);
    if (!predictions) {
      return element("section", { class: "panel-body" }, [
        element("h2", { text: t("text.missingTitle") }),
        element("p", { class: "muted", text: t("text.missingWhy") }),
      ]);
    }
    const chosen = this.chosen();
    const here = predictions.kind === "here";
    let { position } = chosen;
    if (chosen.sequence !== this.predicted() || position === null) {
      const tokens = this.trace.tokens(this.predicted());
      position = tokens.findIndex((token, i) => this.prediction(i) && (here ? textIsMask(token) : true));
      if (position < 0) position = tokens.findIndex((_, i) => this.prediction(i));
    }
    const token = this.trace.tokens(this.predicted())[position];
    if (!token) return null;
    const prediction = this.prediction(position);
    let explanation = t(here ? "text.here" : "text.next");
    if (!prediction) explanation = t(position === 0 && !here ? "text.notPredicted" : "text.notPredictedSpecial");
    return textCandidates(prediction, token, t("text.candidatesFor", { n: position }), explanation, theme);
  }

  /** After the last token: what the model would write next. @param {Theme} theme */
  following(theme) {
    const { sequence, position } = this.chosen();
    const after = this.trace.predictions?.after;
    const last = this.trace.tokens(this.predicted()).length - 1;
    if (!after || (position !== null && (sequence !== this.predicted() || position !== last))) return null;
    return textCandidates(after, null, t("text.after"), t("text.afterAbout"), theme);
  }

  /** @param {Theme} theme */
  ranking(theme) {
    const { probes } = this.trace;
    if (!probes?.ablation?.length) return null;
    const { ablation, baseline_nats: baseline } = probes;
    const ranked = [...ablation].sort((a, b) => b.delta_nats - a.delta_nats);
    const shown = this.rankedAll ? ranked : ranked.slice(0, TEXT_RANKED);
    const most = Math.max(...ranked.map(({ delta_nats: delta }) => Math.abs(delta)), 1e-9);
    const { block, layer, head } = this.store.state;
    const several = this.trace.blocks.length > 1;
    const list = element("ol", { class: "bars" });
    for (const entry of shown) {
      const part = element("i");
      part.style.width = `${Math.max(0.5, (100 * Math.abs(entry.delta_nats)) / most)}%`;
      part.style.background = entry.delta_nats < 0 ? theme.negative : theme.positive;
      const place = several
        ? `${t(`block.${entry.block}`)} ${entry.layer}.${entry.head}`
        : t("place", { layer: entry.layer, head: entry.head });
      const here = entry.block === block && entry.layer === layer && entry.head === head;
      const choose = button(place, {
        class: "quiet",
        pressed: here,
        onclick: () =>
          this.store.set({ block: entry.block, layer: entry.layer, head: entry.head, heads: [entry.head] }),
      });
      list.append(
        element("li", {}, [
          choose,
          element("span", { class: "bar-track" }, [part]),
          element("span", { class: "bar-value", text: signed(entry.delta_nats, 4) }),
        ]),
      );
    }
    const body = element("section", { class: "panel-body", "data-panel": "ranking" }, [
      element("h2", { text: t("ranking") }),
      element("p", { class: "muted", text: t("ranking.about") }),
      list,
      element("p", {
        class: "muted",
        text: `${t("ranking.baseline", { n: decimal(baseline, 3) })} ${t("bars.full", { full: t("unit.nats", { n: decimal(most, 4) }) })}`,
      }),
    ]);
    if (ranked.length > TEXT_RANKED) {
      const more = button(t(this.rankedAll ? "ranking.fewer" : "ranking.more", { n: ranked.length }), {
        onclick: () => {
          this.rankedAll = !this.rankedAll;
          body.replaceWith(/** @type {HTMLElement} */ (this.ranking(theme)));
        },
      });
      body.append(more);
    }
    return body;
  }
}
