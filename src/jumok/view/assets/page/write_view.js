// The view in which a text is written: the text, what may come next, how it is drawn, and the branches.

import { choice, element } from "../base/controls.js";
import { download, figureName } from "../base/saving.js";
import { copied } from "../base/page_chrome.js";
import { count, t } from "../base/words.js";
import { windowStart } from "../model/window.js";
import { Distribution } from "./distribution.js";
import { sumOf } from "./path.js";
import { newSeed, SamplingPanel } from "./sampling_panel.js";
import { Surface } from "./surface.js";
import { TreeView } from "./tree_view.js";
import { factsOf, legendParts, offChips, writeParts } from "./write_parts.js";
import { Writer } from "./writer.js";

/** @import { Session, Change } from "./session.js" */
/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./engine_types.js").Alternative} Alternative */

const LENGTHS = [50, 100, 200, 500, 1000, 2000]; // tokens
const FIRST_LENGTH = 200;
const LISTED = 10; // alternatives

export class WriteView {
  /** @param {HTMLElement} host @param {Session} session @param {Frame} frame */
  constructor(host, session, frame) {
    this.host = host;
    this.session = session;
    this.frame = frame;
    this.tokens = FIRST_LENGTH;
    this.surface = new Surface({ onEdit: (text) => this.writer.edited(text), onPlace: (place) => this.lookAt(place) });
    this.writer = new Writer(session, this.surface, {
      failed: (error) => frame.failed(error),
      progress: (token, figures) => this.progressed(token, figures),
      ended: (figures) => this.ended(figures),
    });
    this.distribution = new Distribution((alternative) => this.choose(alternative));
    this.sampling = new SamplingPanel(session);
    this.tree = new TreeView(session);
    this.looking = false; // a distribution is being computed
    this.stale = false; // and another one is wanted
    this.visible = false;
    this.parts = this.build();
    session.subscribe((changed) => this.changed(changed));
    this.render();
  }

  // --- what stands there ---

  build() {
    const { session, surface, tree, distribution, sampling } = this;
    const actions = {
      write: () => void this.start(),
      stop: () => void session.engine.stop(),
      edit: () => surface.edit(true),
      again: () => this.writeAgain(),
      both: () => void this.writeBoth(),
      undo: () => session.travel(-1),
      redo: () => session.travel(1),
      copy: () => void this.copy(),
      save: () => this.save(),
      link: () => void this.link(),
      before: () => this.step(-1),
      after: () => this.step(1),
    };
    const parts = writeParts(actions, {
      note: session.engine.about.note,
      surface: surface.host,
      tree: tree.host,
      distribution: distribution.host,
      sampling: sampling.host,
    });
    parts.desk.addEventListener("click", ({ target }) => {
      if (target === parts.desk) surface.field.focus();
    });
    this.host.append(parts.host);
    this.host.addEventListener("keydown", (event) => this.keyed(event));
    return parts;
  }

  /** All that depends on the language. */
  render() {
    /** @type {[number, string][]} */
    const lengths = LENGTHS.map((n) => [n, t("length.n", { n: count(n) })]);
    const set = (/** @type {number} */ n) => {
      this.tokens = n;
    };
    const named = { id: "length", "aria-label": t("length") };
    this.parts.length.replaceChildren(choice(t("length"), lengths, this.tokens, set, named));
    this.parts.legend.replaceChildren(...legendParts());
    this.frame.setWords(this.host);
    this.renderState();
    this.renderReading();
    this.sampling.show();
    void this.tree.show();
    void this.look();
  }

