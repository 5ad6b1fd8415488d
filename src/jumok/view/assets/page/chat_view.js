// The view in which one talks with the model, and looks at the tokens of its answers.

import { Conversation } from "../chat/conversation.js";
import { messagesOf } from "../chat/messages.js";
import { button, element } from "../base/controls.js";
import { t } from "../base/words.js";
import { Distribution } from "./distribution.js";
import { newSeed, SamplingPanel } from "./sampling_panel.js";
import { factsOf, sideParts } from "./write_parts.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("../chat/messages.js").Turn} Turn */

const LISTED = 10; // alternatives

export class ChatView {
  /** @param {HTMLElement} host @param {Session} session @param {Frame} frame */
  constructor(host, session, frame) {
    const { engine } = session;
    const { about } = engine;
    this.session = session;
    this.sampling = new SamplingPanel(session);
    this.distribution = new Distribution(({ id }) => this.choose(id));
    /** @type {{turn: Turn, place: number} | null} the token that is looked at */
    this.seen = null;
    /** @type {import("../chat/messages.js").Piece[]} what an answer begins with, before the token that was picked */
    this.begun = [];
    const open = (/** @type {string} */ view) =>
      button("", { "data-word": `tab.${view}`, onclick: () => void this.follow(view, frame) });
    this.inside = element("div", { class: "row-tools" }, [open("step"), open("attention")]);
    this.side = sideParts([], [this.distribution.host, this.inside], this.sampling.host);
    this.conversation = new Conversation(
      {
        note: about.note,
        answer: (messages, how, hear) => this.answer(messages, how, hear),
        stop: () => void engine.stop(),
        look: (turn, place) => this.look(turn, place),
        say: (text) => frame.toast(text),
        failed: (error) => frame.failed(error),
      },
      about.name,
    );
    const desk = element("div", { class: "desk talk" }, [this.conversation.host]);
    host.append(element("div", { class: "write" }, [desk, this.side.host]));
    session.subscribe((changed) => {
      if (changed.has("language")) this.render();
      if (changed.has("sampling")) this.sampling.show();
    });
    frame.setWords(host);
    this.render();
  }

  render() {
    this.conversation.show();
    this.sampling.show();
    this.renderSeen();
  }

  /** The token that is looked at, and what else might have come there. */
  renderSeen() {
    const { seen, side } = this;
    const piece = seen?.turn.pieces[seen.place];
    side.heading.textContent = piece ? t("place.token", { text: piece.text }) : t("chat.inside");
    side.facts.textContent = piece ? factsOf(/** @type {any} */ (piece)) : t("chat.inside.about");
    this.inside.hidden = this.distribution.host.hidden = !piece;
    const { vocab_size: vocabulary } = this.session.engine.about;
    if (piece) this.distribution.show(/** @type {any} */ (piece), { chosen: piece.id, vocabulary });
  }

  /** @type {import("../chat/conversation.js").Partner["answer"]} */
  async answer(messages, { again, begun }, hear) {
    const { session } = this;
    const { engine, off } = session;
    this.seen = null;
    this.renderSeen();
    session.set({ writing: true, place: null });
    try {
      const { ids, left, tokens } = await engine.prompt(messages, { tokens: engine.about.context_length });
      const seed = again ? newSeed() : (session.sampling.seed ?? newSeed());
      const settings = { tokens, sampling: { ...session.sampling, seed }, off, top: LISTED, begun };
      const how = { sampling: settings.sampling, off };
      const [kept, picked] = [this.begun, begun.length - 1];
      this.begun = [];
      let place = 0;
      const { ended, rest } = await engine.write(ids, settings, (token) => {
        const { draw, how: before, picked: again } = kept[place] ?? { draw: token.draw, how, picked: place === picked };
        hear({ ...token, draw, how: before, picked: again });
        place += 1;
      });
      if (rest) hear({ text: "", added: rest, surprise: 0 });
      return { ended, left };
    } finally {
      session.set({ writing: false });
    }
  }

  /** @param {Turn} turn @param {number} place */
  look(turn, place) {
    if (this.session.writing || turn.pieces[place].id === undefined) return;
    this.seen = { turn, place };
    this.renderSeen();
    this.side.open(true);
  }

  /** Open another view at the token: the text of all views is now the conversation up to the end of its answer. @param {string} view @param {Frame} frame */
  async follow(view, frame) {
    const { session, conversation, seen } = this;
    if (!seen || session.writing) return;
    const { turn, place } = seen;
    const asked = conversation.turns.slice(0, conversation.turns.indexOf(turn));
    const messages = messagesOf(conversation.system, [...asked, { ...turn, pieces: [] }]);
    const { ids, names } = await session.engine.prompt(messages, { tokens: session.engine.about.context_length });
    const answer = turn.pieces.flatMap((one) => (one.id === undefined ? [] : [{ ...one, id: one.id }]));
    const whole = [...ids, ...answer.map(({ id }) => id)];
    if (JSON.stringify(session.ids) !== JSON.stringify(whole)) {
      session.change(() => {
        session.tree.retype(ids.map((id, i) => ({ id, text: names[i] })));
        this.branchOff(answer);
      });
    }
    session.tell("path", "tree");
    session.set({ place: ids.length + place });
    frame.open(view);
  }

  /** The tokens of an answer as branches of the text: one for each time that the model wrote on. @param {(import("../chat/messages.js").Piece & {id: number})[]} answer */
  branchOff(answer) {
    const { tree } = this.session;
    answer.forEach(({ id, text, surprise, probability, entropy, draw, how = {}, picked }, i) => {
      if (i === 0 || picked || how !== answer[i - 1].how) tree.branch(tree.length, picked ? "chosen" : "written", how);
      tree.append({ id, text, surprise, probability, entropy, draw, under: JSON.stringify(how.off ?? []) });
    });
  }

  /** Let the answer go on with another token. @param {number} id */
  choose(id) {
    if (!this.seen || this.session.writing) return;
    const { turn, place } = this.seen;
    this.begun = turn.pieces.slice(0, place);
    const begun = [...turn.pieces.slice(0, place).map((one) => /** @type {number} */ (one.id)), id];
    void this.conversation.answer({ begun, turn });
  }

  /** Begin as a link says. @param {import("./state.js").State} state */
  begin({ text = "" }) {
    if (text) void this.conversation.say(text);
  }

  /** What a link says of this view: nothing of the conversation. A question alone would be answered in another way. */
  state() {
    return {};
  }

  show() {
    if (!matchMedia("(pointer: coarse)").matches) this.conversation.field.focus({ preventScroll: true });
  }

  hide() {}
}
