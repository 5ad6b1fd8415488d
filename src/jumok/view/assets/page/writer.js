// What happens to the text: it is typed, read, scored, written on, and its branches are walked.

import { windowStart } from "../model/window.js";
import { cellsOf, Gatherer } from "./cells.js";
import { newSeed } from "./sampling_panel.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./surface.js").Surface} Surface */
/** @import { Written, Head } from "./engine_types.js" */
/** @import { Kind, Token } from "./tree.js" */

const PAUSE = 120; // milliseconds without a key press, before a typed text is read
const LISTED = 10; // alternatives that come with a written token
const PACE = 50; // milliseconds between two drawings: each takes several, of which the model would have its share

/**
 * What the view wants to know.
 * @typedef {object} Reporter
 * @property {(error: unknown) => void} failed
 * @property {(token: Written, figures: Progress) => void} progress after each drawing, with the last token.
 * @property {(figures: Progress) => void} ended
 */

/** @typedef {{tokens: number, characters: number, seconds: number}} Progress */

export class Writer {
  /** @param {Session} session @param {Surface} surface @param {Reporter} reporter */
  constructor(session, surface, reporter) {
    this.session = session;
    this.surface = surface;
    this.reporter = reporter;
    this.turn = 0; // of showing a path
    this.typing = 0; // a timer
    /** @type {Promise<void>} */
    this.reading = Promise.resolve();
    /** @type {string | null} typed, and not read yet */
    this.wanted = null;
    session.subscribe((changed) => {
      if (changed.has("path") && !session.writing) void this.refresh();
      if (changed.has("off") && !session.writing) void this.score();
    });
  }

  /** The place of the first token that the model sees when it predicts the next one. */
  get seenFrom() {
    return windowStart(this.session.tree.length, this.session.engine.about.context_length);
  }

