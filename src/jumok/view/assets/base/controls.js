// Small builders of page elements. Text goes in as text, never as HTML.

import { inkOn, rgb } from "./colours.js";

/** @typedef {Node|string|null|undefined} Child */
/** @typedef {Record<string, string|number|boolean|null|undefined|((event: any) => void)>} Attributes */

/**
 * An element; functions among the attributes ("onclick") listen, true and false set and leave out, the rest is written.
 * @template {keyof HTMLElementTagNameMap} Tag @param {Tag} tag @param {Attributes} [attributes]
 * @param {Child|(Child|Child[])[]} [children]
 */
export function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "text") made.textContent = String(value ?? "");
    else if (name === "class") made.className = String(value ?? "");
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...[children].flat(2).filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * A button; `pressed` makes it one that stays down.
 * @param {string} text @param {Attributes & {pressed?: boolean, class?: string|null, title?: string}} [options]
 */
export function button(text, { pressed, class: name = "", title, ...rest } = {}) {
  return element("button", {
    type: "button",
    class: `button ${name}`.trim(),
    text,
    title,
    "aria-label": title && title !== text && text.length < 3 ? title : null,
    "aria-pressed": pressed === undefined ? null : String(pressed),
    ...rest,
  });
}

/**
 * A small button in a colour of its own, which stays down.
 * @param {string} text @param {string} colour @param {Attributes & {pressed: boolean, off?: boolean}} options off: struck out
 */
export function chip(text, colour, { pressed, off = false, ...rest }) {
  const name = off ? "chip off" : "chip";
  const made = element("button", { type: "button", class: name, text, "aria-pressed": String(pressed), ...rest });
  made.style.setProperty("--chip", colour);
  made.style.setProperty("--chip-parts", rgb(colour).join(" "));
  made.style.setProperty("--chip-ink", inkOn(rgb(colour)));
  return made;
}

/**
 * A labelled list to choose from. Values are compared as strings, and given back as they were.
 * @template T @param {string} label
 * @param {readonly (readonly any[])[]} options a value and its text each
 * @param {T} value @param {(value: T) => void} onchange @param {Attributes} [attributes]
 */
export function choice(label, options, value, onchange, attributes = {}) {
  const select = element(
    "select",
    { ...attributes, onchange: () => onchange(options[select.selectedIndex][0]) },
    options.map(([key, text]) =>
      element("option", { value: String(key), text, selected: String(key) === String(value) }),
    ),
  );
  return element("label", { class: "choice" }, [element("span", { class: "choice-label", text: label }), select]);
}

/**
 * A row of buttons of which one is down.
 * @template T @param {string} label
 * @param {readonly (readonly any[])[]} options a value and its text each
 * @param {T} value @param {(value: T) => void} onchange @param {Attributes} [attributes]
 */
export function segmented(label, options, value, onchange, attributes = {}) {
  return element(
    "div",
    { class: "segmented", role: "group", "aria-label": label, ...attributes },
    options.map(([key, text]) =>
      button(text, { pressed: key === value, "data-value": String(key), onclick: () => onchange(key) }),
    ),
  );
}

/**
 * A table with a caption, for those who read numbers rather than pictures.
 * @param {{caption: string, columns: (string|number)[], rows: (string|number)[][]}} table
 */
export function tableElement({ caption, columns, rows }) {
  return element("table", { class: "table" }, [
    element("caption", { text: caption }),
    element("thead", {}, [
      element(
        "tr",
        {},
        columns.map((text) => element("th", { scope: "col", text: String(text) })),
      ),
    ]),
    element(
      "tbody",
      {},
      rows.map((cells) =>
        element(
          "tr",
          {},
          cells.map((cell) => element("td", { text: String(cell), class: typeof cell === "number" ? "number" : null })),
        ),
      ),
    ),
  ]);
}
