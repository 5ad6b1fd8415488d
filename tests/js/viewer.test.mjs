// What the viewer computes: weights out of bytes, links, colours that can be read, words and numbers.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  contrast,
  headColour,
  hex,
  inkOn,
  mix,
  rgb,
  scaleTable,
  themeColours,
} from "../../src/jumok/view/assets/base/colours.js";
import {
  decimal,
  defineWords,
  percent,
  setLanguage,
  shortCount,
  signed,
  t,
} from "../../src/jumok/view/assets/base/words.js";
import { keySign } from "../../src/jumok/view/assets/base/keyboard.js";
import { groupTokens } from "../../src/jumok/view/assets/viewer/groups.js";
import { neuronExponential } from "../../src/jumok/view/assets/viewer/neuron_view.js";
import { Store } from "../../src/jumok/view/assets/viewer/store.js";
import { Trace, decodeWeights, groupWeights, weightError } from "../../src/jumok/view/assets/viewer/trace.js";

const near = (found, expected, most = 1e-6) => {
  assert.equal(found.length, expected.length);
  expected.forEach((value, i) => assert.ok(Math.abs(found[i] - value) < most, `${i}: ${found[i]}, not ${value}`));
};

const head = { t: 2, s: 2, causal: false, levels: 65_535, encoding: "sqrt" };

test("roots in bytes", () => {
  const roots = Uint8Array.from([7, 1, 3, 2, 2, 0]);
  const { data } = decodeWeights(roots, { ...head, t: 3, s: 3, causal: true, levels: 255 });
  near(data, [1, 0, 0, 0.1, 0.9, 0, 0.5, 0.5, 0]);
});

test("roots in two bytes", () => {
  const stream = new Uint8Array(2 * 4);
  const view = new DataView(stream.buffer);
  [300, 900, 0, 7].forEach((root, i) => view.setUint16(2 * i, root, true));
  near(decodeWeights(stream, head).data, [0.1, 0.9, 0, 1]);
});

test("a stream of another length or encoding is refused", () => {
  const none = { code: "error.data" };
  assert.throws(() => decodeWeights(Uint8Array.from([1]), head), none);
  assert.throws(() => decodeWeights(new Uint8Array(8), { ...head, encoding: "float16" }), none);
  assert.throws(() => new Trace({ format: "jumok-trace", version: 2 }), { code: "error.version" });
});

/** A row of random weights, rounded to levels as a file has them. @param {number} levels @param {number} sharpness */
function roundedRow(levels, sharpness) {
  const shares = Array.from({ length: 40 }, () => Math.exp(sharpness * Math.random()));
  const sum = shares.reduce((total, share) => total + share);
  const truth = shares.map((share) => share / sum);
  const Roots = levels > 255 ? Uint16Array : Uint8Array;
  const roots = Roots.from(truth, (weight) => Math.round(levels * Math.sqrt(weight)));
  const shape = { t: 1, s: 40, causal: false, levels, encoding: "sqrt" };
  return { truth, weights: decodeWeights(new Uint8Array(roots.buffer), shape) };
}

test("a weight is printed with digits that are true, also as a part of a group", () => {
  for (const levels of [16, 64, 255, 65_535]) {
    for (let sharpness = 0; sharpness < 12; sharpness += 1) {
      const { truth, weights } = roundedRow(levels, sharpness);
      const groups = Array.from({ length: 40 }, (_, i) => Math.floor(i / 3));
      const grouped = groupWeights(weights, [0], 1, groups, 14);
      const sums = Array.from({ length: 14 }, (_, i) => truth.slice(3 * i, 3 * i + 3).reduce((a, b) => a + b));
      for (const [shown, expected] of [
        [weights, truth],
        [grouped, sums],
      ]) {
        expected.forEach((value, j) => {
          const error = weightError(shown, 0, j);
          assert.ok(Math.abs(shown.data[j] - value) <= error + 1e-7, `${levels}: ${shown.data[j]}, not ${value}`);
          const text = percent(shown.data[j], error);
          const [number, unit] = [Number(text.replace(/[%<≈]/g, "")), 10 ** -(text.split(".")[1]?.length - 1 || 0)];
          if (text.startsWith("<")) assert.ok(100 * value < number, `${text}: ${value}`);
          else if (!text.startsWith("≈")) assert.ok(Math.abs(100 * value - number) <= unit + 1e-5, `${text}: ${value}`);
        });
      }
      if (levels > 255) assert.ok(weightError(weights, 0, 0) < 2e-5);
    }
  }
});

test("groups: weights are summed over keys and averaged over queries", () => {
  const weights = { t: 2, s: 3, causal: false, data: Float32Array.from([0.2, 0.3, 0.5, 0.6, 0.4, 0]) };
  near(groupWeights(weights, [0, 0], 1, [0, 0, 1], 2).data, [0.75, 0.25]);
});

/** Tokens that spell texts one after the other; "[CLS]" is special. @param {string[]} texts */
function spelled(texts) {
  let text = "";
  const tokens = texts.map((one) => {
    const special = /^\[[A-Z]+\]$/.test(one);
    const start = [...text].length;
    if (!special) text += one;
    return { text: one, start, stop: [...text].length, special, piece: one, id: 0 };
  });
  return { text, tokens };
}

