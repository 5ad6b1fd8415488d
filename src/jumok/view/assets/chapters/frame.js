// The frame of a piece on a page: its controls, its drawing, and a sentence on what the drawing shows.

import { button, element } from "../base/controls.js";
import { t } from "../base/words.js";
import { show } from "./drawing.js";

/** @typedef {Record<string, number>} State what the controls set; a switch is 0 or 1, a choice the number of its option */
/**
 * @typedef {{kind: "slider" | "steps", key: string, label: string, first: number, last: number,
 *   said: (value: number) => string}} Slider its values are integers
 */
/** @typedef {{kind: "switch", key: string, label: string}} Switch */
/** @typedef {{kind: "choice", key: string, label: string, options: string[]}} Choice */
/** @typedef {Slider | Switch | Choice} Control */
/**
 * A piece: everything but the page, so that it can be drawn and tested without one.
 * @typedef {object} Piece
 * @property {string} name
 * @property {State} start what a reader finds
 * @property {State} still what is printed
 * @property {(state: State) => Control[]} controls the same ones in the same order for each state
 * @property {(state: State) => import("./drawing.js").Shape} draw
 * @property {(state: State) => string} say what the drawing shows
 */
/** @typedef {{parts: HTMLElement[], update: (state: State, control: any) => void}} Made */

const PACE = 1200; // milliseconds from step to step

/**
 * A slider with its value beside it.
 * @param {Slider} control @param {(key: string, value: number) => void} set @returns {Made}
 */
function slider(control, set) {
  const input = /** @type {HTMLInputElement} */ (element("input", { type: "range", step: 1 }));
  input.addEventListener("input", () => set(control.key, Number(input.value)));
  const value = element("span", { class: "jumok-value", "aria-hidden": "true" }); // the slider itself tells it
  const label = element("label", { class: "jumok-slider" }, [element("span", { text: control.label }), input, value]);
  return {
    parts: [label],
    update(state, { key, first, last, said }) {
      input.min = String(first);
      input.max = String(last);
      input.value = String(state[key]);
      value.textContent = said(state[key]);
      input.setAttribute("aria-valuetext", said(state[key]));
    },
  };
}

/**
 * A slider of steps with buttons to go back, to go on, and to go on by itself.
 * @param {Slider} control @param {(key: string, value: number) => void} set @returns {Made}
 */
function steps(control, set) {
  let at = 0;
  let last = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let clock;
  const stop = () => {
    clearInterval(clock);
    clock = undefined;
    play.textContent = t("piece.play");
  };
  /** @type {(key: string, value: number) => void} */
  const setByHand = (key, value) => {
    stop();
    set(key, value);
  };
  const inner = slider(control, setByHand);
  const back = button(t("piece.back"), { onclick: () => setByHand(control.key, at - 1) });
  const on = button(t("piece.on"), { onclick: () => setByHand(control.key, at + 1) });
  const play = button(t("piece.play"), {
    onclick: () => {
      if (clock !== undefined) return stop();
      play.textContent = t("piece.stop");
      set(control.key, at === last ? control.first : at + 1);
      clock = setInterval(() => (at < last ? set(control.key, at + 1) : stop()), PACE);
    },
  });
  return {
    parts: [...inner.parts, element("div", { class: "jumok-steps" }, [back, on, play])],
    update(state, now) {
      [at, last] = [state[now.key], now.last];
      // A disabled button would lose the focus of a reader who presses it again and again.
      back.setAttribute("aria-disabled", String(at <= now.first));
      on.setAttribute("aria-disabled", String(at >= last));
      inner.update(state, now);
    },
  };
}

/** @param {Switch} control @param {(key: string, value: number) => void} set @returns {Made} */
function checkbox(control, set) {
  const input = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox" }));
  input.addEventListener("change", () => set(control.key, Number(input.checked)));
  return {
    parts: [element("label", { class: "jumok-switch" }, [input, element("span", { text: control.label })])],
    update(state, { key }) {
      input.checked = state[key] === 1;
    },
  };
}

/**
 * A row of buttons of which one is down.
 * @param {Choice} control @param {(key: string, value: number) => void} set @returns {Made}
 */
function choice(control, set) {
  const buttons = control.options.map((text, i) =>
    button(text, { pressed: false, onclick: () => set(control.key, i) }),
  );
  const group = element("div", { class: "jumok-choice", role: "group", "aria-label": control.label }, [
    element("span", { text: control.label, "aria-hidden": "true" }),
    ...buttons,
  ]);
  return {
    parts: [group],
    update(state, { key }) {
      buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(state[key] === i)));
    },
  };
}

const MAKERS = { slider, steps, switch: checkbox, choice };

/** Put a piece on the page. @param {Piece} piece @param {HTMLElement} host @param {string} title its name */
export function mount(piece, host, title) {
  let state = { ...piece.start };
  /** @type {(key: string, value: number) => void} */
  const set = (key, value) => {
    state = { ...state, [key]: value };
    // Another control may now end earlier: smaller tiles take more steps than larger ones.
    for (const control of piece.controls(state)) {
      if ("last" in control) {
        state[control.key] = Math.min(Math.max(state[control.key], control.first), control.last);
      }
    }
    update();
  };
  /** @type {any[]} the type of a control decides which maker it has */
  const controls = piece.controls(state);
  /** @type {Made[]} */
  const made = controls.map((control) => MAKERS[/** @type {keyof typeof MAKERS} */ (control.kind)](control, set));
  const picture = show(null, piece.draw(state));
  const sentence = element("p", { class: "jumok-said", role: "status" });
  const update = () => {
    piece.controls(state).forEach((control, i) => made[i].update(state, control));
    const said = piece.say(state);
    show(picture, { ...piece.draw(state) });
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", said);
    sentence.textContent = said;
  };
  update();
  const live = element("div", { class: "jumok-live", role: "group", "aria-label": title }, [
    element("p", { class: "jumok-title", text: title, "aria-hidden": "true" }),
    element(
      "div",
      { class: "jumok-controls" },
      made.flatMap(({ parts }) => parts),
    ),
    picture,
    sentence,
  ]);
  host.append(live);
  host.classList.add("jumok-ready");
}
