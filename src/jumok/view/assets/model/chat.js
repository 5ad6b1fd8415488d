// A conversation as the ids of the chat template of jumok, as `jumok.tokenizers.ChatTemplate` encodes it, and the parts
// of an answer, as `jumok.inference.chat` divides it.

import { EngineError } from "./errors.js";

/** @typedef {import("../page/engine_types.js").Message} Message */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

const ANSWER_SHARE = 4; // of the context, at least a quarter is left for the answer if it may be so long
const [OPEN, CLOSE, END] = ["<think>", "</think>", "<|end|>"];
const SPACE = "[\\p{White_Space}\\x1c-\\x1f]"; // as str.strip of Python has it
const START = new RegExp(`^${SPACE}+`, "u");

/** The chat template of a tokenizer. */
export class Chat {
  /** @param {Record<string, number>} tokens of the template @param {Tokenizer} tokenizer */
  constructor(tokens, tokenizer) {
    this.tokens = tokens;
    this.tokenizer = tokenizer;
    const longestFirst = Object.keys(tokens).sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map((token) => token.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    this.control = new RegExp(`(${escaped.join("|")})`, "u");
    this.controlIds = new Set(Object.values(tokens));
    this.open = tokens[OPEN];
    this.close = tokens[CLOSE];
    this.end = tokens[END];
    this.silent = new Set([...tokenizer.specialIds, this.end, this.open, this.close]);
  }

  /**
   * The texts of a conversation up to where its answer begins, and whether a message has each.
   * @param {Message[]} messages @returns {[string, boolean][]}
   */
  parts(messages) {
    /** @type {[string, boolean][]} */
    const parts = [];
    for (const { role, content, reasoning_content: thought } of messages) {
      parts.push([`<|${role}|>\n`, false]);
      if (thought) parts.push([OPEN, false], [thought, true], [CLOSE, false]);
      parts.push([content, true], [`${END}\n`, false]);
    }
    return [...parts, ["<|assistant|>\n", false]];
  }

  /**
   * The ids of a conversation. What looks like a special token in a message is ordinary text, encoded by itself.
   * @param {Message[]} messages @returns {number[]}
   */
  encode(messages) {
    /** @type {{ordinary: boolean, parts: (string | number)[]}[]} */
    const runs = [];
    for (const [text, isMessage] of this.parts(messages)) {
      text.split(this.control).forEach((part, i) => {
        if (!part) return;
        const ordinary = isMessage && i % 2 === 1;
        if (ordinary || !runs.length || runs[runs.length - 1].ordinary) runs.push({ ordinary, parts: [] });
        runs[runs.length - 1].parts.push(i % 2 && !ordinary ? this.tokens[part] : part);
      });
    }
    return runs.flatMap(({ ordinary, parts }, number) => {
      /** @type {number[]} */
      const ids = [];
      let text = "";
      const flush = () => {
        for (const id of text ? this.encoded(text, ordinary, number > 0 && !ids.length) : []) ids.push(id);
        text = "";
      };
      for (const part of parts) {
        if (typeof part === "string") text += part;
        else {
          flush();
          ids.push(part);
        }
      }
      flush();
      return ids;
    });
  }

  /**
   * @param {string} text @param {boolean} ordinary special tokens are ordinary text
   * @param {boolean} inside without the space that some tokenizers put before a text
   * @returns {number[]}
   */
  encoded(text, ordinary, inside) {
    const encode = (/** @type {string} */ one) => this.tokenizer.encode(one, ordinary);
    let ids = encode(text);
    if (inside) {
      const [before, all] = [encode("\n"), encode(`\n${text}`)];
      if (before.every((id, i) => id === all[i])) ids = all.slice(before.length);
    }
    if (ids.some((id) => this.controlIds.has(id))) throw new EngineError("engine.special", { token: text });
    return ids;
  }

  /**
   * The ids of a conversation that leave room for an answer: whole turns at its beginning are left out.
   * @param {Message[]} messages the last one is of the user @param {number} tokens the most of the answer
   * @param {number} context @returns {{ids: number[], left: number}} left: how many messages are left out
   */
  fitting(messages, tokens, context) {
    const room = context - Math.min(tokens, Math.max(1, Math.floor(context / ANSWER_SHARE)));
    const first = messages[0].role === "system" ? 1 : 0;
    /** @type {{ids: number[], left: number} | null} */
    let found = null;
    for (let start = messages.length - 1; start >= first; start -= 1) {
      if (start > first && messages[start].role !== "user") continue;
      const ids = this.encode([...messages.slice(0, first), ...messages.slice(start)]);
      if (ids.length <= room) found = { ids, left: start - first };
      else if (found) break;
      else throw new EngineError("engine.turn_too_long", { count: ids.length, room, context });
    }
    if (!found) throw new EngineError("engine.empty_text");
    return found;
  }
}

/** Divides an answer, as its ids come, into the reasoning that may stand at its beginning, and the text. */
export class AnswerStream {
  /** @param {Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.stream = chat.tokenizer.stream();
    /** @type {"start" | "thought" | "text"} */
    this.part = "start";
    this.blank = false; // white space at the beginning of this part is dropped
    this.held = ""; // white space before it is known which part it belongs to
  }

  /** @param {number} id @returns {{added: string, thought: boolean, special: boolean}} */
  push(id) {
    const { open, close, silent } = this.chat;
    const marks = id === open || id === close;
    const special = silent.has(id);
    const found = this.divided(marks ? this.stream.finish() : special ? "" : this.stream.push(id), special);
    if (id === close && this.part === "thought") [this.part, this.blank] = ["text", true];
    if (id !== open || this.part !== "start") return found;
    [this.part, this.blank, this.held] = ["thought", true, ""];
    return { ...found, thought: true };
  }

  /** What the last tokens held back. */
  finish() {
    const found = this.divided(this.stream.finish(), false);
    return { ...found, added: found.added || this.held };
  }

  /** @param {string} text @param {boolean} special */
  divided(text, special) {
    const all = this.held + text;
    const body = all.replace(START, "");
    let added = this.blank ? body : all;
    this.held = "";
    if (body) this.blank = false;
    else if (this.part === "start") [this.held, added] = [all, ""];
    if (added && this.part === "start") this.part = "text";
    return { added, thought: this.part === "thought", special };
  }
}