  /** The text was typed over. @param {string} text */
  edited(text) {
    this.wanted = text;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => void this.settle(), PAUSE);
  }

  /** Until what was typed has become tokens. @returns {Promise<void>} */
  settle() {
    clearTimeout(this.typing);
    this.reading = this.reading.then(() => this.read());
    return this.reading;
  }

  async read() {
    const { wanted, session } = this;
    if (wanted === null) return;
    try {
      const { ids, pieces } = wanted ? await session.engine.encode(wanted) : { ids: [], pieces: [] };
      if (this.wanted !== wanted) return;
      this.wanted = null;
      const [first] = session.tree.path();
      /** @type {Token[]} */
      const tokens = ids.map((id, i) => ({ id, text: pieces[i].text }));
      const begun = first?.hidden && wanted;
      session.change(() => session.tree.retype(begun ? [first, ...tokens] : tokens, begun ? undefined : wanted));
      session.tell("path", "tree");
    } catch (error) {
      this.reporter.failed(error);
    }
  }

  /** Show the text of the current path, then read it for its surprise. */
  async refresh() {
    const { session, surface } = this;
    this.turn += 1;
    const { turn } = this;
    const tokens = session.tree.path();
    try {
      const { text, pieces } = await session.engine.spell(session.ids);
      if (turn !== this.turn || this.wanted !== null || surface.composing) return;
      const hidden = tokens.filter((token) => token.hidden).length;
      const offset = hidden ? pieces[hidden - 1].end : 0;
      const seen = pieces.slice(hidden).map((one) => ({ ...one, start: one.start - offset, end: one.end - offset }));
      surface.show(text.slice(offset), cellsOf(seen, hidden), tokens);
      surface.dim(this.seenFrom);
      surface.mark(session.place);
      if (!session.writing) surface.fill();
      surface.lock();
    } catch (error) {
      this.reporter.failed(error);
    }
    if (!session.writing) await this.score();
  }

  /** Find the surprise of the tokens in the context for which it is not known. */
  async score() {
    const { session, surface, turn } = this;
    const tokens = session.tree.path();
    const under = JSON.stringify(session.off);
    const unread = tokens.slice(this.seenFrom + 1);
    if (unread.every((token) => token.under === under)) return;
    try {
      const scored = await session.engine.score(session.ids, { off: session.off, top: 0 });
      if (turn !== this.turn || session.writing || tokens !== session.tree.path()) return;
      scored.forEach((found, i) => {
        const token = tokens[i + 1];
        if (!found || token.under === under) return;
        Object.assign(token, { surprise: found.surprise, probability: found.probability, under });
      });
      surface.redress(tokens);
      session.tell("tree");
    } catch (error) {
      this.reporter.failed(error);
    }
  }

  /** The tokens that a text begins with which is empty. @returns {Promise<Token[]>} */
  async beginning() {
    const { ids, pieces } = await this.session.engine.encode("");
    return ids.map((id, i) => ({ id, text: pieces[i]?.text, hidden: true }));
  }

  /**
   * Make a text as the steps of a path say, after what is there.
   * @param {import("./path.js").Step[]} path
   */
  async retrace(path) {
    const { session } = this;
    const { tree, engine } = session;
    const used = path.flatMap((step) =>
      step.kind === "typed" ? step.ids : step.kind === "written" ? step.chosen : [],
    );
    const ids = [...new Set(used.filter((id) => id !== null && id < engine.about.vocab_size))];
    try {
      const { pieces } = await engine.spell(/** @type {number[]} */ (ids));
      const names = new Map(pieces.map(({ id, text }) => [id, text]));
      const beginning = await this.beginning();
      // From here on nothing else can come between two steps.
      for (const step of path) {
        const end = tree.length;
        if (step.kind === "written") {
          const { tokens, at: start, sampling, off } = step;
          const chosen = step.chosen === null ? undefined : { id: step.chosen, text: names.get(step.chosen) };
          if (start > end || (chosen && !names.has(chosen.id))) return;
          await this.write({ tokens, start, chosen, sampling, off });
          continue;
        }
        const [at, added] =
          step.kind === "begin" ? [0, beginning] : [step.at, step.ids.map((id) => ({ id, text: names.get(id) }))];
        if (at > end || added.some(({ text }) => text === undefined)) return;
        if (end) session.change(() => tree.branch(at, "typed"));
        for (const token of added) tree.append(token);
        session.tell("path", "tree");
      }
    } catch (error) {
      this.reporter.failed(error);
    }
  }

  /**
   * Write on, on a branch of its own.
   * @param {object} settings @param {number} settings.tokens
   * @param {number} [settings.start] from this place of the path; from its end unless given.
   * @param {Token} [settings.chosen] the first token, chosen by hand.
   * @param {number} [settings.seed]
   * @param {import("./engine_types.js").Sampling} [settings.sampling] other settings than the session's.
   * @param {Head[]} [settings.off] other heads than the session's.
   */
  async write({ tokens, start, chosen, seed, sampling: settings = this.session.sampling, off = this.session.off }) {
    const { session, surface } = this;
    if (session.writing) return;
    session.set({ writing: true, place: null });
    surface.setBusy(true);
    try {
      await this.settle();
      if (session.tree.length === 0) {
        const beginning = await this.beginning();
        session.change(() => session.tree.retype(beginning));
      }
      const sampling = { ...settings, seed: seed ?? settings.seed ?? newSeed() };
      const kind = chosen ? "chosen" : "written";
      session.change(() => session.tree.branch(start ?? session.tree.length, kind, { sampling, off }));
      if (chosen) session.append(chosen);
      session.tell("path", "tree");
      await this.refresh();
      await this.follow(tokens, sampling, off);
    } catch (error) {
      this.reporter.failed(error);
    } finally {
      await this.refresh();
      surface.setBusy(false);
      session.set({ writing: false });
      session.tell("tree");
      void this.score();
    }
  }

  /** @param {number} tokens @param {import("./engine_types.js").Sampling} sampling @param {Head[]} off */
  async follow(tokens, sampling, off) {
    const { session, surface } = this;
    /** @type {Written[]} */
    let arrived = [];
    let frame = 0;
    let timer = 0;
    let drawn = -Infinity;
    const began = performance.now();
    const last = surface.shown.at(-1)?.cell;
    const gatherer = new Gatherer(last?.to ?? session.tree.length, surface.text.length);
    for (const token of session.tree.path().slice(gatherer.from)) gatherer.push({ text: token.text ?? "", added: "" });
    const figures = { tokens: 0, characters: 0, seconds: 0 };
    const flush = () => {
      timer = 0;
      if (!arrived.length) return;
      drawn = performance.now();
      figures.tokens += arrived.length;
      figures.characters += this.add(arrived, gatherer, off);
      figures.seconds = (performance.now() - began) / 1000;
      this.reporter.progress(arrived[arrived.length - 1], figures);
      arrived = [];
    };
    try {
      await session.engine.write([...session.ids], { tokens, sampling, off, top: LISTED }, (token) => {
        arrived.push(token);
        timer ||= setTimeout(
          () => {
            frame = requestAnimationFrame(flush); // none comes while the tab sleeps; the rest then comes at once
          },
          drawn + PACE - performance.now(),
        );
      });
    } finally {
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      flush();
      this.reporter.ended(figures);
    }
  }

  /**
   * Add written tokens to the tree and to what is shown; returns how many characters that were.
   * @param {Written[]} arrived @param {Gatherer} gatherer @param {Head[]} off
   */
  add(arrived, gatherer, off) {
    const { session, surface } = this;
    const under = JSON.stringify(off);
    let characters = 0;
    const cells = arrived.flatMap((written) => {
      const { id, text, surprise, probability, entropy, draw, added } = written;
      session.tree.append({ id, text, surprise, probability, entropy, draw, under });
      const cell = gatherer.push(written);
      characters += added.length;
      return cell ? [{ cell, text: added }] : [];
    });
    surface.append(cells, session.tree.path());
    surface.dim(this.seenFrom);
    session.tell("token");
    return characters;
  }
}