test("tokens are grouped to characters, also of Old Hangul", () => {
  for (const [letters, characters] of [
    // NFC makes one of lead and vowel and leaves an old final behind: 듀ᇰ and 호ᇙ of 1459 were two.
    ["中듀ᇰ國귁〮호ᇙ배〮도ꥭᆞᆯ각ᆨ", "中 듀ᇰ 國 귁〮 호ᇙ 배〮 도 ꥭᆞᆯ 각 ㄱ"],
    ["말ᄊᆞ미", "말 ᄊᆞ 미"],
    ["e\u0301👩\u200d👧", "e\u0301 👩⟨U+200D⟩👧"],
  ]) {
    const { text, tokens } = spelled([...letters]);
    assert.deepEqual(groupTokens(text, tokens, "character")?.texts, characters.split(" "));
  }
});

test("tokens are grouped to words; special tokens stand alone", () => {
  const { text, tokens } = spelled(["[CLS]", "나", "는", "[MASK]", "갔", "[SEP]"]);
  assert.deepEqual(groupTokens(text, tokens, "word")?.texts, ["[CLS]", "나는", "[MASK]", "갔", "[SEP]"]);
  assert.equal(groupTokens(text, tokens, "character"), null); // the same as the tokens
  const joined = spelled(["x", "a b", "y", " ", "c"]); // a token of two words joins them
  assert.deepEqual(groupTokens(joined.text, joined.tokens, "word"), {
    numbers: [0, 0, 0, 1, 1],
    texts: ["xa␣by", "c"],
  });
});

test("a link keeps the state, and what makes no sense is left out", () => {
  const store = new Store({ layer: 3, heads: [0, 1, 2, 5], token: null, "x.side": "key" });
  assert.match(store.hash(), /heads=0-2,5/);
  const read = new Store().read(`#${store.hash()}`);
  assert.deepEqual([read.layer, read.heads, read.token, read["x.side"]], [3, [0, 1, 2, 5], null, "key"]);
  assert.deepEqual(new Store().read("#layer=-1&heads=1-&view=other&zoom=a&__proto__=1"), {});
});

test("only what changed is told", () => {
  const store = new Store();
  const told = [];
  store.subscribe((_, changed) => told.push([...changed]));
  store.set({ heads: [], layer: 0 });
  store.set({ heads: [1], layer: 0 });
  assert.deepEqual(told, [["heads"]]);
});

test("text can be read and marks can be seen, in both themes", () => {
  for (const name of ["light", "dark"]) {
    const theme = themeColours(name);
    const [surface, panel] = [rgb(theme.surface), rgb(theme.panel)];
    for (const ground of [surface, panel]) {
      for (const text of [theme.ink, theme.muted]) assert.ok(contrast(rgb(text), ground) >= 4.5, `${name} ${text}`);
    }
    for (let head = 0; head < 4; head += 1)
      assert.ok(contrast(rgb(headColour(head, theme)), surface) >= 2.9, `${name} ${head}`);
    for (const scale of ["cool", "warm", "sign"]) {
      const table = scaleTable(scale, theme);
      for (let i = 0; i < 256; i += 1) {
        const colour = [...table.slice(4 * i, 4 * i + 3)];
        assert.ok(contrast(rgb(inkOn(colour)), colour) >= 4.5, `${name} ${scale} ${i}`);
      }
    }
  }
  assert.equal(hex(mix(rgb("#123456"), rgb("#fedcba"), 0)), "#123456");
});

test("words in two languages", () => {
  defineWords({ "test.weight": ["가중치 {n}", "weight {n}"] });
  setLanguage("ko");
  assert.equal(t("test.weight", { n: 3 }), "가중치 3");
  assert.equal(t("test.weight", {}, "en"), "weight {n}");
  assert.equal(shortCount(12_400_000), "1,240만 ");
  setLanguage("en");
  defineWords({ "test.heads": ["헤드 {n}개", "{n} head{n:s} off"] });
  assert.deepEqual([t("test.heads", { n: 1 }), t("test.heads", { n: 12 })], ["1 head off", "12 heads off"]);
  assert.equal(shortCount(12_400_000), "12.4M");
  assert.throws(() => defineWords({ "test.weight": ["", ""] }));
});

test("numbers", () => {
  assert.deepEqual(
    [decimal(-0.125), decimal(-0.0001), signed(0.5, 1), decimal(NaN)],
    ["−0.125", "0.000", "+0.5", "NaN"],
  );
  assert.deepEqual(
    [0.42, 0.042, 0.00001, 0].map((share) => percent(share)),
    ["42.0%", "4.20%", "<0.01%", "0%"],
  );
});

test("numbers that may be off have fewer digits", () => {
  const found = [
    [0.5559, 0.00001],
    [0.5559, 0.0029],
    [0.5559, 0.06],
    [0.0002, 0.001],
    [0, 0.000004],
  ].map(([share, error]) => `${decimal(share, 4, error)} ${percent(share, error)}`);
  assert.deepEqual(found, ["0.5559 55.6%", "0.56 56%", "≈0.6 ≈60%", "0.00 <1%", "0.0000 <0.01%"]);
  assert.deepEqual([decimal(-57.3, 3, 0.6), decimal(-57.3, 3, 8)], ["≈−60", "≈−60"]);
  const written = [
    [55, 0.001],
    [1234.5, 0.001],
    [2.17e17, 0.001],
    [2.17e17, 0.2],
    [2.17e17, 2],
    [0.01234, 0],
  ].map(([value, error]) => neuronExponential(value, error));
  assert.deepEqual(written, ["55", "1.23×10³", "2.17×10¹⁷", "2×10¹⁷", "≈10¹⁷", "0.01234"]);
});

test("a Hangul keyboard gives the letter of its place", () => {
  assert.equal(keySign({ key: "ㅅ", code: "KeyT", shiftKey: false }), "t");
  assert.equal(keySign({ key: "?", code: "Slash", shiftKey: true }), "?");
});
