// The canvas of a step: paints the picture of a part, and says its numbers to the pointer and to the keyboard.

import { element } from "../base/controls.js";
import { CanvasPainter } from "../base/painter.js";
import { Tooltip } from "../base/tooltip.js";
import { PLAIN_PICTURES } from "./step_pictures.js";
import { ATTENTION_PICTURES } from "./step_pictures_attention.js";
import { NOWHERE, Scene } from "./step_scene.js";

/** @typedef {import("./step_data.js").StepData} StepData */
/** @typedef {import("./step_scene.js").Place} Place */

const PICTURES = { ...PLAIN_PICTURES, ...ATTENTION_PICTURES };
const WIDEST = 960; // pixels; wider lines are hard to follow
const MARGIN = 3; // room for what is painted around a place

export class Stage {
  /** @param {(text: string) => void} announce */
  constructor(announce) {
    this.announce = announce;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.element = element("div", { class: "step-stage", tabindex: 0, role: "img" }, this.canvas);
    this.box = element("div", { class: "viewer-tooltip", role: "tooltip", hidden: true });
    this.tooltip = new Tooltip(this.box);
    /** @type {{part: string, data: StepData, theme: any, progress: number} | null} */
    this.shown = null;
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {[number, number] | null} the list and the place in it that the keyboard is at */
    this.at = null;
    const { canvas } = this;
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.hovered(event));
    canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    canvas.addEventListener("click", (/** @type {PointerEvent} */ event) => this.clicked(event));
    this.element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.keyed(event));
    this.element.addEventListener("blur", () => this.leave());
    // In the next frame: a picture that changes the size at once is an error to Firefox and Safari.
    this.sizes = new ResizeObserver(() => requestAnimationFrame(() => this.paint()));
    this.sizes.observe(this.element);
  }

  close() {
    this.sizes.disconnect();
  }

  /** @param {string} part @param {StepData} data @param {any} theme @param {number} progress */
  show(part, data, theme, progress) {
    if (this.shown?.part !== part || this.shown.data !== data) {
      this.at = null;
      this.tooltip.hide();
    }
    this.shown = { part, data, theme, progress };
    this.paint();
  }

  get width() {
    return Math.min(WIDEST, this.element.clientWidth) - 2 * MARGIN;
  }

  /** @param {any} painter @param {number} width */
  compose(painter, width) {
    const { part, data, theme, progress } = /** @type {NonNullable<Stage["shown"]>} */ (this.shown);
    const scene = new Scene(painter, { theme, width, progress });
    PICTURES[part](scene, data);
    scene.legend();
    return scene;
  }

  /** The vectors that the picture of a part shows, when all has come. @param {string} part @param {StepData} data @param {any} theme */
  vectors(part, data, theme) {
    const scene = new Scene(NOWHERE, { theme, width: WIDEST });
    PICTURES[part](scene, data);
    return scene.vectors;
  }

  paint() {
    const { width, canvas } = this;
    if (!this.shown || width < 100) return;
    const { theme } = this.shown;
    const height = Math.ceil(this.compose(NOWHERE, width).y) + 2 * MARGIN;
    const ratio = devicePixelRatio || 1;
    const [columns, rows] = [Math.round((width + 2 * MARGIN) * ratio), Math.round(height * ratio)];
    if (canvas.width !== columns || canvas.height !== rows) {
      canvas.width = columns;
      canvas.height = rows;
      canvas.style.width = `${width + 2 * MARGIN}px`;
      canvas.style.height = `${height}px`;
    }
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = theme.surface;
    context.fillRect(0, 0, width + 2 * MARGIN, height);
    context.translate(MARGIN, MARGIN);
    const painter = new CanvasPainter(context);
    this.scene = this.compose(painter, width);
    const place = this.place();
    if (place)
      painter.rect(place.x - 1.5, place.y - 1.5, place.width + 2, place.height + 2, {
        stroke: theme.focus,
        width: 2.5,
        radius: 3,
      });
  }

  /** @returns {Place | null} */
  place() {
    return this.at && this.scene ? (this.scene.lists[this.at[0]]?.places[this.at[1]] ?? null) : null;
  }

  /** @param {PointerEvent} event @returns {Place | null} */
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.scene?.pick(event.clientX - box.left - MARGIN, event.clientY - box.top - MARGIN) ?? null;
  }

  /** @param {PointerEvent} event */
  hovered(event) {
    const place = this.under(event);
    this.canvas.style.cursor = place?.choose ? "pointer" : "";
    this.tooltip.show(place?.lines, event.clientX, event.clientY, event.pointerType === "touch");
  }

  /** @param {PointerEvent} event */
  clicked(event) {
    const place = this.under(event);
    if (place?.choose) place.choose();
    else if (place) this.tooltip.show(place.lines, event.clientX, event.clientY, event.pointerType === "touch");
  }

  leave() {
    this.tooltip.hide();
    if (!this.at) return;
    this.at = null;
    this.paint();
  }

  /** Arrows go through the numbers: left and right in a vector, up and down from one to the next. @param {KeyboardEvent} event */
  keyed(event) {
    const lists = this.scene?.lists.filter(({ places }) => places.length) ?? [];
    if (!lists.length) return;
    if (event.key === "Enter" || event.key === "Escape") {
      if (event.key === "Enter") this.place()?.choose?.();
      else this.leave();
      return;
    }
    const moves = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -Infinity],
      End: [0, Infinity],
    };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    this.at = this.at ? moved(lists, this.at, move) : [0, 0];
    this.paint();
    const place = this.place();
    if (!place) return;
    const box = this.canvas.getBoundingClientRect();
    if (box.top + place.y < 60 || box.top + place.y > innerHeight - 60)
      this.element.scrollIntoView({ block: "nearest" });
    const after = this.canvas.getBoundingClientRect();
    this.tooltip.show(place.lines, after.left + place.x + place.width, after.top + place.y + place.height);
    this.announce(place.lines.map(({ text, value }) => (value === undefined ? text : `${text}: ${value}`)).join(", "));
  }
}

/**
 * @param {{places: Place[]}[]} lists @param {[number, number]} at @param {number[]} move @returns {[number, number]}
 */
function moved(lists, [list, place], [down, right]) {
  const rows = lists[list].places;
  const stacked = rows.length > 1 && rows[1].x === rows[0].x; // rows of bars: up and down go through them
  const next = place + (stacked && down ? down : right);
  if ((stacked || !down) && next >= 0 && next < rows.length) return [list, next];
  if (!down) return [list, Math.min(rows.length - 1, Math.max(0, next))];
  const other = Math.min(lists.length - 1, Math.max(0, list + down));
  if (other === list) return [list, place];
  const { places } = lists[other];
  const column = places.length > 1 && places[1].x === places[0].x ? (down > 0 ? 0 : places.length - 1) : place;
  return [other, Math.min(places.length - 1, column)];
}
