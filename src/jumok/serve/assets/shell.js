// What surrounds the views of the playground: tabs, language and theme, messages, the key, and the address.

import { headColour, themeColours } from "../../view/assets/base/colours.js";
import { element } from "../../view/assets/base/controls.js";
import {
  looksButtons,
  markTab,
  otherTheme,
  paintPage,
  tabButtons,
  toaster,
} from "../../view/assets/base/page_chrome.js";
import {
  defineWords,
  messageOf,
  otherLanguage,
  preferredLanguage,
  setLanguage,
  t,
} from "../../view/assets/base/words.js";
import { ask, speak, useKey } from "./server.js";
import { words } from "./words.toml";

defineWords(words);

const TOAST = 5000; // milliseconds
const TABS = ["chat", "write", "tokens", "runs"];
const TAB_OF = Object.freeze({ run: "runs", new: "runs" });

/** A view; `show` draws it anew in another language or theme. @typedef {{show: () => void, close: () => void}} View */
/** @typedef {(host: HTMLElement, shell: Shell, name: string) => View} MakeView */

/** @param {string} id @returns {HTMLElement} */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** What someone chose before; a browser may keep nothing. @param {string} name */
function kept(name) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} name @param {string} value */
function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it is asked for again
  }
}

/** What stands in an address, which a person may have typed. @param {string} value */
function decoded(value) {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

export class Shell {
  /** @param {Record<string, MakeView>} makers by the name in the address. */
  constructor(makers) {
    this.makers = makers;
    /** @type {any} what this server lets a page do */
    this.about = {};
    /** @type {View | null} */
    this.view = null;
    this.place = "";
    this.language = kept("jumok-language") || preferredLanguage();
    this.theme = kept("jumok-theme");
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.say = toaster(part("toast"), TOAST);
    this.scheme.addEventListener("change", () => {
      this.paint();
      this.view?.show();
    });
    window.addEventListener("hashchange", () => this.follow());
    this.speak(this.language);
    this.paint();
  }

  get dark() {
    return /^(light|dark)$/.test(this.theme) ? this.theme === "dark" : this.scheme.matches;
  }

  /** Ask the server what it lets a page do, for a key if it wants one, and show the view of the address. */
  async start() {
    this.render();
    await this.trying(async () => {
      this.about = await ask("jumok/desk");
      this.follow();
    });
  }

  /** The colours of lines: of what is most important first. */
  lineColours() {
    const theme = themeColours(this.dark ? "dark" : "light");
    return [0, 1, 2, 3].map((place) => headColour(place, theme));
  }

  // --- where one is ---

  /** @param {string} place such as "run=novel" */
  go(place) {
    location.hash = place;
  }

  /** Show the view that the address names. */
  follow() {
    const [name, value = ""] = location.hash.slice(1).split("=");
    const known = Object.hasOwn(this.makers, name) ? name : "runs";
    const place = `${known}=${value}`;
    if (place === this.place) return;
    this.view?.close();
    if (part("main").contains(document.activeElement)) part("main").focus();
    this.place = place;
    const host = element("div", { class: "studio" });
    part("main").replaceChildren(host);
    this.view = this.makers[known](host, this, decoded(value));
    this.renderTabs();
    part("main").scrollTop = 0;
  }

  // --- what stands there ---

  render() {
    document.documentElement.lang = this.language;
    document.title = `jumok · ${t(`desk.tab.${this.tab()}`)}`;
    part("skip").textContent = t("desk.skip");
    part("tools").replaceChildren(
      ...looksButtons(
        () => this.speak(otherLanguage(), true),
        () => this.switchTheme(),
      ),
    );
    this.renderTabs();
  }

  tab() {
    const name = this.place.split("=")[0];
    return TAB_OF[/** @type {"run"} */ (name)] ?? (TABS.includes(name) ? name : "runs");
  }

  renderTabs() {
    const chosen = this.tab();
    document.title = `jumok · ${t(`desk.tab.${chosen}`)}`;
    part("tabs").setAttribute("aria-label", t("desk.tabs"));
    const attributes = (/** @type {string} */ name) => ({
      id: `tab-${name}`,
      "aria-controls": "main",
      text: t(`desk.tab.${name}`),
    });
    part("tabs").replaceChildren(...tabButtons(TABS, attributes, (name) => this.go(name)));
    markTab(part("tabs"), chosen);
  }

  /** @param {string} language @param {boolean} [chosen] by the reader */
  speak(language, chosen = false) {
    this.language = language;
    setLanguage(language);
    speak(language);
    if (!chosen) return;
    keep("jumok-language", language);
    this.render();
    this.view?.show();
  }

  paint() {
    paintPage(this.dark);
  }

  switchTheme() {
    this.theme = otherTheme(this.dark, this.scheme);
    keep("jumok-theme", this.theme);
    this.paint();
    this.view?.show();
  }

  // --- messages ---

  /** Do something that the server may refuse, and say so; an end by the signal is no error. @param {() => Promise<void>} work @param {AbortSignal} [signal] @returns {Promise<any>} the error, or null */
  async trying(work, signal) {
    try {
      await work();
      return null;
    } catch (error) {
      if (signal?.aborted) return error;
      if (/** @type {any} */ (error).code === "server.key") this.askForKey();
      else this.failed(error);
      return error;
    }
  }

  /** @param {any} error */
  failed(error) {
    this.say(typeof error === "string" ? error : messageOf(error));
  }

  /** @param {string} text */
  announce(text) {
    part("announcer").textContent = text;
  }

  askForKey() {
    if (document.getElementById("key")) return;
    this.view?.close();
    this.view = null;
    this.place = "";
    const field = element("input", {
      id: "key",
      type: "password",
      autocomplete: "off",
      required: true,
      "aria-label": t("desk.key"),
    });
    const form = element(
      "form",
      {
        class: "box key",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          useKey(field.value.trim());
          part("main").replaceChildren();
          void this.start();
        },
      },
      [
        element("h2", { text: t("desk.key.title") }),
        element("p", { class: "remark", text: t("desk.key.about") }),
        element("div", { class: "line" }, [
          field,
          element("button", { type: "submit", class: "button primary", text: t("desk.key.use") }),
        ]),
      ],
    );
    part("main").replaceChildren(element("div", { class: "studio" }, [form]));
    field.focus();
  }
}
