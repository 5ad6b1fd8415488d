// One way to draw, two results: a canvas on the screen, or an SVG file for a paper. Every view paints through it,
// so what is saved is what was seen.

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
/** @typedef {CanvasPainter|SVGPainter} Painter */

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

/**
 * What draws on a canvas; a browser without it cannot show a page.
 * @param {HTMLCanvasElement} canvas
 */
export function contextOf(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("canvas");
  return context;
}

/**
 * The width of a text in pixels. Measuring is slow, and views measure the same tokens again and again.
 * @param {string} text
 * @param {Font} [font]
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
 * @param {string} text
 * @param {number} maxWidth
 * @param {Font} [font]
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
  /**
   * @param {number} columns
   * @param {number} rows
   * @param {Uint8ClampedArray<ArrayBuffer>} rgba
   */
  constructor(columns, rows, rgba) {
    this.columns = columns;
    this.rows = rows;
    this.rgba = rgba;
    /** @type {HTMLCanvasElement|null} */
    this.made = null;
    /** @type {string|null} */
    this.url = null;
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

  /**
   * A part of the grid as PNG; the whole is kept.
   * @param {number[]} [part] x, y, width, height
   */
  png([x, y, width, height] = [0, 0, this.columns, this.rows]) {
    if (x === 0 && y === 0 && width === this.columns && height === this.rows) {
      this.url ??= this.canvas().toDataURL("image/png");
      return this.url;
    }
    const part = document.createElement("canvas");
    part.width = width;
    part.height = height;
    contextOf(part).drawImage(this.canvas(), -x, -y);
    return part.toDataURL("image/png");
  }
}

const TEXT_BASELINES = {
  middle: "central",
  top: "text-before-edge",
  bottom: "text-after-edge",
  alphabetic: "alphabetic",
};

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

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {Style} style
   */
  line(x1, y1, x2, y2, style) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.stroke(style);
  }

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {Style} style
   */
  curve(x1, y1, x2, y2, style) {
    const middle = (x1 + x2) / 2;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    this.stroke(style);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {Style} style
   */
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

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {Style} style
   */
  circle(x, y, radius, style) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.shape(style);
  }

  /**
   * @param {number[][]} points
   * @param {Style} style
   */
  polygon(points, style) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (!style.open) context.closePath();
    this.shape(style);
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {TextStyle} [style]
   */
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

  /**
   * @param {string} text
   * @param {Font} font
   */
  measure(text, font) {
    return measureText(text, font);
  }

  /**
   * @param {Bitmap} bitmap
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
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

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {() => void} body
   */
  clip(x, y, width, height, body) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    body();
    context.restore();
  }

  /**
   * @param {{translate?: number[], opacity?: number}} options
   * @param {() => void} body
   */
  group({ translate = [0, 0], opacity = 1 }, body) {
    const { context } = this;
    context.save();
    context.translate(translate[0], translate[1]);
    context.globalAlpha *= opacity;
    body();
    context.restore();
  }
}

