// Small pictures for buttons. Their names are those of the buttons: a screen reader does not see them.

const SVG = "http://www.w3.org/2000/svg";
/** @type {Record<string, string[]>} */
const LINES = {
  link: ["M6.5 9.5l3-3", "M7.5 4.5l1.3-1.3a2.8 2.8 0 0 1 4 4L11.5 8.5", "M8.5 11.5l-1.3 1.3a2.8 2.8 0 0 1-4-4L4.5 7.5"],
  theme: ["M8 1.8a6.2 6.2 0 1 0 0 12.4a6.2 6.2 0 0 0 0-12.4z"],
  previous: ["M10 3.5L5.5 8L10 12.5"],
  next: ["M6 3.5L10.5 8L6 12.5"],
  pause: ["M5.5 3.5v9", "M10.5 3.5v9"],
};
/** @type {Record<string, string[]>} */
const FILLED = { theme: ["M8 1.8v12.4a6.2 6.2 0 0 0 0-12.4z"], play: ["M4.5 2.6v10.8L13 8z"] };

/** @param {string} tag @param {Record<string, string | number>} attributes @param {(Element | string)[]} children */
export function svg(tag, attributes, children = []) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * An SVG element of some shapes, [name, attributes] each.
 * @param {Record<string, string | number>} attributes
 * @param {readonly (readonly [string, Record<string, string | number>])[]} shapes
 */
export function drawing(attributes, shapes) {
  const parts = shapes.map(([tag, values]) => svg(tag, values));
  return svg("svg", { "aria-hidden": "true", ...attributes }, parts);
}

/** @param {"theme"|"link"|"previous"|"next"|"play"|"pause"} name */
export function icon(name) {
  /** @type {[string, Record<string, string>][]} */
  const paths = [
    ...(LINES[name] ?? []).map((d) => /** @type {[string, Record<string, string>]} */ (["path", { d }])),
    ...(FILLED[name] ?? []).map(
      (d) => /** @type {[string, Record<string, string>]} */ (["path", { d, fill: "currentColor" }]),
    ),
  ];
  return drawing({ viewBox: "0 0 16 16" }, paths);
}
