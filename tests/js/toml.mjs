// Lets Node import the words of pages, `import { words } from "./words.toml"`, as jumok.view.bundle does:
// node --import ./tests/js/toml.mjs tests/js/chapters.test.mjs

import { readFile } from "node:fs/promises";
import { register } from "node:module";
import { isMainThread } from "node:worker_threads";

const ENTRY = /^("[^"]+"|[\w-]+) = (\[.*?\])$/gms;

/**
 * Entries `key = ["Korean", "English"]`, which may stand in several lines; a Python test refuses other forms.
 * @type {import("node:module").LoadHook}
 */
export async function load(url, context, nextLoad) {
  if (!url.endsWith(".toml")) return nextLoad(url, context);
  const text = await readFile(new URL(url), "utf8");
  const entries = [...text.matchAll(ENTRY)].map(([, key, value]) => [
    key.replaceAll('"', ""),
    JSON.parse(value.replace(/,\s*\]$/, "]")),
  ]);
  const source = `export const words = ${JSON.stringify(Object.fromEntries(entries))};`;
  return { format: "module", source, shortCircuit: true };
}

if (isMainThread) register(import.meta.url);