/** @type {Record<string, string>} */
const XML_SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** @param {string} text */
function xml(text) {
  // Control characters are not allowed in XML at all, not even escaped.
  // eslint-disable-next-line no-control-regex
  const clean = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return clean.replace(/[&<>"]/g, (sign) => XML_SIGNS[sign]);
}

/** @param {number} value */
const roundCoordinate = (value) => String(Math.round(value * 100) / 100);

export class SVGPainter {
  /**
   * @param {number} width
   * @param {number} height
   */
  constructor(width, height) {
    this.width = width;
    this.height = height;
    /** @type {string[]} */
    this.parts = [];
    /** @type {string[]} */
    this.definitions = [];
  }

  /**
   * @param {string} name
   * @param {Record<string, string|number|null|undefined>} attributes
   * @param {string|null} [content]
   */
  tag(name, attributes, content = null) {
    const written = Object.entries(attributes)
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([key, value]) => ` ${key}="${typeof value === "number" ? roundCoordinate(value) : xml(String(value))}"`)
      .join("");
    this.parts.push(content === null ? `<${name}${written}/>` : `<${name}${written}>${xml(content)}</${name}>`);
  }

  /** @param {Style} style */
  style({ fill, stroke, width = 1, opacity = 1, dash = null, cap, open = false }) {
    return {
      fill: open ? "none" : (fill ?? "none"),
      stroke: stroke ?? null,
      "stroke-width": stroke ? width : null,
      "stroke-dasharray": dash ? dash.join(" ") : null,
      "stroke-linecap": cap === "butt" ? null : cap,
      opacity: opacity === 1 ? null : Math.round(opacity * 1000) / 1000,
    };
  }

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {Style} style
   */
  line(x1, y1, x2, y2, style) {
    this.tag("line", { x1, y1, x2, y2, ...this.style(style) });
  }

  /**
   * @param {number} x1
   * @param {number} y1
   * @param {number} x2
   * @param {number} y2
   * @param {Style} style
   */
  curve(x1, y1, x2, y2, style) {
    const [a, b, c, d, middle] = [x1, y1, x2, y2, (x1 + x2) / 2].map(roundCoordinate);
    this.tag("path", { d: `M${a} ${b}C${middle} ${b} ${middle} ${d} ${c} ${d}`, ...this.style(style) });
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {Style} style
   */
  rect(x, y, width, height, style) {
    this.tag("rect", { x, y, width, height, rx: style.radius || null, ...this.style(style) });
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {Style} style
   */
  circle(x, y, radius, style) {
    this.tag("circle", { cx: x, cy: y, r: radius, ...this.style(style) });
  }

  /**
   * @param {number[][]} points
   * @param {Style} style
   */
  polygon(points, style) {
    const written = points.map((point) => point.map(roundCoordinate).join(",")).join(" ");
    this.tag(style.open ? "polyline" : "polygon", { points: written, ...this.style(style) });
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {TextStyle} [style]
   */
  text(text, x, y, style = {}) {
    const { fill, size = 13, weight = 400, family = "sans", align = "start", baseline = "middle" } = style;
    const { maxWidth, angle = 0, opacity = 1, italic = false } = style;
    const shown = maxWidth === undefined ? text : cut(text, maxWidth, style);
    this.tag(
      "text",
      {
        x,
        y,
        fill,
        "font-size": size,
        "font-weight": weight === 400 ? null : weight,
        "font-family": family === "mono" ? MONO : null,
        "font-style": italic ? "italic" : null,
        "text-anchor": align === "start" ? null : align === "end" ? "end" : "middle",
        "dominant-baseline": baseline === "alphabetic" ? null : TEXT_BASELINES[baseline],
        transform: angle ? `rotate(${roundCoordinate(angle)} ${roundCoordinate(x)} ${roundCoordinate(y)})` : null,
        opacity: opacity === 1 ? null : opacity,
        "xml:space": "preserve",
      },
      shown,
    );
  }

  /**
   * @param {string} text
   * @param {Font} font
   */
  measure(text, font) {
    return measureText(text, font);
  }

  /**
   * @param {Bitmap} bitmap
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {{source?: number[]|null, smooth?: boolean, opacity?: number}} [options] source: x, y, width, height in the bitmap
   */
  image(bitmap, x, y, width, height, { source = null, smooth = false, opacity = 1 } = {}) {
    // Only whole cells can be cut out of a grid: the rest is clipped away.
    const [sx, sy, sw, sh] = source ?? [0, 0, bitmap.columns, bitmap.rows];
    const left = Math.max(0, Math.floor(sx));
    const top = Math.max(0, Math.floor(sy));
    const columns = Math.min(bitmap.columns, Math.ceil(sx + sw)) - left;
    const rows = Math.min(bitmap.rows, Math.ceil(sy + sh)) - top;
    if (columns <= 0 || rows <= 0) return;
    const [cellWidth, cellHeight] = [width / sw, height / sh];
    this.clip(x, y, width, height, () =>
      this.tag("image", {
        x: x + (left - sx) * cellWidth,
        y: y + (top - sy) * cellHeight,
        width: columns * cellWidth,
        height: rows * cellHeight,
        preserveAspectRatio: "none",
        "image-rendering": smooth ? null : "pixelated",
        opacity: opacity === 1 ? null : opacity,
        href: bitmap.png([left, top, columns, rows]),
      }),
    );
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {() => void} body
   */
  clip(x, y, width, height, body) {
    const id = `clip${this.definitions.length}`;
    const [a, b, c, d] = [x, y, width, height].map(roundCoordinate);
    this.definitions.push(`<clipPath id="${id}"><rect x="${a}" y="${b}" width="${c}" height="${d}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    body();
    this.parts.push("</g>");
  }

  /**
   * @param {{translate?: number[], opacity?: number}} options
   * @param {() => void} body
   */
  group({ translate = [0, 0], opacity = 1 }, body) {
    const moved = translate[0] || translate[1];
    const transform = moved ? ` transform="translate(${translate.map(roundCoordinate).join(" ")})"` : "";
    this.parts.push(`<g${transform}${opacity === 1 ? "" : ` opacity="${roundCoordinate(opacity)}"`}>`);
    body();
    this.parts.push("</g>");
  }

  toString() {
    const [width, height] = [Math.ceil(this.width), Math.ceil(this.height)];
    const definitions = this.definitions.length ? `<defs>${this.definitions.join("")}</defs>` : "";
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`
      + ` font-family="${xml(SANS)}">${definitions}\n${this.parts.join("\n")}\n</svg>\n`
    );
  }
}
