// The trace a page shows: the JSON object "jumok-trace" (docs/viewer.md), checked, decoded when looked at.
// Nothing here knows about a document, so it runs wherever JavaScript runs.

import { fromBase64, inflate } from "../base/bytes.js";
import { EngineError } from "../model/errors.js";
import { groupTokens } from "./groups.js";

const TRACE_FORMAT = "jumok-trace";
const TRACE_VERSION = 3;
const GROUPINGS = /** @type {const} */ (["character", "word"]);

/**
 * @typedef {{text: string, index: number, first: number, last: number, start: number, stop: number, special: boolean,
 *   generated: boolean, piece: string|null, id: number|null}} Token a token, or a group of them
 * @typedef {{text: string, start: number, stop: number, special: boolean, piece: string|null, id: number|null}} TokenJson
 * @typedef {{name: string, text: string, prompt?: number, tokens: TokenJson[]}} Sequence
 * @typedef {{block: string, queries: number, keys: number, causal: boolean, layers: number[], heads?: number[],
 *   n_head: number, n_head_model?: number, n_kv_head?: number, t: number, s: number, bits: number, levels: number,
 *   encoding: string, weights: Packed[][], stats?: Record<string, (number|null)[][]>,
 *   error?: {max: number, relative: number, mean: number}}} Attention
 * @typedef {string | Uint8Array<ArrayBuffer> | Float32Array} Packed base64 of deflated bytes, or what the page made itself
 * @typedef {{t: number, s: number, causal: boolean, data: Float32Array, levels?: number, factors?: Float32Array,
 *   grouped?: {weights: Weights, rows: number[][], columns: number[][]}}} Weights t·s numbers, row after row. levels and
 *   factors: of the stored roots, and of each row; grouped: the weights of tokens that these are made of
 * @typedef {[id: number, text: string, p: number]} Alternative
 * @typedef {{p: number|null, rank: number|null, nats: number|null, top: Alternative[]}} Prediction
 * @typedef {{q: Float32Array, k: Float32Array, d: number, t: number, s: number, scale: number,
 *   bits: number, errors: {q: number, k: number, score: number}}} Vectors errors: how far a number may be off
 * @typedef {{head_dim?: number, scale?: number, q: Packed[], k: Packed[], q_scale?: number[],
 *   k_scale?: number[], score_error?: number[]}} NeuronsJson
 * @typedef {{block: string, layer: number, head: number, delta_nats: number}} Ablation
 * @typedef {{ko: string, en: string, code?: undefined} | {code: string, values: Record<string, unknown>}} Note
 */

/**
 * @typedef {object} TraceJson the object that docs/viewer.md describes
 * @property {string} format
 * @property {number} version
 * @property {Record<string, any>} model
 * @property {Sequence[]} sequences
 * @property {Attention[]} attentions
 * @property {{bits?: number, head_dim: number, scale: number, layers: Record<string, Record<string, NeuronsJson>>}|null} [neurons]
 * @property {{sequence: number, kind: string, tokens: (Prediction|null)[], after?: Prediction|null}|null} [predictions]
 * @property {{sequence: number, names: string[], top: Alternative[][][], p: (number|null)[][]}|null} [lens]
 * @property {{baseline_nats: number, tokens: number, ablation: Ablation[],
 *   induction: Record<string, number[][]>|null, previous: Record<string, number[][]>|null}|null} [probes]
 * @property {[label: string, p: number][]|null} [classes]
 * @property {Note[]} [notes]
 */

// What is kept decoded: enough for two layers of sixteen heads at 1,024 tokens.
const DECODED_BYTES = 160 * 2 ** 20;

/** A Trace of the JSON text, or a EngineError that a reader understands. @param {string} text */
export function readTrace(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new EngineError("error.data", { detail: messageOf(error) });
  }
  return new Trace(json);
}

const messageOf = (/** @type {unknown} */ error) => (error instanceof Error ? error.message : String(error));

