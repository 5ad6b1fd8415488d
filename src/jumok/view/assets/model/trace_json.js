// A recording as the object "jumok-trace" (docs/viewer.md), which the viewer's Trace reads. What stays in a page is not
// encoded: weights are the bytes that a file has in base64, queries and keys are floats.

import { joinBytes } from "./utf8.js";

/** @typedef {import("./recording.js").Recording} Recording */
/** @typedef {import("./token_text.js").Pieces} Pieces */
/** @typedef {{block: string, queries: number, keys: number, causal: boolean, layers: number[], heads: number, kvHeads: number, width: number}} Shape */

const LEVELS = 65_535; // of the root of a weight, as in a file with 16 bits
const RELATIVE_FROM = 0.001; // weights whose relative error is measured
const STATISTICS = /** @type {const} */ (["entropy", "distance", "first", "previous", "self"]);

/** A row of weights as integers of 16 bits: round(65,535 · sqrt(w)). @param {Float32Array} weights */
const rootsOf = (weights) => Uint16Array.from(weights, (weight) => Math.round(LEVELS * Math.sqrt(weight)));

/** The weights of one head, row by row, and the numbers of it that a trace has. */
class HeadRows {
  constructor() {
    /** @type {Uint8Array[]} */
    this.rows = []; // the bytes of the integers
    this.sums = { entropy: 0, distance: 0, first: 0, previous: 0, self: 0 };
    this.counts = { all: 0, previous: 0 };
    this.error = { max: 0, relative: 0, sum: 0 };
  }

  /**
   * @param {Float32Array} weights of one query, those that it may see
   * @param {number} place of the query among the keys
   * @param {boolean} counts whether the query had a choice
   */
  add(weights, place, counts) {
    const roots = rootsOf(weights);
    this.rows.push(new Uint8Array(roots.buffer));
    const total = roots.reduce((sum, root) => sum + root * root, 0);
    let [entropy, distance] = [0, 0];
    for (let key = 0; key < weights.length; key += 1) {
      const weight = weights[key];
      const off = Math.abs((total ? (roots[key] * roots[key]) / total : 0) - weight);
      this.error.max = Math.max(this.error.max, off);
      if (weight >= RELATIVE_FROM) this.error.relative = Math.max(this.error.relative, off / weight);
      this.error.sum += off / 2;
      if (weight > 0) entropy -= weight * Math.log(weight);
      distance += weight * Math.abs(place - key);
    }
    if (!counts) return;
    const { sums } = this;
    this.counts.all += 1;
    this.counts.previous += place > 0 ? 1 : 0;
    sums.entropy += entropy;
    sums.distance += distance;
    sums.first += weights[0];
    sums.previous += weights[place - 1] ?? 0;
    sums.self += weights[place] ?? 0;
  }

  /** The mean of a number over the queries. @param {typeof STATISTICS[number]} name */
  mean(name) {
    return this.sums[name] / Math.max(1, name === "previous" ? this.counts.previous : this.counts.all);
  }
}

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

  /** Add what was recorded of the next queries. @param {Recording} recording */
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
      bits: 16,
      levels: LEVELS,
      encoding: "sqrt",
      stats: Object.fromEntries(
        names.map((name) => [name, this.heads.map((one) => one.map((rows) => rows.mean(name)))]),
      ),
      weights: this.heads.map((one) => one.map(({ rows }) => joinBytes(rows))),
      error: {
        max: Math.max(0, ...every.map(({ error }) => error.max)),
        relative: Math.max(0, ...every.map(({ error }) => error.relative)),
        mean: every.reduce((sum, { error }) => sum + error.sum, 0) / Math.max(1, every.length * this.t),
      },
    };
  }

  /** Queries and keys by layer: the entry of `neurons.layers`. */
  neurons() {
    const { layers, heads, kvHeads, width } = this.shape;
    return Object.fromEntries(
      layers.map((layer, index) => {
        const { q, k } = this.vectors[index];
        return [layer, { head_dim: width, q: vectorsOf(q, heads, width), k: vectorsOf([k], kvHeads, width) }];
      }),
    );
  }
}

/**
 * The vectors of each head: (T, D).
 * @param {Float32Array[]} parts (T, heads, D), of which T is divided
 * @param {number} heads
 * @param {number} width D
 * @returns {Float32Array[]}
 */
function vectorsOf(parts, heads, width) {
  const rows = parts.flatMap((part) =>
    Array.from({ length: part.length / width }, (_, row) => part.subarray(row * width, (row + 1) * width)),
  );
  return Array.from({ length: heads }, (_, head) => {
    const vectors = new Float32Array((rows.length / heads) * width);
    for (let row = head; row < rows.length; row += heads) vectors.set(rows[row], ((row - head) / heads) * width);
    return vectors;
  });
}

/**
 * @param {object} parts @param {import("../page/engine_types.js").About} parts.about
 * @param {(Pieces & {name: string, prompt: number})[]} parts.sequences prompt: how many tokens were given
 * @param {AttentionRows[]} parts.attentions @param {object | null} parts.predictions
 * @param {{code: string, values: Record<string, unknown>}[]} parts.notes
 */
export function traceJson({ about, sequences, attentions, predictions, notes }) {
  return {
    format: "jumok-trace",
    version: 3,
    generator: "jumok page",
    model: about,
    sequences,
    attentions: attentions.map((one) => one.json()),
    neurons: {
      layers: Object.fromEntries(attentions.map((one) => [one.shape.block, one.neurons()])),
      bits: 32,
      head_dim: about.head_dim,
      scale: about.head_dim ** -0.5,
    },
    predictions,
    lens: null,
    probes: null,
    notes,
  };
}
