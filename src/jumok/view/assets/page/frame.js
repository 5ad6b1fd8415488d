// The frame of a page with a model: its name, the tabs, language and theme, messages, and the link to this state.

import { button, element } from "../base/controls.js";
import { copied, looksButtons, markTab, otherTheme, paintPage, tabButtons, toaster } from "../base/page_chrome.js";
import { count, messageOf, otherLanguage, setLanguage, shortCount, t } from "../base/words.js";
import { setWords } from "./labels.js";
import { pathOf } from "./path.js";
import { readState, writeState } from "./state.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./state.js").State} State */
/** A view of the page; state: what a link says of it, unless it shows the text of the session. @typedef {{show: () => void, hide: () => void, state?: () => State}} View */
/** @typedef {(host: HTMLElement, session: Session, frame: Frame) => View} MakeView */

const TOAST = 4000; // milliseconds
const LINKED = 400; // milliseconds after a change, the address says so
const KEYS = Object.freeze([
  [["Ctrl", "Enter"], "page.key.write"],
  [["Esc"], "page.key.stop"],
  [["←", "→"], "page.key.caret"],
  [["Alt", "←"], ["Alt", "→"], "page.key.place"],
  [["Ctrl", "Z"], "page.key.undo"],
  [["↑", "↓"], "page.key.branches"],
]);

