// A picture that is put together from top to bottom: vectors as strips of colour, rows of bars, shapes of matrices.
// What is painted can be pointed at, and read number by number with the keyboard.

import { diverging, hex, inkOn, sequential } from "../base/colours.js";
import { measureText } from "../base/painter.js";
import { count, decimal, signed, t } from "../base/words.js";
import { largest, lengthOf } from "./step_numbers.js";

const CELL_WITH_NUMBER = 40; // pixels
const CELL = 10; // of a vector without numbers
const NARROWEST_CELL = 5; // of one of more than a thousand numbers
const LONG = 1024;
const NUMBERS_UP_TO = 64; // a longer vector is colours only; its numbers are read one by one

/** Easing of a movement. @param {number} x 0 to 1 */
export function eased(x) {
  return x * x * (3 - 2 * x);
}

/**
 * The share of step i of n that is done when `progress` of all is.
 * @param {number} progress @param {number} i @param {number} n
 */
export function phase(progress, i, n) {
  return Math.min(1, Math.max(0, progress * n - i));
}

/** A number in few characters: three significant ones. @param {number} x */
export function short(x) {
  const size = Math.abs(x);
  if (!Number.isFinite(x)) return decimal(x);
  if (size !== 0 && size < 0.0005) return x.toExponential(0).replace("-", "−");
  return decimal(x, size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/**
 * A place in the picture: what it says when it is pointed at, and what a click does.
 * @typedef {{x: number, y: number, width: number, height: number, lines: any[], choose?: () => void}} Place
 */

/** A painter that only measures. */
export const NOWHERE = Object.freeze({
  line() {},
  curve() {},
  rect() {},
  circle() {},
  polygon() {},
  text() {},
  image() {},
});

/**
 * What stands before and beside the name of a vector. sign: what joins it to the vector above. how: a formula.
 * @typedef {{colour?: string, sign?: string, how?: string}} Heading
 */

export class Scene {
  /**
   * @param {any} painter of base/painter.js
   * @param {{theme: any, width: number, progress?: number}} options progress: the share of the picture that has come
   */
  constructor(painter, { theme, width, progress = 1 }) {
    this.painter = painter;
    this.theme = theme;
    this.width = width;
    this.progress = progress;
    this.narrow = width < 560;
    this.y = 0;
    /** @type {{name: string, places: Place[]}[]} */
    this.lists = [];
    /** @type {[string, ArrayLike<number>][]} those that are shown as strips, by their names */
    this.vectors = [];
    this.signed = false; // whether there are strips, whose colours have to be explained
  }

  /** @param {number} pixels */
  gap(pixels) {
    this.y += pixels;
  }

  /** @param {string} text @param {number} x @param {number} y @param {object} [style] */
  text(text, x, y, style = {}) {
    this.painter.text(text, x, y, { fill: this.theme.ink, size: 13, ...style });
  }

  /** A text in lines that are as wide as the picture at most. @param {string} text @param {object} style */
  lines(text, style) {
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && measureText(`${last} ${word}`, style) > this.width) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    for (const line of lines) {
      this.text(line, 0, this.y + 9, { ...style, maxWidth: this.width });
      this.y += 19;
    }
    this.y += 3;
  }

  /** Small text. @param {string} text @param {object} [style] */
  caption(text, style = {}) {
    this.lines(text, { fill: this.theme.muted, size: 12.5, ...style });
  }

  /** A formula, set apart. @param {string} text */
  formula(text) {
    this.gap(3);
    this.lines(text, { family: "mono", size: this.narrow ? 12.5 : 14, weight: 600 });
    this.gap(3);
  }

  /**
   * The name of a vector at the left, its shape and length at the right.
   * @param {string} name @param {string} right @param {Heading} [style]
   */
  heading(name, right, { colour, sign, how } = {}) {
    const { theme, width, painter } = this;
    let left = 0;
    if (sign) {
      painter.circle(12, this.y + 9, 11, { fill: theme.panel, stroke: theme.rule });
      this.text(sign, 12, this.y + 9.5, { align: "center", weight: 700, size: 15, fill: theme.accent });
      left = 31;
    }
    if (colour) painter.rect(left, this.y + 2, 4, 15, { fill: colour, radius: 2 });
    if (colour) left += 10;
    const font = { weight: 650, size: 14 };
    const room = width * (this.narrow && !how ? 0.5 : 0.66);
    this.text(name, left, this.y + 10, { ...font, maxWidth: room - left });
    if (how) {
      const at = left + measureText(name, font) + 14;
      this.text(how, at, this.y + 10.5, {
        size: 13,
        family: "mono",
        fill: theme.accent,
        maxWidth: Math.max(0, room - at),
      });
    }
    const style = { fill: theme.muted, size: 12, align: "end", family: "mono" };
    this.text(right, width, this.y + 10, { ...style, maxWidth: width - room - 8 });
    this.y += 25;
  }

  /** A sign on a line of its own. @param {string} sign */
  operator(sign) {
    this.painter.circle(12, this.y + 11, 11, { fill: this.theme.panel, stroke: this.theme.rule });
    this.text(sign, 12, this.y + 11.5, { align: "center", weight: 700, size: 15, fill: this.theme.accent });
    this.y += 28;
  }

  /**
   * The shapes of a product of matrices, drawn to one scale: [{name, rows, columns}, "×", ...].
   * @param {({name: string, rows: number, columns: number, letters: string} | string)[]} parts letters: "C, H·D" for a
   * matrix, "C" for a vector
   */
  shapes(parts) {
    const boxes = parts.filter((part) => typeof part !== "string");
    const most = Math.max(...boxes.flatMap(({ rows, columns }) => [rows, columns]));
    const unit = this.narrow ? 46 : 64;
    const side = (/** @type {number} */ n) => Math.max(5, unit * Math.sqrt(n / most));
    const height = Math.max(...boxes.map(({ rows }) => side(rows)));
    let x = 0;
    for (const part of parts) {
      if (typeof part === "string") {
        this.text(part, x + 8, this.y + height / 2, { align: "center", weight: 600, fill: this.theme.muted });
        x += 20;
        continue;
      }
      const [width, tall] = [side(part.columns), side(part.rows)];
      const letters = `(${part.letters})`;
      const numbers = part.letters.includes(",") ? `${count(part.rows)} × ${count(part.columns)}` : count(part.columns);
      const name = { size: 12.5, weight: 600 };
      const wide = Math.max(width, measureText(part.name, name), 7 * Math.max(letters.length, numbers.length)) + 6;
      this.painter.rect(x + (wide - width) / 2, this.y + (height - tall) / 2, width, tall, {
        fill: hex(sequential(0.25, this.theme)),
        stroke: this.theme.accent,
        radius: 2,
      });
      const small = { align: "center", size: 11, fill: this.theme.muted, family: "mono" };
      this.text(part.name, x + wide / 2, this.y + height + 12, { align: "center", ...name });
      this.text(letters, x + wide / 2, this.y + height + 28, small);
      this.text(numbers, x + wide / 2, this.y + height + 42, small);
      x += wide + 4;
    }
    this.y += height + 62;
  }

  /** How a vector of n numbers is folded into rows. @param {number} n @param {number} width @param {number} [most] numbers that are written */
  fold(n, width, most = NUMBERS_UP_TO) {
    const numbers = n <= most;
    const least = numbers ? CELL_WITH_NUMBER : n > LONG ? NARROWEST_CELL : CELL;
    const fits = Math.max(1, Math.floor(width / least));
    const columns = n <= fits ? n : 2 ** Math.floor(Math.log2(fits));
    return { numbers, columns, rows: Math.ceil(n / columns) };
  }

  /**
   * A vector as a strip of colours: blue above nought, orange below.
   * @param {string} name @param {ArrayLike<number>} values
   * @param {{shape?: string, scale?: number, shown?: number, numbers?: number} & Heading} [options] scale: the value of
   * the deepest colour. shown: the share that has come. numbers: the most that are written into the cells.
   */
  strip(name, values, { shape = "", scale = largest(values), shown = 1, numbers: most, ...heading } = {}) {
    const n = values.length;
    this.vectors.push([name, values]);
    this.heading(name, [shape, t("step.length", { n: short(lengthOf(values)) })].filter(Boolean).join("  "), heading);
    const { numbers, columns, rows } = this.fold(n, this.width, most);
    const width = Math.min(this.width / columns, 72);
    const height = numbers ? 25 : rows === 1 ? 24 : n > LONG ? 8 : 17;
    this.cells(name, values, { x: 0, y: this.y, width, height, columns, scale, shown, numbers });
    this.y += rows * (height + (numbers ? 2 : 1)) + 8;
  }

  /**
   * @param {string} name @param {ArrayLike<number>} values
   * @param {{x: number, y: number, width: number, height: number, columns: number, scale: number, shown?: number,
   * numbers?: boolean, opacity?: number, first?: number}} at first: the number of the first one in the whole vector
   */
  cells(name, values, { x, y, width, height, columns, scale, shown = 1, numbers = false, opacity = 1, first = 0 }) {
    const { painter, theme } = this;
    const n = values.length;
    this.signed = true;
    const gap = width > 8 ? 1 : 0;
    const step = height + (numbers ? 2 : 1);
    /** @type {Place[]} */
    const places = [];
    const come = shown * n;
    for (let i = 0; i < n; i += 1) {
      const left = x + (i % columns) * width;
      const top = y + Math.floor(i / columns) * step;
      if (i < come) {
        const colour = diverging(scale ? values[i] / scale : 0, theme);
        painter.rect(left, top, width - gap, height, { fill: hex(colour), opacity });
        if (numbers && width >= 34) {
          this.text(short(values[i]), left + (width - gap) / 2, top + height / 2 + 0.5, {
            align: "center",
            size: width >= 44 ? 11.5 : 10.5,
            fill: inkOn(colour),
            opacity,
          });
        }
      }
      places.push({
        x: left,
        y: top,
        width,
        height,
        lines: [{ text: `${name} [${first + i}]`, value: signed(values[i], 4) }],
      });
    }
    const rows = Math.ceil(n / columns);
    for (let row = 0; row < rows; row += 1) {
      const count = Math.min(columns, n - row * columns);
      painter.rect(x, y + row * step, count * width - gap, height, { stroke: theme.rule });
    }
    this.lists.push({ name, places });
  }

  /**
   * Rows of tokens, each with a strip or without, a number, and a bar.
   * @param {string} name
   * @param {{label: string, strip?: ArrayLike<number>, faint?: number, text: string, value: number, pale?: number,
   * chosen?: boolean, lines: any[], choose?: () => void}[]} rows pale: a second bar behind the bar
   * @param {{scale?: number, most?: number, shown?: number, colour?: string, head?: string[], label?: number,
   * text?: number, say?: (value: number) => string}} [options] scale of the strips; most: the value of the longest bar;
   * label, text: widths; say: how a value of the axis below the bars is written
   */
  rows(
    name,
    rows,
    { scale = 1, most = 1, shown = 1, colour = this.theme.accent, head = [], say = short, ...sizes } = {},
  ) {
    const { painter, theme, width, narrow } = this;
    const withStrip = rows.some(({ strip }) => strip);
    const { label = narrow ? 62 : 104, text = narrow ? 62 : 84 } = sizes;
    const stripWidth = withStrip ? (width - label - text) * (narrow ? 0.46 : 0.52) : 0;
    const bar = label + stripWidth + text + (withStrip ? 22 : 12);
    const room = width - bar - 2;
    if (head.length) {
      const style = { size: 11.5, fill: theme.muted };
      this.text(head[0] ?? "", label + 4, this.y + 8, { ...style, maxWidth: stripWidth });
      this.text(head[1] ?? "", bar - 10, this.y + 8, {
        ...style,
        align: "end",
        maxWidth: withStrip ? text + 12 : label + text - 8,
      });
      this.text(head[2] ?? "", bar, this.y + 8, { ...style, maxWidth: room });
      this.y += 21;
    }
    const height = 26;
    const finite = rows.flatMap(({ value, pale = 0 }) => [value, pale]).filter(Number.isFinite);
    const below = most ? Math.min(1, Math.max(0, -Math.min(0, ...finite) / most)) : 0; // of a bar to the left
    const above = most ? Math.min(1, Math.max(0, ...finite) / most) : 0;
    const reach = room / Math.max(below + above, 1e-9);
    const zero = bar + below * reach;
    /** @type {Place[]} */
    const places = [];
    rows.forEach((row, i) => {
      const share = eased(phase(shown, i * 0.6, Math.max(1, rows.length * 0.6 + 0.4)));
      const top = this.y + i * height;
      if (row.chosen) painter.rect(0, top, width, height - 1, { fill: theme.highlight, radius: 5 });
      const middle = top + height / 2;
      this.text(row.label, 6, middle, { weight: row.chosen ? 700 : 500, maxWidth: label - 10 });
      if (row.strip && share > 0) {
        const cell = stripWidth / row.strip.length;
        this.stripInRow(row.strip, label, top + 4, cell, height - 9, scale, share * (row.faint ?? 1));
      }
      if (share > 0) {
        this.text(row.text, bar - 10, middle, { align: "end", family: "mono", size: 12, opacity: share });
        const long = (/** @type {number} */ value) =>
          Number.isFinite(value) && most ? reach * Math.min(1, Math.abs(value) / most) * share : 0;
        const draw = (/** @type {number} */ value, /** @type {object} */ style) =>
          painter.rect(value < 0 ? zero - long(value) : zero, top + 7, Math.max(long(value), 0.75), height - 15, style);
        if (row.pale !== undefined) draw(row.pale, { fill: theme.rule });
        draw(row.value, { fill: row.value < 0 ? theme.negative : colour });
        if (below) painter.line(zero, top + 2, zero, top + height - 3, { stroke: theme.faint, opacity: 0.5 });
      }
      places.push({ x: 0, y: top, width, height: height - 1, lines: row.lines, choose: row.choose });
    });
    this.y += rows.length * height;
    this.axis(bar, room, zero, [-below * most, above * most], say);
    this.y += 8;
    this.lists.push({ name, places });
  }

  /** What the ends of bars say. @param {number} x @param {number} width @param {number} zero @param {[number, number]} ends @param {(value: number) => string} say */
  axis(x, width, zero, [least, most], say) {
    const { theme } = this;
    this.painter.line(x, this.y + 1, x + width, this.y + 1, { stroke: theme.rule });
    const small = { size: 11, fill: theme.muted, family: "mono" };
    if (least < 0) this.text(say(least), x, this.y + 10, small);
    if (zero - x < 1 || (zero - x > 60 && x + width - zero > 60)) {
      this.text("0", zero, this.y + 10, { ...small, align: least < 0 ? "center" : "start" });
    }
    this.text(say(most), x + width, this.y + 10, { ...small, align: "end" });
    this.y += 17;
  }

  /** @param {ArrayLike<number>} values @param {number} x @param {number} y @param {number} cell @param {number} height @param {number} scale @param {number} opacity */
  stripInRow(values, x, y, cell, height, scale, opacity) {
    for (let i = 0; i < values.length; i += 1) {
      const fill = hex(diverging(scale ? values[i] / scale : 0, this.theme));
      this.painter.rect(x + i * cell, y, cell > 4 ? cell - 0.75 : cell + 0.3, height, { fill, opacity });
    }
    this.painter.rect(x, y, cell * values.length, height, { stroke: this.theme.rule });
  }

  /** What the colours of the strips say. */
  legend() {
    if (!this.signed) return;
    const steps = 11;
    this.gap(4);
    for (let i = 0; i < steps; i += 1) {
      const fill = hex(diverging((2 * i) / (steps - 1) - 1, this.theme));
      this.painter.rect(24 + i * 12, this.y + 3, 12, 12, { fill });
    }
    const style = { size: 12, fill: this.theme.muted };
    this.text("−", 8, this.y + 9, { ...style, size: 15 });
    this.text("0", 24 + 6 * steps, this.y + 22, { ...style, align: "center", size: 11 });
    this.text("+", 24 + 12 * steps + 8, this.y + 9, { ...style, size: 15 });
    this.text(t("step.legend"), 24 + 12 * steps + 28, this.y + 9, { ...style, maxWidth: this.width - 190 });
    this.y += 32;
  }

  /** The place under a point. @param {number} x @param {number} y @returns {Place | null} */
  pick(x, y) {
    for (const { places } of this.lists) {
      for (const place of places) {
        if (x >= place.x && x < place.x + place.width && y >= place.y && y < place.y + place.height) return place;
      }
    }
    return null;
  }
}
