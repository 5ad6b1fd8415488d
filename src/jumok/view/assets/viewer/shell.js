// The page around the views: what is chosen, the canvas, scrolling, hovering, keys, saving. Views compute and paint.

import { button, chip, choice, element, segmented, tableElement } from "../base/controls.js";
import { headColour, themeColours } from "../base/colours.js";
import { copied, looksButtons, markTab, otherTheme, paintPage, tabButtons, toaster } from "../base/page_chrome.js";
import { buildFrame } from "./frame.js";
import { HeadView } from "./head_view.js";
import { icon } from "../base/icons.js";
import { KEY_HELP, isForeignKey, keySign } from "../base/keyboard.js";
import { MatrixView } from "./matrix_view.js";
import { ModelView } from "./model_view.js";
import { NeuronView } from "./neuron_view.js";
import { interestingPlace, interestingToken } from "./opening.js";
import { CanvasPainter } from "../base/painter.js";
import { download, figureBlob, figureName } from "../base/saving.js";
import { Store, VIEWS } from "./store.js";
import { TextView, textAbout } from "./text_view.js";
import { Tooltip } from "../base/tooltip.js";
import {
  count,
  defineWords,
  inLanguage,
  messageOf,
  otherLanguage,
  percent,
  preferredLanguage,
  setLanguage,
  shortCount,
  t,
} from "../base/words.js";
import { words } from "./words.toml";

defineWords(words);

/** @type {Record<string, new (trace: any, store: any, host: any) => any>} */
const VIEW_CLASSES = {
  heads: HeadView,
  cross: HeadView,
  model: ModelView,
  neurons: NeuronView,
  matrix: MatrixView,
  text: TextView,
};
// What is chosen above the picture in each view; "heads" is a set of heads, "head" is one.
/** @type {Record<string, string[]>} */
const VIEW_CHOOSERS = {
  heads: ["block", "layer", "heads", "grouping"],
  cross: ["layer", "heads", "grouping"],
  model: ["block"],
  neurons: ["block", "layer", "head"],
  matrix: ["block", "layer", "head", "grouping"],
  text: [],
};
const TOAST = 2600; // milliseconds
const DRAG_FROM = 4; // pixels; less is a click
const DOUBLE_CLICK = 400; // milliseconds
/** @type {Record<string, string>} */
const FIGURE_VIEWS = { cross: "cross-attention" };

/** @typedef {import("./store.js").State} State */
/** @typedef {import("./trace.js").Trace} Trace */
/** @typedef {import("../base/colours.js").Theme} Theme */
/** @typedef {{x: number, y: number, width: number, height: number}} Box */
/** @typedef {{isOff: (layer: number, head: number) => boolean, toggle: (layer: number, head: number) => void}} ModelHeads */

