// The player that walks through the parts of a step: buttons, and the clock behind them.

import { button, element } from "../base/controls.js";
import { icon } from "../base/icons.js";
import { t } from "../base/words.js";

const SECONDS = 5; // that a part takes; the movement ends before that, and there is time to read
const MOVING = 0.6; // the share of this time in which the picture moves

export class Player {
  /** @param {(opened: boolean) => void} onmove paint part `index`; opened: it is another one than before */
  constructor(onmove) {
    this.onmove = onmove;
    this.count = 1; // parts
    this.index = 0;
    this.progress = 1; // the share of the time of a part that is over
    this.playing = false;
    this.frame = 0;
    this.before = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.previous = this.iconButton("previous", () => this.move(-1));
    this.toggler = this.iconButton("play", () => this.toggle());
    this.next = this.iconButton("next", () => this.move(1));
    this.element = element("div", { class: "step-player", role: "group" }, [this.previous, this.toggler, this.next]);
  }

  /** @param {"previous" | "play" | "next"} name @param {() => void} onclick */
  iconButton(name, onclick) {
    const made = button("", { class: "icon", "data-player": name, onclick });
    made.append(icon(name));
    return made;
  }

  /** The share of the picture that has come. */
  get shown() {
    return this.still.matches ? 1 : Math.min(1, this.progress / MOVING);
  }

  get atEnd() {
    return this.index === this.count - 1 && this.progress >= 1;
  }

  /** Names in the language of the page, and what can be pressed. */
  label() {
    this.element.setAttribute("aria-label", t("step.player"));
    const word = this.playing ? "pause" : "play";
    for (const [one, name] of /** @type {const} */ ([
      [this.previous, "previous"],
      [this.toggler, word],
      [this.next, "next"],
    ])) {
      one.setAttribute("aria-label", t(`step.${name}`));
      one.title = t(`step.${name}`);
    }
    this.toggler.replaceChildren(icon(word));
    this.previous.disabled = this.index === 0;
    this.next.disabled = this.index === this.count - 1;
  }

  /** How many parts there are, and which one is open. @param {number} count @param {number} index */
  setParts(count, index) {
    [this.count, this.index] = [count, index];
    this.label();
  }

  /** Open a part, finished. @param {number} index */
  open(index) {
    this.goTo(Math.min(this.count - 1, Math.max(0, index)), 1);
  }

  /** @param {-1 | 1} by */
  move(by) {
    this.pause();
    this.open(this.index + by);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.playing) return;
    this.playing = true;
    this.before = performance.now();
    this.frame = requestAnimationFrame((now) => this.tick(now));
    if (this.atEnd) this.goTo(0, 0);
    else if (this.progress >= 1) this.goTo(this.index + 1, 0);
    else this.label();
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
    const seconds = Math.min(0.25, Math.max(0, now - this.before) / 1000); // a tab that slept goes on where it was
    this.before = now;
    const progress = Math.min(1, this.progress + seconds / SECONDS);
    if (progress < 1 || this.index === this.count - 1) this.goTo(this.index, progress);
    else this.goTo(this.index + 1, 0);
    if (this.atEnd) this.pause();
    else this.frame = requestAnimationFrame((later) => this.tick(later));
  }

  /** @param {number} index @param {number} progress */
  goTo(index, progress) {
    const opened = index !== this.index;
    [this.index, this.progress] = [index, progress];
    if (opened) this.label();
    this.onmove(opened);
  }
}
