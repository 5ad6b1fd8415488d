// How much is written and how tokens are drawn, as number fields.

import { element } from "../../view/assets/base/controls.js";
import { t } from "../../view/assets/base/words.js";

/** @typedef {"tokens" | "temperature" | "top_p" | "seed"} Name */
/** @typedef {Record<Name, number>} Settings */

/** @type {[Name, number, number, number][]} name, least, most, step */
const FIELDS = [
  ["tokens", 1, 2000, 1],
  ["temperature", 0, 2, 0.05],
  ["top_p", 0.01, 1, 0.01],
  ["seed", 0, 2 ** 31 - 1, 1],
];

/** Fields that set what is asked of a model. @param {Settings} settings */
export function settingFields(settings) {
  return FIELDS.map(([name, min, max, step]) => {
    const onchange = (/** @type {any} */ { target }) => {
      settings[name] = Math.min(max, Math.max(min, Number(target.value) || 0));
    };
    const input = element("input", { id: name, type: "number", min, max, step, value: settings[name], onchange });
    const label = element("span", { class: "choice-label", text: t(`write.${name}`) });
    return element("label", { class: "choice" }, [label, input]);
  });
}
