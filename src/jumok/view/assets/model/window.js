/**
 * Reading a text that grows, is changed, and passes the context: the window of it that a model sees
 * (`jumok.inference.window`), and a cache that keeps what two calls have in common at their beginning.
 */

/** @typedef {import("./blocks.js").Options} Options */
/** @typedef {import("./gpt.js").GPT} GPT */

/**
 * Where the window begins that a model sees of `length` ids: 0 while all of them fit; then it moves on by half a
 * context at a time.
 * @param {number} length @param {number} context @returns {number}
 */
export function windowStart(length, context) {
  const stride = Math.max(1, Math.floor(context / 2));
  return Math.ceil(Math.max(0, length - context) / stride) * stride;
}

/** The last text that a GPT has read, and its keys and values. */
export class Reading {
  /** @param {GPT} model */
  constructor(model) {
    this.model = model;
    this.cache = model.newCache({ lasting: true });
    /** @type {number[]} */
    this.held = []; // the ids whose keys and values are in the cache
    this.off = "[]";
  }

  /**
   * The logits of the token after a text, of which the model sees the window.
   * @param {ArrayLike<number>} ids one or more
   * @param {Options} [options] with `record`, only the last id is recorded
   * @returns {Float32Array} (V)
   */
  next(ids, options = {}) {
    const rest = this.prepare(ids, options, Infinity);
    const { record, ...plain } = options;
    if (!record || rest.length === 1) return this.model.read(rest, this.cache, options);
    this.model.read(rest.slice(0, -1), this.cache, plain);
    return this.model.read(rest.slice(-1), this.cache, options);
  }

  /**
   * Read a part of a text, so that a long one does not take long at a time. `next` reads the remainder.
   * @param {ArrayLike<number>} ids
   * @param {number} most ids to read
   * @param {Options} [options]
   * @returns {boolean} whether there is more to read before `next` has only the last id to read
   */
  readPart(ids, most, options = {}) {
    const part = this.prepare(ids, options, most);
    if (part.length) this.model.read(part, this.cache, options);
    return windowStart(ids.length, this.model.config.context_length) + this.held.length < ids.length - 1;
  }

  /**
   * Truncate the cache to what this text has in common with the last one.
   * @param {ArrayLike<number>} ids @param {Options} options
   * @param {number} most Infinity: all ids, of which the last one is always read, for its logits
   * @returns {number[]} the ids to read next
   */
  prepare(ids, { off = [] }, most) {
    const window = Array.prototype.slice.call(ids, windowStart(ids.length, this.model.config.context_length));
    if (JSON.stringify(off) !== this.off) [this.held, this.off] = [[], JSON.stringify(off)]; // other keys and values
    let common = 0;
    while (common < window.length - 1 && common < this.held.length && window[common] === this.held[common]) common++;
    this.cache.truncate(common);
    const rest =
      most === Infinity ? window.slice(common) : window.slice(common, Math.min(common + most, window.length - 1));
    this.held = [...window.slice(0, common), ...rest];
    return rest;
  }
}
