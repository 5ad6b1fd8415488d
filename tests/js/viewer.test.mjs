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
import { Store } from "../../src/jumok/view/assets/viewer/store.js";
import { Trace, decodeWeights, groupWeights } from "../../src/jumok/view/assets/viewer/trace.js";

const near = (found, expected, most = 1e-6) => {
  assert.equal(found.length, expected.length);
  expected.forEach((value, i) => assert.ok(Math.abs(found[i] - value) < most, `${i}: ${found[i]}, not ${value}`));
};

test("roots in bytes", () => {
  const roots = Uint8Array.from([7, 1, 3, 2, 2, 0]);
  near(decodeWeights(roots, 3, 3, true, "sqrt-u8"), [1, 0, 0, 0.1, 0.9, 0, 0.5, 0.5, 0]);
});

test("half-precision weights are divided by the sum of their row", () => {
  const stream = new Uint8Array(2 * 4);
  const view = new DataView(stream.buffer);
  [0x3c00, 0x4200, 0x0000, 0x3800].forEach((bits, i) => view.setUint16(2 * i, bits, true)); // 1, 3, 0, 0.5
  near(decodeWeights(stream, 2, 2, false, "float16"), [0.25, 0.75, 0, 1]);
});

test("a stream of another length is refused", () => {
  assert.throws(() => decodeWeights(Uint8Array.from([1]), 2, 2, true, "sqrt-u8"), { code: "error.data" });
  assert.throws(() => new Trace({ format: "jumok-trace", version: 1 }), { code: "error.version" });
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
  assert.equal(shortCount(12_400_000), "12.4M");
  assert.throws(() => defineWords({ "test.weight": ["", ""] }));
});

test("numbers", () => {
  assert.deepEqual(
    [decimal(-0.125), decimal(-0.0001), signed(0.5, 1), decimal(NaN)],
    ["−0.125", "0.000", "+0.5", "NaN"],
  );
  assert.deepEqual([0.42, 0.042, 0.00001, 0].map(percent), ["42.0%", "4.20%", "<0.01%", "0%"]);
});

test("a Hangul keyboard gives the letter of its place", () => {
  assert.equal(keySign({ key: "ㅅ", code: "KeyT", shiftKey: false }), "t");
  assert.equal(keySign({ key: "?", code: "Slash", shiftKey: true }), "?");
});