/** The bytes of a part of the file. @param {Packed} packed @returns {Promise<Uint8Array<ArrayBuffer>>} */
async function unpacked(packed) {
  if (typeof packed !== "string") return /** @type {Uint8Array<ArrayBuffer>} */ (packed);
  try {
    new DecompressionStream("deflate-raw");
  } catch {
    throw new EngineError("error.stream"); // old browsers know only "deflate" and "gzip", or none
  }
  try {
    return await inflate(fromBase64(packed));
  } catch (error) {
    throw new EngineError("error.data", { detail: messageOf(error) });
  }
}

/**
 * How many keys row i of t rows may look at.
 * @param {number} i @param {number} t @param {number} s @param {boolean} causal
 */
function rowLength(i, t, s, causal) {
  return causal ? Math.max(0, Math.min(s, s - t + i + 1)) : s;
}

/**
 * The weights out of the bytes of a head, which are their roots.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {Pick<Attention, "t"|"s"|"causal"|"levels"|"encoding">} attention
 * @returns {Weights}
 */
export function decodeWeights(bytes, { t, s, causal, levels, encoding }) {
  const width = levels > 255 ? 2 : 1;
  const counts = Array.from({ length: t }, (_, i) => rowLength(i, t, s, causal));
  if (encoding !== "sqrt" || bytes.length !== width * counts.reduce((sum, count) => sum + count, 0)) {
    throw new EngineError("error.data", { detail: `${bytes.length} bytes for ${t}×${s} weights (${encoding})` });
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const data = new Float32Array(t * s);
  const factors = new Float32Array(t);
  let at = 0;
  counts.forEach((count, i) => {
    let sum = 0;
    const from = at;
    /** @param {number} place */
    const root = (place) => (width === 2 ? view.getUint16(2 * place, true) : bytes[place]);
    for (; at < from + count; at += 1) sum += root(at) ** 2;
    if (sum) for (let j = 0; j < count; j += 1) data[i * s + j] = root(from + j) ** 2 / sum;
    factors[i] = sum / levels ** 2;
  });
  return { t, s, causal, data, levels, factors };
}

/**
 * How far a weight may be off: its root was rounded to a level, and its row divided by the sum. Of groups, as their
 * weights: summed over the keys, averaged over the queries.
 * @param {Weights} weights @param {number} i @param {number} j @returns {number}
 */
export function weightError(weights, i, j) {
  const { t, s, causal, data, levels, factors, grouped } = weights;
  if (grouped) {
    const [rows, columns] = [grouped.rows[i], grouped.columns[j]];
    let sum = 0;
    for (const row of rows) for (const column of columns) sum += weightError(grouped.weights, row, column);
    return sum / rows.length;
  }
  if (!levels || !factors?.[i] || j >= rowLength(i, t, s, causal)) return 0;
  const shown = data[i * s + j];
  const root = Math.sqrt(shown * factors[i]);
  const half = 0.505 / levels; // roots were rounded in single precision
  const least = root > 1.2 / levels ? (root - half) ** 2 : 0; // a row without any root has them at its largest weights
  return Math.max((root + half) ** 2 - shown, shown - least);
}

/**
 * Weights between groups of tokens: summed over the keys of a group, averaged over its queries.
 * @param {Weights} weights @param {number[]} queryGroups @param {number} queryCount @param {number[]} keyGroups
 * @param {number} keyCount
 * @returns {Weights}
 */
export function groupWeights(weights, queryGroups, queryCount, keyGroups, keyCount) {
  const { t, s, data } = weights;
  const grouped = new Float32Array(queryCount * keyCount);
  const sizes = new Float32Array(queryCount);
  for (let i = 0; i < t; i += 1) sizes[queryGroups[i]] += 1;
  for (let i = 0; i < t; i += 1) {
    const row = queryGroups[i] * keyCount;
    const share = 1 / sizes[queryGroups[i]];
    for (let j = 0; j < s; j += 1) grouped[row + keyGroups[j]] += data[i * s + j] * share;
  }
  const members = { rows: membersOf(queryGroups, queryCount), columns: membersOf(keyGroups, keyCount) };
  return { t: queryCount, s: keyCount, causal: weights.causal, data: grouped, grouped: { weights, ...members } };
}

/** @param {number[]} groups the group of each token @param {number} count @returns {number[][]} the tokens of each group */
function membersOf(groups, count) {
  const members = Array.from({ length: count }, () => /** @type {number[]} */ ([]));
  groups.forEach((group, token) => members[group].push(token));
  return members;
}

export class Trace {
  /** @param {object} found the object of docs/viewer.md, which is checked */
  constructor(found) {
    const json = /** @type {TraceJson} */ (found);
    if (json === null || typeof json !== "object" || json.format !== TRACE_FORMAT)
      throw new EngineError("error.format");
    if (json.version !== TRACE_VERSION) {
      throw new EngineError("error.version", { version: String(json.version), known: TRACE_VERSION });
    }
    if (!Array.isArray(json.sequences) || !Array.isArray(json.attentions) || !json.attentions.length) {
      throw new EngineError("error.data", { detail: "sequences, attentions" });
    }
    for (const { block, queries, keys, t, s, layers, weights } of json.attentions) {
      const rows = json.sequences[queries]?.tokens?.length;
      const columns = json.sequences[keys]?.tokens?.length;
      if (rows !== t || columns !== s || layers?.length !== weights?.length) {
        throw new EngineError("error.data", { detail: `${block}: ${t}×${s} weights, ${rows}×${columns} tokens` });
      }
    }
    this.json = json;
    this.model = json.model;
    this.sequences = json.sequences;
    this.predictions = json.predictions ?? null;
    this.lens = json.lens ?? null;
    this.probes = json.probes ?? null;
    this.classes = json.classes ?? null;
    this.notes = json.notes ?? [];
    this.blocks = json.attentions.map(({ block }) => block);
    /** @type {Map<string, Weights>} */
    this.decoded = new Map(); // key -> weights; the order is that of the last use
    this.decodedBytes = 0;
    /** @type {Map<string, Promise<Weights>>} */
    this.decoding = new Map(); // key -> promise, so that nothing is decoded twice at once
    /** @type {Map<string, Token[]>} */
    this.tokenLists = new Map();
    /** @type {Map<string, import("./groups.js").Groups | null>} */
    this.knownGroups = new Map();
  }

  /** @param {string} block */
  attention(block) {
    const found = this.json.attentions.find((attention) => attention.block === block);
    if (!found) throw new EngineError("error.data", { detail: `block ${block}` });
    return found;
  }

  /** @param {string} block @param {number} layer @param {number} head */
  has(block, layer, head) {
    if (!this.blocks.includes(block)) return false;
    const [i, place] = this.place(block, layer, head);
    return Boolean(this.attention(block).weights[i]?.[place]);
  }

  /**
   * The heads of a layer that are in the file, by their numbers in the model.
   * @param {string} block @param {number} layer
   */
  heads(block, layer) {
    const { heads, n_head: count } = this.attention(block);
    const all = heads ?? Array.from({ length: count }, (_, head) => head);
    return all.filter((head) => this.has(block, layer, head));
  }

  /**
   * Where a layer and a head stand in the lists of a block; -1 if it is not there.
   * @param {string} block @param {number} layer @param {number} head
   */
  place(block, layer, head) {
    const { layers, heads } = this.attention(block);
    return [layers.indexOf(layer), heads ? heads.indexOf(head) : head];
  }

  /** @param {string} block */
  queries(block) {
    return this.attention(block).queries;
  }

  /** @param {string} block */
  keys(block) {
    return this.attention(block).keys;
  }

  /** The ways to group that make a difference for this block. @param {string} block */
  groupings(block) {
    const used = [this.queries(block), this.keys(block)];
    return ["token", ...GROUPINGS.filter((name) => used.some((number) => this.groups(number, name)))];
  }

  /**
   * The groups of the tokens of a sequence; null where each token is a group of its own.
   * @param {number} sequence @param {string} grouping
   */
  groups(sequence, grouping) {
    const kind = GROUPINGS.find((name) => name === grouping);
    if (!kind) return null;
    const key = `${sequence}/${kind}`;
    const known = this.knownGroups.get(key);
    if (known !== undefined) return known;
    const { text, tokens } = this.sequences[sequence];
    const found = groupTokens(text, tokens, kind);
    this.knownGroups.set(key, found);
    return found;
  }

  /** @param {number} sequence @param {string} [grouping] */
  tokens(sequence, grouping = "token") {
    const key = `${sequence}/${grouping}`;
    const known = this.tokenLists.get(key);
    if (known) return known;
    const { tokens, prompt } = this.sequences[sequence];
    const groups = this.groups(sequence, grouping);
    /** @type {Token[]} */
    let list;
    if (!groups) {
      list = tokens.map((token, index) => ({
        ...token,
        index,
        first: index,
        last: index,
        generated: index >= (prompt ?? tokens.length),
      }));
    } else {
      list = [];
      groups.numbers.forEach((group, position) => {
        const token = tokens[position];
        const entry = list[group];
        if (entry) {
          entry.last = position;
          entry.stop = Math.max(entry.stop, token.stop);
          entry.special &&= token.special;
        } else {
          list[group] = {
            index: group,
            text: groups.texts[group],
            piece: null,
            id: null,
            first: position,
            last: position,
            start: token.start,
            stop: token.stop,
            special: token.special,
            generated: position >= (prompt ?? tokens.length),
          };
        }
      });
    }
    this.tokenLists.set(key, list);
    return list;
  }

  /** @param {number} sequence @param {string} grouping @param {number} token */
  groupOf(sequence, grouping, token) {
    return this.groups(sequence, grouping)?.numbers[token] ?? token;
  }

  /**
   * The weights of one head: {t, s, causal, data (t·s, row after row)}; decoded when first asked for.
   * @param {string} block @param {number} layer @param {number} head
   */
  async weights(block, layer, head) {
    return this.peek(block, layer, head) ?? (await this.decode(block, layer, head));
  }

  /** @param {string} block @param {number} layer @param {number} head */
  decode(block, layer, head) {
    const key = `${block}/${layer}/${head}/token`;
    const running = this.decoding.get(key);
    if (running) return running;
    const work = this.inflateWeights(block, layer, head)
      .then((weights) => this.remember(key, weights))
      .finally(() => this.decoding.delete(key));
    this.decoding.set(key, work);
    return work;
  }

  /** @param {string} block @param {number} layer @param {number} head */
  async inflateWeights(block, layer, head) {
    const attention = this.attention(block);
    const [index, place] = this.place(block, layer, head);
    const packed = attention.weights[index]?.[place];
    if (!packed) throw new EngineError("error.data", { detail: `${block} ${layer}.${head}` });
    return decodeWeights(await unpacked(packed), attention);
  }

  /** @param {string} block @param {number} layer @param {number} head @param {string} grouping */
  async grouped(block, layer, head, grouping) {
    if (grouping === "token") return this.weights(block, layer, head);
    const known = this.peek(block, layer, head, grouping);
    if (known) return known;
    const weights = await this.weights(block, layer, head);
    const [queryGroups, queryCount] = this.groupNumbers(this.queries(block), grouping);
    const [keyGroups, keyCount] = this.groupNumbers(this.keys(block), grouping);
    const grouped = groupWeights(weights, queryGroups, queryCount, keyGroups, keyCount);
    return this.remember(`${block}/${layer}/${head}/${grouping}`, grouped);
  }

  /**
   * @param {number} sequence @param {string} grouping
   * @returns {[number[], number]} the group of each token, and how many groups there are
   */
  groupNumbers(sequence, grouping) {
    const list = this.tokens(sequence, grouping);
    const numbers = this.groups(sequence, grouping)?.numbers ?? list.map(({ index }) => index);
    return [numbers, list.length];
  }

  /**
   * What is decoded already, else null.
   * @param {string} block @param {number} layer @param {number} head @param {string} [grouping]
   */
  peek(block, layer, head, grouping = "token") {
    const key = `${block}/${layer}/${head}/${grouping}`;
    const found = this.decoded.get(key);
    if (!found) return null;
    this.decoded.delete(key);
    this.decoded.set(key, found);
    return found;
  }

  /** @param {string} key @param {Weights} weights */
  remember(key, weights) {
    this.forget(key);
    this.decoded.set(key, weights);
    this.decodedBytes += weights.data.byteLength;
    for (const oldest of this.decoded.keys()) {
      if (this.decodedBytes <= DECODED_BYTES || oldest === key) break;
      this.forget(oldest);
    }
    return weights;
  }

  /** @param {string} key */
  forget(key) {
    this.decodedBytes -= this.decoded.get(key)?.data.byteLength ?? 0;
    this.decoded.delete(key);
  }

  /** @param {string} block @param {number} layer */
  hasNeurons(block, layer) {
    return Boolean(this.json.neurons?.layers?.[block]?.[layer]);
  }

  /**
   * q (t, d) and k (s, d) of one head as the seam saw them, and the scale of their product; null if not in the file.
   * @param {string} block @param {number} layer @param {number} head
   */
  async neurons(block, layer, head) {
    const { neurons } = this.json;
    const stored = neurons?.layers?.[block]?.[layer];
    if (!neurons || !stored) return null;
    const d = stored.head_dim ?? neurons.head_dim;
    const scale = stored.head_dim ? d ** -0.5 : neurons.scale;
    const [, place] = this.place(block, layer, head);
    const keyPlace = Math.floor((place * stored.k.length) / stored.q.length); // grouped-query heads share keys
    if (!stored.q[place] || !stored.k[keyPlace]) return null;
    const bits = neurons.bits ?? 8;
    const [q, k] = await Promise.all([
      scaledVectors(stored.q[place], stored.q_scale?.[place] ?? 1, bits),
      scaledVectors(stored.k[keyPlace], stored.k_scale?.[keyPlace] ?? 1, bits),
    ]);
    const errors = {
      q: (stored.q_scale?.[place] ?? 0) / 2,
      k: (stored.k_scale?.[keyPlace] ?? 0) / 2,
      score: stored.score_error?.[place] ?? 0,
    };
    return { q, k, d, t: q.length / d, s: k.length / d, scale, bits, errors };
  }

  /**
   * The number in the model of the key-value head that a head uses; null where each head has its own.
   * @param {string} block @param {number} head
   */
  keyHead(block, head) {
    const { n_head_model: heads, n_kv_head: shared } = this.attention(block);
    return heads && shared && shared < heads ? Math.floor((head * shared) / heads) : null;
  }

  /** @param {string} name @param {string} block @param {number} layer @param {number} head */
  stat(name, block, layer, head) {
    const [index, place] = this.place(block, layer, head);
    return this.attention(block).stats?.[name]?.[index]?.[place] ?? null;
  }
}

/** @param {Packed} packed @param {number} scale @param {number} bits */
async function scaledVectors(packed, scale, bits) {
  if (packed instanceof Float32Array) return packed;
  const { buffer, byteOffset, length } = await unpacked(packed);
  if (bits === 8) return Float32Array.from(new Int8Array(buffer, byteOffset, length), (value) => value * scale);
  const view = new DataView(buffer, byteOffset, length);
  return Float32Array.from({ length: length / 2 }, (_, i) => view.getInt16(2 * i, true) * scale);
}
