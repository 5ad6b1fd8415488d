// What was typed and written, with its branches, as a tree. A branch is a run of tokens that begins at a place of the
// branch before it. The text on the page is the path from the root to the end of the current branch.

/** @import { Head, Sampling } from "./engine_types.js" */

/**
 * A token of a branch. The figures are there once the model has read the token.
 * @typedef {object} Token
 * @property {number} id
 * @property {string} [text] readable.
 * @property {boolean} [hidden] whether it stands before a text that begins empty, and is not shown.
 * @property {number} [surprise] in nats.
 * @property {number} [probability]
 * @property {string} [under] the heads that were off when these figures were found.
 * @property {number} [entropy] in nats, of the distribution it was drawn from.
 * @property {number} [draw] the random number that drew it.
 */

/** @typedef {"typed" | "written" | "chosen"} Kind chosen: its first token was chosen by hand, the rest is written. */

/** How a branch was written. @typedef {{sampling?: Sampling, off?: Head[]}} How */

export class Branch {
  /**
   * @param {number} number @param {Branch | null} parent
   * @param {number} start the place of its first token in the whole path.
   * @param {Kind} kind @param {How} how
   */
  constructor(number, parent, start, kind, how = {}) {
    this.number = number;
    this.parent = parent;
    this.start = start;
    this.kind = kind;
    this.how = how;
    /** @type {string | undefined} what was typed, if its tokens are those of a whole text */
    this.text = undefined;
    /** @type {Token[]} */
    this.tokens = [];
    /** @type {Branch[]} */
    this.children = [];
  }

  /** The length of the path to its end. */
  get end() {
    return this.start + this.tokens.length;
  }

  /** Mean surprise of its tokens in nats, NaN before the model has read them. */
  get meanSurprise() {
    const known = this.tokens.flatMap(({ surprise }) => (surprise === undefined ? [] : [surprise]));
    return known.reduce((sum, value) => sum + value, 0) / known.length;
  }
}

export class Tree {
  constructor() {
    this.made = 0;
    this.root = new Branch(0, null, 0, "typed");
    this.current = this.root;
    /** @type {Token[] | null} */
    this.cached = null;
  }

  /**
   * The tokens from the beginning to the end of a branch.
   * @param {Branch} [branch] the current one unless given.
   * @returns {Token[]} that of the current branch is kept: do not write to it.
   */
  path(branch = this.current) {
    if (branch === this.current && this.cached) return this.cached;
    /** @type {Token[][]} */
    const parts = [];
    let stop = branch.end;
    for (let at = /** @type {Branch | null} */ (branch); at; at = at.parent) {
      parts.push(at.tokens.slice(0, stop - at.start));
      stop = Math.min(stop, at.start);
    }
    const path = parts.reverse().flat();
    if (branch === this.current) this.cached = path;
    return path;
  }

  /** How many tokens the current path has. */
  get length() {
    return this.current.end;
  }

  /** The branch that a token of the current path belongs to. @param {number} place @returns {Branch} */
  branchAt(place) {
    let branch = this.current;
    while (branch.parent && place < branch.start) branch = branch.parent;
    return branch;
  }

  /**
   * Begin a branch at a place of the current path, and go to it.
   * @param {number} start how many tokens of the path it keeps.
   * @param {Kind} kind @param {How} [how] @returns {Branch}
   * @throws {RangeError} the path is shorter.
   */
  branch(start, kind, how = {}) {
    if (!(start >= 0 && start <= this.length)) throw new RangeError(`a branch at ${start} of ${this.length} tokens`);
    let parent = this.current;
    while (parent.parent && start <= parent.start) parent = parent.parent;
    const made = new Branch((this.made += 1), parent, start, kind, how);
    parent.children.push(made);
    this.go(made);
    return made;
  }

  /** Add a token at the end of the current branch. @param {Token} token */
  append(token) {
    this.current.tokens.push(token);
    this.cached?.push(token);
  }

  /** Make a branch the current one. @param {Branch} branch */
  go(branch) {
    this.current = branch;
    this.cached = null;
  }

  /**
   * The text was edited: these are its tokens now. What it shares with the path stays; the rest is a typed branch. One
   * that is being typed at the end of the tree is replaced, so that not every key press makes a branch.
   * @param {Token[]} tokens
   * @param {string} [text] of which they are all tokens.
   * @returns {number} how many tokens at the beginning stayed.
   */
  retype(tokens, text) {
    const path = this.path();
    let shared = 0;
    while (shared < path.length && shared < tokens.length && path[shared].id === tokens[shared].id) shared += 1;
    if (shared === path.length && shared === tokens.length) return shared;
    const { current } = this;
    const typing = current.kind === "typed" && current.children.length === 0 && shared >= current.start;
    if (!typing) this.branch(shared, "typed");
    this.current.tokens.splice(shared - this.current.start, Infinity, ...tokens.slice(shared));
    this.current.text = this.current.start === 0 ? text : undefined;
    this.cached = null;
    return shared;
  }

  /** The current branch and all with tokens to see, a parent before its children. @returns {Branch[]} */
  branches() {
    /** @type {Branch[]} */
    const found = [];
    const open = [this.root];
    for (let branch = open.pop(); branch; branch = open.pop()) {
      if (branch.tokens.some(({ hidden }) => !hidden) || branch === this.current) found.push(branch);
      open.push(...[...branch.children].reverse());
    }
    return found;
  }

  /**
   * Whether a branch is a part of the path to another.
   * @param {Branch} branch
   * @param {Branch} [of] the current one unless given.
   */
  leadsTo(branch, of = this.current) {
    for (let at = /** @type {Branch | null} */ (of); at; at = at.parent) if (at === branch) return true;
    return false;
  }
}
