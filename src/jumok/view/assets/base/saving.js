// A view as a file for a paper: title, model, picture and legend, painted by the view itself.

import { diverging, hex, sequential, warm } from "./colours.js";
import { element } from "./controls.js";
import { CanvasPainter, contextOf, measureText } from "./painter.js";

/** @import { Theme } from "./colours.js" */
/** @import { Box, Painter } from "./painter.js" */

/**
 * @typedef {{text: string, colour?: string, scale?: "sequential"|"warm"|"diverging", from?: string, to?: string}} Legend
 * @typedef {{paint: (painter: Painter, theme: Theme, window: Box) => void,
 *   paintHover?: (painter: Painter, theme: Theme, window: Box, picked: null) => void, legend?: () => Legend[]}} FigureView
 */

const FIGURE_MARGIN = 20;
const FIGURE_HEAD = 58;
const FIGURE_FOOT = 34;
const FIGURE_LARGEST = 4000; // pixels; a picture that is wider or higher is saved as far as it is seen
const FIGURE_SCALE_BAR = 60; // pixels
const FIGURE_SCALE = 2; // of a PNG

/**
 * What of a view goes into a figure: all of it, or what is seen of one that is very long.
 * @param {{width: number, height: number}} content @param {Box} seen
 */
function figureWindow(content, seen) {
  /** @type {(size: number, from: number, length: number) => [number, number]} */
  const along = (size, from, length) => (size <= FIGURE_LARGEST ? [0, size] : [from, length]);
  const [x, width] = along(content.width, seen.x, seen.width);
  const [y, height] = along(content.height, seen.y, seen.height);
  return { x, y, width, height };
}

/**
 * @param {Painter} painter @param {Theme} theme @param {Legend[]} legend @param {number} x @param {number} y
 * @param {number} width
 */
function paintLegend(painter, theme, legend, x, y, width) {
  let at = x;
  const font = { size: 11.5 };
  for (const { colour, scale, from = "", to = "", text } of legend) {
    const label = scale ? `${text}: ${from}` : text;
    const mark = scale ? measureText(label, font) + 8 : 0;
    const needed = scale ? mark + FIGURE_SCALE_BAR + 8 + measureText(to, font) + 22 : 31 + measureText(text, font);
    if (at + needed > x + width) break;
    if (scale) {
      const colours = { sequential, warm, diverging }[scale];
      const low = scale === "diverging" ? -1 : 0;
      for (let i = 0; i < FIGURE_SCALE_BAR; i += 2) {
        const value = low + ((1 - low) * i) / (FIGURE_SCALE_BAR - 2);
        painter.rect(at + mark + i, y - 5, 2, 10, { fill: hex(colours(value, theme)) });
      }
      painter.rect(at + mark, y - 5, FIGURE_SCALE_BAR, 10, { stroke: theme.rule });
      painter.text(label, at, y, { ...font, fill: theme.muted });
      painter.text(to, at + mark + FIGURE_SCALE_BAR + 8, y, { ...font, fill: theme.muted });
    } else {
      painter.rect(at, y - 5, 10, 10, { fill: colour, radius: 2 });
      painter.text(text, at + 15, y, { ...font, fill: theme.muted });
    }
    at += needed;
  }
}

/**
 * @param {Painter} painter
 * @param {{view: FigureView, theme: Theme, window: Box, title: string, subtitle: string, width: number, height: number}} options
 */
function paintFigure(painter, { view, theme, window, title, subtitle, width, height }) {
  painter.rect(0, 0, width, height, { fill: theme.surface });
  const room = width - 2 * FIGURE_MARGIN;
  painter.text(title, FIGURE_MARGIN, 24, { fill: theme.ink, size: 16, weight: 700, maxWidth: room });
  painter.text(subtitle, FIGURE_MARGIN, 45, { fill: theme.muted, size: 12, maxWidth: room });
  painter.clip(FIGURE_MARGIN, FIGURE_HEAD, window.width, window.height, () => {
    painter.group({ translate: [FIGURE_MARGIN - window.x, FIGURE_HEAD - window.y] }, () => {
      view.paint(painter, theme, window);
      view.paintHover?.(painter, theme, window, null);
    });
  });
  paintLegend(painter, theme, view.legend?.() ?? [], FIGURE_MARGIN, FIGURE_HEAD + window.height + 14, room);
}

/**
 * The figure of a view as PNG, twice as large as on the page.
 * @param {{view: FigureView, theme: Theme, content: {width: number, height: number}, seen: Box, title: string, subtitle: string}} options
 * @returns {Promise<Blob>} rejected where a browser makes no picture of this size
 */
export function figureBlob({ view, theme, content, seen, title, subtitle }) {
  const window = figureWindow(content, seen);
  const width = Math.ceil(window.width + 2 * FIGURE_MARGIN);
  const height = Math.ceil(window.height + FIGURE_HEAD + FIGURE_FOOT);
  const canvas = element("canvas", { width: width * FIGURE_SCALE, height: height * FIGURE_SCALE });
  const context = contextOf(canvas);
  context.scale(FIGURE_SCALE, FIGURE_SCALE);
  paintFigure(new CanvasPainter(context), { view, theme, window, title, subtitle, width, height });
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("PNG"))), "image/png");
  });
}

/** A name that says what is in the file and that every system takes. @param {string[]} parts @param {string} kind */
export function figureName(parts, kind) {
  const name = parts
    .join("-")
    .normalize("NFC")
    .replace(/[^\p{L}\p{N}.-]+/gu, "-")
    .replace(/-+/g, "-")
    .replace(/^[-.]+|[-.]+$/g, "");
  return `${name.slice(0, 120) || "jumok"}.${kind}`;
}

/** Hand a file to the reader. @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
