// Byte pair encoding: the pair that was learned first is joined first, the leftmost of several.

/** @typedef {{rank: number, id: number}} Merge what a pair of ids becomes, and when it was learned. */

/** The merges of a tokenizer. */
export class BytePairs {
  /**
   * @param {Map<string, number>} vocab
   * @param {(string | [string, string])[]} merges in the order in which they were learned.
   */
  constructor(vocab, merges) {
    /** @type {Map<number, Map<number, Merge>>} by the left id, then by the right one */
    this.found = new Map();
    merges.forEach((merge, rank) => {
      const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
      const [leftId, rightId, id] = [vocab.get(left), vocab.get(right), vocab.get(left + right)];
      if (leftId === undefined || rightId === undefined || id === undefined) return;
      if (!this.found.has(leftId)) this.found.set(leftId, new Map());
      this.found.get(leftId)?.set(rightId, { rank, id });
    });
  }

  /** Join the ids of one piece. @param {number[]} ids @returns {number[]} */
  join(ids) {
    // A list with links, and a heap of the pairs that can be joined: n log n steps, so that a piece of 100,000
    // characters is no trap.
    const count = ids.length;
    const current = Int32Array.from(ids);
    const next = Int32Array.from(ids, (_, at) => (at + 1 < count ? at + 1 : -1));
    const previous = Int32Array.from(ids, (_, at) => at - 1);
    const heap = new PairHeap();
    /** @param {number} at */
    const offer = (at) => {
      const right = at < 0 ? -1 : next[at];
      const merge = right < 0 ? undefined : this.found.get(current[at])?.get(current[right]);
      if (merge) heap.push({ rank: merge.rank, at, left: current[at], right: current[right], id: merge.id });
    };
    for (let at = 0; at < count; at += 1) offer(at);
    for (let pair = heap.pop(); pair; pair = heap.pop()) {
      const { at, left, right, id } = pair;
      const gone = next[at];
      if (current[at] !== left || gone < 0 || current[gone] !== right) continue; // one of the two was joined already
      current[at] = id;
      current[gone] = -1;
      next[at] = next[gone];
      if (next[at] >= 0) previous[next[at]] = at;
      offer(previous[at]);
      offer(at);
    }
    return Array.from(current.filter((id) => id >= 0));
  }
}

/** @typedef {{rank: number, at: number, left: number, right: number, id: number}} Pair */

/** A binary heap of pairs, the lowest rank and then the leftmost first. */
class PairHeap {
  constructor() {
    /** @type {Pair[]} */
    this.pairs = [];
  }

  /** @param {Pair} pair */
  push(pair) {
    const { pairs } = this;
    let at = pairs.length;
    pairs.push(pair);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(pair, pairs[parent])) break;
      pairs[at] = pairs[parent];
      at = parent;
    }
    pairs[at] = pair;
  }

  /** @returns {Pair | undefined} */
  pop() {
    const { pairs } = this;
    const [first] = pairs;
    const last = pairs.pop();
    if (last === undefined || !pairs.length) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= pairs.length) break;
      if (child + 1 < pairs.length && isBefore(pairs[child + 1], pairs[child])) child += 1;
      if (!isBefore(pairs[child], last)) break;
      pairs[at] = pairs[child];
      at = child;
    }
    pairs[at] = last;
    return first;
  }
}

/** @param {Pair} a @param {Pair} b */
function isBefore(a, b) {
  return a.rank < b.rank || (a.rank === b.rank && a.at < b.at);
}
