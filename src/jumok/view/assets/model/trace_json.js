// @ts-check
// A recording as the JSON object "jumok-trace" (docs/viewer.md), which the viewer's Trace reads.

import { encodeVectors, HeadRows, rootsOf, toBase64 } from "./weight_encoding.js";

/** @typedef {import("./recording.js").Recording} Recording */
/** @typedef {import("./token_text.js").Pieces} Pieces */
/** @typedef {{ko: string, en: string}} Note */
/** @typedef {{block: string, queries: number, keys: number, causal: boolean, layers: number[], heads: number, kvHeads: number, width: number}} Shape */

const GROUPINGS = ["character", "word"];
const BITS = 16; // of queries and keys
const STATISTICS = /** @type {const} */ (["entropy", "distance", "first", "previous", "self"]);

/** The attention of one kind of block, of queries that come in parts. */
export class AttentionRows {
  /** @param {Shape} shape */
  constructor(shape) {
    this.shape = shape;
    this.t = 0;
    this.s = 0;
    this.heads = shape.layers.map(() => Array.from({ length: shape.heads }, () => new HeadRows()));
    /** @type {{q: Float32Array[], k: Float32Array}[]} of each layer: (T, H, D) in parts, (S, G, D) */
    this.vectors = shape.layers.map(() => ({ q: [], k: new Float32Array(0) }));
  }

  /**
   * Add what was recorded of the next queries.
   * @param {Recording} recording
   */
  add(recording) {
    const { block, layers, heads, kvHeads, width, causal } = this.shape;
    let [t, s] = [0, 0];
    layers.forEach((layer, index) => {
      const arrays = recording.layer(layer, block);
      t = arrays.q_rotated.length / (heads * width);
      s = arrays.keys.length / (kvHeads * width);
      this.heads[index].forEach((rows, head) => {
        for (let row = 0; row < t; row += 1) {
          const from = (row * heads + head) * s;
          const place = causal ? s - t + row : row;
          const seen = arrays.weights.subarray(from, from + (causal ? place + 1 : s));
          rows.add(seen, place, !causal || place > 0 || (this.t === 0 && t === 1));
        }
      });
      this.vectors[index].q.push(arrays.q_rotated);
      this.vectors[index].k = arrays.keys;
    });
    this.t += t;
    this.s = s;
  }

  /** The entry of the list "attentions". */
  json() {
    const { block, queries, keys, causal, layers, heads, kvHeads } = this.shape;
    const every = this.heads.flat();
    const names = block === "cross" ? STATISTICS.filter((name) => name === "entropy" || name === "first") : STATISTICS;
    return {
      block,
      queries,
      keys,
      causal,
      layers,
      heads: Array.from({ length: heads }, (_, head) => head),
      n_head: heads,
      n_head_model: heads,
      n_kv_head: kvHeads,
      t: this.t,
      s: this.s,
      bits: 8,
      encoding: "sqrt-u8",
      stats: Object.fromEntries(
        names.map((name) => [name, this.heads.map((one) => one.map((rows) => rows.mean(name)))]),
      ),
      weights: this.heads.map((one) => one.map((rows) => rows.text())),
      error: {
        max: Math.max(0, ...every.map(({ error }) => error.max)),
        mean: every.reduce((sum, { error }) => sum + error.sum, 0) / Math.max(1, every.length * this.t),
      },
    };
  }

  /** Queries and keys by layer: the entry of `neurons.layers`. */
  neurons() {
    const { layers, heads, kvHeads, width } = this.shape;
    return Object.fromEntries(
      layers.map((layer, index) => {
        const { q: parts, k } = this.vectors[index];
        const joined = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
        parts.reduce((at, part) => (joined.set(part, at), at + part.length), 0);
        const q = Array.from({ length: heads }, (_, head) => encodeVectors(joined, head, heads, width));
        const keys = Array.from({ length: kvHeads }, (_, head) => encodeVectors(k, head, kvHeads, width));
        return [
          String(layer),
          {
            head_dim: width,
            q_scale: q.map(({ scale }) => scale),
            q: q.map(({ text }) => text),
            k_scale: keys.map(({ scale }) => scale),
            k: keys.map(({ text }) => text),
          },
        ];
      }),
    );
  }
}

/**
 * The newest row of each head of each layer that was recorded, as a token event has it.
 * @param {Recording} recording of one query
 * @param {Shape} shape
 * @returns {string[][]}
 */
export function newestRows(recording, { block, layers, heads }) {
  return layers.map((layer) => {
    const { weights } = recording.layer(layer, block);
    const s = weights.length / heads;
    return Array.from({ length: heads }, (_, head) => toBase64(rootsOf(weights.subarray(head * s, (head + 1) * s))));
  });
}

/**
 * @param {"text" | "source" | "target"} name
 * @param {Pieces} pieces
 * @param {number} prompt how many tokens were given
 */
export function sequenceJson(name, pieces, prompt) {
  const { text, tokens, groups, group_texts: texts } = pieces;
  const own = tokens.map((_, i) => i); // tokens that come later may need a group, even if these do not
  const shown = tokens.map((token) => token.text);
  return {
    name,
    prompt,
    tokens,
    text,
    groups: Object.fromEntries(GROUPINGS.map((kind) => [kind, groups[kind] ?? [...own]])),
    group_texts: Object.fromEntries(GROUPINGS.map((kind) => [kind, texts[kind] ?? [...shown]])),
  };
}

/**
 * The last token, what it adds to the text, and its groups: a part of a token event.
 * @param {Pieces} pieces
 * @param {string} before the text without it
 */
export function tokenJson({ text, tokens, groups, group_texts: texts }, before) {
  const last = tokens[tokens.length - 1];
  const added = text.startsWith(before) ? text.slice(before.length) : "";
  /** @param {string} kind */
  const groupOf = (kind) => groups[kind]?.[tokens.length - 1] ?? tokens.length - 1;
  return {
    token: { ...last, added },
    groups: Object.fromEntries(GROUPINGS.map((kind) => [kind, groupOf(kind)])),
    group_texts: Object.fromEntries(GROUPINGS.map((kind) => [kind, texts[kind]?.[groupOf(kind)] ?? last.text])),
  };
}

/**
 * @param {object} parts
 * @param {import("../page/engine_types.js").About} parts.about
 * @param {object[]} parts.sequences
 * @param {AttentionRows[]} parts.attentions
 * @param {object | null} parts.predictions
 * @param {Note[]} parts.notes
 */
export function traceJson({ about, sequences, attentions, predictions, notes }) {
  const { name, family, n_layer, n_head, n_kv_head, head_dim, n_embd, vocab_size, context_length, parameters } = about;
  return {
    format: "jumok-trace",
    version: 1,
    generator: "jumok page",
    model: {
      name,
      kind: about.kind === "classifier" ? (family === "bert" ? "bert" : "gpt") : about.kind,
      family,
      n_layer,
      n_decoder_layer: about.n_decoder_layer ?? null,
      n_head,
      n_decoder_head: about.n_decoder_head ?? null,
      n_kv_head,
      head_dim,
      n_embd,
      vocab_size,
      context_length,
      parameters,
    },
    sequences,
    attentions: attentions.map((one) => one.json()),
    neurons: {
      layers: Object.fromEntries(attentions.map((one) => [one.shape.block, one.neurons()])),
      bits: BITS,
      head_dim,
      scale: head_dim ** -0.5,
    },
    predictions,
    lens: null,
    probes: null,
    notes,
  };
}
