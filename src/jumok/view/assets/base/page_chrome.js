// What surrounds the views of every page: tabs, messages that leave by themselves, colours, and why a page cannot open.

import { hex, setColours, themeColours, warm } from "./colours.js";
import { button, element } from "./controls.js";
import { icon } from "./icons.js";
import { defineWords, otherLanguage, t } from "./words.js";
import { words } from "./words.toml";

defineWords(words);

/** The colours of a surprise, from none to the strongest: `--tint-0`, `--tint-1`, ... */
export const TINTS = 12;

/**
 * Tabs, which arrow keys walk through.
 * @template {string} Name @param {readonly Name[]} names
 * @param {(name: Name, i: number) => import("./controls.js").Attributes & {id: string}} attributesOf
 * @param {(name: Name) => void} open
 */
export function tabButtons(names, attributesOf, open) {
  const ids = names.map((name, i) => attributesOf(name, i).id);
  return names.map((name, i) =>
    element("button", {
      type: "button",
      role: "tab",
      class: "tab",
      "data-tab": name,
      ...attributesOf(name, i),
      onclick: () => open(name),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: names.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        const next = (to + names.length) % names.length;
        open(names[next]);
        document.getElementById(ids[next])?.focus();
      },
    }),
  );
}

/** Mark the tab that is open, and return it. @param {Element} tabs @param {string} open */
export function markTab(tabs, open) {
  const all = /** @type {HTMLElement[]} */ ([...tabs.children]);
  for (const tab of all) {
    tab.setAttribute("aria-selected", String(tab.dataset.tab === open));
    tab.tabIndex = tab.dataset.tab === open ? 0 : -1;
  }
  return all.find((tab) => tab.dataset.tab === open);
}

/**
 * A function that shows a text in a box for a while; "" hides the box.
 * @param {HTMLElement} box @param {number} milliseconds @returns {(text: string) => void}
 */
export function toaster(box, milliseconds) {
  let timer = 0;
  return (text) => {
    box.textContent = text;
    box.hidden = !text;
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      box.hidden = true;
    }, milliseconds);
  };
}

/** The buttons for the other language, and for light and dark. @param {() => void} onLanguage @param {() => void} onTheme */
export function looksButtons(onLanguage, onTheme) {
  const [lang, title] = [otherLanguage(), t("theme")];
  const theme = button("", { id: "tool-theme", class: "icon", title, "aria-label": title, onclick: onTheme });
  theme.append(icon("theme"));
  return [button(t("language"), { id: "tool-language", title: t("language.about"), lang, onclick: onLanguage }), theme];
}

/** What is chosen when light and dark change places: back at what the system says, "auto". @param {boolean} dark @param {MediaQueryList} system */
export function otherTheme(dark, system) {
  return dark !== system.matches ? "auto" : dark ? "light" : "dark";
}

/** Put a text into the clipboard; false where a browser refuses it. @param {string} text */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Give the whole page the colours of a theme, and return them. @param {boolean} dark */
export function paintPage(dark) {
  const theme = themeColours(dark ? "dark" : "light");
  const { dataset, style } = document.documentElement;
  dataset.theme = theme.name;
  setColours(style, theme);
  for (let i = 0; i < TINTS; i += 1) style.setProperty(`--tint-${i}`, hex(warm((0.92 * i) / (TINTS - 1), theme)));
  return theme;
}

/**
 * Say in both languages what went wrong: no choice may have been made yet.
 * @param {string} code @param {(language: string) => string} message @param {string} words before ".title" and ".remedy"
 */
export function showTrouble(code, message, words) {
  const part = (/** @type {string} */ language) => [
    element("h1", { text: t(`${words}.title`, {}, language), lang: language }),
    element("p", { text: message(language), lang: language }),
    element("p", { text: t(`${words}.remedy`, {}, language), lang: language }),
  ];
  const order = (navigator.language ?? "").startsWith("ko") ? ["ko", "en"] : ["en", "ko"];
  document.body.replaceChildren(
    element("main", { class: "trouble", role: "alert", "data-error": code }, order.flatMap(part)),
  );
}