/** @param {string} id @returns {HTMLElement} */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Frame {
  /**
   * @param {Session} session
   * @param {[string, MakeView][]} views name and maker of each, in the order of the tabs.
   * @param {{bytes?: number}} facts bytes: the size of the parameters.
   */
  constructor(session, views, { bytes = 0 } = {}) {
    this.session = session;
    this.makers = new Map(views);
    this.bytes = bytes;
    /** @type {Map<string, {view: View, host: HTMLElement}>} */
    this.made = new Map();
    this.view = "";
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.toast = toaster(part("toast"), TOAST);
    this.linking = 0;
    setLanguage(session.language);
    this.applyTheme();
    session.subscribe((changed) => this.changed(changed));
    this.dark.addEventListener("change", () => {
      this.applyTheme();
      session.tell("theme");
    });
  }

  /** Build what surrounds the views, and show the first one. */
  start() {
    for (const id of ["header", "views", "footer"]) part(id).hidden = false;
    this.render();
    const [first] = this.makers.keys();
    this.open(first);
  }

  /** @param {Set<import("./session.js").Change>} changed */
  changed(changed) {
    if (changed.has("language")) {
      setLanguage(this.session.language);
      this.render();
    }
    if (changed.has("theme")) this.applyTheme();
    if (
      ["path", "off", "sampling", "language", "theme", "writing"].some((name) => changed.has(/** @type {any} */ (name)))
    )
      this.noteState();
  }

  // --- what stands there ---

  render() {
    const { session } = this;
    const { about } = session.engine;
    document.documentElement.lang = session.language;
    document.title = about.title || about.name;
    part("model-name").textContent = about.title || about.name;
    const short = t("model.short", { layers: about.n_layer, n: shortCount(about.parameters) });
    part("model-facts").replaceChildren(
      ...[about.title && about.title !== about.name ? about.name : null, short]
        .filter(Boolean)
        .map((text) => element("span", { text: String(text) })),
    );
    part("tools").replaceChildren(
      ...looksButtons(
        () => session.set({ language: otherLanguage() }),
        () => this.switchTheme(),
      ),
      button("?", {
        id: "tool-help",
        class: "icon",
        "data-title": "model.about",
        "data-label": "model.about",
        onclick: () => this.showAbout(),
      }),
    );
    part("licence").textContent = about.licence ? `${t("model.row.licence")}: ${about.licence}` : "";
    this.renderTabs();
    setWords(document);
  }

  renderTabs() {
    const names = [...this.makers.keys()];
    part("views").hidden = names.length < 2;
    const attributes = (/** @type {string} */ name) => ({
      id: `tab-${name}`,
      "data-word": `tab.${name}`,
      "aria-controls": `panel-${name}`,
    });
    part("tabs").replaceChildren(...tabButtons(names, attributes, (name) => this.open(name)));
    if (this.view) markTab(part("tabs"), this.view);
  }

  /** @param {string} name */
  open(name) {
    if (name === this.view) return;
    this.made.get(this.view)?.view.hide();
    this.view = name;
    if (!this.made.has(name)) {
      const host = element("section", {
        class: "view",
        id: `panel-${name}`,
        role: "tabpanel",
        tabindex: -1,
        "aria-labelledby": `tab-${name}`,
      });
      part("main").append(host);
      const make = /** @type {MakeView} */ (this.makers.get(name));
      this.made.set(name, { host, view: make(host, this.session, this) });
      setWords(host);
    }
    for (const [other, { host }] of this.made) host.hidden = other !== name;
    this.made.get(name)?.view.show();
    markTab(part("tabs"), this.view);
    this.noteState();
  }

  /** @param {Element} root */
  setWords(root) {
    setWords(root);
  }

  // --- theme ---

  applyTheme() {
    const { theme } = this.session;
    paintPage(theme === "auto" ? this.dark.matches : theme === "dark");
  }

  switchTheme() {
    this.session.set({ theme: otherTheme(document.documentElement.dataset.theme === "dark", this.dark) });
  }

  // --- messages ---

  /** @param {string} text */
  announce(text) {
    part("announcer").textContent = text;
  }

  /** @param {any} error */
  failed(error) {
    this.toast(messageOf(error));
  }

  // --- the link ---

  /** The address with the state of the page in it. */
  address() {
    const { session } = this;
    const own = this.made.get(this.view)?.view.state?.() ?? pathOf(session.tree);
    const state = {
      view: this.view,
      language: session.language,
      theme: session.theme,
      sampling: session.sampling,
      off: session.off,
      ...own,
    };
    return `#${writeState(state)}`;
  }

  noteState() {
    clearTimeout(this.linking);
    this.linking = setTimeout(() => {
      if (this.session.writing) return; // the text is not there yet; when it is, this is called again
      try {
        history.replaceState(null, "", this.address());
      } catch {
        // in a frame without an address, and where a browser allows no more changes for now
      }
    }, LINKED);
  }

  async copyLink() {
    const { tree } = this.session;
    const link = location.href.split("#")[0] + this.address();
    const done = await copied(link);
    if (!done) this.noteState();
    const others = tree.branches().some((branch) => !tree.leadsTo(branch));
    const what = readState(link.split("#")[1]).cut ? "link.cut" : others ? "link.path" : "link.copied";
    this.toast(t(done ? what : "link.failed"));
  }

  // --- what the model is ---

  showAbout() {
    const dialog = /** @type {HTMLDialogElement} */ (part("help"));
    const keys = KEYS.flatMap((entry) => {
      const chords = /** @type {string[][]} */ (entry.slice(0, -1));
      const signs = chords.map((chord) =>
        element(
          "span",
          { class: "chord" },
          chord.map((sign) => element("kbd", { text: sign })),
        ),
      );
      return [element("dt", {}, signs), element("dd", { text: t(/** @type {string} */ (entry[entry.length - 1])) })];
    });
    const shownKeys = this.makers.has("write")
      ? [element("h3", { text: t("page.keys") }), element("dl", { class: "help-keys" }, keys)]
      : [];
    dialog.setAttribute("aria-label", t("model.about"));
    dialog.replaceChildren(
      element("div", { class: "section-head" }, [
        element("h2", { text: t("model.about") }),
        button("×", {
          class: "icon quiet",
          title: t("close"),
          "aria-label": t("close"),
          onclick: () => dialog.close(),
        }),
      ]),
      element(
        "dl",
        { class: "facts-list" },
        this.rows().flatMap(([word, text]) => [element("dt", { text: t(word) }), element("dd", { text })]),
      ),
      element("p", { class: "local", text: t("local") }),
      ...shownKeys,
    );
    dialog.onclick = (event) => event.target === dialog && dialog.close();
    if (!dialog.open) dialog.showModal();
  }

  /** @returns {[string, string][]} */
  rows() {
    const { about } = this.session.engine;
    const { n_head: heads, n_kv_head: shared, n_decoder_layer: decoder } = about;
    const bits = /** @type {any} */ (about).bits ?? 8;
    const size = (this.bytes / 1e6).toFixed(1);
    /** @type {[string, string | undefined][]} */
    const rows = [
      ["model.row.note", about.note],
      ["model.row.name", about.name],
      ["model.row.kind", t(`model.kind.${about.kind}`)],
      ["model.row.family", about.family],
      ["model.row.layers", decoder ? `${about.n_layer} + ${decoder}` : String(about.n_layer)],
      [
        "model.row.heads",
        shared && shared !== heads ? t("model.heads.shared", { n: heads, m: shared }) : String(heads),
      ],
      ["model.row.width", count(about.n_embd)],
      ["model.row.context", t("model.tokens", { n: count(about.context_length) })],
      ["model.row.vocabulary", t("model.vocabulary", { n: count(about.vocab_size), tokenizer: about.tokenizer })],
      ["model.row.parameters", t("model.parameters", { n: count(about.parameters), bits, size })],
      ["model.row.licence", about.licence],
    ];
    return /** @type {[string, string][]} */ (rows.filter(([, text]) => text));
  }
}
