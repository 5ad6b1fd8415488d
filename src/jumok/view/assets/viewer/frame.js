// The elements that a Shell fills: those of a page of its own, and those of a place inside another page.

import { element } from "../base/controls.js";
import { drawing } from "../base/icons.js";

/** @type {[string, Record<string, string | number>][]} */
const MARK = [
  ["rect", { class: "mark-ground", width: 32, height: 32, rx: 7 }],
  ["path", { class: "mark-lines", d: "M9 16C15 16 17 8.5 22.5 8.5M9 16H22.5M9 16C15 16 17 23.5 22.5 23.5" }],
  ["circle", { class: "mark-dot", cx: 9, cy: 16, r: 3 }],
  ["circle", { class: "mark-dot", cx: 23, cy: 8.5, r: 1.7 }],
  ["circle", { class: "mark-dot", cx: 23, cy: 16, r: 2.6 }],
  ["circle", { class: "mark-dot", cx: 23, cy: 23.5, r: 1.7 }],
];
/**
 * Put the elements of a viewer into `root`, before what stands there; all parts that are seen are hidden.
 * @param {Element} root the body, or an element of another page
 * @param {{prefix?: string, embedded?: boolean}} options prefix: before each id. embedded: without header and skip link;
 * the tools stand beside the tabs.
 * @returns {Record<string, any>} the parts by their names
 */
export function buildFrame(root, { prefix = "", embedded = false } = {}) {
  /** @type {Record<string, HTMLElement>} */
  const parts = {};
  /**
   * @param {string} name @param {keyof HTMLElementTagNameMap} tag @param {Record<string, any>} [attributes]
   * @param {import("../base/controls.js").Child[]} [children]
   */
  const part = (name, tag, attributes = {}, children = []) => {
    const id = prefix + name.replace(/[A-Z]/g, (/** @type {string} */ letter) => `-${letter.toLowerCase()}`);
    parts[name] = element(tag, { id, class: `viewer-${id.slice(prefix.length)}`, ...attributes }, children);
    return parts[name];
  };
  const tools = part("tools", "div", { class: "tools", role: "toolbar" }, [part("files", "span")]);
  const canvases = [part("base", "canvas", { role: "img" }), part("over", "canvas", { "aria-hidden": "true" })];
  const tabs = part("tabs", "div", { class: "tabs", role: "tablist" });
  const stage = part("stage", "div", { role: "tabpanel", tabindex: 0 }, [
    part("content", "div", {}, [part("layers", "div", {}, canvases)]),
  ]);
  const notes = part("notes", "details", {}, [element("summary"), element("ul")]);
  const toggle = { type: "button", class: "button quiet", "aria-expanded": "false", "aria-controls": `${prefix}table` };
  const header = part("header", "header", { hidden: true }, [
    drawing({ class: "mark", viewBox: "0 0 32 32", width: 28, height: 28 }, MARK),
    element("div", { class: "facts" }, [part("modelName", "h1"), part("modelFacts", "p")]),
    embedded ? null : tools,
  ]);
  root.prepend(
    ...(embedded
      ? []
      : [element("a", { class: "skip", href: "#stage", id: "skip", "data-word": "skipToView" }), header]),
    part("views", embedded ? "div" : "nav", { hidden: true }, [
      embedded ? element("div", { class: "viewer-bar" }, [tabs, tools]) : tabs,
      part("about", "p", { class: "about" }),
    ]),
    part("controls", "section", { hidden: true }, [
      part("place", "div"),
      part("options", "details", {}, [element("summary", { "data-word": "options" }), part("optionsBody", "div")]),
    ]),
    part("main", embedded ? "div" : "main", { hidden: true, tabindex: -1 }, [
      stage,
      part("panel", "aside", { hidden: true }),
    ]),
    part("footer", embedded ? "div" : "footer", { hidden: true }, [
      part("status", "p"),
      part("tableToggle", "button", toggle),
      notes,
    ]),
    part("table", "section", { hidden: true }),
    part("tooltip", "div", { role: "tooltip", hidden: true }),
    part("toast", "div", { role: "status", hidden: true }),
    part("announcer", "p", { "aria-live": "polite" }),
    part("help", "dialog"),
  );
  return parts;
}
