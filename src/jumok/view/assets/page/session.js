// What the views of a page share: the model, the text with its branches, the heads that are switched off, how the next
// token is drawn, the language and the theme. A view changes it by its methods, and listens to what others change.

import { Tree } from "./tree.js";

/** @import { Engine, Head, Sampling } from "./engine_types.js" */
/** @import { Branch, Token } from "./tree.js" */

/**
 * What changed. path: the text is another one; token: one was added at its end; place: the token that is looked at;
 * tree: there is another branch, or its figures are known; the others are fields.
 * @typedef {"path" | "token" | "place" | "tree" | "off" | "sampling" | "writing" | "language" | "theme"} Change
 */

/** @typedef {(changed: Set<Change>) => void} Listener */

export class Session {
  /** @param {Engine} engine @param {{language: string, theme?: string}} settings theme: "auto", "light" or "dark". */
  constructor(engine, { language, theme = "auto" }) {
    this.engine = engine;
    this.tree = new Tree();
    /** @type {Head[]} */
    this.off = [];
    /** @type {Sampling} */
    this.sampling = { ...engine.about.sampling };
    this.language = language;
    this.theme = theme;
    this.writing = false;
    /** @type {number | null} the token that is looked at, of the path; null: the one that comes next */
    this.place = null;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
    /** @type {Branch[]} */
    this.past = [];
    /** @type {Branch[]} */
    this.future = [];
    /** @type {{of: Token[] | null, ids: number[]}} */
    this.known = { of: null, ids: [] };
  }

  /** The ids of the path to the end of the current branch. Do not write to it. @returns {number[]} */
  get ids() {
    const path = this.tree.path();
    const { known } = this;
    if (known.of !== path) this.known = { of: path, ids: path.map(({ id }) => id) };
    else for (let i = known.ids.length; i < path.length; i += 1) known.ids.push(path[i].id);
    return this.known.ids;
  }

  /** Be told what changes. @param {Listener} listener @returns {() => void} ends it. */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** @param {...Change} changed */
  tell(...changed) {
    const names = new Set(changed);
    for (const listener of [...this.listeners]) listener(names);
  }

  /**
   * Set fields; listeners hear of those that are not what they were.
   * @param {{off?: Head[], sampling?: Sampling, writing?: boolean, language?: string, theme?: string, place?: number | null}} fields
   */
  set(fields) {
    /** @type {Change[]} */
    const changed = [];
    for (const [name, value] of Object.entries(fields)) {
      const field = /** @type {"off" | "sampling" | "writing" | "language" | "theme" | "place"} */ (name);
      if (JSON.stringify(this[field]) === JSON.stringify(value)) continue;
      Object.assign(this, { [field]: value });
      changed.push(field);
    }
    if (changed.length) this.tell(...changed);
  }

  /** Switch a head off, or on again. @param {number} layer @param {number} head */
  toggleHead(layer, head) {
    const others = this.off.filter(([l, h]) => l !== layer || h !== head);
    const off = others.length < this.off.length ? others : [...others, /** @type {Head} */ ([layer, head])];
    this.set({ off: off.sort((a, b) => a[0] - b[0] || a[1] - b[1]) });
  }

  /** Note where the text is, to come back to it by `undo`; then call what changes it. @param {() => void} change */
  change(change) {
    const before = this.tree.current;
    change();
    if (this.tree.current === before) return;
    this.past.push(before);
    this.future = [];
  }

  /** Go to a branch: the text is now the path to its end. @param {Branch} branch */
  go(branch) {
    if (branch === this.tree.current) return;
    this.change(() => this.tree.go(branch));
    this.place = null;
    this.tell("path", "place", "tree");
  }

  /** The text before the last branch was gone to; `step` 1 takes that back. @param {-1 | 1} step */
  travel(step) {
    const [from, to] = step < 0 ? [this.past, this.future] : [this.future, this.past];
    const branch = from.pop();
    if (!branch) return;
    to.push(this.tree.current);
    this.tree.go(branch);
    this.place = null;
    this.tell("path", "place", "tree");
  }

  /** @param {Token} token */
  append(token) {
    this.tree.append(token);
    this.tell("token");
  }
}
