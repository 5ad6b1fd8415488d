// What elements of a page need besides their making: words that change with the language, and the first focus.

import { element } from "../base/controls.js";
import { defineWords, t } from "../base/words.js";
import { words } from "./words.toml";

defineWords(words);

/** Which attribute says which word: of the text, and of attributes. */
const PLACES = Object.freeze({ label: "aria-label", title: "title", placeholder: "placeholder" });

/** Set all words below an element in the language of the page. @param {Element | Document} root */
export function setWords(root) {
  for (const node of root.querySelectorAll("[data-word]")) {
    node.textContent = t(/** @type {HTMLElement} */ (node).dataset.word ?? "");
  }
  for (const [name, attribute] of Object.entries(PLACES)) {
    for (const node of root.querySelectorAll(`[data-${name}]`)) {
      node.setAttribute(attribute, t(node.getAttribute(`data-${name}`) ?? ""));
    }
  }
}

/**
 * The field for the text of a model that does not write on.
 * @param {string} label key of its name
 * @param {string} placeholder key of what stands in it while it is empty
 * @returns {HTMLTextAreaElement}
 */
export function textField(label, placeholder) {
  return element("textarea", {
    class: "plain-field",
    id: "prompt",
    rows: 3,
    spellcheck: "false",
    "data-label": label,
    "data-placeholder": placeholder,
  });
}
