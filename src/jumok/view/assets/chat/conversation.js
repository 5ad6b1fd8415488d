// A conversation with a model: what was said, answers as they come, and their reasoning, which is folded. With the switch
// "look inside" the tokens of the answers are coloured and can be looked at. The page gives it a model.

import { button, element } from "../base/controls.js";
import { download, figureName } from "../base/saving.js";
import { count, defineWords, t } from "../base/words.js";
import { jsonLines, messagesOf } from "./messages.js";
import { tokenCell } from "./token_cell.js";
import { words } from "./words.toml";

defineWords(words);

const NEAR = 60; // pixels from the end of the log: who reads further up is left there
const UNFOLDED = 200; // milliseconds, after which what a page shows of a token is unfolded

/** @import { Message, Piece, Turn } from "./messages.js" */

/**
 * What a page does for a conversation.
 * @typedef {object} Partner
 * @property {string} [note] of the author of the model
 * @property {(messages: Message[], how: {again: boolean, begun: number[]}, hear: (piece: Piece) => void) => Promise<{ended: string, left: number}>} answer
 * begun: the first ids of the answer. left: how many messages at the beginning were not read.
 * @property {() => void} stop
 * @property {(turn: Turn, place: number) => void} look at a token of an answer
 * @property {(text: string) => void} say
 * @property {(error: unknown) => void} failed
 */

export class Conversation {
  /** @param {Partner} partner @param {string} name of the model */
  constructor(partner, name) {
    this.partner = partner;
    this.name = name;
    this.system = "";
    /** @type {Turn[]} */
    this.turns = [];
    /** @type {{system: string, turns: Turn[]}[]} the conversations before this one */
    this.earlier = [];
    this.writing = false;
    this.inside = false; // whether the tokens of answers are shown
    this.left = 0;
    /** @type {Turn | null} the one whose question is in the field, to be said in another way */
    this.edited = null;
    this.shown = { answer: element("div"), thought: element("details"), surprise: 0 }; // the answer that is shown last
    this.log = element("div", { class: "chat-log", role: "log", tabindex: 0 });
    this.note = element("p", { class: "chat-note", role: "status" });
    this.field = element("textarea", { id: "chat-message", class: "chat-field", rows: 2, spellcheck: "false" });
    this.rules = element("textarea", {
      id: "chat-rules",
      class: "chat-field",
      rows: 2,
      oninput: () => (this.system = this.rules.value),
    });
    this.ruled = element("details", { class: "chat-system" });
    this.bar = element("div", { class: "chat-tools", role: "toolbar" });
    this.form = element("form", {
      class: "chat-form",
      onsubmit: (/** @type {Event} */ event) => this.submitted(event),
    });
    this.host = element(
      "section",
      { class: "chat", onkeydown: (/** @type {KeyboardEvent} */ event) => this.keyed(event) },
      [this.bar, this.ruled, this.log, this.note, this.form],
    );
    this.show();
  }

  // --- what stands there ---

  /** Everything, in the language of the page. */
  show() {
    const { turns, writing, edited, log, field, rules } = this;
    const idle = { disabled: writing || !turns.length };
    this.bar.replaceChildren(
      tool("inside", () => this.set({ inside: !this.inside }), { pressed: this.inside }),
      element("span", { class: "gap" }),
      tool("save", () => this.save(), { disabled: writing || !jsonLines([...this.earlier, this]) }),
      tool("new", () => this.begin(), idle),
    );
    this.ruled.replaceChildren(element("summary", { text: t("chat.system") }), rules);
    const go = t(writing ? "chat.stop" : "chat.send");
    this.form.replaceChildren(
      field,
      ...(edited ? [tool("cancel", () => this.edit(null))] : []),
      element("button", { type: "submit", id: "chat-send", class: "button primary", text: go }),
    );
    /** @type {[Element, string][]} */
    const named = [
      [log, "log"],
      [field, "message"],
      [rules, "system"],
      [this.bar, "tools"],
    ];
    for (const [part, word] of named) part.setAttribute("aria-label", t(`chat.${word}`));
    field.placeholder = t("chat.placeholder");
    rules.placeholder = t("chat.system.about");
    log.setAttribute("aria-busy", String(writing)); // an answer is read out when it is whole
    const empty = element("p", { class: "chat-empty", text: t("chat.empty") });
    const note = element("p", { class: "note", text: this.partner.note, hidden: !this.partner.note });
    log.replaceChildren(note, ...(turns.length ? turns.flatMap((turn) => this.turnOf(turn)) : [empty]));
    this.note.textContent = edited ? t("chat.edited") : this.left ? t("chat.left", { n: count(this.left) }) : "";
  }

  /** @param {{inside?: boolean, edited?: Turn | null}} fields */
  set(fields) {
    Object.assign(this, fields);
    this.show();
  }

