// One step of the model taken apart, with the real numbers of the text: a flow of parts that one walks through.

import { headColour, themeColours } from "../base/colours.js";
import { chip, element } from "../base/controls.js";
import { isForeignKey, keySign } from "../base/keyboard.js";
import { t } from "../base/words.js";
import { drawAlike } from "./sampling_panel.js";
import { checksOf, checkSentence, sentences, stepData, summary } from "./step_data.js";
import { StepMap } from "./step_map.js";
import { partsOf } from "./step_parts.js";
import { Places } from "./step_places.js";
import { Player } from "./step_player.js";
import { Stage } from "./step_stage.js";

/** @typedef {import("./session.js").Session} Session */
/** @import { Step, Next } from "./engine_types.js" */
/** @import { Origin } from "./step_data.js" */

const LISTED_TOKENS = 12;
const ONE_HEAD = new Set(["qkv", "qknorm", "rotation", "scores", "scale", "softmax", "values"]);

export class StepView {
  /** @param {HTMLElement} host @param {Session} session */
  constructor(host, session) {
    this.host = host;
    this.session = session;
    this.visible = false;
    this.layer = 0;
    this.head = 0;
    /** @type {number | null} the token that is read last; null: the last one of the text */
    this.chosen = session.place ? session.place - 1 : null;
    /** @type {number | null} the key that is looked at; null: the most telling one */
    this.focus = null;
    this.part = "token";
    /** @type {{step: Step, next: Next, following: {id: number, text: string} | null, origin: Origin} | null} */
    this.result = null;
    /** @type {import("./step_data.js").StepData | null} */
    this.data = null;
    this.asked = "";
    this.known = "";
    this.working = false;
    this.darkScheme = matchMedia("(prefers-color-scheme: dark)");
    this.player = new Player((opened) => this.walked(opened));
    this.announcer = element("p", { class: "step-announcer", "aria-live": "polite" });
    this.stage = new Stage((text) => this.announce(text));
    this.places = new Places((position) => this.choosePlace(position));
    this.choosers = element("div", { class: "step-choosers" });
    this.map = new StepMap((id) => this.openPart(id));
    this.title = element("h3", { class: "step-title", tabindex: -1 });
    this.where = element("span", { class: "step-where" });
    this.counter = element("span", { class: "step-count", "aria-hidden": "true" });
    this.sentences = element("p", { class: "step-sentences" });
    this.checks = element("ul", { class: "step-checks" });
    this.status = element("p", { class: "step-status", role: "status" });
    this.hint = element("p", { class: "step-hint" });
    this.partBox = element("article", { class: "step-part" }, [
      element("div", { class: "step-head" }, [this.title, this.where, this.counter]),
      this.sentences,
      this.stage.element,
      this.checks,
    ]);
    this.body = element("div", { class: "step-body" }, [this.map.element, this.partBox]);
    this.root = element("section", { class: "step", hidden: true, tabindex: -1 }, [
      element("div", { class: "step-top" }, [this.places.element, this.choosers]),
      this.player.element,
      this.status,
      this.body,
      this.hint,
      this.stage.box,
      this.announcer,
    ]);
    this.root.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.keyed(event));
    this.host.append(this.root);
    this.unsubscribe = session.subscribe((changed) => this.changed(changed));
    this.repaint = () => this.paint();
    this.darkScheme.addEventListener("change", this.repaint);
  }

  /** Forget what is outside of the view. */
  close() {
    this.unsubscribe();
    this.stage.close();
    this.darkScheme.removeEventListener("change", this.repaint);
  }

  show() {
    this.visible = true;
    this.root.hidden = false;
    this.render();
    this.refresh();
  }

  hide() {
    this.visible = false;
    this.player.pause();
    this.root.hidden = true;
  }

  get theme() {
    const { theme } = this.session;
    return themeColours((theme === "auto" ? this.darkScheme.matches : theme === "dark") ? "dark" : "light");
  }

  get about() {
    return this.session.engine.about;
  }

  get parts() {
    const { rotary, qk_norm_eps: eps } = /** @type {import("./engine_types.js").Features} */ (this.about.features);
    return partsOf({ layer: this.layer, layers: this.about.n_layer, rotary, qkNorm: eps !== null });
  }

  /** @param {string} text */
  announce(text) {
    this.announcer.textContent = text;
  }

  // --- from a change to a picture ---

  /** @param {Set<string>} changed */
  changed(changed) {
    const has = (/** @type {string[]} */ ...names) => names.some((name) => changed.has(name));
    if (has("path")) [this.chosen, this.focus] = [null, null];
    if (has("place")) {
      const { place } = this.session;
      this.chosen = place ? place - 1 : null; // the step that predicted the token
      this.focus = null;
    }
    if (!this.visible) return;
    if (has("language", "theme")) this.render();
    if (has("path", "place", "off", "sampling", "writing") || (has("token") && !this.session.writing)) this.refresh();
  }

  /** The position in the path of the token that is read last. */
  get position() {
    const last = this.session.ids.length - 1;
    return this.chosen === null ? last : Math.min(last, Math.max(0, this.chosen));
  }

  /** Ask for the step that is chosen; while one is computed, only the last wish is remembered. */
  async refresh() {
    const { session } = this;
    const ids = session.ids.slice(0, this.position + 1);
    this.asked = JSON.stringify([ids, this.layer, session.off, this.originAt(ids.length), session.ids[ids.length]]);
    this.places.render(this.session.tree.path(), this.position);
    if (!ids.length) {
      this.result = null;
      this.known = this.asked;
      this.status.textContent = t("step.nothing");
      this.body.hidden = true;
      return;
    }
    if (this.working || this.asked === this.known) {
      if (!this.working) this.rebuilt();
      return;
    }
    this.working = true;
    if (!this.result) this.status.textContent = t("step.working");
    this.root.setAttribute("aria-busy", "true");
    try {
      while (this.asked !== this.known && this.visible) await this.compute();
    } catch (error) {
      this.failed(error);
    } finally {
      this.working = false;
      this.root.removeAttribute("aria-busy");
    }
  }

  /** How the token at a place of the path came there. @param {number} place @returns {Origin} */
  originAt(place) {
    const { tree, sampling: sliders, off } = this.session;
    const token = tree.path()[place];
    const { kind, how, start } = tree.branchAt(place);
    const picked = kind === "chosen" && place === start;
    const made = token?.draw !== undefined || how.sampling?.temperature === 0;
    if (!token || kind === "typed" || picked || !made || !how.sampling) {
      const none = { number: null, sampling: { ...sliders, seed: undefined }, others: false, heads: false };
      return { kind: !token ? "open" : picked ? "chosen" : "typed", ...none };
    }
    const { sampling } = how;
    return {
      kind: token.draw === undefined ? "greedy" : "drawn",
      number: token.draw ?? null,
      sampling,
      others: !drawAlike(sampling, sliders),
      heads: JSON.stringify(how.off ?? []) !== JSON.stringify(off),
    };
  }

  async compute() {
    const { engine } = this.session;
    const wish = this.asked;
    /** @type {[number[], number, import("./engine_types.js").Head[], Origin, number | null]} */
    const [ids, layer, off, origin, after] = JSON.parse(wish);
    const id = after ?? undefined;
    const known = this.session.tree.path()[ids.length]?.text;
    const step = await engine.step(ids, { layer, off, top: LISTED_TOKENS });
    const look = { id, number: origin.number ?? undefined };
    const next = await engine.next(ids, { off, sampling: origin.sampling, top: LISTED_TOKENS, look });
    this.known = wish;
    const text = known ?? next.ruler.find((segment) => segment.id === id)?.text ?? `#${id}`;
    this.result = { step, next, following: id === undefined ? null : { id, text }, origin };
    this.status.textContent = "";
    this.body.hidden = false;
    this.rebuilt();
  }

  /** @param {any} error */
  failed(error) {
    this.known = this.asked;
    const detail = error?.code ? t(error.code, error.values) : String(error?.message ?? error);
    this.status.textContent = t("step.failed", { detail });
    if (!error?.code) throw error;
  }

  /** New data from the step there is and what is chosen of it. */
  rebuilt() {
    if (!this.result || this.result.step.layer !== this.layer) return;
    const { about, session } = this;
    this.data = stepData({
      ...this.result,
      about,
      layerNumber: this.layer,
      headNumber: this.head,
      focus: this.focus,
      isOff: (head) => session.off.some(([layer, other]) => layer === this.layer && other === head),
      sliders: session.sampling,
      choose: (key) => {
        this.focus = key;
        this.rebuilt();
      },
    });
    this.renderChoosers();
    this.renderPart();
  }

  // --- rendering ---

  /** Everything in words, in the language and colours of the page. */
  render() {
    this.root.setAttribute("aria-label", t("step.view"));
    this.hint.textContent = t("step.keys");
    this.places.render(this.session.tree.path(), this.position);
    this.renderChoosers();
    this.renderMap();
    this.player.label();
    if (this.data) this.renderPart();
  }

  renderChoosers() {
    const { about, theme } = this;
    const chipOf = (
      /** @type {string} */ kind,
      /** @type {number} */ n,
      /** @type {boolean} */ pressed,
      /** @type {string} */ colour,
    ) => {
      const off = kind === "head" && this.session.off.some(([layer, head]) => layer === this.layer && head === n);
      return chip(String(n), colour, {
        pressed,
        off,
        id: `step-${kind}-${n}`,
        "aria-label": `${t(`step.${kind}`)} ${n}${off ? `, ${t("step.off")}` : ""}`,
        onclick: () => this.choose({ [kind]: n }),
      });
    };
    const row = (
      /** @type {"layer" | "head"} */ kind,
      /** @type {number} */ n,
      /** @type {(i: number) => string} */ colour,
    ) =>
      element("div", { class: "step-chooser", role: "group", "aria-label": t(`step.${kind}`) }, [
        element("span", { class: "control-label", text: t(`step.${kind}`) }),
        element(
          "div",
          { class: "chips" },
          Array.from({ length: n }, (_, i) => chipOf(kind, i, this[kind] === i, colour(i))),
        ),
      ]);
    this.choosers.replaceChildren(
      row("layer", about.n_layer, () => theme.accent),
      row("head", about.n_head, (head) => headColour(head, theme)),
    );
  }

  /** The parts that this model and layer have; the one that is open stays open if it can. */
  renderMap() {
    const { parts } = this;
    const at = Math.max(
      0,
      parts.findIndex(({ id }) => id === this.part),
    );
    this.part = parts[at].id;
    this.player.setParts(parts.length, at);
    this.map.render(parts, this.layer);
    this.map.mark(at);
  }

  renderPart() {
    const { part, data } = this;
    if (!data) return;
    this.title.textContent = t(`step.part.${part}`);
    this.sentences.textContent = sentences(part, data);
    this.counter.textContent = t("step.count", { n: this.player.index + 1, all: this.parts.length });
    this.renderWhere();
    this.checks.replaceChildren(
      ...checksOf(part, data).map((found) =>
        element("li", { class: found.agrees ? "agrees" : "differs", "data-check": found.word }, [
          element("span", { class: "step-verdict", text: found.agrees ? "✓" : "≠", "aria-hidden": "true" }),
          element("span", { text: checkSentence(found) }),
          element("span", { class: "step-unseen", text: t(found.agrees ? "step.check.agrees" : "step.check.differs") }),
        ]),
      ),
    );
    const shown = summary(part, data, this.stage.vectors(part, data, this.theme));
    const picture = t("step.picture", { title: t(`step.part.${part}`), summary: shown });
    this.stage.element.setAttribute("aria-label", picture);
    this.paint();
  }

  /** Which layer and head the part belongs to. */
  renderWhere() {
    const { group } = this.parts[this.player.index];
    const kind = ONE_HEAD.has(this.part) ? "head" : group === "attention" || group === "mlp" ? "layer" : null;
    this.where.textContent = kind ? t(`step.where.${kind}`, { layer: this.layer, head: this.head }) : "";
    this.where.style.borderColor = kind === "head" ? headColour(this.head, this.theme) : "";
  }

  paint() {
    if (!this.data || !this.visible) return;
    const { player, partBox } = this;
    this.stage.show(this.part, this.data, this.theme, player.shown);
    // What comes last may lie below the edge: while it plays, the picture moves up with it.
    if (player.playing) partBox.scrollTop = player.shown * (partBox.scrollHeight - partBox.clientHeight);
  }

  // --- what one does ---

  /** @param {boolean} opened */
  walked(opened) {
    if (opened) {
      this.partBox.scrollTop = 0;
      this.part = this.parts[this.player.index].id;
      this.map.mark(this.player.index);
      this.renderPart();
      this.announce(`${t(`step.part.${this.part}`)}. ${this.sentences.textContent}`);
    } else {
      this.paint();
    }
  }

  /** @param {string} id */
  openPart(id) {
    this.player.pause();
    this.player.open(this.parts.findIndex((part) => part.id === id));
  }

  /** @param {{layer?: number, head?: number, position?: number | null}} wish */
  choose({ layer = this.layer, head = this.head, position = this.chosen }) {
    const bounded = (/** @type {number} */ n, /** @type {number} */ count) => Math.min(count - 1, Math.max(0, n));
    if (position !== this.chosen) this.focus = null;
    this.layer = bounded(layer, this.about.n_layer);
    this.head = (head + this.about.n_head) % this.about.n_head;
    this.chosen = position;
    this.renderMap();
    this.renderChoosers();
    this.refresh();
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    if (isForeignKey(event) && /** @type {HTMLElement} */ (event.target).getAttribute("type") !== "range") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = /** @type {HTMLElement} */ (event.target).closest("button, summary, input");
    const actions = /** @type {Record<string, () => void>} */ ({
      p: () => this.player.move(-1),
      n: () => this.player.move(1),
      "[": () => this.choose({ layer: this.layer - 1 }),
      "]": () => this.choose({ layer: this.layer + 1 }),
      ",": () => this.choose({ head: this.head - 1 }),
      ".": () => this.choose({ head: this.head + 1 }),
      ...(onButton ? {} : { " ": () => this.player.toggle() }),
    });
    const action = actions[keySign(event)];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** @param {number} position */
  choosePlace(position) {
    this.choose({ position });
    const token = this.session.tree.path()[this.position];
    this.announce(t("step.token", { position: this.position, token: `‘${token?.text ?? ""}’` }));
  }
}
