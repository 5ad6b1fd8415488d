// How the next token is drawn: sliders, presets and the seed.

import { button, element } from "../base/controls.js";
import { count, decimal, t } from "../base/words.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./engine_types.js").Sampling} Sampling */
/** @typedef {"temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty"} Name */
/** @typedef {{stops: number[], off: number | null, shown: (value: number) => string}} Scale */

/** @param {number} from @param {number} to @param {number} step */
const range = (from, to, step) =>
  Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => Number((from + i * step).toFixed(4)));

/** @param {number} value */
const two = (value) => decimal(value, 2);

/** @type {Record<Name, Scale>} the values of each slider; off: the one at which the filter is off. */
const SCALES = {
  temperature: { stops: range(0, 2, 0.05), off: null, shown: two },
  top_k: {
    stops: [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000, 0],
    off: 0,
    shown: count,
  },
  top_p: { stops: range(0.05, 1, 0.05), off: 1, shown: two },
  min_p: { stops: range(0, 0.5, 0.01), off: 0, shown: two },
  repetition_penalty: { stops: range(1, 2, 0.05), off: 1, shown: two },
};

/** @type {Record<string, Sampling>} */
const PRESETS = {
  greedy: { temperature: 0, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 },
  careful: { temperature: 0.6, top_k: 0, top_p: 0.9, min_p: 0, repetition_penalty: 1 },
  plain: { temperature: 1, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 },
  wild: { temperature: 1.4, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 },
};

/**
 * Settings in words: the temperature, and the filters that are on.
 * @param {Sampling} sampling @returns {string}
 */
export function settingsWords(sampling) {
  return /** @type {Name[]} */ (Object.keys(SCALES))
    .filter((name) => name === "temperature" || (sampling[name] ?? SCALES[name].off) !== SCALES[name].off)
    .map((name) => `${t(name)} ${sampling[name] ?? USUAL_TEMPERATURE}`)
    .join(", ");
}

/** Whether tokens are drawn in the same way; seeds may differ. @param {Sampling} one @param {Sampling} other */
export function drawAlike(one, other) {
  return settingsWords(one) === settingsWords(other);
}

const USUAL_TEMPERATURE = 0.8; // of the engine, unless given
const LARGEST_SEED = 2 ** 31;

/** A seed for one draw. @returns {number} */
export function newSeed() {
  return Math.floor(Math.random() * LARGEST_SEED);
}

export class SamplingPanel {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    /** @type {Map<Name, {field: HTMLInputElement, value: HTMLOutputElement}>} */
    this.sliders = new Map();
    const main = /** @type {Name[]} */ (["temperature", "top_k", "top_p"]).map((name) => this.slider(name));
    const more = /** @type {Name[]} */ (["min_p", "repetition_penalty"]).map((name) => this.slider(name));
    this.presets = element(
      "div",
      { class: "presets", role: "group", "data-label": "presets" },
      Object.keys(PRESETS).map((name) =>
        button("", {
          "data-word": `preset.${name}`,
          "data-title": `preset.${name}.about`,
          "data-preset": name,
          pressed: false,
        }),
      ),
    );
    this.presets.addEventListener("click", (/** @type {MouseEvent} */ { target }) => {
      const name = /** @type {HTMLElement} */ (target).closest("button")?.dataset.preset;
      if (name) session.set({ sampling: { ...session.sampling, ...PRESETS[name] } });
    });
    this.seed = element("input", {
      type: "number",
      id: "seed",
      min: 0,
      max: LARGEST_SEED,
      "data-placeholder": "seed.new",
    });
    this.seed.addEventListener("change", () => this.seeded());
    const seed = element("label", { class: "slider seed" }, [element("span", { "data-word": "seed" }), this.seed]);
    const details = element("details", { class: "more" }, [element("summary", { "data-word": "more" }), ...more, seed]);
    this.host = element("div", { class: "sampling" }, [this.presets, ...main, details]);
    this.host.addEventListener("input", (/** @type {InputEvent} */ { target }) =>
      this.moved(/** @type {HTMLElement} */ (target)),
    );
  }

  /** @param {Name} name */
  slider(name) {
    const { stops } = SCALES[name];
    const field = element("input", {
      type: "range",
      min: 0,
      max: stops.length - 1,
      step: 1,
      id: `slider-${name}`,
      "data-name": name,
      "data-title": `${name}.about`,
    });
    const value = element("output", { for: field.id });
    this.sliders.set(name, { field, value });
    return element("label", { class: "slider", for: field.id }, [element("span", { "data-word": name }), value, field]);
  }

  /** @param {HTMLElement} target */
  moved(target) {
    const name = /** @type {Name | undefined} */ (target.dataset.name);
    if (!name) return;
    const value = SCALES[name].stops[Number(/** @type {HTMLInputElement} */ (target).value)];
    this.session.set({ sampling: { ...this.session.sampling, [name]: value } });
  }

  seeded() {
    const { value } = this.seed;
    const sampling = { ...this.session.sampling };
    delete sampling.seed;
    if (value !== "") sampling.seed = Math.abs(Math.trunc(Number(value))) % LARGEST_SEED || 0;
    this.session.set({ sampling });
  }

  /** Show what is set. */
  show() {
    const { sampling } = this.session;
    for (const [name, { field, value }] of this.sliders) {
      const { stops, off, shown } = SCALES[name];
      const set = sampling[name] ?? off ?? 1;
      field.value = String(nearest(stops, set));
      const text = set === off ? t("off") : name === "temperature" && set === 0 ? t("greedy") : shown(set);
      value.textContent = text;
      field.setAttribute("aria-valuetext", text);
    }
    if (document.activeElement !== this.seed) this.seed.value = String(sampling.seed ?? "");
    for (const one of this.presets.children) {
      const preset = PRESETS[/** @type {HTMLElement} */ (one).dataset.preset ?? ""];
      const same = Object.entries(preset).every(
        ([name, value]) => (sampling[/** @type {Name} */ (name)] ?? SCALES[/** @type {Name} */ (name)].off) === value,
      );
      one.setAttribute("aria-pressed", String(same));
    }
  }
}

/** @param {number[]} stops @param {number} value */
function nearest(stops, value) {
  const exact = stops.indexOf(value);
  if (exact >= 0) return exact;
  const distances = stops.map((stop) => Math.abs(stop - value));
  return distances.indexOf(Math.min(...distances));
}
