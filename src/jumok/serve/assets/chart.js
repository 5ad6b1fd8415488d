// Line charts of a few series, as SVG: axes, a legend, and the values at the place one points at.

import { element } from "../../view/assets/base/controls.js";
import { svg } from "../../view/assets/base/icons.js";
import { decimal, shortCount } from "../../view/assets/base/words.js";

const LEFT = 46;
const BOTTOM = 30;
const TOP = 26; // the unit stands above the highest label
const RIGHT = 12;
const TICKS = 5;
const LETTER = 6.4; // pixels

// A line has points [x, y] with rising x; dots mark each of them. One that is second has an axis of its own, which has no
// numbers, from 0 to its largest value.
/** @typedef {{dashed?: boolean, dots?: boolean, second?: boolean}} Look */
/** @typedef {Look & {name: string, points: [number, number][], colour: string, width?: number}} Series */
/** @typedef {{label: string, x: string, y: string, series: Series[], lines?: {name: string, y: number}[]}} Chart x, y: name and unit of the axes; lines: horizontal */

/** Fill the width of a host with a chart. @param {HTMLElement} host is emptied @param {Chart} chart */
export function drawChart(host, chart) {
  const width = Math.max(260, Math.floor(host.clientWidth || 600));
  const height = Math.round(Math.min(340, Math.max(200, width * 0.42)));
  const scale = scaleOf(chart, width, height);
  const shapes = [...grid(chart, scale, width, height), ...chart.series.flatMap((one) => shapesOf(one, scale))];
  const looks = { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height };
  const picture = svg("svg", { ...looks, role: "img", "aria-label": chart.label }, shapes);
  const readout = element("p", { class: "chart-readout" });
  const legend = element("ul", { class: "chart-legend" }, chart.series.map(legendOf));
  host.replaceChildren(legend, /** @type {any} */ (picture), readout);
  watch(picture, chart, scale, readout, height);
}

/** @param {Chart} chart @param {number} width @param {number} height */
function scaleOf({ series, lines = [] }, width, height) {
  const first = series.filter(({ second }) => !second).flatMap(({ points }) => points);
  const xs = series.flatMap(({ points }) => points.map(([x]) => x));
  const ys = [...first.map(([, y]) => y), ...lines.map(({ y }) => y)];
  const right = Math.max(
    1e-9,
    ...series.filter(({ second }) => second).flatMap(({ points }) => points.map(([, y]) => y)),
  );
  const [x0, x1] = xs.length ? [Math.min(0, ...xs), Math.max(...xs)] : [0, 1];
  const highest = ys.length ? Math.max(...ys) : 1;
  const lowest = ys.length ? Math.min(...ys) : 0;
  const room = (highest - lowest || Math.abs(highest) || 1) * 0.06;
  const y0 = lowest >= 0 ? Math.max(0, lowest - room) : lowest - room;
  const above = ticks(y0, highest + room);
  const y1 = (above.at(-1) ?? highest) + (above.length > 1 ? above[1] - above[0] : room); // a label above every line
  const [inside, tall] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
  return {
    x0,
    x1,
    y0,
    y1,
    x: (/** @type {number} */ x) => LEFT + (inside * (x - x0)) / (x1 - x0 || 1),
    y: (/** @type {number} */ y) => TOP + tall * (1 - (y - y0) / (y1 - y0 || 1)),
    second: (/** @type {number} */ y) => TOP + tall * (1 - y / (right * 1.04)),
    value: (/** @type {number} */ pixel) => x0 + ((pixel - LEFT) / inside) * (x1 - x0),
  };
}

/** @typedef {ReturnType<typeof scaleOf>} Scale */