  /** Buttons and chips. */
  renderState() {
    const { session } = this;
    const { tools, chips, heading, facts, before, after } = this.parts;
    const { writing, off, tree } = session;
    tools.write.hidden = writing;
    tools.stop.hidden = !writing;
    tools.again.disabled = writing || tree.current.kind === "typed";
    tools.both.hidden = off.length === 0;
    tools.both.disabled = writing;
    tools.undo.disabled = writing || session.past.length === 0;
    tools.redo.disabled = writing || session.future.length === 0;
    tools.edit.disabled = writing;
    chips.hidden = off.length === 0;
    chips.replaceChildren(element("span", { class: "control-label", text: t("off.heads") }), ...offChips(session));
    const { place } = session;
    const token = place === null ? null : tree.path()[place];
    heading.textContent = token ? t("place.token", { text: token.text ?? "" }) : t("place.end");
    facts.textContent = token ? factsOf(token) : t("distribution.hint");
    before.disabled = writing || this.firstPlace() === null || place === this.firstPlace();
    after.disabled = writing || place === null;
  }

  /** @param {{tokens: number, characters: number, seconds: number} | null} [figures] */
  renderReading(figures = null) {
    const { tree, engine } = this.session;
    const context = engine.about.context_length;
    if (figures) this.rate = figures.seconds > 0 ? figures.characters / figures.seconds : 0;
    const parts = [
      t("reading.tokens", {
        n: count(tree.length - windowStart(tree.length, context)),
        all: count(tree.length),
        context: count(context),
      }),
      this.rate ? t("reading.rate", { n: count(this.rate) }) : null,
      tree.length > context ? t("reading.out") : null,
    ];
    this.parts.reading.textContent = parts.filter(Boolean).join(" · ");
  }

  // --- what happens ---

  /** @param {Set<Change>} changed */
  changed(changed) {
    const has = (/** @type {Change[]} */ ...names) => names.some((name) => changed.has(name));
    if (has("language")) {
      this.render();
      return;
    }
    if (has("writing", "off", "path", "place", "tree")) this.renderState();
    if (has("path")) this.renderReading();
    if (has("sampling")) this.sampling.show();
    if (has("tree", "path") && !this.session.writing) void this.tree.show();
    if (has("place")) this.surface.mark(this.session.place);
    if (has("path", "place", "off", "sampling", "writing")) void this.look();
  }

  /**
   * Begin as a link says, or by writing. The text that was typed stands there when this returns.
   * @param {import("./state.js").State} state
   */
  async begin({ text = "", tokens, path = [], sum }) {
    const { surface, writer } = this;
    if (text) {
      surface.pend(text);
      surface.fill();
      writer.edited(text);
      await writer.settle();
    }
    if (path.length || sum) void this.retrace(path, sum);
    else if (tokens) void writer.write({ tokens });
  }

  /** Make the text of a link again, and say if it has become another. @param {import("./path.js").Step[]} path @param {string} [sum] */
  async retrace(path, sum) {
    await this.writer.retrace(path);
    if (sum && sumOf(this.session.ids) !== sum) this.frame.toast(t("link.differs"));
  }

  /** Copy a link to what is shown, when what was typed is read. */
  async link() {
    await this.writer.settle();
    await this.frame.copyLink();
  }

  show() {
    this.visible = true;
    this.tree.draw();
    void this.look();
  }

  hide() {
    this.visible = false;
  }

  close() {
    this.surface.close();
  }

  /** Show the distribution at the place that is looked at: the last one that was wanted, one at a time. */
  async look() {
    const { session } = this;
    if (session.writing || !this.visible) return;
    this.stale = true;
    if (this.looking) return;
    this.looking = true;
    this.distribution.host.setAttribute("aria-busy", "true");
    try {
      while (this.stale && !session.writing) {
        this.stale = false;
        const { place, off, sampling } = session;
        const here = session.ids.slice(0, place ?? session.ids.length);
        const ids = here.length ? here : (await session.engine.encode("")).ids;
        const next = await session.engine.next(ids, { off, sampling, top: LISTED });
        if (this.stale || session.writing) continue;
        const chosen = place === null ? null : (session.ids[place] ?? null);
        this.distribution.show(next, { chosen, vocabulary: session.engine.about.vocab_size });
      }
    } catch (error) {
      this.frame.failed(error);
    } finally {
      this.looking = false;
      this.distribution.host.removeAttribute("aria-busy");
    }
  }

