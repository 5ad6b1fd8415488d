// One way to draw, two results: a canvas on the screen, or an SVG file for a paper. Every view paints through it,
// so what is saved is what was seen.

// Latin letters and figures come from the system's own font, Hangul from what comes after it.
export const SANS =
  'Pretendard, "Noto Sans KR", "Noto Sans CJK KR", -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", "Apple SD Gothic Neo", "Malgun Gothic", "NanumBarunGothic", "NanumGothic", "Nanum Gothic", system-ui, sans-serif';
export const MONO =
  'ui-monospace, "SF Mono", "JetBrains Mono", Consolas, "DejaVu Sans Mono", "D2Coding", "NanumGothicCoding", monospace';

function fontOf({ size = 13, weight = 400, family = "sans", italic = false } = {}) {
  return `${italic ? "italic " : ""}${weight} ${size}px ${family === "mono" ? MONO : SANS}`;
}

let measuringContext = null;
const measuredWidths = new Map();

/** The width of a text in pixels. Measuring is slow, and views measure the same tokens again and again. */
export function measureText(text, font = {}) {
  const style = fontOf(font);
  const key = `${style}\n${text}`;
  let width = measuredWidths.get(key);
  if (width === undefined) {
    measuringContext ??= document.createElement("canvas").getContext("2d");
    measuringContext.font = style;
    width = measuringContext.measureText(text).width;
    if (measuredWidths.size > 20000) measuredWidths.clear();
    measuredWidths.set(key, width);
  }
  return width;
}

/** The text, shortened with … to at most so many pixels; whole characters only. */
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
  constructor(columns, rows, rgba) {
    this.columns = columns;
    this.rows = rows;
    this.rgba = rgba;
    this.made = null;
    this.url = null;
  }

  canvas() {
    if (!this.made) {
      this.made = document.createElement("canvas");
      this.made.width = this.columns;
      this.made.height = this.rows;
      this.made.getContext("2d").putImageData(new ImageData(this.rgba, this.columns, this.rows), 0, 0);
    }
    return this.made;
  }

  /** A part of the grid as PNG; the whole is kept. */
  png([x, y, width, height] = [0, 0, this.columns, this.rows]) {
    if (x === 0 && y === 0 && width === this.columns && height === this.rows) {
      this.url ??= this.canvas().toDataURL("image/png");
      return this.url;
    }
    const part = document.createElement("canvas");
    part.width = width;
    part.height = height;
    part.getContext("2d").drawImage(this.canvas(), -x, -y);
    return part.toDataURL("image/png");
  }
}

const TEXT_BASELINES = { middle: "central", top: "text-before-edge", bottom: "text-after-edge", alphabetic: "alphabetic" };

export class CanvasPainter {
  constructor(context) {
    this.context = context;
  }

  stroke({ stroke, width = 1, opacity = 1, dash = null, cap = "butt" }) {
    const { context } = this;
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.lineCap = cap;
    if (dash) context.setLineDash(dash);
    const before = context.globalAlpha;
    if (opacity !== 1) context.globalAlpha = before * opacity;
    context.stroke();
    if (opacity !== 1) context.globalAlpha = before;
    if (dash) context.setLineDash([]);
  }

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

  line(x1, y1, x2, y2, style) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.stroke(style);
  }

  curve(x1, y1, x2, y2, style) {
    const middle = (x1 + x2) / 2;
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    this.stroke(style);
  }

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

  circle(x, y, radius, style) {
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.shape(style);
  }

  polygon(points, style) {
    const { context } = this;
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (!style.open) context.closePath();
    this.shape(style);
  }

  text(text, x, y, style = {}) {
    const { context } = this;
    const { fill, align = "start", baseline = "middle", maxWidth, angle = 0, opacity = 1 } = style;
    const shown = maxWidth === undefined ? text : cut(text, maxWidth, style);
    context.font = fontOf(style);
    context.fillStyle = fill;
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

  measure(text, font) {
    return measureText(text, font);
  }

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

  clip(x, y, width, height, body) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    body();
    context.restore();
  }

  group({ translate = [0, 0], opacity = 1 }, body) {
    const { context } = this;
    context.save();
    context.translate(...translate);
    context.globalAlpha *= opacity;
    body();
    context.restore();
  }
}

const XML_SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

function xml(text) {
  // Control characters are not allowed in XML at all, not even escaped.
  const clean = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
  return clean.replace(/[&<>"]/g, (sign) => XML_SIGNS[sign]);
}

const roundCoordinate = (value) => String(Math.round(value * 100) / 100);

export class SVGPainter {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.parts = [];
    this.definitions = [];
  }

  tag(name, attributes, content = null) {
    const written = Object.entries(attributes)
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([key, value]) => ` ${key}="${typeof value === "number" ? roundCoordinate(value) : xml(String(value))}"`)
      .join("");
    this.parts.push(content === null ? `<${name}${written}/>` : `<${name}${written}>${xml(content)}</${name}>`);
  }

  style({ fill, stroke, width = 1, opacity = 1, dash = null, cap = null, open = false }) {
    return {
      fill: open ? "none" : (fill ?? "none"),
      stroke: stroke ?? null,
      "stroke-width": stroke ? width : null,
      "stroke-dasharray": dash ? dash.join(" ") : null,
      "stroke-linecap": cap === "butt" ? null : cap,
      opacity: opacity === 1 ? null : Math.round(opacity * 1000) / 1000,
    };
  }

  line(x1, y1, x2, y2, style) {
    this.tag("line", { x1, y1, x2, y2, ...this.style(style) });
  }

  curve(x1, y1, x2, y2, style) {
    const [a, b, c, d, middle] = [x1, y1, x2, y2, (x1 + x2) / 2].map(roundCoordinate);
    this.tag("path", { d: `M${a} ${b}C${middle} ${b} ${middle} ${d} ${c} ${d}`, ...this.style(style) });
  }

  rect(x, y, width, height, style) {
    this.tag("rect", { x, y, width, height, rx: style.radius || null, ...this.style(style) });
  }

  circle(x, y, radius, style) {
    this.tag("circle", { cx: x, cy: y, r: radius, ...this.style(style) });
  }

  polygon(points, style) {
    const written = points.map((point) => point.map(roundCoordinate).join(",")).join(" ");
    this.tag(style.open ? "polyline" : "polygon", { points: written, ...this.style(style) });
  }

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

  measure(text, font) {
    return measureText(text, font);
  }

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

  clip(x, y, width, height, body) {
    const id = `clip${this.definitions.length}`;
    const [a, b, c, d] = [x, y, width, height].map(roundCoordinate);
    this.definitions.push(`<clipPath id="${id}"><rect x="${a}" y="${b}" width="${c}" height="${d}"/></clipPath>`);
    this.parts.push(`<g clip-path="url(#${id})">`);
    body();
    this.parts.push("</g>");
  }

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
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"` +
      ` font-family="${xml(SANS)}">${definitions}\n${this.parts.join("\n")}\n</svg>\n`
    );
  }
}