/** @param {Chart} chart @param {Scale} scale @param {number} width @param {number} height @returns {Element[]} */
function grid(chart, scale, width, height) {
  /** @type {Element[]} */
  const shapes = [];
  /** @type {(kind: string, x: number, y: number, anchor: string, text: string) => void} */
  const write = (kind, x, y, anchor, text) => {
    shapes.push(svg("text", { class: kind, x, y, "text-anchor": anchor }, [text]));
  };
  const across = (/** @type {string} */ kind, /** @type {number} */ y) =>
    shapes.push(svg("line", { class: kind, x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
  for (const y of ticks(scale.y0, scale.y1)) {
    across("chart-grid", scale.y(y));
    write("chart-tick", LEFT - 6, scale.y(y) + 4, "end", tidy(y));
  }
  let free = 0;
  for (const x of ticks(scale.x0, scale.x1)) {
    const [at, text] = [scale.x(x), shortCount(x)];
    if (at - (text.length * LETTER) / 2 < free || at + (text.length * LETTER) / 2 > width) continue;
    free = at + (text.length * LETTER) / 2 + 8;
    write("chart-tick", at, height - BOTTOM + 15, "middle", text);
  }
  write("chart-axis", width - RIGHT, height - 2, "end", chart.x);
  write("chart-axis", 2, 12, "start", chart.y);
  for (const { name, y } of chart.lines ?? []) {
    across("chart-line", scale.y(y));
    write("chart-tick", LEFT + 4, scale.y(y) - 5, "start", name);
  }
  return shapes;
}

/** @param {Series} series @param {Scale} scale */
function shapesOf({ points, colour, width = 2, dashed, dots, second }, scale) {
  const y = second ? scale.second : scale.y;
  const places = points.map(([px, py]) => [round(scale.x(px)), round(y(py))]);
  const looks = { fill: "none", stroke: colour, "stroke-width": width, "stroke-linejoin": "round" };
  const line = svg("path", { d: `M${places.join("L")}`, ...looks, "stroke-dasharray": dashed ? "5 4" : "none" });
  const marked = dots || points.length === 1 ? places : [];
  const marks = marked.map(([cx, cy]) => svg("circle", { cx, cy, r: width + 0.8, fill: colour }));
  return places.length > 1 ? [line, ...marks] : marks;
}

/** @param {Series} series */
function legendOf({ name, colour, dashed }) {
  const sign = element("span", { class: dashed ? "chart-sign dashed" : "chart-sign", "aria-hidden": "true" });
  sign.style.borderTopColor = colour;
  return element("li", {}, [sign, name]);
}

/** Say the values where one points; arrow keys go from point to point. @param {Element} picture @param {Chart} chart @param {Scale} scale @param {HTMLElement} readout @param {number} height */
function watch(picture, chart, scale, readout, height) {
  const places = [...new Set(chart.series.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const here = svg("line", { class: "chart-here", y1: TOP, y2: height - BOTTOM });
  let chosen = -1;
  const show = (/** @type {number} */ place) => {
    chosen = place;
    const x = places[place];
    const found = chart.series.map((one) => ({ one, point: nearest(one.points, x, (scale.x1 - scale.x0) / 40) }));
    const values = found
      .filter(({ point }) => point)
      .map(({ one, point }) => `${one.name} ${tidy(/** @type {any} */ (point)[1])}`);
    readout.textContent = `${chart.x} ${shortCount(x)} · ${values.join(" · ")}`;
    for (const end of ["x1", "x2"]) here.setAttribute(end, String(scale.x(x)));
    picture.append(here);
  };
  picture.setAttribute("tabindex", "0");
  picture.addEventListener("pointermove", (event) => {
    const { offsetX } = /** @type {PointerEvent} */ (event);
    if (places.length) show(indexNear(places, scale.value(offsetX)));
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[/** @type {KeyboardEvent} */ (event).key];
    if (!step || !places.length) return;
    event.preventDefault();
    show(Math.min(places.length - 1, Math.max(0, chosen < 0 ? places.length - 1 : chosen + step)));
  });
}

/** @param {[number, number][]} points @param {number} x @param {number} most how far away it may be */
function nearest(points, x, most) {
  const xs = points.map(([one]) => one);
  const point = points[indexNear(xs, x)];
  return point && Math.abs(point[0] - x) <= most ? point : null;
}

/** @param {number[]} rising @param {number} x */
function indexNear(rising, x) {
  let [low, high] = [0, rising.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - rising[low - 1] < rising[low] - x ? low - 1 : low;
}

/** Round numbers between two values. @param {number} from @param {number} to */
function ticks(from, to) {
  const rough = (to - from) / TICKS || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? power;
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-6; value += step)
    found.push(Number(value.toPrecision(10)));
  return found;
}

/** @param {number} value */
function tidy(value) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1000
    ? shortCount(value)
    : decimal(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) < 0.1 ? 4 : Math.abs(value) < 10 ? 2 : 1);
}

const round = (/** @type {number} */ value) => Math.round(value * 10) / 10;

/** A small curve without axes. @param {number[]} values @param {string} label */
export function spark(values, label) {
  const [width, height] = [120, 32];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const points = values.map((value, i) => {
    const x = (width * i) / Math.max(1, values.length - 1);
    return `${round(x)},${round(2 + (height - 4) * (1 - (value - low) / (high - low || 1)))}`;
  });
  const line = svg("polyline", { points: points.join(" "), fill: "none" });
  const looks = { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" };
  return svg("svg", { ...looks, role: "img", "aria-label": label }, [line]);
}