  /** @param {Turn} turn */
  turnOf(turn) {
    const { writing, edited, turns } = this;
    const place = turns.indexOf(turn);
    const old = edited !== null && place >= turns.indexOf(edited) ? " old" : "";
    const [said, answer] = ["user", "assistant"].map((role) =>
      element("article", { class: `chat-turn ${role}${old}` }, [element("h3", { text: t(`chat.${role}`) })]),
    );
    const thought = element("details", { class: "chat-thought", hidden: true, open: turn.open }, [
      element("summary", { text: t("chat.thought") }),
    ]);
    thought.addEventListener("toggle", () => (turn.open = thought.open));
    const text = element("div", { class: "chat-text" });
    answer.append(thought, text);
    this.shown = { answer: text, thought, surprise: 0 };
    turn.pieces.forEach((piece, i) => this.put(turn, piece, i));
    if (turn.ended === "loop") answer.append(element("p", { class: "chat-cut", text: t("chat.loop") }));
    if (turn.ended === "length") answer.append(element("p", { class: "chat-cut", text: t("chat.cut") }));
    said.append(element("div", { class: "chat-text", text: turn.question }));
    if (!writing && !old) {
      said.append(tool("edit", () => this.edit(turn), { id: `chat-edit-${place}`, class: "quiet" }));
      if (place === turns.length - 1)
        answer.append(tool("again", () => void this.answer({ again: true }), { class: "quiet" }));
    }
    return [said, answer];
  }

  /** Show a token of the answer that is shown last. @param {Turn} turn @param {Piece} piece @param {number} place */
  put(turn, { text, added, thought, special, surprise }, place) {
    const { shown, inside } = this;
    const seen = shown.surprise + surprise; // with tokens before the first character that they make
    const host = thought ? shown.thought : shown.answer;
    shown.surprise = added || special ? 0 : seen;
    if (added && thought) shown.thought.hidden = false;
    if (!inside || !(added || special)) {
      host.append(added);
      return;
    }
    const look = () => {
      for (const one of this.log.querySelectorAll(".seen")) one.classList.remove("seen");
      cell.classList.add("seen");
      this.partner.look(turn, place);
      setTimeout(() => cell.scrollIntoView({ block: "nearest" }), UNFOLDED);
    };
    const cell = tokenCell(added || text, seen, look, added ? "token" : "token special");
    host.append(cell);
  }

  // --- what happens ---

  /** @param {Event} event */
  submitted(event) {
    event.preventDefault();
    if (this.writing) this.partner.stop();
    else if (this.field.value.trim()) void this.say(this.field.value);
  }

  /** Say something to the model, and let it answer. @param {string} text */
  async say(text) {
    if (this.writing) return;
    const { turns, edited } = this;
    if (edited) turns.length = turns.indexOf(edited);
    this.edited = null;
    this.field.value = "";
    turns.push({ question: text.normalize("NFC"), pieces: [], ended: "" });
    await this.answer({});
  }

  /** Put a question into the field, to say it in another way; null: leave it. @param {Turn | null} turn */
  edit(turn) {
    this.field.value = turn?.question ?? "";
    this.set({ edited: turn });
    this.field.focus();
  }

  /** Answer a question, the last one by default. @param {{again?: boolean, begun?: number[], turn?: Turn}} how begun: the ids it begins with */
  async answer({ again = false, begun = [], turn = this.turns[this.turns.length - 1] }) {
    if (this.writing) return;
    const { turns } = this;
    turns.length = turns.indexOf(turn) + 1;
    const before = { ...turn };
    Object.assign(turn, { pieces: [], ended: "" });
    this.set({ edited: null });
    this.writing = true;
    this.show();
    this.follow(true);
    try {
      const hear = (/** @type {Piece} */ piece) => {
        const near = this.isNear();
        turn.pieces.push(piece);
        this.put(turn, piece, turn.pieces.length - 1);
        this.follow(near);
      };
      const { ended, left } = await this.partner.answer(messagesOf(this.system, turns), { again, begun }, hear);
      turn.ended = ended;
      this.left = left;
    } catch (error) {
      this.partner.failed(error);
      if (!turn.pieces.length && before.pieces.length) Object.assign(turn, before);
      else if (!turn.pieces.length) this.field.value = /** @type {Turn} */ (turns.pop()).question;
    } finally {
      const near = this.isNear();
      this.writing = false;
      this.show();
      this.follow(near);
    }
  }

  /** Whether the end of the log is in sight. */
  isNear() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  /** Keep the end of the log in sight. @param {boolean} near whether it was */
  follow(near) {
    if (near) this.log.scrollTop = this.log.scrollHeight;
  }

  /** Begin another conversation; this one stays for the file. */
  begin() {
    this.earlier.push({ system: this.system, turns: this.turns });
    this.turns = [];
    this.left = 0;
    this.edit(null);
  }

  /** @param {KeyboardEvent} event */
  keyed(event) {
    const { field, turns, writing, edited } = this;
    if (event.isComposing) return;
    if (event.key === "Escape" && writing) this.partner.stop();
    else if (event.key === "Escape" && edited) this.edit(null);
    else if (event.target !== field) return;
    else if (event.key === "Enter" && !event.shiftKey) this.form.requestSubmit();
    else if (event.key === "ArrowUp" && !field.value && turns.length && !writing) this.edit(turns[turns.length - 1]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  save() {
    const file = figureName(["jumok", this.name, "chat"], "jsonl");
    download(new Blob([jsonLines([...this.earlier, this])], { type: "application/jsonl" }), file);
    this.partner.say(t("chat.saved", { file }));
  }
}

/** @param {string} name @param {() => void} onclick @param {import("../base/controls.js").Attributes & {pressed?: boolean, class?: string}} [more] */
function tool(name, onclick, more = {}) {
  return button(t(`chat.${name}`), { id: `chat-${name}`, title: t(`chat.${name}.about`), onclick, ...more });
}
