// Figures of runs in the words of the page.

import { element } from "../../view/assets/base/controls.js";
import { shortCount, t } from "../../view/assets/base/words.js";

const SIGNS = Object.freeze({
  running: "▶",
  starting: "◔",
  finished: "✓",
  stopped: "❚❚",
  model: "●",
  damaged: "!",
  failed: "!",
});

/** A time in one or two units. @param {number | null | undefined} seconds */
export function time(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 90) return t("time.s", { n: Math.round(seconds) });
  if (seconds < 5400) return t("time.m", { n: Math.round(seconds / 60) });
  return t("time.h", { h: Math.floor(seconds / 3600), m: Math.round((seconds % 3600) / 60) });
}

/** The unit of a run's losses. @param {any} run */
export function lossUnit(run) {
  const figures = run.best?.figures;
  const writes = run.task === "lm" || run.task === "chat";
  if (!writes) return t(`loss.unit.${run.task ?? "none"}`);
  // Per token where characters are lost to the tokenizer, so until the first validation it is not known.
  if (!figures) return t("loss.unit.none");
  return figures.nats_per_char === undefined ? t("loss.unit.seq2seq") : t("loss.unit.char");
}

/** A loss with its unit. @param {number | null | undefined} value @param {any} run */
export function loss(value, run) {
  return value === null || value === undefined ? "–" : `${value.toFixed(3)} ${lossUnit(run)}`;
}

/** @param {number | null | undefined} value */
export const speed = (value) => (value === null || value === undefined ? "–" : shortCount(value));

/** A state as a word with a sign. @param {string} state */
export function badge(state) {
  const sign = element("span", {
    class: "badge-sign",
    "aria-hidden": "true",
    text: SIGNS[/** @type {keyof typeof SIGNS} */ (state)] ?? "",
  });
  return element("span", { class: `badge ${state}` }, [sign, t(`run.state.${state}`)]);
}

/** Names and values, one below the other. @param {[string, string | null | undefined][]} rows those without a value are left out. */
export function facts(rows) {
  const shown = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element(
    "dl",
    { class: "pairs" },
    shown.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: String(value) })]),
  );
}
