// A link carries how a text came about, and gives all of it back, digit by digit.

import assert from "node:assert/strict";
import { test } from "node:test";

import { pathOf, readPath, writePath } from "../../src/jumok/view/assets/page/path.js";
import { readState, writeState } from "../../src/jumok/view/assets/page/state.js";
import { Tree } from "../../src/jumok/view/assets/page/tree.js";

const tokens = (...ids) => ids.map((id) => ({ id }));
const how = { sampling: { seed: 1516272324, temperature: 0.1 + 0.2, top_k: 4, top_p: 1e-7 }, off: [[0, 3]] };

function write(tree, start, kind, made, ...ids) {
  tree.branch(start, kind, made);
  for (const token of tokens(...ids)) tree.append(token);
}

test("numbers keep all their digits in a link", () => {
  const sampling = { seed: 1516272324, temperature: 0.1 + 0.2, top_p: 1.2345678e-6, top_k: 987654, min_p: 1 / 3 };
  assert.deepEqual(readState(writeState({ sampling })).sampling, sampling);
});

test("a path has what was typed, written, chosen and edited, each as far as the text goes on from it", () => {
  const tree = new Tree();
  tree.retype(tokens(1, 2, 3), "가나다");
  write(tree, 2, "written", how, 4, 5, 6, 7);
  write(tree, 4, "chosen", { sampling: { seed: 9 } }, 80, 9, 9);
  write(tree, 2, "written", how, 10); // on no path to what comes
  tree.go(tree.root.children[0].children[0]);
  tree.retype(tokens(1, 2, 4, 5, 80, 9, 11, 12));
  const { text, path } = pathOf(tree);
  assert.equal(text, "가나다");
  assert.deepEqual(path, [
    { kind: "written", at: 2, tokens: 2, chosen: null, ...how },
    { kind: "written", at: 4, tokens: 1, chosen: 80, sampling: { seed: 9 }, off: [] },
    { kind: "typed", at: 6, ids: [11, 12] },
  ]);
  assert.deepEqual(readPath(writePath(path)), path);
  assert.deepEqual(readState(writeState(pathOf(tree))), pathOf(tree));
});

test("a text that begins empty, and one that is no text of its own, are carried by their ids", () => {
  const tree = new Tree();
  tree.retype([{ id: 0, hidden: true }, ...tokens(7, 8)]);
  write(tree, 2, "written", {}, 3);
  assert.deepEqual(pathOf(tree).path, [
    { kind: "begin" },
    { kind: "typed", at: 1, ids: [7] },
    { kind: "written", at: 2, tokens: 1, chosen: null, sampling: {}, off: [] },
  ]);
  tree.retype([]);
  assert.deepEqual([pathOf(tree).text, pathOf(tree).path], ["", []]);
  assert.equal(readState(writeState({ text: "" })).text, "");
});

test("what does not fit into an address is left out whole, and the link says so", () => {
  const text = "가".repeat(20_000);
  const state = readState(writeState({ view: "write", text, path: [], sum: "a", sampling: { seed: 3 } }));
  assert.deepEqual(state, { view: "write", cut: true, sampling: { seed: 3 } });
  assert.equal(readState(writeState({ text: "가".repeat(3000) })).text?.length, 3000);
});

test("a path that is cut off or changed is not read, and the checksum before it stays", () => {
  const tree = new Tree();
  tree.retype(tokens(1, 2), "가나");
  write(tree, 2, "written", how, 4, 5);
  const link = writeState(pathOf(tree));
  for (let end = link.indexOf("path="); end < link.length; end += 1) {
    const state = readState(link.slice(0, end));
    assert.equal(state.sum, pathOf(tree).sum);
    assert.notDeepEqual(state.path, pathOf(tree).path);
  }
  for (const odd of ["x", "b*1", "t*1*", "t*a*1", "w*1*2", "t*1*-", "w*0*1**1*1*1*1*1*1*1"])
    assert.equal(readPath(odd), null);
});
