// Beam search for one source, as `jumok.inference.beam_search`: at each length the 2·beam likeliest continuations are
// candidates. Of the first `beam` of them, those that end become answers, the best `beam` of which are kept; the
// likeliest that do not end are continued. It is over when there are `beam` answers and the likeliest beam, scored as if
// it ended now, is no better than the worst of them.

import { likeliest } from "./sampling.js";

/**
 * An unfinished target. `state` is what the caller needs to continue it: its keys and values.
 * @template S
 * @typedef {{ids: number[], total: number, state: S}} Beam
 */
/** @typedef {{ids: number[], score: number, finish: "stop" | "length"}} Answer */

/**
 * @template S @param {object} search
 * @param {S} search.state of the empty target
 * @param {number} search.beams
 * @param {number} search.limit the most tokens of an answer
 * @param {number} search.end the id that ends an answer
 * @param {(beam: Beam<S>) => Float32Array | Promise<Float32Array>} search.logProbabilities of the next token, (V);
 * `state` then holds all of `ids`
 * @param {(state: S) => S} search.copy
 * @param {() => Promise<boolean>} search.pause true: stop
 * @returns {Promise<Answer[]>} the best first
 */
export async function beamSearch({ state, beams: width, limit, end, logProbabilities, copy, pause }) {
  /** @type {Answer[]} */
  const answers = [];
  /** @type {Beam<S>[]} */
  let beams = [{ ids: [], total: 0, state }];
  while (beams.length) {
    const rows = [];
    for (const beam of beams) {
      if (await pause()) return answers;
      rows.push(await logProbabilities(beam));
    }
    const length = beams[0].ids.length + 1;
    const isLast = length === limit;
    const candidates = best(beams, rows, 2 * width).map((one) => ({ ...one, ended: isLast || one.id === end }));
    for (const { beam, id, total, ended } of candidates.slice(0, width)) {
      if (!ended || !Number.isFinite(total)) continue;
      answers.push({ ids: [...beam.ids, id], score: total / length, finish: id === end ? "stop" : "length" });
      answers.sort((a, b) => b.score - a.score);
      answers.length = Math.min(answers.length, width);
    }
    const going = candidates.filter(({ ended, total }) => !ended && Number.isFinite(total)).slice(0, width);
    const improves = answers.length < width || (going.length && going[0].total / length > answers[width - 1].score);
    if (!going.length || !improves) break;
    beams = going.map(({ beam, id, total }, i) => {
      const shared = going.slice(i + 1).some((later) => later.beam === beam);
      return { ids: [...beam.ids, id], total, state: shared ? copy(beam.state) : beam.state };
    });
  }
  return answers;
}

/**
 * The likeliest continuations of some beams.
 * @template S @param {Beam<S>[]} beams
 * @param {Float32Array[]} rows (V) each
 * @param {number} count
 */
function best(beams, rows, count) {
  return beams
    .flatMap((beam, i) => likeliest(rows[i], count).map((id) => ({ beam, id, total: beam.total + rows[i][id] })))
    .sort((a, b) => b.total - a.total)
    .slice(0, count);
}
