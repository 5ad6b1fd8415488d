// What every view draws with: on the canvas of the page, and on one that becomes a file.

/** @typedef {{x: number, y: number, width: number, height: number}} Box */
/** @typedef {{size?: number, weight?: number, family?: "sans"|"mono", italic?: boolean}} Font */
/**
 * @typedef {{fill?: string|null, stroke?: string|null, width?: number, opacity?: number, dash?: number[]|null,
 *   cap?: CanvasLineCap, radius?: number, open?: boolean}} Style
 */
/**
 * @typedef {Font & {fill?: string|null, align?: string, baseline?: "middle"|"top"|"bottom"|"alphabetic",
 *   maxWidth?: number, angle?: number, opacity?: number}} TextStyle
 */
/** @typedef {CanvasPainter} Painter */

// Latin letters and figures come from the system's own font, Hangul from what comes after it.
const SANS =
  'Pretendard, "Noto Sans KR", "Noto Sans CJK KR", -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", "Apple SD Gothic Neo", "Malgun Gothic", "NanumBarunGothic", "NanumGothic", "Nanum Gothic", system-ui, sans-serif';
const MONO =
  'ui-monospace, "SF Mono", "JetBrains Mono", Consolas, "DejaVu Sans Mono", "D2Coding", "NanumGothicCoding", monospace';

/** @param {Font} [font] */
function fontOf({ size = 13, weight = 400, family = "sans", italic = false } = {}) {
  return `${italic ? "italic " : ""}${weight} ${size}px ${family === "mono" ? MONO : SANS}`;
}

/** @type {CanvasRenderingContext2D|null} */
let measuringContext = null;
/** @type {Map<string, number>} */
const measuredWidths = new Map();

/** What draws on a canvas; a browser without it cannot show a page. @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("canvas");
  return context;
}

/**
 * The width of a text in pixels. Measuring is slow, and views measure the same tokens again and again.
 * @param {string} text @param {Font} [font]
 */
export function measureText(text, font = {}) {
  const style = fontOf(font);
  const key = `${style}\n${text}`;
  let width = measuredWidths.get(key);
  if (width === undefined) {
    measuringContext ??= contextOf(document.createElement("canvas"));
    measuringContext.font = style;
    width = measuringContext.measureText(text).width;
    if (measuredWidths.size > 20000) measuredWidths.clear();
    measuredWidths.set(key, width);
  }
  return width;
}

/**
 * The text, shortened with … to at most so many pixels; whole characters only.
 * @param {string} text @param {number} maxWidth @param {Font} [font]
 */
export function cut(text, maxWidth, font = {}) {
  if (measureText(text, font) <= maxWidth) return text;
  const characters = [...text];
  let low = 0;
  let high = characters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measureText(`${characters.slice(0, middle).join("")}…`, font) <= maxWidth) low = middle;
    else high = middle - 1;
  }
  return low ? `${characters.slice(0, low).join("")}…` : "";
}

/** A grid of coloured cells, made once and painted often: rgba holds four bytes per cell, row after row. */
export class Bitmap {
  /** @param {number} columns @param {number} rows @param {Uint8ClampedArray<ArrayBuffer>} rgba */
  constructor(columns, rows, rgba) {
    this.columns = columns;
    this.rows = rows;
    this.rgba = rgba;
    /** @type {HTMLCanvasElement|null} */
    this.made = null;
  }

  canvas() {
    if (!this.made) {
      this.made = document.createElement("canvas");
      this.made.width = this.columns;
      this.made.height = this.rows;
      contextOf(this.made).putImageData(new ImageData(this.rgba, this.columns, this.rows), 0, 0);
    }
    return this.made;
  }
}

