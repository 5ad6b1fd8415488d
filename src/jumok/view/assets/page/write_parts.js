// The elements of the view in which a text is written, and where they stand.

import { button, element } from "../base/controls.js";
import { TINTS } from "../base/page_chrome.js";
import { decimal, percent, t } from "../base/words.js";
import { MARK_LEVELS, MOST_SURPRISE } from "./cells.js";

/** @typedef {import("./tree.js").Token} Token */
/** What the buttons do, by their names. @typedef {Record<"write" | "stop" | "edit" | "again" | "both" | "undo" | "redo" | "copy" | "save" | "link" | "before" | "after", () => void>} Actions */

const NAT = 1 / Math.LN2; // bits

/** @param {string} name @param {() => void} onclick @param {string} [kind] */
function tool(name, onclick, kind = "") {
  const words = { "data-word": `tool.${name}`, "data-title": `tool.${name}.about` };
  return button("", { id: `tool-${name}`, class: kind, ...words, onclick });
}

/** @param {string} sign @param {string} word @param {() => void} onclick */
function arrow(sign, word, onclick) {
  return button(sign, { class: "icon", "data-label": word, "data-title": word, onclick });
}

/**
 * @param {Actions} actions
 * @param {{note?: string, surface: Element, tree: Element, distribution: Element, sampling: Element}} content
 */
export function writeParts(actions, { note, surface, tree, distribution, sampling }) {
  const tools = {
    write: tool("write", actions.write, "primary"),
    stop: tool("stop", actions.stop, "primary"),
    edit: tool("edit", actions.edit, "touch-only"),
    again: tool("again", actions.again),
    both: tool("both", actions.both),
    undo: tool("undo", actions.undo, "icon"),
    redo: tool("redo", actions.redo, "icon"),
  };
  const files = [tool("copy", actions.copy), tool("save", actions.save), tool("link", actions.link)];
  const length = element("span");
  const gap = element("span", { class: "gap" });
  const bar = { class: "write-tools", role: "toolbar", "data-label": "tools" };
  const toolbar = element("div", bar, [...Object.values(tools), length, gap, ...files]);

  const chips = element("div", { class: "off-heads", hidden: true });
  const reading = element("p", { class: "reading", id: "reading" });
  const legend = element("div", { class: "legend" });
  const noted = note ? element("p", { class: "note", text: note }) : null;
  const sheet = element("div", { class: "sheet" }, [noted, chips, surface, reading, legend, tree]);
  const desk = element("div", { class: "desk", id: "desk" }, [sheet]);

  const before = arrow("‹", "place.previous", actions.before);
  const after = arrow("›", "place.next", actions.after);
  const side = sideParts([before, after], [distribution], sampling);
  const host = element("div", { class: "write" }, [desk, toolbar, side.host]);
  return { ...side, host, tools, length, chips, reading, legend, desk, before, after };
}

/**
 * What stands beside a text: a token of it, and how the next one is drawn. On a small screen it is a sheet that opens.
 * @param {Element[]} steps @param {Element[]} content @param {Element} sampling
 */
export function sideParts(steps, content, sampling) {
  const heading = element("h2", { id: "place-name" });
  const facts = element("p", { class: "figures token-facts" });
  const open = (wanted = handle.getAttribute("aria-expanded") !== "true") => {
    handle.setAttribute("aria-expanded", String(wanted));
    host.classList.toggle("open", wanted);
  };
  const folded = { class: "quiet handle", "data-word": "panel", "aria-expanded": "false" };
  const handle = button("", { ...folded, onclick: () => open() });
  const named = element("h2", { "data-word": "sampling" });
  const host = element("aside", { class: "side", "data-label": "panel" }, [
    element("div", { class: "section-head" }, [heading, ...steps, handle]),
    element("div", { class: "side-body" }, [facts, ...content, named, sampling]),
  ]);
  return { host, heading, facts, open };
}

/** Buttons that switch heads on again which are off. @param {import("./session.js").Session} session */
export function offChips(session) {
  return session.off.map(([layer, head]) =>
    button(`${t("off.head", { layer, head })} ×`, {
      class: "chip-off",
      "data-head": `${layer}.${head}`,
      "aria-label": t("off.remove", { layer, head }),
      disabled: session.writing,
      onclick: () => session.toggleHead(layer, head),
    }),
  );
}

/** The scale of colours and the marks of a surprise. @returns {HTMLElement[]} */
export function legendParts() {
  const colours = Array.from({ length: TINTS }, (_, i) => element("i", { class: `t${i}` }));
  const scale = element("span", { class: "scale", "aria-hidden": "true" }, colours);
  const most = t("legend.most", { nats: MOST_SURPRISE, bits: decimal(MOST_SURPRISE * NAT, 1) });
  const marks = MARK_LEVELS.map((least, i) =>
    element("span", { class: "mark-key" }, [
      element("i", { class: `m${i + 1}`, text: t("legend.sample"), "aria-hidden": "true" }),
      t("legend.mark", { nats: least, bits: decimal(least * NAT, 1) }),
    ]),
  );
  const [name, least, end] = [t("legend.surprise"), "0", most].map((text) => element("span", { text }));
  return [element("span", { class: "legend-scale" }, [name, least, scale, end]), ...marks];
}

/** What is known of a token of the text. @param {Token} token */
export function factsOf({ surprise, probability }) {
  if (surprise === undefined || probability === undefined) return t("token.unknown");
  return t("token.facts", { nats: decimal(surprise, 2), bits: decimal(surprise * NAT, 2), p: percent(probability) });
}
