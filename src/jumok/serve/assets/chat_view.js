// A conversation with a model of the server that has a chat template.

import { choice, element } from "../../view/assets/base/controls.js";
import { t } from "../../view/assets/base/words.js";
import { Conversation } from "../../view/assets/chat/conversation.js";
import { readable, sharesOf } from "./column.js";
import { settingFields } from "./fields.js";
import { ask, listen } from "./server.js";

const LIKELY = 8; // candidates that are asked for with each token
const SEEDS = 2 ** 31;

/** @typedef {import("./shell.js").Shell} Shell */
/** @typedef {import("./column.js").Model} Model */
/** @typedef {import("../../view/assets/chat/messages.js").Piece} Piece */
/** @typedef {import("../../view/assets/chat/conversation.js").Partner} Partner */

export class ChatView {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name the model to begin with; "": the first one */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.settings = { tokens: 400, temperature: 0.6, top_p: 1, seed: 7 };
    /** @type {Model[]} */
    this.models = [];
    this.writing = new AbortController();
    this.detail = element("section", { class: "box candidates-box", hidden: true, role: "status" });
    /** @type {Conversation | null} */
    this.conversation = null;
    void shell.trying(async () => {
      const { data } = await ask("models");
      this.models = data.filter((/** @type {Model} */ { chat }) => chat);
      const first = this.models.find(({ id }) => id === name) ?? this.models[0];
      if (first) this.choose(first.id);
      else this.show();
    });
  }

  close() {
    this.writing.abort();
  }

  /** Begin a conversation with a model. @param {string} model */
  choose(model) {
    this.close();
    /** @type {Partner} */
    const partner = {
      answer: (messages, { again }, hear) => this.answer({ model, messages }, again, hear),
      stop: () => this.writing.abort(),
      look: (turn, place) => this.look(turn.pieces[place]),
      say: (text) => this.shell.say(text),
      failed: (error) => void this.shell.trying(() => Promise.reject(error)),
    };
    this.conversation = new Conversation(partner, model);
    this.show();
    if (document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches)
      this.conversation.field.focus({ preventScroll: true });
  }

  show() {
    const { conversation } = this;
    this.host.classList.toggle("talking", conversation !== null);
    this.detail.hidden = true;
    if (!conversation) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("chat.none") }));
      return;
    }
    const options = this.models.map(({ id }) => [id, id]);
    const change = (/** @type {string} */ id) => this.choose(id);
    const which = choice(t("write.model"), options, conversation.name, change, { id: "model-0" });
    const drawn = element("details", { class: "settings" }, [
      element("summary", { text: t("chat.settings") }),
      element("div", { class: "line" }, settingFields(this.settings)),
    ]);
    this.host.replaceChildren(
      element("div", { class: "line" }, [which, drawn]),
      element("div", { class: "talk" }, [element("section", { class: "box" }, [conversation.host]), this.detail]),
    );
    conversation.show();
  }

  /** @param {object} asked @param {boolean} again @param {(piece: Piece) => void} hear @returns {ReturnType<Partner["answer"]>} */
  async answer(asked, again, hear) {
    const { tokens, seed, ...sampling } = this.settings;
    this.writing = new AbortController();
    const { signal } = this.writing;
    let ended = "stop";
    const drawn = { ...sampling, max_tokens: tokens, seed: again ? Math.floor(Math.random() * SEEDS) : seed };
    const body = { ...asked, ...drawn, stream: true, logprobs: true, top_logprobs: LIKELY };
    this.detail.hidden = true;
    try {
      const take = (/** @type {any} */ { choices: [one] }) => {
        if (!one || signal.aborted) return;
        ended = one.stop_reason ?? one.finish_reason ?? ended;
        for (const piece of piecesOf(one)) hear(piece);
      };
      await listen("chat/completions", body, take, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    return { ended, left: 0 };
  }

  /** Show what else might have come in place of a token. @param {Piece} piece */
  look({ text, alternatives = [] }) {
    this.detail.hidden = false;
    this.detail.replaceChildren(
      element("h3", { text: t("write.candidates", { token: readable(text) }) }),
      sharesOf(/** @type {[string, number][]} */ (alternatives), text),
    );
  }
}

/** The tokens of a part of an answer. Of those that arrive together the last one has their text. @param {any} choice @returns {Piece[]} */
function piecesOf({ delta, logprobs, finish_reason: ended }) {
  const { content = "", reasoning_content: thought = "" } = delta;
  /** @type {Piece[]} */
  const pieces = (logprobs?.content ?? []).map((/** @type {any} */ { token, logprob, top_logprobs }) => ({
    text: token,
    added: "",
    surprise: -logprob,
    alternatives: top_logprobs.map((/** @type {any} */ one) => [one.token, Math.exp(one.logprob)]),
  }));
  const last = pieces.pop();
  if (!last) return [];
  if (!content && !thought) return [...pieces, { ...last, special: ended === "stop" }];
  if (thought && content) pieces.push({ text: "", added: thought, thought: true, surprise: 0 });
  return [...pieces, { ...last, added: content || thought, thought: !content }];
}
