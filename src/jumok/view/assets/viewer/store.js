// What is chosen on the page: one flat object, known to all views and kept in the link.

export const VIEWS = ["heads", "model", "neurons", "matrix", "text", "cross"];

/**
 * @typedef {object} Chosen what every view knows of
 * @property {string} view
 * @property {string} block
 * @property {number} layer
 * @property {number} head
 * @property {number[]} heads
 * @property {number|null} token
 * @property {number|null} key
 * @property {string} grouping
 * @property {string} language
 * @property {string} theme
 * @property {string} sort
 * @property {number[]|null} zoom
 */
/** @typedef {Chosen & {"x.side"?: string | null}} State with the views' own fields */
/** @typedef {(state: State, changed: Set<string>) => void} Subscriber */
/** @typedef {(next: State, previous: State) => State} Guard */
/** @typedef {{write: (value: any) => string, read: (text: string) => unknown}} Field */

// How each field is written into a link, and read from it; a value that makes no sense is left out.
/** @type {Field} */
const numberField = {
  write: (value) => String(value),
  read: (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined),
};
// A token may be chosen or not, and a link says which: without a word of it the page would choose one itself.
/** @type {Field} */
const tokenField = {
  write: (value) => (value === null ? "" : String(value)),
  read: (text) => (text === "" ? null : numberField.read(text)),
};
/** @type {Field} */
const numbersField = {
  write: (values) => values.map((/** @type {number} */ value) => Number(value.toPrecision(6))).join(","),
  read: (text) => {
    const values = text.split(",").map(Number);
    return values.every(Number.isFinite) ? values : undefined;
  },
};
/** @type {Field} */
const rangesField = {
  write: (values) => {
    /** @type {number[][]} */
    const parts = [];
    for (const value of values) {
      const last = parts.at(-1);
      if (last && last[1] === value - 1) last[1] = value;
      else parts.push([value, value]);
    }
    return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
  },
  read: (text) => {
    if (text === "") return [];
    // Bounded: a link written by somebody else must not fill the memory.
    if (!/^\d{1,3}(-\d{1,3})?(,\d{1,3}(-\d{1,3})?){0,99}$/.test(text)) return undefined;
    const values = text.split(",").flatMap((part) => {
      const [from, to = from] = part.split("-").map(Number);
      return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);
    });
    return [...new Set(values)].sort((a, b) => a - b);
  },
};
/** @type {(...allowed: string[]) => Field} */
const oneOfField = (...allowed) => ({ write: String, read: (text) => (allowed.includes(text) ? text : undefined) });

/** @type {Record<string, Field>} */
const STATE_FIELDS = {
  view: oneOfField(...VIEWS),
  block: oneOfField("self", "encoder", "decoder", "cross"),
  layer: numberField,
  head: numberField,
  heads: rangesField,
  token: tokenField,
  key: tokenField,
  grouping: oneOfField("token", "character", "word"),
  language: oneOfField("ko", "en"),
  theme: oneOfField("auto", "light", "dark"),
  sort: oneOfField("order", "entropy", "distance", "first", "previous"),
  zoom: numbersField,
};

/** @type {State} */
const INITIAL_STATE = {
  view: "heads",
  block: "self",
  layer: 0,
  head: 0,
  heads: [],
  token: null,
  key: null,
  grouping: "token",
  language: "en",
  theme: "auto",
  sort: "order",
  zoom: null,
};

const equalValues = (/** @type {unknown} */ a, /** @type {unknown} */ b) =>
  a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((value, i) => value === b[i]));

export class Store {
  /** @param {Partial<State>} [values] @param {Guard} [guard] makes a state fit the data, before anyone hears of it */
  constructor(values = {}, guard = (next) => next) {
    this.guard = guard;
    this.values = Object.freeze(guard({ ...INITIAL_STATE, ...values }, INITIAL_STATE));
    /** @type {Set<Subscriber>} */
    this.subscribers = new Set();
  }

  get state() {
    return this.values;
  }

  /** @template {keyof State} Name @param {Name} name @returns {State[Name]} */
  get(name) {
    return this.values[name];
  }

  /**
   * Change fields; those who subscribed hear of it once, with the names of what really changed.
   * @param {Partial<State>} patch
   */
  set(patch) {
    const next = this.guard({ ...this.values, ...patch }, this.values);
    const names = /** @type {(keyof State)[]} */ (Object.keys(next)).filter(
      (name) => !equalValues(this.values[name], next[name]),
    );
    if (!names.length) return;
    /** @type {Set<string>} */
    const changed = new Set(names);
    this.values = Object.freeze(next);
    for (const subscriber of [...this.subscribers]) subscriber(this.values, changed);
  }

  /** @param {Subscriber} subscriber */
  subscribe(subscriber) {
    this.subscribers.add(subscriber);
    return () => this.subscribers.delete(subscriber);
  }

  /** The state as the part of a link after "#"; fields named "x." are a view's own. */
  hash() {
    const parts = new URLSearchParams();
    for (const [name, value] of Object.entries(this.values)) {
      const field = STATE_FIELDS[name];
      if (value === undefined || (value === null && field !== tokenField)) continue;
      if (field) parts.set(name, field.write(value));
      else if (name.startsWith("x.")) parts.set(name, JSON.stringify(value));
    }
    return parts.toString().replaceAll("%2C", ",");
  }

  /** The fields that a link holds, as a patch for `set`. @param {string} hash @returns {Partial<State>} */
  read(hash) {
    /** @type {Record<string, any>} */
    const patch = {};
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      if (Object.hasOwn(STATE_FIELDS, name)) {
        const value = STATE_FIELDS[name].read(text);
        if (value !== undefined) patch[name] = value;
      } else if (/^x\.\w+$/.test(name)) {
        try {
          const value = JSON.parse(text);
          if (value === null || ["string", "number", "boolean"].includes(typeof value)) patch[name] = value;
        } catch {
          // written by hand or cut off: the view opens as if it were not there
        }
      }
    }
    return patch;
  }
}
