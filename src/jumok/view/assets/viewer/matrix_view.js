// All weights of one head as a picture: rows look, columns are looked at. Zoom and pan go over one bitmap.

import { button, element } from "../base/controls.js";
import { hex, inkOn, mix, rgb, scaleTable, sequential } from "../base/colours.js";
import { InspectingView, WEIGHT_DIGITS, mayLook, tokenName, weightText } from "./inspector.js";
import { Bitmap, measureText } from "../base/painter.js";
import { decimal, percent, t } from "../base/words.js";
import { weightError } from "./trace.js";

/** @import { Theme } from "../base/colours.js" */
/** @import { TipLine } from "../base/tooltip.js" */
/** @import { Box, Painter, TextStyle } from "../base/painter.js" */
/** @import { Store } from "./store.js" */
/** @import { Attention, Token, Trace, Weights } from "./trace.js" */
/** @import { Host } from "./view.js" */

const MATRIX_FONT = { size: 12 };
const MATRIX_LARGEST_CELL = 46;
const MATRIX_FEWEST_CELLS = 5; // across, when zoomed in all the way

export class MatrixView extends InspectingView {
  /** @type {Weights} */ weights;
  /** @type {{block: string, layer: number, head: number, grouping: string}} */ place;
  /** @type {Attention} */ attention;
  /** @type {Token[]} */ queries;
  /** @type {Token[]} */ keys;
  /** @type {Float32Array} */ columnSums;
  /** @type {Weights} */ summed;
  /** @type {boolean} */ narrow;
  /** @type {number} */ longest;
  /** @type {number} */ fitting;
  /** @type {Box} */ room;
  /** @type {number} */ cell;
  /** @type {number[]} */ offset;
  /** @type {Box} */ plot;
  /** @type {number} */ width;
  /** @type {number} */ height;
  /** @type {{weights: Weights, theme: string, picture: Bitmap}|null} */ bitmap;
  /** @type {number[]|null} */ dragged;

  /** @param {Trace} trace @param {Store} store @param {Host} host */
  constructor(trace, store, host) {
    super(trace, store, host);
    this.bitmap = null;
    this.dragged = null;
  }

  controls() {
    /** @param {number} factor */
    const zoom = (factor) => () => this.zoomAt(factor, ...this.middle());
    return [
      element("div", { class: "segmented", role: "group", "aria-label": t("fit") }, [
        button("−", { title: t("zoomOut"), "data-action": "zoom-out", onclick: zoom(1 / 1.5) }),
        button(t("fit"), { "data-action": "zoom-fit", onclick: () => this.setZoom(null) }),
        button("+", { title: t("zoomIn"), "data-action": "zoom-in", onclick: zoom(1.5) }),
      ]),
    ];
  }

  /** @param {number} width @param {number} height */
  async prepare(width, height) {
    this.turn += 1;
    const { turn } = this;
    const { block, layer, head, grouping, zoom } = this.store.state;
    const present = this.trace.has(block, layer, head);
    const weights = present ? await this.trace.grouped(block, layer, head, grouping) : null;
    if (turn !== this.turn) return null;
    this.weights = /** @type {Weights} */ (weights); // null for a head that is not in the file, which is not painted
    this.place = { block, layer, head, grouping };
    this.attention = this.trace.attention(block);
    this.queries = this.trace.tokens(this.attention.queries, grouping);
    this.keys = this.trace.tokens(this.attention.keys, grouping);
    if (this.weights && this.weights !== this.summed) this.sum();
    this.layOut(width, height, zoom);
    return { width, height };
  }

