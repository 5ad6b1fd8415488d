// Drawings of the pieces: described as plain objects, so that the same function draws on a page and, under Node, into the
// SVG file that is printed. Looks come from classes of drawing.css.

/** @typedef {{tag: string, attributes: Record<string, string | number>, children: (Shape | string)[]}} Shape */

const SVG = "http://www.w3.org/2000/svg";
export const STRONGEST = 0.55; // opacity of the strongest cell: text on it keeps a contrast of 4.5 to 1 in both themes
export const WIDTH = 360; // of a drawing; text is then as large on a phone as it is written here

/**
 * @param {string} tag @param {Record<string, string | number>} [attributes] @param {(Shape | string)[]} [children]
 * @returns {Shape}
 */
export function shape(tag, attributes = {}, children = []) {
  return { tag, attributes, children };
}

/**
 * A text; its class says how it looks: "t" a title, "n" a note, "m" numbers.
 * @param {number} x
 * @param {number} y of the baseline
 * @param {string} content @param {string} [name] @param {"start" | "middle" | "end"} [anchor] @returns {Shape}
 */
export function text(x, y, content, name = "", anchor = "start") {
  return shape("text", { class: name, x, y, "text-anchor": anchor }, [content]);
}

/**
 * @param {number} x @param {number} y
 * @param {number} width negative ones reach to the left
 * @param {number} height negative ones reach up
 * @param {string} name @returns {Shape}
 */
export function rect(x, y, width, height, name) {
  const left = Math.min(x, x + width);
  const top = Math.min(y, y + height);
  return shape("rect", { class: name, x: left, y: top, width: Math.abs(width), height: Math.abs(height) });
}

/** @param {number} x @param {number} y @param {number} toX @param {number} toY @param {string} name @returns {Shape} */
export function line(x, y, toX, toY, name) {
  return shape("line", { class: name, x1: x, y1: y, x2: toX, y2: toY });
}

/**
 * A cell with a number in it: blue for positive numbers, orange for negative ones, the stronger the larger. It always has
 * the same elements, so that a change is shown as one of the same cell.
 * @param {number} x @param {number} y @param {number} width @param {number} height
 * @param {string} content "" leaves it empty
 * @param {number} [share] -1 to 1
 * @returns {Shape[]}
 */
export function cell(x, y, width, height, content, share = 0) {
  const strength = STRONGEST * Math.min(1, Math.abs(share));
  const fill = shape("rect", {
    class: share < 0 ? "negative" : "positive",
    x,
    y,
    width,
    height,
    "fill-opacity": strength,
  });
  return [fill, rect(x, y, width, height, "cell"), text(x + width / 2, y + height / 2 + 4, content, "m", "middle")];
}

/** The whole drawing. @param {number} height @param {(Shape | Shape[])[]} shapes @returns {Shape} */
export function drawing(height, shapes) {
  return shape(
    "svg",
    { class: "jumok-drawing", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height },
    shapes.flat(),
  );
}

/** @type {(value: string | number) => string} */
const written = (value) => (typeof value === "number" ? String(Number(value.toFixed(2))) : value);

/** @type {(content: string) => string} */
const escaped = (content) =>
  content.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** A shape as SVG text. @param {Shape | string} part @returns {string} */
export function asText(part) {
  if (typeof part === "string") return escaped(part);
  const attributes = Object.entries(part.attributes)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => ` ${name}="${escaped(written(value))}"`)
    .join("");
  const broken = part.tag === "svg" ? "\n" : "";
  const inside = part.children.map((child) => asText(child) + broken).join("");
  return `<${part.tag}${attributes}>${broken}${inside}</${part.tag}>`;
}

/**
 * Make an element show a shape. What it has already is changed and not replaced, so that changes can be animated.
 * @param {Element | null} element what shows the shape before this one; null for none
 * @param {Shape} part
 * @returns {Element} that element, or a new one
 */
export function show(element, part) {
  const shown = element?.localName === part.tag ? element : document.createElementNS(SVG, part.tag);
  for (const { name } of [...shown.attributes]) if (!(name in part.attributes)) shown.removeAttribute(name);
  for (const [name, value] of Object.entries(part.attributes)) shown.setAttribute(name, written(value));
  const shapes = part.children.filter((child) => typeof child !== "string");
  if (shapes.length === 0) {
    const content = part.children.join("");
    if (shown.textContent !== content) shown.textContent = content;
    return shown;
  }
  shapes.forEach((child, i) => {
    const before = shown.children[i] ?? null;
    const now = show(before, child);
    if (before === null) shown.append(now);
    else if (before !== now) before.replaceWith(now);
  });
  while (shown.children.length > shapes.length) shown.lastElementChild?.remove();
  return shown;
}
