// Ids, texts and readable tokens equal those of Python: tests/view/test_page_text.py reads the same file, or writes one.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { BytePairs } from "../../src/jumok/view/assets/model/byte_pairs.js";
import { TokenNames } from "../../src/jumok/view/assets/model/token_text.js";
import { Tokenizer, translatePattern } from "../../src/jumok/view/assets/model/tokenizer.js";
import { visible } from "../../src/jumok/view/assets/model/visible.js";
import { groupTokens } from "../../src/jumok/view/assets/viewer/groups.js";
import { decodeUtf8, utf8Characters } from "../../src/jumok/view/assets/model/utf8.js";

const file = process.env.JUMOK_TOKENIZERS ?? new URL("../fixtures/token_text.json", import.meta.url);
const { tokenizers } = JSON.parse(readFileSync(file, "utf8"));

for (const { name, kind, json, texts, streams } of tokenizers) {
  const tokenizer = new Tokenizer(json, kind);
  test(`${name}: ids`, () => {
    for (const { text, ids } of texts) assert.deepEqual(tokenizer.encode(text), ids, JSON.stringify(text));
  });
  test(`${name}: streamed`, () => {
    for (const { ids, parts, rest, decoded } of streams) {
      const stream = tokenizer.stream();
      assert.deepEqual(
        ids.map((id) => stream.push(id)),
        parts,
        JSON.stringify(ids),
      );
      assert.equal(stream.finish(), rest);
      assert.equal(tokenizer.decode(ids), decoded);
      assert.equal(tokenizer.decodeWhole(ids), parts.join("") + rest);
    }
  });
  test(`${name}: readable`, () => {
    const reader = new TokenNames(tokenizer);
    for (const { ids, text, tokens, groups, group_texts } of streams) {
      const read = reader.read(ids);
      assert.deepEqual(
        read.tokens.map((one) => [one.id, one.text, one.piece, one.start, one.stop, one.special]),
        tokens,
      );
      assert.equal(read.text, text);
      for (const kind of groups ? ["character", "word"] : []) {
        const expected = groups[kind] ? { numbers: groups[kind], texts: group_texts[kind] } : null;
        assert.deepEqual(groupTokens(text, read.tokens, kind), expected);
      }
    }
  });
}

test("a piece of 100,000 characters is joined in a moment", () => {
  const vocab = new Map(["a", "aa", "aaaa"].map((token, id) => [token, id]));
  const pairs = new BytePairs(vocab, ["a a", ["aa", "aa"]]);
  assert.equal(pairs.join(new Array(100_000).fill(0)).length, 25_000);
  assert.deepEqual(pairs.join([0, 0, 0]), [1, 0]);
});

test("the same bytes are no characters as for TextDecoder", () => {
  let state = 1;
  for (let round = 0; round < 500; round += 1) {
    const bytes = Uint8Array.from({ length: 12 }, () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      const [random, kind] = [(state >>> 16) & 0xff, (state >>> 24) & 3];
      return kind === 0 ? random & 0x7f : kind === 1 ? 0x80 | (random & 0x3f) : 0xc0 | (random & 0x3f);
    });
    const found = utf8Characters(bytes);
    assert.equal(found.map(({ text }) => text).join(""), decodeUtf8(bytes));
    assert.equal(
      found.reduce((sum, { length }) => sum + length, 0),
      bytes.length,
    );
  }
});

test("half of a surrogate pair is refused with its place", () => {
  const json = { model: { vocab: {}, merges: [] }, added_tokens: [] };
  for (let byte = 0; byte < 256; byte += 1) {
    json.model.vocab[`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`] = byte;
  }
  const tokenizer = new Tokenizer(json, "char");
  assert.deepEqual(tokenizer.encode("😀"), [0xf0, 0x9f, 0x98, 0x80]);
  assert.throws(() => tokenizer.encode("😀가\ud83d"), { code: "engine.surrogate", values: { position: 2 } });
  assert.throws(() => tokenizer.decode([256]), { code: "engine.id" });
});

test("white space in patterns is that of Unicode, without U+FEFF", () => {
  const spaces = translatePattern("\\s");
  assert.deepEqual(
    ["\x85", "\ufeff", "\x1c", "\u2028"].map((character) => character.replace(spaces, "") === ""),
    [true, false, false, true],
  );
});

test("what cannot be seen is named", () => {
  assert.equal(visible(" \n\u202e\u1112"), "␣⏎⟨U+202E⟩ㅎ");
  assert.equal(visible(""), "∅");
});