  /** @param {number | null} place */
  lookAt(place) {
    if (this.session.writing) return;
    this.session.set({ place });
    if (place !== null) this.parts.open(true);
  }

  /** The first token that is shown. @returns {number | null} */
  firstPlace() {
    const first = this.session.tree.path().findIndex(({ hidden }) => !hidden);
    return first < 0 ? null : first;
  }

  /** @param {-1 | 1} by */
  step(by) {
    const { session } = this;
    const to = (session.place ?? session.tree.length) + by;
    if (to >= session.tree.length) session.set({ place: null });
    else if (to >= (this.firstPlace() ?? Infinity)) session.set({ place: to });
  }

  /** @param {number | undefined} [seed] */
  start(seed) {
    this.frame.announce(t("announce.writing"));
    return this.writer.write({ tokens: this.tokens, seed });
  }

  /** The token that was chosen by hand at the beginning of the current branch. */
  chosenToken() {
    const { current } = this.session.tree;
    return current.kind === "chosen" ? current.tokens[0] : undefined;
  }

  /** The last branch once more, with other random numbers. */
  writeAgain() {
    const { start } = this.session.tree.current;
    void this.writer.write({ tokens: this.tokens, start, chosen: this.chosenToken(), seed: newSeed() });
  }

  /** @param {Alternative} alternative */
  choose({ id, text, probability }) {
    if (this.looking) return; // those that are shown stand at another place
    const { place, off } = this.session;
    const chosen = { id, text, probability, surprise: -Math.log(probability), under: JSON.stringify(off) };
    void this.writer.write({ tokens: this.tokens, start: place ?? undefined, chosen });
  }

  /** The same seed with all heads, and without those that are off. */
  async writeBoth() {
    const { session } = this;
    const { current } = session.tree;
    const start = current.kind === "typed" ? session.tree.length : current.start;
    const settings = {
      tokens: this.tokens,
      start,
      chosen: this.chosenToken(),
      seed: current.how.sampling?.seed ?? newSeed(),
    };
    await this.writer.write({ ...settings, off: [] });
    await this.writer.write(settings);
  }

  /** @type {import("./writer.js").Reporter["progress"]} */
  progressed(token, figures) {
    const { desk } = this.parts;
    this.renderReading(figures);
    if (token.alternatives.length && this.visible) {
      const { entropy, alternatives, id } = token;
      this.distribution.show(
        { alternatives, entropy },
        { chosen: id, vocabulary: this.session.engine.about.vocab_size, enabled: false },
      );
    }
    const end = this.surface.host.getBoundingClientRect().bottom - desk.getBoundingClientRect().bottom;
    if (end > 0 && end < desk.clientHeight / 2) desk.scrollTop += end + 40; // who reads further up is left there
  }

  /** @type {import("./writer.js").Reporter["ended"]} */
  ended(figures) {
    this.renderReading(figures);
    this.frame.announce(t("announce.written", { n: count(figures.characters) }));
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    if (event.isComposing) return;
    const command = event.ctrlKey || event.metaKey;
    const typed = this.session.tree.current.kind === "typed";
    if (event.key === "Escape" && this.session.writing) void this.session.engine.stop();
    else if (event.key === "Enter" && command && !this.session.writing) void this.start();
    else if (event.altKey && event.key === "ArrowLeft") this.step(-1);
    else if (event.altKey && event.key === "ArrowRight") this.step(1);
    else if (command && event.key.toLowerCase() === "z" && !event.shiftKey && !typed) this.session.travel(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  async copy() {
    const done = await copied(this.surface.text);
    if (!done) this.surface.field.focus();
    if (!done) this.surface.field.select();
    this.frame.toast(t(done ? "copied" : "copy.failed"));
  }

  save() {
    const file = figureName(["jumok", this.session.engine.about.name], "txt");
    download(new Blob([this.surface.text], { type: "text/plain;charset=utf-8" }), file);
    this.frame.toast(t("saved", { file }));
  }
}