export class Shell {
  /**
   * @param {Trace} trace
   * @param {Partial<State>} opening any part of the state that the page is to open with; a link (location.hash) goes before it
   * @param {{root?: HTMLElement, link?: boolean, heads?: ModelHeads}} place where it is shown. root: an element of another
   * page, whose language, colours, title and address are left alone; else the page is the viewer's. link: whether the
   * state is kept in the address; of a root it is not. heads: where heads of the model can be switched off.
   */
  constructor(trace, opening = {}, { root, link = root === undefined, heads } = {}) {
    this.trace = trace;
    this.embedded = root !== undefined;
    this.root = root ?? document.body;
    this.link = link;
    this.modelHeads = heads;
    this.prefix = this.embedded ? "viewer-" : "";
    this.page = buildFrame(this.root, { prefix: this.prefix, embedded: this.embedded });
    if (this.embedded) this.root.classList.add("viewer-embedded");
    this.leaving = new AbortController(); // of all listeners
    this.tooltip = new Tooltip(this.page.tooltip);
    this.painters = [this.page.base, this.page.over].map(
      (/** @type {HTMLCanvasElement} */ canvas) =>
        new CanvasPainter(/** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"))),
    );
    /** @type {Map<string, any>} */
    this.views = new Map();
    /** @type {Map<string, number[] | null>} */
    this.zooms = new Map();
    this.plainBlock = trace.blocks.find((block) => block !== "cross") ?? trace.blocks[0];
    this.turn = 0; // of preparing: a result that comes too late is not painted
    this.content = { width: 0, height: 0 };
    /** @type {any} */
    this.prepared = null; // the view that what is on the canvas comes from
    this.size = { width: 0, height: 0, ratio: 0 };
    /** @type {any} */
    this.picked = null;
    /** @type {{clientX: number, clientY: number, touch: boolean} | null} */
    this.pointer = null;
    /** @type {Map<number, PointerEvent>} */
    this.fingers = new Map();
    /** @type {{id: number, fromX: number, fromY: number, x: number, y: number, begun: boolean} | null} */
    this.dragging = null;
    /** @type {{distance: number, middle: {clientX: number, clientY: number}} | null} */
    this.pinching = null;
    this.suppressClick = false;
    /** @type {{head: number, time: number} | null} */
    this.lastChip = null;
    this.painting = 0; // frames that are asked for
    this.hovering = 0;
    this.linking = 0; // timers
    this.toast = toaster(this.page.toast, TOAST);
    /** @type {{ready: number | null, change: number | null}} */
    this.timings = { ready: null, change: null };
    /** @type {() => void} */
    this.markReady = () => {};
    /** @type {(error: unknown) => void} */
    this.markFailed = () => {};
    this.darkScheme = matchMedia("(prefers-color-scheme: dark)");
    this.narrowScreen = matchMedia("(max-width: 600px)");
    this.store = new Store(this.initial(opening), (next, previous) => this.fitting(next, previous));
    this.host = {
      repaint: () => this.schedulePaint(),
      announce: (/** @type {string} */ text) => this.announce(text),
      ready: this.readiness(),
      scrollTo: (/** @type {number} */ x, /** @type {number} */ y) => this.page.stage.scrollTo(x, y),
      window: () => this.window(),
      theme: themeColours("light"),
    };
    this.dressed();
  }

  /** A promise of the first picture; it fails if there will be none. */
  readiness() {
    /** @type {Promise<void>} */
    const ready = new Promise((resolve, reject) => {
      this.markReady = resolve;
      this.markFailed = reject;
    });
    ready.catch(() => {}); // who waits for it hears of it, nobody has to
    return ready;
  }

  // --- state ---

  get available() {
    return VIEWS.filter((view) => view !== "cross" || this.trace.blocks.includes("cross"));
  }

  /** @param {Partial<State>} opening */
  initial(opening) {
    const asked = { ...opening, ...(this.link ? this.linked() : {}) };
    const named = asked.block !== undefined && this.trace.blocks.includes(asked.block) ? asked.block : null;
    const place = interestingPlace(this.trace, named, asked.layer ?? null);
    const { layer, heads: ranked } = place;
    const present = this.trace.heads(place.block, layer);
    this.chooses = asked.token === undefined && asked.key === undefined; // else a link said so, or that there is none
    const head = asked.head ?? asked.heads?.[0] ?? ranked[0] ?? 0;
    const heads = asked.heads ?? (asked.head === undefined ? ranked.slice(0, present.length > 4 ? 3 : 4) : [head]);
    const { block } = place;
    const first = { language: preferredLanguage(), view: block === "cross" ? "cross" : "heads", block, layer, head };
    return { ...first, ...asked, layer, heads: [...heads].sort((a, b) => a - b) };
  }

  linked() {
    try {
      return new Store().read(location.hash);
    } catch {
      return {};
    }
  }

  /** A state that the data can show: what does not exist is replaced by what does. @param {State} next @param {State} previous */
  fitting(next, previous) {
    const state = { ...next };
    const { trace } = this;
    if (!this.available.includes(state.view)) state.view = "heads";
    const opened = state.view !== previous.view;
    if (opened && state.view === "cross") state.block = "cross";
    else if (opened && previous.view === "cross" && state.block === "cross") state.block = this.plainBlock;
    else if (state.view === "cross" && state.block !== "cross") state.view = "heads";
    if (!trace.blocks.includes(state.block)) state.block = this.plainBlock;
    if (state.block !== "cross") this.plainBlock = state.block;
    const attention = trace.attention(state.block);
    if (!attention.layers.includes(state.layer)) {
      const distance = (/** @type {number} */ layer) => Math.abs(layer - (state.layer ?? 0));
      state.layer = attention.layers.reduce((best, layer) => (distance(layer) < distance(best) ? layer : best));
    }
    const present = trace.heads(state.block, state.layer);
    const asked = Array.isArray(state.heads) ? state.heads : [];
    const heads = asked.filter((head) => present.includes(head));
    state.heads = heads.length || !asked.length ? heads : present;
    if (!present.includes(state.head)) state.head = present[0] ?? 0;
    const moved = (/** @type {"queries" | "keys"} */ end) =>
      trace.blocks.includes(previous.block) && trace.attention(previous.block)[end] !== attention[end];
    if (state.block !== previous.block) {
      if (moved("queries") && state.token === previous.token) state.token = null;
      if (moved("keys") && state.key === previous.key) state.key = null;
    }
    const position = (/** @type {number | null} */ value, /** @type {number} */ length) =>
      value !== null && Number.isInteger(value) && value >= 0 && value < length ? value : null;
    state.token = position(state.token, attention.t);
    state.key = position(state.key, attention.s);
    if (!trace.groupings(state.block).includes(state.grouping)) state.grouping = "token";
    if (opened) {
      this.zooms.set(previous.view, previous.zoom);
      if (state.zoom === previous.zoom) state.zoom = this.zooms.get(state.view) ?? null;
    }
    if (state.block !== previous.block || state.grouping !== previous.grouping) {
      if (state.zoom === previous.zoom) state.zoom = null;
    }
    return state;
  }

  // --- beginning ---

  dressed() {
    if (!this.embedded) setLanguage(this.store.get("language"));
    this.applyTheme();
  }

  /** Choose, fields of a view among them, whose names begin with "x.". @param {Record<string, unknown>} fields */
  choose(fields) {
    this.store.set(/** @type {Partial<State>} */ (fields));
  }

  /** An element by its id, which in another page has a prefix. @param {string} id */
  named(id) {
    return document.getElementById(this.prefix + id);
  }

  async start() {
    try {
      await this.open();
    } catch (error) {
      this.markFailed(error);
      throw error;
    }
  }

  async open() {
    const { page } = this;
    for (const part of ["header", "views", "controls", "main", "footer"]) page[part].hidden = false;
    this.renderFrame();
    this.listen();
    await this.openToken();
    await this.refresh();
    this.revealChosen(true);
    this.timings.ready = performance.now();
    this.markReady();
  }

  async openToken() {
    const { block, layer, head, token, key } = this.store.state;
    if (!this.chooses || token !== null || key !== null || !this.trace.has(block, layer, head)) return;
    const weights = await this.trace.weights(block, layer, head);
    if (!weights.t) return;
    this.store.set({ token: interestingToken(this.trace, block, weights) });
  }

  listen() {
    const { page } = this;
    const { stage } = page;
    const { signal } = this.leaving;
    /** @param {EventTarget} target @param {string} name @param {(event: any) => void} body */
    const on = (target, name, body, options = {}) => target.addEventListener(name, body, { signal, ...options });
    this.store.subscribe((state, changed) => this.changed(changed));
    on(this.darkScheme, "change", () => this.themed());
    // In the next frame: a picture that makes the stage larger at once is an error to Firefox.
    const sizes = new ResizeObserver(() => requestAnimationFrame(() => signal.aborted || this.refresh()));
    sizes.observe(stage);
    signal.addEventListener("abort", () => sizes.disconnect());
    on(stage, "scroll", () => {
      this.schedulePaint();
      if (this.pointer && !this.pointer.touch) this.scheduleHover();
      else this.tooltip.hide();
    });
    on(stage, "pointerdown", (event) => this.pressed(event));
    on(stage, "pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) on(stage, name, (event) => this.released(event));
    on(stage, "pointerleave", (event) => event.pointerType === "mouse" && this.left());
    on(stage, "click", (event) => this.clicked(event));
    on(stage, "dblclick", (event) => this.alternated(event));
    on(stage, "wheel", (event) => this.wheeled(event), { passive: false });
    on(this.embedded ? this.root : document, "keydown", (event) => this.keyed(event));
    if (this.link) on(window, "hashchange", () => this.choose({ zoom: null, "x.side": null, ...this.linked() }));
    on(page.tableToggle, "click", () => this.toggleTable());
    on(page.help, "click", (event) => event.target === page.help && page.help.close());
    on(document, "click", (event) => {
      if (!page.notes.contains(event.target)) page.notes.open = false;
    });
    const fold = () => {
      page.options.open = !this.narrowScreen.matches;
      this.placeFiles();
    };
    fold();
    on(this.narrowScreen, "change", fold);
  }

  /** Show another trace in the same place; what was chosen stays chosen where the new one has it. @param {Trace} trace */
  replace(trace) {
    this.trace = trace;
    this.views.clear();
    this.picked = null;
    this.prepared = null;
    this.tooltip.hide();
    this.store.set({});
    this.renderFrame();
    return this.refresh();
  }

  /** Leave the place: listeners and elements go. */
  close() {
    this.leaving.abort();
    clearTimeout(this.linking);
    this.root.replaceChildren();
  }

  // --- what stands around the picture ---

  renderFrame() {
    const { page, trace } = this;
    const { language } = this.store.state;
    if (!this.embedded) {
      document.documentElement.lang = language;
      document.title = t("page.title", { model: trace.model.name });
    }
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-word]"))) {
      node.textContent = t(node.dataset.word ?? "");
    }
    page.modelName.textContent = trace.model.name;
    page.modelFacts.replaceChildren(...this.facts().map((text) => element("span", { text })));
    page.tools.setAttribute("aria-label", t("tools"));
    const linkable = this.link && location.protocol !== "about:";
    const ofPage = () =>
      looksButtons(
        () => this.switchLanguage(),
        () => this.switchTheme(),
      );
    page.tools.replaceChildren(
      ...(this.embedded ? [] : ofPage()),
      ...(linkable ? [this.linkButton()] : []),
      button("?", { id: `${this.prefix}tool-help`, class: "icon", title: t("help"), onclick: () => this.showHelp() }),
    );
    page.files.replaceChildren(
      button("PNG", { id: `${this.prefix}tool-png`, title: t("export.png"), onclick: () => this.save() }),
    );
    this.placeFiles();
    this.renderTabs();
    this.renderNotes();
    this.renderControls();
  }

  /** The buttons that save stand in the header; where that is too narrow, below the picture. */
  placeFiles() {
    const { files, tools, footer } = this.page;
    const toolHelp = this.named("tool-help");
    if (this.narrowScreen.matches) footer.append(files);
    else tools.insertBefore(files, toolHelp);
  }

  linkButton() {
    const title = t("link.copy");
    const onclick = () => this.copyLink();
    const made = button("", { id: "tool-link", class: "icon", title, "aria-label": title, onclick });
    made.append(icon("link"));
    return made;
  }

  facts() {
    const { model, sequences } = this.trace;
    const facts = [t(`kind.${model.kind}`), t(`does.${model.task}`, { n: this.trace.classes?.length })];
    facts.push(
      model.n_decoder_layer
        ? t("fact.layersBoth", { n: model.n_layer, m: model.n_decoder_layer })
        : t("fact.layers", { n: model.n_layer }),
    );
    facts.push(
      model.n_kv_head && model.n_kv_head !== model.n_head
        ? t("fact.kvHeads", { n: model.n_head, m: model.n_kv_head })
        : t("fact.heads", { n: model.n_head }),
    );
    if (model.parameters) facts.push(t("fact.parameters", { n: shortCount(model.parameters) }));
    const [first, second] = sequences;
    const written = first.tokens.length - (first.prompt ?? first.tokens.length);
    if (second) facts.push(t("fact.tokensBoth", { n: count(first.tokens.length), m: count(second.tokens.length) }));
    else if (written > 0) facts.push(t("fact.tokensGenerated", { n: count(first.tokens.length), m: count(written) }));
    else facts.push(t("fact.tokens", { n: count(first.tokens.length) }));
    return facts;
  }

  renderTabs() {
    const { page, store } = this;
    page.tabs.setAttribute("aria-label", t("views"));
    const attributes = (/** @type {string} */ view, /** @type {number} */ i) => ({
      id: `${this.prefix}tab-${view}`,
      "aria-controls": page.stage.id,
      text: t(`tab.${view}`),
      title: `${i + 1}`,
    });
    page.tabs.replaceChildren(...tabButtons(this.available, attributes, (view) => store.set({ view })));
    this.markTab();
  }

  markTab() {
    const { view } = this.store.state;
    const open = markTab(this.page.tabs, view);
    if (!this.embedded) open?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    this.page.about.textContent = t(view === "text" ? textAbout(this.trace) : `about.${view}`);
    this.page.stage.setAttribute("aria-labelledby", `${this.prefix}tab-${view}`);
    this.root.dataset.view = view;
  }

  renderNotes() {
    const { page, trace, store } = this;
    const notes = [
      this.facts().join(" · "),
      ...trace.notes.map((note) => (note.code === undefined ? inLanguage(note) : t(note.code, note.values))),
    ];
    const { error, bits } = trace.attention(store.get("block"));
    if (error) {
      const figures = { bits, mean: percent(error.mean), most: percent(error.max), relative: percent(error.relative) };
      notes.push(t("weight.rounded", figures), ...(bits < 16 ? [t("weight.exact")] : []));
    }
    if (trace.blocks.some((block) => trace.groupings(block).length > 1)) notes.push(t("group.note"));
    page.notes.querySelector("summary").textContent = t("notes");
    page.notes.querySelector("ul").replaceChildren(...notes.map((text) => element("li", { text })));
  }

  renderControls() {
    const { page } = this;
    const choosers = VIEW_CHOOSERS[this.store.get("view")];
    const made = Object.fromEntries(choosers.map((name) => [name, this.chooser(name)]));
    page.place.replaceChildren(...["block", "layer", "head", "heads"].map((name) => made[name]).filter(Boolean));
    if (this.modelHeads && (made.head || made.heads)) page.place.append(this.headSwitch());
    const own = this.view().controls?.() ?? [];
    page.optionsBody.replaceChildren(...[made.grouping, ...own].filter(Boolean));
    page.options.hidden = page.optionsBody.childElementCount === 0;
    page.controls.hidden = page.options.hidden && page.place.childElementCount === 0;
  }

  /** @param {string} name */
  chooser(name) {
    const { store, trace } = this;
    const { block, layer, head, heads, grouping } = store.state;
    if (name === "block") {
      if (trace.blocks.length < 2) return null;
      const blocks = trace.blocks.map((value) => /** @type {[string, string]} */ ([value, t(`block.${value}`)]));
      return segmented(t("block"), blocks, block, (value) => store.set({ block: value }), {
        id: `${this.prefix}blocks`,
      });
    }
    if (name === "layer") {
      return this.stepper("layer", trace.attention(block).layers, layer, (value) => store.set({ layer: value }));
    }
    if (name === "head") {
      return this.stepper("head", trace.heads(block, layer), head, (value) =>
        store.set({ head: value, heads: [value] }),
      );
    }
    if (name === "heads") return this.chips(trace.heads(block, layer), heads);
    const groupings = trace
      .groupings(block)
      .map((value) => /** @type {[string, string]} */ ([value, t(`group.${value}`)]));
    if (groupings.length < 2) return null;
    const chosen = segmented(t("group"), groupings, grouping, (value) => store.set({ grouping: value }), {
      id: `${this.prefix}groupings`,
      title: t("group.note"),
    });
    return element("div", { class: "control" }, [
      element("span", { class: "control-label", text: t("group") }),
      chosen,
    ]);
  }

  /** @param {string} name @param {number[]} values @param {number} value @param {(value: number) => void} onchange */
  stepper(name, values, value, onchange) {
    const at = values.indexOf(value);
    const step = (/** @type {number} */ by, /** @type {string} */ text) =>
      button(text, {
        id: `${this.prefix}${name}-${by < 0 ? "previous" : "next"}`,
        title: t(`${name}.${by < 0 ? "previous" : "next"}`),
        disabled: !(at + by in values),
        onclick: () => onchange(values[at + by]),
      });
    const list = choice(
      t(name),
      values.map((one) => [one, String(one)]),
      value,
      onchange,
      { id: this.prefix + name, "aria-label": t(name) },
    );
    const select = list.lastChild;
    return element("div", { class: "control" }, [
      element("span", { class: "control-label", text: t(name) }),
      element("div", { class: "stepper" }, [step(-1, "‹"), select, step(1, "›")]),
    ]);
  }

  /** @param {number[]} present @param {number[]} heads */
  chips(present, heads) {
    const { theme } = this.host;
    const chipOf = (/** @type {number} */ head) => {
      const off = this.modelHeads?.isOff(this.store.get("layer"), head) ?? false;
      const name = t("head.n", { n: head });
      return chip(String(head), headColour(head, theme), {
        pressed: heads.includes(head),
        off,
        id: `${this.prefix}chip-${head}`,
        "data-head": head,
        "aria-label": off ? `${name}, ${t("head.isOff")}` : name,
        title: t("heads.hint", { n: head }),
        onclick: (event) => this.toggleHead(head, event.altKey),
      });
    };
    const { store } = this;
    return element("div", { class: "control heads-control" }, [
      element("span", { class: "control-label", text: t("heads") }),
      element("div", { class: "chips", role: "group", "aria-label": t("heads") }, present.map(chipOf)),
      element("div", { class: "segmented" }, [
        button(t("heads.all"), { id: `${this.prefix}heads-all`, onclick: () => store.set({ heads: present }) }),
        button(t("heads.none"), { id: `${this.prefix}heads-none`, onclick: () => store.set({ heads: [] }) }),
      ]),
    ]);
  }

  /** The button that switches the chosen head of the model itself off, and on again. */
  headSwitch() {
    const { block, layer, head } = this.store.state;
    const off = this.modelHeads?.isOff(layer, head) ?? false;
    return button(t(off ? "head.switchOn" : "head.switchOff", { layer, head }), {
      id: `${this.prefix}head-switch`,
      class: "head-switch",
      pressed: off,
      title: t("head.switch.about"),
      hidden: block === "encoder",
      onclick: () => this.switchHead(),
    });
  }

  switchHead() {
    const { layer, head } = this.store.state;
    this.modelHeads?.toggle(layer, head);
  }

  /** A click switches a head on or off; a second one at once, or alt-click, leaves it alone on. @param {number} head @param {boolean} alone */
  toggleHead(head, alone) {
    const now = performance.now();
    const twice = this.lastChip?.head === head && now - this.lastChip.time < DOUBLE_CLICK;
    this.lastChip = { head, time: twice ? -Infinity : now };
    if (alone || twice) {
      this.store.set({ heads: [head], head });
      return;
    }
    const { heads } = this.store.state;
    const next = heads.includes(head)
      ? heads.filter((other) => other !== head)
      : [...heads, head].sort((a, b) => a - b);
    this.store.set(next.includes(head) ? { heads: next, head } : { heads: next });
  }

  // --- language, colours, link, files ---

  switchLanguage() {
    this.store.set({ language: otherLanguage() });
  }

  get dark() {
    const { theme } = this.store.state;
    return theme === "auto" ? this.darkScheme.matches : theme === "dark";
  }

  switchTheme() {
    this.store.set({ theme: otherTheme(this.dark, this.darkScheme) });
  }

  applyTheme() {
    this.host.theme = this.embedded ? themeColours(this.dark ? "dark" : "light") : paintPage(this.dark);
  }

  themed() {
    this.applyTheme();
    this.renderControls();
    this.refresh();
  }

  async copyLink() {
    this.writeLink();
    this.toast(t((await copied(location.href)) ? "link.copied" : "link.failed"));
  }

  writeLink() {
    clearTimeout(this.linking);
    try {
      history.replaceState(null, "", `#${this.store.hash()}`);
    } catch {
      // in a frame of a notebook there is no address to write
    }
  }

  async save() {
    const view = this.view();
    const { model } = this.trace;
    const json = /** @type {any} */ (this.trace.json);
    const title = view.title();
    const name = this.store.get("view");
    const file = figureName(["jumok", model.name, FIGURE_VIEWS[name] ?? name, ...this.placeParts()], "png");
    try {
      const blob = await figureBlob({
        view,
        title,
        theme: this.host.theme,
        content: this.content,
        seen: this.window(),
        subtitle: [model.name, t(`tab.${name}`), ...this.facts().slice(1), json.generator].filter(Boolean).join(" · "),
      });
      download(blob, file);
    } catch (error) {
      this.toast(t("export.failed", { detail: error instanceof Error ? error.message : String(error) })); // a browser makes no picture beyond a certain size
      return;
    }
    this.toast(t("export.saved", { file }));
  }

  placeParts() {
    const { view, block, layer, head, heads } = this.store.state;
    if (view === "text" || view === "model") return view === "model" && block !== "self" ? [block] : [];
    const chosen = view === "heads" || view === "cross" ? heads.join("_") : String(head);
    const parts = block === "self" || view === "cross" ? [`L${layer}`] : [block, `L${layer}`];
    return chosen.length && chosen.length < 24 ? [...parts, `H${chosen}`] : parts;
  }

  /** @param {string} text */
  announce(text) {
    this.page.announcer.textContent = text;
  }

  showHelp() {
    const { help } = this.page;
    const foreign = this.embedded ? ["key.theme", "key.language"] : [];
    const known = KEY_HELP.filter(([, word]) => !foreign.includes(word));
    if (this.modelHeads) known.splice(3, 0, [["x"], "key.headSwitch"]);
    const keys = known.flatMap(([signs, word]) => [
      element(
        "dt",
        {},
        signs.map((sign) => element(sign === "–" ? "span" : "kbd", { text: sign })),
      ),
      element("dd", { text: t(word) }),
    ]);
    help.setAttribute("aria-label", t("help.title"));
    help.replaceChildren(
      element("div", { class: "help-head" }, [
        element("h2", { text: t("help.reading") }),
        button("×", { class: "icon quiet", title: t("close"), "aria-label": t("close"), onclick: () => help.close() }),
      ]),
      element("p", { text: t("help.readingText") }),
      element("p", { text: t("help.caution") }),
      element("h3", { text: t("help.title") }),
      element("p", { text: t("help.hover") }),
      element("dl", { class: "help-keys" }, keys),
    );
    if (!help.open) help.showModal();
  }

  // --- from a change to a picture ---

  view() {
    const { view } = this.store.state;
    // The tab of cross-attention is the head view at another place: one object serves both.
    const name = view === "cross" ? "heads" : view;
    if (!this.views.has(name)) this.views.set(name, new VIEW_CLASSES[name](this.trace, this.store, this.host));
    return this.views.get(name);
  }

  /** @param {Set<string>} changed */
  changed(changed) {
    const began = performance.now();
    const has = (/** @type {string[]} */ ...names) => names.some((name) => changed.has(name));
    if (has("language") && !this.embedded) setLanguage(this.store.get("language"));
    if (has("theme")) this.applyTheme();
    if (has("language")) this.renderFrame();
    else if (has("view", "block", "layer", "head", "heads", "grouping", "theme", "sort")) this.renderControls();
    else if ([...changed].some((name) => name.startsWith("x."))) this.renderControls();
    if (has("view")) {
      this.left();
      this.markTab();
      this.page.stage.scrollTo(0, 0);
    }
    this.refresh().then(() => {
      this.timings.change = performance.now() - began;
      if (has("view")) this.revealChosen(true);
    });
    if (!this.link) return;
    clearTimeout(this.linking);
    this.linking = setTimeout(() => this.writeLink(), 250);
  }

  /** Prepare the view for the state there is, then paint it. */
  async refresh() {
    this.turn += 1;
    const { turn } = this;
    const { stage, content, layers } = this.page;
    const view = this.view();
    const { zoom } = this.store.state;
    stage.dataset.gestures = view.drag ? (zoom ? "zoomed" : "fitted") : "scroll";
    const size = { width: stage.clientWidth, height: stage.clientHeight };
    if (!size.width || !size.height) return;
    let prepared;
    try {
      prepared = await view.prepare(size.width, size.height);
    } catch (error) {
      if (turn !== this.turn) return;
      this.toast(messageOf(error));
      throw error;
    }
    if (turn !== this.turn || prepared === null) return;
    this.content = prepared;
    this.prepared = view;
    content.style.width = `${Math.max(prepared.width, size.width)}px`;
    content.style.height = `${Math.max(prepared.height, size.height)}px`;
    layers.style.width = `${size.width}px`;
    layers.style.height = `${size.height}px`;
    this.fitCanvases(size);
    this.paint();
    this.describe();
  }

  /** @param {{width: number, height: number}} size */
  fitCanvases({ width, height }) {
    const ratio = devicePixelRatio || 1;
    if (this.size.width === width && this.size.height === height && this.size.ratio === ratio) return;
    this.size = { width, height, ratio };
    for (const canvas of [this.page.base, this.page.over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
  }

  window() {
    const { scrollLeft, scrollTop } = this.page.stage;
    return { x: Math.max(0, scrollLeft), y: Math.max(0, scrollTop), width: this.size.width, height: this.size.height };
  }

  schedulePaint() {
    if (this.painting) return;
    this.painting = requestAnimationFrame(() => this.paint());
  }

  scheduleHover() {
    if (this.hovering) return;
    this.hovering = requestAnimationFrame(() => {
      this.hovering = 0;
      this.hover();
    });
  }

  paint() {
    cancelAnimationFrame(this.painting);
    this.painting = 0;
    if (!this.size.width || this.prepared !== this.view()) return; // a view that was just chosen knows no sizes yet
    const { surface } = this.host.theme;
    this.layer(this.painters[0], surface, (painter, theme, window) => this.view().paint(painter, theme, window));
    this.paintOver();
  }

  paintOver() {
    if (this.prepared !== this.view()) return;
    this.layer(this.painters[1], null, (painter, theme, window) =>
      this.view().paintHover?.(painter, theme, window, this.picked),
    );
  }

  /** @param {CanvasPainter} painter @param {string | null} ground @param {(painter: CanvasPainter, theme: Theme, window: Box) => void} body */
  layer(painter, ground, body) {
    const { context } = painter;
    const { width, height, ratio } = this.size;
    const window = this.window();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (ground) {
      context.fillStyle = ground;
      context.fillRect(0, 0, width, height);
    } else {
      context.clearRect(0, 0, width, height);
    }
    context.translate(-window.x, -window.y);
    body(painter, this.host.theme, window);
  }

  /** Everything that says in words what the picture shows. */
  describe() {
    const { page } = this;
    const view = this.view();
    const summary = view.summary?.() ?? "";
    const note = view.note?.() ?? "";
    page.status.textContent = [summary, note].filter(Boolean).join(" ");
    page.status.title = page.status.textContent;
    const label = t("canvas.label", { view: t(`tab.${this.store.get("view")}`), place: view.title() });
    page.base.setAttribute("aria-label", `${label}. ${summary}`);
    const panel = view.panel?.() ?? null;
    if (panel !== page.panel.firstChild) page.panel.replaceChildren(...(panel ? [panel] : []));
    page.panel.hidden = panel === null;
    this.renderTable();
  }

  toggleTable() {
    this.page.table.hidden = !this.page.table.hidden;
    this.renderTable();
    if (!this.page.table.hidden) this.page.table.scrollIntoView({ block: "nearest" });
  }

  renderTable() {
    const { table, tableToggle } = this.page;
    const view = this.view();
    tableToggle.hidden = !view.table;
    if (tableToggle.hidden) table.hidden = true;
    tableToggle.textContent = t(table.hidden ? "table.show" : "table.hide");
    tableToggle.setAttribute("aria-expanded", String(!table.hidden));
    if (table.hidden) return;
    const content = view.table();
    table.replaceChildren(content ? tableElement(content) : element("p", { text: t("table.empty") }));
  }

  /** Bring what is pinned into sight. */
  revealChosen(centred = false) {
    const view = this.view();
    if (this.prepared !== view) return; // a later choice overtook this one
    view.reveal?.();
    if (!view.locate || view.drag) return;
    const { token, key } = this.store.state;
    const side = /** @type {any} */ (this.store.state)["x.side"] === "key" && key !== null ? { key } : { token };
    if (side.token === null) return;
    const place = view.locate(side);
    if (!place) return;
    const { stage } = this.page;
    const [top, bottom] = [place.y - stage.scrollTop, stage.clientHeight - (place.y - stage.scrollTop)];
    const margin = 2.5 * place.height;
    if (centred && (top < margin || bottom < margin))
      stage.scrollTo(stage.scrollLeft, place.y - stage.clientHeight / 2);
    else if (top < margin + 30) stage.scrollBy(0, top - margin - 30);
    else if (bottom < margin) stage.scrollBy(0, margin - bottom);
  }

  // --- pointer ---

  /** @param {{clientX: number, clientY: number}} event */
  place(event) {
    const { stage } = this.page;
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left + stage.scrollLeft, event.clientY - box.top + stage.scrollTop];
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    const touch = event.pointerType !== "mouse";
    this.pointer = { clientX: event.clientX, clientY: event.clientY, touch };
    if (event.button !== 0) return;
    this.fingers.set(event.pointerId, event);
    this.suppressClick = false;
    const view = this.view();
    if (this.fingers.size === 2 && view.pinch) {
      this.dragging = null;
      this.pinching = this.fingerSpan();
    } else if (this.fingers.size === 1 && view.drag) {
      const [x, y] = this.place(event);
      this.dragging = { id: event.pointerId, fromX: event.clientX, fromY: event.clientY, x, y, begun: false };
    }
  }

  fingerSpan() {
    const [a, b] = [...this.fingers.values()];
    const middle = { clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 };
    return { distance: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), middle };
  }

  /** @param {PointerEvent} event */
  moved(event) {
    const view = this.view();
    if (this.fingers.has(event.pointerId)) this.fingers.set(event.pointerId, event);
    if (this.pinching && this.fingers.size === 2) {
      const span = this.fingerSpan();
      view.pinch(span.distance / Math.max(1, this.pinching.distance), ...this.place(span.middle));
      this.pinching = span;
      this.suppressClick = true;
      return;
    }
    if (this.dragging?.id === event.pointerId) {
      const { fromX, fromY, x, y, begun } = this.dragging;
      const [dx, dy] = [event.clientX - fromX, event.clientY - fromY];
      if (!begun && Math.hypot(dx, dy) >= DRAG_FROM) {
        if (view.drag(0, 0, x, y, "start")) {
          this.dragging.begun = true;
          this.suppressClick = true;
          this.page.stage.setPointerCapture(event.pointerId);
          this.tooltip.hide();
        } else {
          this.dragging = null;
        }
      }
      if (this.dragging?.begun) {
        view.drag(dx, dy, x, y, "move");
        return;
      }
    }
    if (event.pointerType !== "mouse") return;
    this.pointer = { clientX: event.clientX, clientY: event.clientY, touch: false };
    this.scheduleHover();
  }

  /** @param {PointerEvent} event */
  released(event) {
    this.fingers.delete(event.pointerId);
    if (this.fingers.size < 2) this.pinching = null;
    if (this.dragging?.id !== event.pointerId) return;
    const { fromX, fromY, x, y, begun } = this.dragging;
    if (begun) this.view().drag(event.clientX - fromX, event.clientY - fromY, x, y, "end");
    this.dragging = null;
  }

  hover() {
    if (!this.pointer) return;
    const picked = this.view().pick?.(...this.place(this.pointer)) ?? null;
    const { clientX, clientY, touch } = this.pointer;
    const same = picked?.id === this.picked?.id;
    this.picked = picked;
    this.page.stage.style.cursor = picked?.cursor ?? "";
    if (same && picked) this.tooltip.move(clientX, clientY, touch);
    else this.tooltip.show(picked?.tooltip, clientX, clientY, touch);
    if (!same) this.paintOver();
  }

  left() {
    this.pointer = null;
    this.tooltip.hide();
    this.page.stage.style.cursor = "";
    if (!this.picked) return;
    this.picked = null;
    this.paintOver();
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (this.suppressClick) {
      this.suppressClick = false;
      return;
    }
    if (event.altKey) {
      this.alternated(event);
      return;
    }
    const touch = this.pointer?.touch ?? false;
    const picked = this.view().pick?.(...this.place(event)) ?? null;
    if (touch) {
      // A tap hovers and pins at once; what it hovers is not left by the finger, so only the numbers stay.
      this.tooltip.show(picked?.tooltip, event.clientX, event.clientY, true);
    }
    if (picked?.select) {
      this.store.set(picked.select);
      this.picked = touch ? null : (this.view().pick(...this.place(event)) ?? null);
      if (!touch) this.tooltip.show(this.picked?.tooltip, event.clientX, event.clientY);
    }
  }

  /** @param {MouseEvent} event */
  alternated(event) {
    const select = this.view().alternate?.(...this.place(event));
    if (select) this.store.set(select);
  }

  /** @param {WheelEvent} event */
  wheeled(event) {
    const view = this.view();
    if (!view.wheel) return;
    const [x, y] = this.place(event);
    if (view.wheel(x, y, event)) {
      event.preventDefault();
      this.pointer = { clientX: event.clientX, clientY: event.clientY, touch: false };
      this.scheduleHover();
    }
  }

  // --- keyboard ---

  /** @param {KeyboardEvent} event */
  keyed(event) {
    const { page } = this;
    if (page.help.open || isForeignKey(event)) return;
    const sign = keySign(event);
    if (sign === "Escape") {
      this.escape();
      return;
    }
    const inPicture =
      document.activeElement === page.stage || (!this.embedded && document.activeElement === document.body);
    if (inPicture && this.view().key?.(event)) {
      event.preventDefault();
      return;
    }
    /** @type {Record<string, () => void>} */
    const actions = {
      "[": () => this.step("layer", -1),
      "]": () => this.step("layer", 1),
      ",": () => this.step("head", -1),
      ".": () => this.step("head", 1),
      g: () => this.nextGrouping(),
      s: () => this.save(),
      "?": () => this.showHelp(),
    };
    if (!this.embedded) {
      actions.t = () => this.switchTheme();
      actions.l = () => this.switchLanguage();
    }
    if (this.modelHeads) actions.x = () => this.switchHead();
    if (inPicture) {
      actions.ArrowUp = () => this.stepToken("token", -1);
      actions.ArrowDown = () => this.stepToken("token", 1);
      actions.ArrowLeft = () => this.stepToken("key", -1);
      actions.ArrowRight = () => this.stepToken("key", 1);
    }
    const action = actions[sign] ?? (/^[1-6]$/.test(sign) ? () => this.openNumbered(Number(sign)) : null);
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** @param {number} n */
  openNumbered(n) {
    const view = this.available[n - 1];
    if (view) this.store.set({ view });
  }

  /** @param {"layer" | "head"} name @param {number} by */
  step(name, by) {
    const { block, layer, head, view } = this.store.state;
    const values = name === "layer" ? this.trace.attention(block).layers : this.trace.heads(block, layer);
    const at = values.indexOf(name === "layer" ? layer : head) + by;
    const next = name === "layer" ? values[at] : values.at(at % values.length); // after the last head comes the first
    if (next === undefined) return;
    const alone = name === "head" && (view === "heads" || view === "cross" || view === "matrix" || view === "neurons");
    this.store.set(alone ? { head: next, heads: [next] } : { [name]: next });
    this.announce(this.view().title());
  }

  /** @param {"token" | "key"} name @param {number} by */
  stepToken(name, by) {
    const { block, view } = this.store.state;
    const grouping = view === "heads" || view === "cross" || view === "matrix" ? this.store.get("grouping") : "token";
    const sequence = name === "token" ? this.trace.queries(block) : this.trace.keys(block);
    const value = this.store.get(name);
    const groups = this.trace.tokens(sequence, grouping);
    const at = value === null ? (by > 0 ? -1 : groups.length) : this.trace.groupOf(sequence, grouping, value);
    const next = groups[at + by];
    if (!next) return;
    this.choose({ [name]: next.first, "x.side": name === "key" && this.store.get("token") === null ? "key" : null });
    this.refresh().then(() => {
      this.revealChosen();
      this.announce(this.view().summary?.() ?? "");
    });
  }

  nextGrouping() {
    const { block, grouping } = this.store.state;
    const all = this.trace.groupings(block);
    this.store.set({ grouping: all[(all.indexOf(grouping) + 1) % all.length] });
  }

  escape() {
    this.tooltip.hide();
    if (this.page.notes.open) this.page.notes.open = false;
    else this.choose({ token: null, key: null, "x.side": null });
  }

  // --- for tests, and for whoever wants the numbers ---

  /** The read-only object that the page offers as `window.jumok`; docs/viewer.md describes it. */
  face() {
    const shell = this;
    return Object.freeze({
      ready: this.host.ready,
      get state() {
        return { ...shell.store.state };
      },
      get views() {
        return shell.available;
      },
      get content() {
        return { ...shell.content };
      },
      get timings() {
        return { ...shell.timings };
      },
      get model() {
        return structuredClone(shell.trace.model);
      },
      get summary() {
        return shell.view().summary?.() ?? "";
      },
      tokens: (sequence = 0, grouping = "token") => structuredClone(shell.trace.tokens(sequence, grouping)),
      /** The weights of one row as the page shows them. */
      row: async (
        /** @type {string} */ block,
        /** @type {number} */ layer,
        /** @type {number} */ head,
        /** @type {number} */ query,
        grouping = "token",
      ) => {
        const { s, data } = await shell.trace.grouped(block, layer, head, grouping);
        return Array.from(data.subarray(query * s, (query + 1) * s));
      },
      /** Where a token stands in the window, scrolled to if need be: {x, y} for a pointer. */
      locate: (/** @type {any} */ what) => {
        const view = shell.view();
        const place = view.locate?.(what);
        if (!place) return null;
        const { stage } = shell.page;
        if (place.y < stage.scrollTop + 40 || place.y > stage.scrollTop + stage.clientHeight - 20) {
          stage.scrollTo(stage.scrollLeft, Math.max(0, place.y - stage.clientHeight / 2));
        }
        const box = stage.getBoundingClientRect();
        return { x: box.left + place.x - stage.scrollLeft, y: box.top + place.y - stage.scrollTop };
      },
    });
  }
}
