// A token of a text that a model wrote, coloured by its surprise; one can look at it.

import { element } from "../base/controls.js";
import { percent } from "../base/words.js";
import { visible } from "../model/visible.js";
import { tintOf } from "../page/cells.js";

/** @param {string} text @param {number | null} surprise in nats @param {() => void} look @param {string} [name] class */
export function tokenCell(text, surprise, look, name = "token") {
  // No button: a line break in one does not break the line of the text.
  const cell = element("span", {
    role: "button",
    tabindex: 0,
    class: name,
    text,
    "aria-label": text.trim() ? null : visible(text),
    title: surprise === null ? null : percent(Math.exp(-surprise)),
    onclick: look,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      look();
    },
  });
  if (surprise !== null) cell.style.background = `var(--tint-${tintOf(surprise)})`;
  return cell;
}
