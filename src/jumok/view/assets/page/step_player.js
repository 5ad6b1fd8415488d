// @ts-check
// The player that walks through the parts of a step: buttons, a scrubber, a speed, and the clock behind them.

import { button, element } from "../base/controls.js";
import { icon } from "../base/icons.js";
import { t } from "../base/words.js";
import { Walk } from "./step_parts.js";

const SECONDS = 5; // that a part takes at speed 1; the movement ends before that, and there is time to read
const MOVING = 0.6; // the share of this time in which the picture moves
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const SCRUBBER = 100; // steps of the scrubber for one part

export class Player {
  /**
   * @param {(opened: boolean) => void} onmove paint what `walk` says; opened: it is another part than before
   */
  constructor(onmove) {
    this.onmove = onmove;
    this.walk = new Walk(1);
    /** @type {string[]} */
    this.titles = [""];
    this.speed = 1;
    this.playing = false;
    this.frame = 0;
    this.before = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.toggler = this.iconButton("play", () => this.toggle());
    this.buttons = [
      this.iconButton("first", () => this.jump(0)),
      this.iconButton("previous", () => this.move(-1)),
      this.toggler,
      this.iconButton("next", () => this.move(1)),
      this.iconButton("last", () => this.jump(this.walk.count - 1)),
    ];
    this.scrubber = this.range("scrubber", { class: "step-scrubber" }, (value) => this.scrub(value / SCRUBBER));
    const speeds = { class: "step-speed", max: SPEEDS.length - 1, value: SPEEDS.indexOf(1) };
    this.speeds = this.range("speed", speeds, (value) => {
      this.speed = SPEEDS[value];
      this.label();
    });
    this.speedName = element("span", { class: "control-label" });
    this.speedValue = element("output", { class: "step-speed-value" });
    this.element = element("div", { class: "step-player", role: "group" }, [
      element("div", { class: "step-buttons" }, this.buttons),
      this.scrubber,
      element("label", { class: "step-speeds" }, [this.speedName, this.speeds, this.speedValue]),
    ]);
  }

  /**
   * @param {"first" | "previous" | "play" | "next" | "last"} name
   * @param {() => void} onclick
   */
  iconButton(name, onclick) {
    const made = button("", { class: "icon", "data-player": name, onclick });
    made.append(icon(name));
    return made;
  }

  /**
   * @param {string} name
   * @param {Record<string, string | number>} attributes
   * @param {(value: number) => void} onvalue
   * @returns {HTMLInputElement}
   */
  range(name, attributes, onvalue) {
    const oninput = () => onvalue(Number(made.value));
    const made = element("input", { type: "range", min: 0, step: 1, "data-player": name, oninput, ...attributes });
    return made;
  }

  /** The share of the picture that has come. */
  get progress() {
    return this.still.matches ? 1 : Math.min(1, this.walk.progress / MOVING);
  }

  /** Names and values in the language of the page. */
  label() {
    this.element.setAttribute("aria-label", t("step.player"));
    for (const one of this.buttons) {
      const name = one === this.toggler ? (this.playing ? "pause" : "play") : one.dataset.player;
      one.setAttribute("aria-label", t(`step.${name}`));
      one.title = t(`step.${name}`);
    }
    this.toggler.replaceChildren(icon(this.playing ? "pause" : "play"));
    this.speedName.textContent = t("step.speed");
    this.speedValue.textContent = t("step.speed.value", { n: this.speed });
    this.speeds.setAttribute("aria-label", t("step.speed"));
    this.speeds.setAttribute("aria-valuetext", t("step.speed.value", { n: this.speed }));
    this.scrubber.setAttribute("aria-label", t("step.scrubber"));
    this.mark();
  }

  /** The scrubber, where the walk is. */
  mark() {
    const { walk } = this;
    this.scrubber.max = String(walk.count * SCRUBBER);
    this.scrubber.value = String(Math.round(walk.place * SCRUBBER));
    const part = this.titles[walk.index];
    this.scrubber.setAttribute(
      "aria-valuetext",
      t("step.scrubber.value", { n: walk.index + 1, all: walk.count, part }),
    );
    for (const one of this.buttons) {
      const name = one.dataset.player;
      if (name === "first" || name === "previous") one.disabled = walk.index === 0;
      if (name === "next" || name === "last") one.disabled = walk.index === walk.count - 1;
    }
  }

  /**
   * The parts there are; the one that is open stays open, as `index` says.
   * @param {string[]} titles
   * @param {number} index
   */
  setParts(titles, index) {
    this.titles = titles;
    const { progress } = this.walk;
    this.walk = new Walk(titles.length);
    this.walk.open(index);
    this.walk.progress = progress;
    this.mark();
  }

  /** @param {number} index */
  open(index) {
    const before = this.walk.index;
    this.walk.open(index);
    this.moved(before);
  }

  /** @param {number} index */
  jump(index) {
    this.pause();
    this.open(index);
  }

  /** @param {-1 | 1} by */
  move(by) {
    this.jump(this.walk.index + by);
  }

  /** @param {number} place */
  scrub(place) {
    this.pause();
    const before = this.walk.index;
    this.walk.moveTo(place);
    this.moved(before);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.playing) return;
    const before = this.walk.index;
    if (this.walk.atEnd) this.walk.moveTo(0);
    else if (this.walk.progress >= 1) this.walk.moveTo(this.walk.place + 1e-6);
    this.playing = true;
    this.before = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
    this.label();
    this.moved(before);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.frame);
    this.label();
  }

  /** @param {number} now */
  tick(now) {
    if (!this.playing) return;
    const before = this.walk.index;
    const seconds = Math.min(0.25, Math.max(0, now - this.before) / 1000); // a tab that slept goes on where it was
    this.before = now;
    const more = this.walk.advance((seconds * this.speed) / SECONDS);
    this.moved(before);
    if (more) this.frame = requestAnimationFrame((later) => this.tick(later));
    else this.pause();
  }

  /** @param {number} before */
  moved(before) {
    this.mark();
    this.onmove(before !== this.walk.index);
  }
}
