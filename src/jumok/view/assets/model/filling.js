// Fill-mask, as `jumok.inference.fill_mask`: the mask with the most confident prediction is filled first, and the
// others are then predicted again with that token in place.

import { EngineError } from "./errors.js";
import { Framing } from "./framing.js";
import { likeliest, softmax } from "./sampling.js";
import { Turns } from "./turns.js";

/** @typedef {import("./token_text.js").TokenNames} TokenNames */
/** @typedef {{id: number, text: string, probability: number}} Candidate */

/** Fills masks with one BERT. */
export class Filling {
  /** @param {import("./bert.js").BERT} model @param {TokenNames} reader */
  constructor(model, reader) {
    const { tokenizer } = reader;
    const mask = tokenizer.role("mask");
    if (!mask) throw new EngineError("engine.no_masks");
    this.model = model;
    this.reader = reader;
    this.tokenizer = tokenizer;
    this.mask = mask;
    this.framing = new Framing(model.config);
    /** @type {boolean[]} of each id, whether it is a space with a word or a part of one; only those of bpe can be */
    this.spaced = tokenizer.bytes.map((bytes) => tokenizer.kind === "bpe" && bytes[0] === 0x20 && bytes.length > 1);
  }

  /** The ids of a text with masks, where the masks are, and whether a space stands before each. @param {string} text */
  draft(text) {
    const parts = text.split(this.mask.name);
    const hasSpaced = this.spaced.includes(true);
    /** @type {number[]} */
    const ids = [];
    /** @type {{place: number, spaced: boolean}[]} */
    const masks = [];
    parts.forEach((part, i) => {
      const spaced = i + 1 < parts.length && part.endsWith(" ") && hasSpaced;
      for (const id of this.tokenizer.encode(spaced ? part.slice(0, -1) : part)) ids.push(id);
      if (i + 1 === parts.length) return;
      masks.push({ place: ids.length, spaced });
      ids.push(this.mask.id);
    });
    return { ids, masks };
  }

  /**
   * @param {string} text @param {{top?: number}} [settings]
   * @returns {Promise<import("../page/engine_types.js").Filled>}
   */
  async fill(text, { top = 5 } = {}) {
    const { ids, masks } = this.draft(text);
    if (!masks.length) throw new EngineError("engine.no_mask_in_text", { mask: this.mask.name });
    const turns = new Turns();
    /** @type {Map<number, Candidate[]>} by the number of the mask */
    const found = new Map();
    while (found.size < masks.length) {
      /** @type {{mask: number, surest: number, shares: Float32Array}} */
      let best = { mask: -1, surest: -1, shares: new Float32Array(0) };
      for (const [mask, { place, spaced }] of masks.entries()) {
        if (found.has(mask)) continue;
        await turns.pause();
        const shares = this.shares(ids, place, spaced);
        const surest = Math.max(...likeliest(shares, 1).map((id) => shares[id]));
        if (surest > best.surest) best = { mask, surest, shares };
      }
      const candidates = likeliest(best.shares, top)
        .filter((id) => best.shares[id] >= 0)
        .map((id) => ({ id, text: this.reader.name(id), probability: best.shares[id] }));
      found.set(best.mask, candidates);
      ids[masks[best.mask].place] = candidates[0].id;
    }
    let from = 0;
    const filled = masks.map((_, mask) => {
      const start = text.indexOf(this.mask.name, from);
      from = start + this.mask.name.length;
      return { start, end: from, candidates: found.get(mask) ?? [] };
    });
    return { text: this.tokenizer.decode(ids), masks: filled };
  }

  /**
   * The probabilities of what may stand at a mask, -1 for what may not, from a window that has it in the middle: (V).
   * @param {number[]} ids @param {number} place
   * @param {boolean} spaced whether the token must begin with a space
   */
  shares(ids, place, spaced) {
    const { room, before } = this.framing;
    const start = Math.min(Math.max(0, place - Math.floor(room / 2)), Math.max(0, ids.length - room));
    const window = this.framing.frame(ids.slice(start, start + room));
    const logits = this.model.predict(window, [place - start + before.length]).subarray(0, this.tokenizer.vocabSize);
    if (!logits.every(Number.isFinite)) throw new EngineError("engine.not_finite");
    const shares = softmax(logits);
    const { specialIds } = this.tokenizer;
    for (let id = 0; id < shares.length; id += 1) if (specialIds.has(id) || this.spaced[id] !== spaced) shares[id] = -1;
    return shares;
  }
}