export class CanvasPainter {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
  }

  /** @param {Style} style */
  stroke({ stroke, width = 1, opacity = 1, dash = null, cap = "butt" }) {
    const { context } = this;
    if (stroke) context.strokeStyle = stroke;
    context.lineWidth = width;
    context.lineCap = cap;
    if (dash) context.setLineDash(dash);
    const before = context.globalAlpha;
    if (opacity !== 1) context.globalAlpha = before * opacity;
    context.stroke();
    if (opacity !== 1) context.globalAlpha = before;
    if (dash) context.setLineDash([]);
  }

  /** @param {Style} style */
  shape(style) {
    const { context } = this;
    const { fill, opacity = 1 } = style;
    if (fill) {
      const before = context.globalAlpha;
      context.fillStyle = fill;
      context.globalAlpha = before * opacity;
      context.fill();
      context.globalAlpha = before;
    }
    if (style.stroke) this.stroke(style);
  }

  /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {Style} style */
  line(x1, y1, x2, y2, style) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.stroke(style);
  }

  /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {Style} style */
  curve(x1, y1, x2, y2, style) {
    const middle = (x1 + x2) / 2;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    this.stroke(style);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Style} style */
  rect(x, y, width, height, style) {
    const { context } = this;
    if (style.fill && !style.stroke && !style.radius) {
      const before = context.globalAlpha;
      context.fillStyle = style.fill;
      context.globalAlpha = before * (style.opacity ?? 1);
      context.fillRect(x, y, width, height);
      context.globalAlpha = before;
      return;
    }
    context.beginPath();
    if (style.radius) context.roundRect(x, y, width, height, Math.min(style.radius, width / 2, height / 2));
    else context.rect(x, y, width, height);
    this.shape(style);
  }

  /** @param {number} x @param {number} y @param {number} radius @param {Style} style */
  circle(x, y, radius, style) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.shape(style);
  }

  /** @param {number[][]} points @param {Style} style */
  polygon(points, style) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (!style.open) context.closePath();
    this.shape(style);
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextStyle} [style] */
  text(text, x, y, style = {}) {
    const { context } = this;
    const { fill, align = "start", baseline = "middle", maxWidth, angle = 0, opacity = 1 } = style;
    const shown = maxWidth === undefined ? text : cut(text, maxWidth, style);
    context.font = fontOf(style);
    if (fill) context.fillStyle = fill;
    context.textAlign = align === "start" ? "left" : align === "end" ? "right" : "center";
    context.textBaseline = baseline;
    const before = context.globalAlpha;
    context.globalAlpha = before * opacity;
    if (angle) {
      context.save();
      context.translate(x, y);
      context.rotate((angle * Math.PI) / 180);
      context.fillText(shown, 0, 0);
      context.restore();
    } else {
      context.fillText(shown, x, y);
    }
    context.globalAlpha = before;
  }

  /** @param {string} text @param {Font} font */
  measure(text, font) {
    return measureText(text, font);
  }

  /**
   * @param {Bitmap} bitmap @param {number} x @param {number} y @param {number} width @param {number} height
   * @param {{source?: number[]|null, smooth?: boolean, opacity?: number}} [options] source: x, y, width, height in the bitmap
   */
  image(bitmap, x, y, width, height, { source = null, smooth = false, opacity = 1 } = {}) {
    const { context } = this;
    const [sx, sy, sw, sh] = source ?? [0, 0, bitmap.columns, bitmap.rows];
    const before = context.globalAlpha;
    context.imageSmoothingEnabled = smooth;
    context.imageSmoothingQuality = "high";
    context.globalAlpha = before * opacity;
    context.drawImage(bitmap.canvas(), sx, sy, sw, sh, x, y, width, height);
    context.globalAlpha = before;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {() => void} body */
  clip(x, y, width, height, body) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    body();
    context.restore();
  }

  /** @param {{translate?: number[], opacity?: number}} options @param {() => void} body */
  group({ translate = [0, 0], opacity = 1 }, body) {
    const { context } = this;
    context.save();
    context.translate(translate[0], translate[1]);
    context.globalAlpha *= opacity;
    body();
    context.restore();
  }
}
