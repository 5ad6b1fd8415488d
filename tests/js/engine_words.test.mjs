// @ts-check
// Whatever an engine refuses, a page has a sentence for it in both languages, with the values that the engine gives.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { t } from "../../src/jumok/view/assets/base/words.js";
import "../../src/jumok/view/assets/page/engine_words.js";
import "../../src/jumok/view/assets/page/words.js";

const assets = fileURLToPath(new URL("../../src/jumok/view/assets", import.meta.url));
const sources = ["model", "page"]
  .flatMap((folder) => readdirSync(`${assets}/${folder}`).map((name) => `${assets}/${folder}/${name}`))
  .filter((path) => path.endsWith(".js"))
  .map((path) => readFileSync(path, "utf8"));

test("each code of an error has words for its values", () => {
  const thrown = sources.flatMap((source) => [
    ...source.matchAll(/new EngineError\(\s*"([\w.]+)"(?:,\s*\{((?:[^{}]|\$\{[^}]*\})*)\})?/g),
  ]);
  assert.ok(thrown.length > 20);
  for (const [, code, values = ""] of thrown) {
    const given = values.split(",").map((part) => part.split(":")[0].trim());
    for (const language of ["ko", "en"]) {
      const sentence = t(code, {}, language);
      assert.notEqual(sentence, code, `${code} has no words`);
      for (const [, name] of sentence.matchAll(/\{(\w+)\}/g)) assert.ok(given.includes(name), `${code}: ${name}`);
    }
  }
});
