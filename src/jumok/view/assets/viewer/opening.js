// How a page opens that was not told: where there is something to see.
/** @import { Trace, Weights } from "./trace.js" */

/**
 * How much a head shows at a glance: sure of itself, and neither of the first token only nor of the token itself.
 * @param {Trace} trace @param {string} block @param {number} layer @param {number} head
 */
function headInterest(trace, block, layer, head) {
  /** @param {string} name */
  const stat = (name) => trace.stat(name, block, layer, head) ?? 0;
  const crossing = trace.queries(block) !== trace.keys(block);
  const plain = crossing ? 0 : Math.min(1, stat("first") + stat("self"));
  return Math.exp(-stat("entropy")) * (1 - plain);
}

/**
 * The block, the layer (the one asked for, if it is there), its heads in the order of their interest.
 * @param {Trace} trace @param {string|null} [block] @param {number|null} [asked]
 */
export function interestingPlace(trace, block = null, asked = null) {
  const chosen = block ?? trace.blocks[trace.blocks.length - 1];
  const present = trace.attention(chosen).layers;
  const layers = asked !== null && present.includes(asked) ? [asked] : present;
  /** @type {{sum: number, layer: number, heads: number[]}|null} */
  let best = null;
  for (const layer of layers) {
    const heads = trace
      .heads(chosen, layer)
      .map((head) => ({ head, interest: headInterest(trace, chosen, layer, head) }))
      .sort((a, b) => b.interest - a.interest);
    const sum = heads.slice(0, 3).reduce((total, { interest }) => total + interest, 0);
    if (heads.length && (!best || sum > best.sum)) best = { sum, layer, heads: heads.map(({ head }) => head) };
  }
  return { block: chosen, layer: best?.layer ?? layers[0], heads: best?.heads ?? [] };
}

/**
 * A row among the first ones whose strongest weight goes to neither the first token, nor the one before, nor itself.
 * @param {Trace} trace @param {string} block @param {Weights} weights @param {number} [rows]
 */
export function interestingToken(trace, block, weights, rows = 24) {
  const crossing = trace.queries(block) !== trace.keys(block);
  const tokens = trace.tokens(trace.queries(block));
  const { t, s, data } = weights;
  let best = Math.min(t - 1, Math.floor(Math.min(t, rows) / 2));
  let most = 0;
  for (let i = 0; i < Math.min(t, rows); i += 1) {
    if (tokens[i].special || !/[\p{L}\p{N}]/u.test(tokens[i].text)) continue;
    for (let j = 0; j < s; j += 1) {
      if (!crossing && (j === 0 || j === i || j === i - 1)) continue;
      // A sure row near the top says nothing: there is little to choose from. Later ones count for more.
      const interest = data[i * s + j] * Math.sqrt(i + 1);
      if (interest > most) {
        most = interest;
        best = i;
      }
    }
  }
  return best;
}
