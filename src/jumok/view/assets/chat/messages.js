// The turns of a conversation, and the file that they become.

/** @typedef {import("../page/engine_types.js").Message} Message */

/**
 * A token of an answer: readable, and the text that became final with it; special: of the template. A page may add what
 * it knows of the token.
 * @typedef {{text: string, added: string, thought?: boolean, special?: boolean, surprise: number, id?: number,
 *   probability?: number, entropy?: number, draw?: number, alternatives?: any[],
 *   how?: import("../page/tree.js").How, picked?: boolean}} Piece picked: chosen by hand; how: the settings that drew it
 */
/** A question and the answer to it; open: its reasoning is unfolded. @typedef {{question: string, pieces: Piece[], ended: string, open?: boolean}} Turn */

/** The text of an answer, or of its reasoning. @param {Turn} turn @param {boolean} [thought] */
export function textOf({ pieces }, thought = false) {
  const text = pieces.filter((one) => Boolean(one.thought) === thought).map(({ added }) => added);
  return thought ? text.join("").trim() : text.join("");
}

/** The messages of a conversation. @param {string} system "" for none @param {Turn[]} turns @returns {Message[]} */
export function messagesOf(system, turns) {
  /** @type {Message[]} */
  const messages = system.trim() ? [{ role: "system", content: system }] : [];
  for (const turn of turns) {
    messages.push({ role: "user", content: turn.question });
    if (!turn.pieces.length) continue;
    const thought = textOf(turn, true);
    const answer = { role: /** @type {const} */ ("assistant"), content: textOf(turn) };
    messages.push(thought ? { ...answer, reasoning_content: thought } : answer);
  }
  return messages;
}

/**
 * Conversations as JSON lines, which `jumok train --task chat` reads; turns without an answer are left out.
 * @param {{system: string, turns: Turn[]}[]} conversations
 */
export function jsonLines(conversations) {
  return conversations
    .map(({ system, turns }) => ({ system, turns: turns.filter((turn) => textOf(turn).trim()) }))
    .filter(({ turns }) => turns.length)
    .map(({ system, turns }) => `${JSON.stringify({ messages: messagesOf(system, turns) })}\n`)
    .join("");
}