  sum() {
    const { t: rows, s: columns, data } = this.weights;
    this.columnSums = new Float32Array(columns);
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < columns; j += 1) {
        this.columnSums[j] += data[i * columns + j];
      }
    }
    this.summed = this.weights;
  }

  /**
   * Whether row i may not look at column j. Groups of a causal sequence keep its order.
   * @param {number} i @param {number} j
   */
  masked(i, j) {
    return !mayLook(this.queries[i], this.keys[j], this.weights.causal);
  }

  /** @param {number} width @param {number} height @param {number[]|null} zoom */
  layOut(width, height, zoom) {
    const narrow = width < 560;
    this.narrow = narrow;
    /** @param {Token[]} tokens */
    const widest = (tokens) => tokens.reduce((most, { text }) => Math.max(most, measureText(text, MATRIX_FONT)), 0);
    const names = [this.rowsName(), this.receivedName()].map((text) => measureText(text, { size: 11, weight: 600 }));
    const tokens = Math.min(narrow ? 66 : 120, widest(this.queries) + 14);
    const left = Math.round(Math.max(tokens, ...names.map((name) => name + 14)));
    this.longest = widest(this.keys);
    const top = Math.round(Math.min(narrow ? 64 : 92, Math.max(46, this.longest * 0.78 + 26)));
    const right = narrow ? 16 : 24;
    const bottom = narrow ? 58 : 64;
    const room = {
      x: left,
      y: top,
      width: Math.max(80, width - left - right),
      height: Math.max(80, height - top - bottom),
    };
    const [rows, columns] = [this.queries.length, this.keys.length];
    const fitting = Math.min(room.width / columns, room.height / rows, MATRIX_LARGEST_CELL);
    this.fitting = fitting;
    this.room = room;
    let cell = fitting;
    let [x, y] = [0, 0];
    if (zoom?.length === 3 && zoom[2] > 0) {
      cell = this.limited(room.width / zoom[2]);
      x = Math.min(Math.max(0, zoom[0]), Math.max(0, columns - room.width / cell));
      y = Math.min(Math.max(0, zoom[1]), Math.max(0, rows - room.height / cell));
    }
    this.cell = cell;
    this.offset = [x, y];
    const plot = {
      width: Math.min(room.width, (columns - x) * cell),
      height: Math.min(room.height, (rows - y) * cell),
    };
    // A matrix smaller than its place stands in the middle of it.
    const free = Math.max(0, room.width - plot.width);
    this.plot = { ...plot, x: left + Math.floor(free / 2), y: top };
    this.width = width;
    this.height = height;
  }

  rowsName() {
    return this.narrow ? `${t("query")} ↓` : t("matrix.looks");
  }

  receivedName() {
    return this.narrow ? "Σ" : t("received");
  }

  /** @param {number} cell */
  limited(cell) {
    const largest = Math.max(MATRIX_LARGEST_CELL, this.room.width / MATRIX_FEWEST_CELLS);
    return Math.min(largest, Math.max(this.fitting, cell));
  }

  /** @param {number} factor @param {number} x @param {number} y */
  zoomAt(factor, x, y) {
    const { plot, room, cell, offset } = this;
    const next = this.limited(cell * factor);
    if (next <= this.fitting * 1.001) {
      this.setZoom(null);
      return;
    }
    const column = offset[0] + (x - plot.x) / cell;
    const row = offset[1] + (y - plot.y) / cell;
    this.moveTo(column - (x - room.x) / next, row - (y - room.y) / next, next);
  }

  /** @returns {[number, number]} */
  middle() {
    const { x, y, width, height } = this.plot;
    return [x + width / 2, y + height / 2];
  }

  /** @param {number} x @param {number} y @param {number} [cell] */
  moveTo(x, y, cell = this.cell) {
    const { room } = this;
    const column = Math.min(Math.max(0, x), Math.max(0, this.keys.length - room.width / cell));
    const row = Math.min(Math.max(0, y), Math.max(0, this.queries.length - room.height / cell));
    this.setZoom([column, row, room.width / cell]);
  }

  /**
   * Several gestures may come before the next picture: each begins where the last one ended.
   * @param {number[]|null} zoom
   */
  setZoom(zoom) {
    this.store.set({ zoom });
    this.layOut(this.width, this.height, zoom);
  }

  /** @param {number} x @param {number} y @param {WheelEvent} event */
  wheel(x, y, event) {
    const step = event.deltaMode === 1 ? 0.05 : 0.0022;
    this.zoomAt(Math.exp(-event.deltaY * step * (event.ctrlKey ? 3 : 1)), x, y);
    return true;
  }

  /** @param {number} factor @param {number} x @param {number} y */
  pinch(factor, x, y) {
    this.zoomAt(factor, x, y);
  }

  /** @param {number} dx @param {number} dy @param {number} x @param {number} y @param {unknown} phase */
  drag(dx, dy, x, y, phase) {
    if (phase === "start") {
      if (this.cell <= this.fitting * 1.001) return false;
      this.dragged = [...this.offset];
    } else if (this.dragged) {
      this.moveTo(this.dragged[0] - dx / this.cell, this.dragged[1] - dy / this.cell);
      if (phase === "end") this.dragged = null;
    }
    return true;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (factor) this.zoomAt(factor, ...this.middle());
    else if (event.key === "0") this.setZoom(null);
    else return false;
    return true;
  }

  /** The pinned row and column as groups, or null. */
  pinned() {
    const { token, key } = this.store.state;
    const { grouping } = this.place; // of what is shown; the next one may still be on its way
    const { queries, keys, t: rows, s: columns } = this.attention;
    return {
      row: token === null || token >= rows ? null : this.trace.groupOf(queries, grouping, token),
      column: key === null || key >= columns ? null : this.trace.groupOf(keys, grouping, key),
    };
  }

  /** @param {Theme} theme */
  makeBitmap(theme) {
    if (this.bitmap && this.bitmap.weights === this.weights && this.bitmap.theme === theme.name)
      return this.bitmap.picture;
    const { t: rows, s: columns, data } = this.weights;
    const table = scaleTable("cool", theme);
    const grey = mix(rgb(theme.masked), rgb(theme.rule), 0.5);
    const rgba = new Uint8ClampedArray(rows * columns * 4);
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < columns; j += 1) {
        const at = 4 * (i * columns + j);
        const weight = data[i * columns + j];
        if (!(weight > 0) && this.masked(i, j)) {
          rgba[at] = grey[0];
          rgba[at + 1] = grey[1];
          rgba[at + 2] = grey[2];
        } else {
          const colour = 4 * Math.round(255 * Math.sqrt(Math.min(1, weight || 0)));
          rgba[at] = table[colour];
          rgba[at + 1] = table[colour + 1];
          rgba[at + 2] = table[colour + 2];
        }
        rgba[at + 3] = 255;
      }
    }
    this.bitmap = { weights: this.weights, theme: theme.name, picture: new Bitmap(columns, rows, rgba) };
    return this.bitmap.picture;
  }

  /** @param {number} column */
  columnX(column) {
    return this.plot.x + (column - this.offset[0]) * this.cell;
  }

  /** @param {number} row */
  rowY(row) {
    return this.plot.y + (row - this.offset[1]) * this.cell;
  }

  shownRange() {
    const { plot, cell, offset } = this;
    return {
      firstColumn: Math.floor(offset[0] + 1e-6),
      lastColumn: Math.min(this.keys.length - 1, Math.ceil(offset[0] + plot.width / cell - 1e-6) - 1),
      firstRow: Math.floor(offset[1] + 1e-6),
      lastRow: Math.min(this.queries.length - 1, Math.ceil(offset[1] + plot.height / cell - 1e-6) - 1),
    };
  }

  /** @param {Painter} painter @param {Theme} theme */
  paint(painter, theme) {
    if (!this.weights) return;
    const { plot, cell, offset } = this;
    const picture = this.makeBitmap(theme);
    const range = this.shownRange();
    const source = [offset[0], offset[1], plot.width / cell, plot.height / cell];
    painter.image(picture, plot.x, plot.y, plot.width, plot.height, { source, smooth: cell < 1 });
    painter.clip(plot.x, plot.y, plot.width, plot.height, () => {
      if (cell >= 12) this.paintGrid(painter, theme, range);
      if (cell >= 34) this.paintNumbers(painter, theme, range);
      this.paintMasked(painter, theme);
    });
    painter.rect(plot.x - 0.5, plot.y - 0.5, plot.width + 1, plot.height + 1, { stroke: theme.rule, width: 1 });
    this.paintLabels(painter, theme, range);
    this.paintSums(painter, theme, range);
    this.paintLegend(painter, theme);
  }

  /**
   * @param {Painter} painter @param {Theme} theme
   * @param {{firstColumn: number, lastColumn: number, firstRow: number, lastRow: number}} options
   */
  paintGrid(painter, theme, { firstColumn, lastColumn, firstRow, lastRow }) {
    const { plot } = this;
    const style = { stroke: theme.surface, width: 1, opacity: 0.8 };
    for (let j = firstColumn + 1; j <= lastColumn; j += 1) {
      painter.line(this.columnX(j), plot.y, this.columnX(j), plot.y + plot.height, style);
    }
    for (let i = firstRow + 1; i <= lastRow; i += 1) {
      painter.line(plot.x, this.rowY(i), plot.x + plot.width, this.rowY(i), style);
    }
  }

  /**
   * @param {Painter} painter @param {Theme} theme
   * @param {{firstColumn: number, lastColumn: number, firstRow: number, lastRow: number}} options
   */
  paintNumbers(painter, theme, { firstColumn, lastColumn, firstRow, lastRow }) {
    const { t: rows, s: columns, data } = this.weights;
    for (let i = firstRow; i <= Math.min(lastRow, rows - 1); i += 1) {
      for (let j = firstColumn; j <= Math.min(lastColumn, columns - 1); j += 1) {
        const weight = data[i * columns + j];
        if (weight < 0.005) continue;
        const fill = inkOn(sequential(Math.sqrt(weight), theme));
        const text = weight >= 0.995 ? "1" : decimal(weight, 2, weightError(this.weights, i, j)).replace(/^0/, "");
        const style = { fill, size: this.cell >= 44 ? 12 : 10.5, align: "center" };
        painter.text(text, this.columnX(j + 0.5), this.rowY(i + 0.5), style);
      }
    }
  }

  /**
   * The part that may not be looked at is named where there is room for the word.
   * @param {Painter} painter @param {Theme} theme
   */
  paintMasked(painter, theme) {
    if (!this.weights.causal || this.store.state.zoom || this.plot.width < 200) return;
    const { plot } = this;
    painter.text(t("masked"), plot.x + plot.width * 0.76, plot.y + plot.height * 0.24, {
      fill: theme.faint,
      size: 12,
      align: "center",
    });
  }

  /**
   * @param {Painter} painter @param {Theme} theme
   * @param {{firstColumn: number, lastColumn: number, firstRow: number, lastRow: number}} options
   */
  paintLabels(painter, theme, { firstColumn, lastColumn, firstRow, lastRow }) {
    const { plot, cell } = this;
    const everyRow = Math.ceil(14 / cell);
    const flat = cell >= Math.min(this.longest, 60) + 4;
    const everyColumn = Math.ceil((flat ? 14 : 15) / cell);
    for (let i = Math.ceil(firstRow / everyRow) * everyRow; i <= lastRow; i += everyRow) {
      const y = this.rowY(i + 0.5);
      if (y < plot.y + 2 || y > plot.y + plot.height - 2) continue;
      this.paintRowLabel(painter, i, { fill: this.queries[i].special ? theme.muted : theme.ink });
    }
    for (let j = Math.ceil(firstColumn / everyColumn) * everyColumn; j <= lastColumn; j += everyColumn) {
      const x = this.columnX(j + 0.5);
      if (x < plot.x + 2 || x > plot.x + plot.width - 2) continue;
      this.paintColumnLabel(painter, j, flat, { fill: this.keys[j].special ? theme.muted : theme.ink });
    }
    const style = { fill: theme.muted, size: 11, weight: 600 };
    painter.text(this.rowsName(), plot.x - 8, plot.y - 9, { ...style, align: "end", maxWidth: plot.x - 10 });
    painter.text(t("matrix.looked"), plot.x, 12, style);
  }

  /** @param {Painter} painter @param {number} row @param {TextStyle} style */
  paintRowLabel(painter, row, style) {
    const { plot } = this;
    painter.text(this.queries[row].text, plot.x - 7, this.rowY(row + 0.5), {
      ...MATRIX_FONT,
      align: "end",
      maxWidth: this.room.x - 10,
      ...style,
    });
  }

  /** @param {Painter} painter @param {number} column @param {unknown} flat @param {TextStyle} style */
  paintColumnLabel(painter, column, flat, style) {
    const x = this.columnX(column + 0.5);
    const y = this.plot.y - 8;
    /** @type {TextStyle} */
    const font = flat
      ? { align: "center", baseline: "middle", maxWidth: Math.max(this.cell, 14) }
      : { angle: -50, maxWidth: (this.room.y - 30) / 0.77 };
    painter.text(this.keys[column].text, flat ? x : x + 2, flat ? y - 2 : y, { ...MATRIX_FONT, ...font, ...style });
  }

  /**
   * Below: how much each column receives.
   * @param {Painter} painter @param {Theme} theme
   * @param {{firstColumn: number, lastColumn: number}} options
   */
  paintSums(painter, theme, { firstColumn, lastColumn }) {
    const { plot, cell } = this;
    const y = plot.y + plot.height + 6;
    const tallest = 22;
    let largest = 1e-9;
    for (const sum of this.columnSums) largest = Math.max(largest, sum);
    painter.clip(plot.x, y, plot.width, tallest + 1, () => {
      for (let j = firstColumn; j <= lastColumn; j += 1) {
        const height = (this.columnSums[j] / largest) * tallest;
        const width = Math.max(0.6, cell - (cell > 4 ? 1 : 0));
        painter.rect(this.columnX(j), y, width, height, { fill: theme.faint, opacity: 0.7 });
      }
    });
    const left = { fill: theme.muted, size: 11, align: "end", maxWidth: plot.x - 8 };
    painter.text(this.receivedName(), plot.x - 7, y + 8, left);
  }

  /** @param {Painter} painter @param {Theme} theme */
  paintLegend(painter, theme) {
    const width = Math.min(150, this.plot.width);
    const x = this.plot.x;
    const y = this.plot.y + this.plot.height + (this.narrow ? 38 : 42);
    const steps = 48;
    for (let i = 0; i < steps; i += 1) {
      const fill = hex(sequential(Math.sqrt(i / (steps - 1)), theme));
      painter.rect(x + (i * width) / steps, y, width / steps + 0.5, 8, { fill });
    }
    painter.rect(x, y, width, 8, { stroke: theme.rule, width: 1 });
    painter.text("0", x - 7, y + 4, { fill: theme.muted, size: 11, align: "end" });
    painter.text("1", x + width + 6, y + 4, { fill: theme.muted, size: 11 });
    painter.text(t("legend.weight"), x + width + 20, y + 4, {
      fill: theme.muted,
      size: 11,
      maxWidth: this.width - x - width - 24,
    });
  }

  /** @param {Painter} painter @param {Theme} theme @param {Box} window @param {any} pick */
  paintHover(painter, theme, window, pick) {
    if (!this.weights) return;
    const { plot, cell } = this;
    const pinned = this.pinned();
    const row = pick?.cell ? pick.cell[0] : pinned.row;
    const column = pick?.cell ? pick.cell[1] : pinned.column;
    const line = { stroke: theme.accent, width: 1.25 };
    painter.clip(plot.x - 1, plot.y - 1, plot.width + 2, plot.height + 2, () => {
      const pad = cell < 6 ? 1.5 : 0;
      if (row !== null) {
        const height = cell + 2 * pad;
        painter.rect(plot.x, this.rowY(row) - pad, plot.width, height, { fill: theme.accent, opacity: 0.1 });
        painter.rect(plot.x, this.rowY(row) - pad, plot.width, height, line);
      }
      if (column !== null) {
        const width = cell + 2 * pad;
        painter.rect(this.columnX(column) - pad, plot.y, width, plot.height, { fill: theme.accent, opacity: 0.1 });
        painter.rect(this.columnX(column) - pad, plot.y, width, plot.height, line);
      }
      if (row !== null && column !== null) {
        const side = Math.max(cell, 7);
        const [x, y] = [this.columnX(column + 0.5), this.rowY(row + 0.5)];
        painter.rect(x - side / 2, y - side / 2, side, side, { stroke: theme.ink, width: 2 });
      }
    });
    // The labels of both, readable even where the others were thinned out.
    /** @param {number} value @param {number} from @param {number} length */
    const inside = (value, from, length) => value >= from - 1 && value <= from + length + 1;
    if (row !== null && inside(this.rowY(row + 0.5), plot.y, plot.height)) {
      const width = Math.min(
        this.room.x - 8,
        measureText(this.queries[row].text, { ...MATRIX_FONT, weight: 600 }) + 10,
      );
      painter.rect(plot.x - 3 - width, this.rowY(row + 0.5) - 10, width, 20, { fill: theme.accent, radius: 5 });
      this.paintRowLabel(painter, row, { fill: theme.accentInk, weight: 600 });
    }
    if (column !== null && inside(this.columnX(column + 0.5), plot.x, plot.width)) {
      const text = this.keys[column].text;
      const width = Math.min(160, measureText(text, { ...MATRIX_FONT, weight: 600 }) + 12);
      const x = Math.min(Math.max(this.columnX(column + 0.5) - width / 2, 2), this.width - width - 2);
      painter.rect(x, plot.y - 23, width, 20, { fill: theme.accent, radius: 5 });
      painter.text(text, x + width / 2, plot.y - 13, {
        ...MATRIX_FONT,
        fill: theme.accentInk,
        weight: 600,
        align: "center",
        maxWidth: width - 8,
      });
    }
  }

  /** @param {number} x @param {number} y */
  pick(x, y) {
    if (!this.weights) return null;
    const { plot, cell, offset } = this;
    const inColumns = x >= plot.x && x < plot.x + plot.width;
    const inRows = y >= plot.y && y < plot.y + plot.height;
    const column = inColumns ? Math.min(this.keys.length - 1, Math.floor(offset[0] + (x - plot.x) / cell)) : null;
    const row = inRows ? Math.min(this.queries.length - 1, Math.floor(offset[1] + (y - plot.y) / cell)) : null;
    if (column === null && row === null) return null;
    if (column === null && x > plot.x + plot.width + 50) return null;
    const outside = row === null && y > plot.y + plot.height + 30;
    if (outside) return null;
    const pinned = this.pinned();
    const same = row === pinned.row && column === pinned.column;
    const query = row === null ? null : this.queries[row];
    const key = column === null ? null : this.keys[column];
    const select = same ? { token: null, key: null } : { token: query?.first ?? null, key: key?.first ?? null };
    return {
      id: `${row} ${column}`,
      cell: [row, column],
      tooltip: this.tooltip(/** @type {number} */ (row), /** @type {number} */ (column), query, key),
      select: { ...select, "x.side": query ? null : "key" },
      cursor: "crosshair",
    };
  }

  /** @param {number} row @param {number} column @param {Token|null} query @param {Token|null} key */
  tooltip(row, column, query, key) {
    /** @type {TipLine[]} */
    const lines = [];
    if (query && key) {
      lines.push({ text: `${tokenName(query)} → ${tokenName(key)}`, strong: true });
      lines.push({ text: `${t("position")} ${query.first} → ${key.first}`, muted: true });
      if (this.masked(row, column)) {
        lines.push({ text: t("masked.future"), muted: true });
        return lines;
      }
      const weight = this.weights.data[row * this.weights.s + column];
      const share = percent(weight, weightError(this.weights, row, column));
      lines.push({ text: t("weight"), value: `${weightText(this.weights, row, column)} (${share})` });
    } else {
      const token = /** @type {Token} */ (query ?? key);
      lines.push({ text: tokenName(token), value: t("position.n", { n: token.first }), strong: true });
    }
    if (key) {
      let error = 0;
      for (let i = 0; i < this.weights.t; i += 1) error += weightError(this.weights, i, column);
      lines.push({ text: t("received"), value: decimal(this.columnSums[column], WEIGHT_DIGITS, error) });
    }
    return lines;
  }

  /** Where a pair stands in the picture, for tests. */
  locate({ token = null, key = null }) {
    const { grouping } = this.place;
    const row = token === null ? null : this.trace.groupOf(this.attention.queries, grouping, token);
    const column = key === null ? null : this.trace.groupOf(this.attention.keys, grouping, key);
    return {
      x: column === null ? this.plot.x - 12 : this.columnX(column + 0.5),
      y: row === null ? this.plot.y - 8 : this.rowY(row + 0.5),
      height: this.cell,
    };
  }

  /** A pinned cell that was moved out of sight comes back into it. */
  reveal() {
    if (!this.store.state.zoom || !this.weights) return;
    const { row, column } = this.pinned();
    const { plot, cell, offset } = this;
    const across = plot.width / cell;
    const down = plot.height / cell;
    let [x, y] = offset;
    if (column !== null) x = Math.min(column, Math.max(x, column + 1 - across));
    if (row !== null) y = Math.min(row, Math.max(y, row + 1 - down));
    if (x !== offset[0] || y !== offset[1]) this.moveTo(x, y);
  }

  /** @override */
  inspected() {
    const { attention, place, queries, keys } = this;
    const shown = this.weights ? [{ head: place.head, weights: this.weights }] : [];
    const { row, column } = this.pinned();
    const at =
      row === null && column !== null
        ? { side: "key", token: keys[column], others: queries }
        : { side: "query", token: row === null ? null : queries[row], others: keys };
    return { shown, attention, block: place.block, ...at };
  }

  /** @override */
  placeText() {
    const { layer, head } = this.place;
    return t("place", { layer, head });
  }

  legend() {
    return []; // the scale is part of the picture
  }
}
