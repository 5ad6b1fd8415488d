import assert from "node:assert/strict";
import test from "node:test";

import { Session } from "../../src/jumok/view/assets/page/session.js";
import { Tree } from "../../src/jumok/view/assets/page/tree.js";

const tokens = (...ids) => ids.map((id) => ({ id }));
const ids = (tree, branch) => tree.path(branch).map(({ id }) => id);

function written(tree, start, ...rest) {
  const branch = tree.branch(start, "written");
  for (const token of tokens(...rest)) tree.append(token);
  return branch;
}

test("typing at the end of the tree makes no branches", () => {
  const tree = new Tree();
  assert.equal(tree.retype(tokens(1, 2)), 0);
  assert.equal(tree.retype(tokens(1, 2, 3)), 2);
  assert.equal(tree.retype(tokens(1, 9)), 1);
  assert.equal(tree.current, tree.root);
  assert.deepEqual(ids(tree), [1, 9]);
});

test("an edit keeps what it shares with the text, with its figures, and the old text stays in the tree", () => {
  const tree = new Tree();
  tree.retype(tokens(1, 2));
  const old = written(tree, 2, 3, 4, 5);
  old.tokens[0].surprise = 0.5;
  assert.equal(tree.retype(tokens(1, 2, 3, 8)), 3);
  assert.deepEqual(ids(tree), [1, 2, 3, 8]);
  assert.equal(tree.path()[2].surprise, 0.5);
  assert.deepEqual(ids(tree, old), [1, 2, 3, 4, 5]);
  assert.equal(tree.current.parent, old);
  tree.retype(tokens(1, 2, 3, 8, 9));
  assert.equal(tree.branches().length, 3);
});

test("a branch from the beginning of another, or before it, is its sibling", () => {
  const tree = new Tree();
  tree.retype(tokens(1, 2));
  const one = written(tree, 2, 3);
  const other = written(tree, 2, 4);
  assert.equal(other.parent, tree.root);
  assert.deepEqual(tree.root.children, [one, other]);
  const early = written(tree, 1, 7);
  assert.equal(early.parent, tree.root);
  assert.deepEqual(ids(tree), [1, 7]);
  assert.throws(() => tree.branch(3, "written"), RangeError);
});

test("the path of an inner branch ends where a branch leaves it", () => {
  const tree = new Tree();
  tree.retype(tokens(1));
  const long = written(tree, 1, 2, 3, 4, 5);
  const inner = written(tree, 3, 8, 9);
  const deep = written(tree, 4, 7);
  assert.deepEqual(ids(tree, deep), [1, 2, 3, 8, 7]);
  assert.deepEqual(ids(tree, inner), [1, 2, 3, 8, 9]);
  assert.ok(tree.leadsTo(long) && tree.leadsTo(tree.root) && !tree.leadsTo(deep, inner));
});

test("deleting all text leaves an empty path, and the root as it was", () => {
  const tree = new Tree();
  tree.retype(tokens(1, 2));
  written(tree, 2, 3);
  tree.retype([]);
  assert.deepEqual(ids(tree), []);
  tree.retype(tokens(5));
  assert.deepEqual(ids(tree), [5]);
  assert.deepEqual(ids(tree, tree.root), [1, 2]);
});

test("branches with something to see are listed, a parent before its children", () => {
  const tree = new Tree();
  tree.retype([{ id: 1, hidden: true }]);
  const first = written(tree, 1, 3, 4);
  const on = written(tree, 3, 5);
  const other = written(tree, 2, 6);
  const again = written(tree, 1, 7);
  assert.deepEqual(tree.branches(), [first, on, other, again]);
  tree.retype([]);
  assert.deepEqual(tree.branches(), [first, on, other, again, tree.current]);
});

test("the mean surprise is that of the tokens that were read", () => {
  const tree = new Tree();
  const branch = written(tree, 0, 1, 2, 3);
  assert.ok(Number.isNaN(branch.meanSurprise));
  branch.tokens[1].surprise = 1;
  branch.tokens[2].surprise = 2;
  assert.equal(branch.meanSurprise, 1.5);
});

function session() {
  const made = new Session({ about: { sampling: { temperature: 0.8 } } }, { language: "ko" });
  const heard = [];
  made.subscribe((changed) => heard.push([...changed].sort().join(" ")));
  return { made, heard };
}

test("ids follow the path while it grows and when it is another", () => {
  const { made } = session();
  made.tree.retype(tokens(1, 2));
  const before = made.ids;
  assert.deepEqual(before, [1, 2]);
  made.change(() => made.tree.branch(2, "written"));
  made.tree.append({ id: 3 });
  assert.deepEqual(made.ids, [1, 2, 3]);
  assert.equal(made.ids, made.ids);
  made.travel(-1);
  assert.deepEqual(made.ids, [1, 2]);
  made.travel(1);
  assert.deepEqual(made.ids, [1, 2, 3]);
  made.travel(1);
  assert.deepEqual(made.ids, [1, 2, 3]);
});

test("listeners hear what changed, once, and no longer when they have left", () => {
  const { made, heard } = session();
  made.toggleHead(1, 2);
  made.toggleHead(0, 3);
  assert.deepEqual(made.off, [
    [0, 3],
    [1, 2],
  ]);
  made.toggleHead(1, 2);
  made.set({ off: [[0, 3]], language: "en" });
  assert.deepEqual(heard, ["off", "off", "off", "language"]);
  let left = 0;
  const leave = made.subscribe(() => (left += 1));
  leave();
  made.set({ writing: true });
  assert.equal(left, 0);
});

test("what is done after going back cannot be gone forward to", () => {
  const { made } = session();
  made.tree.retype(tokens(1));
  made.change(() => written(made.tree, 1, 2));
  made.travel(-1);
  made.change(() => written(made.tree, 1, 3));
  made.travel(1);
  assert.deepEqual(made.ids, [1, 3]);
  made.travel(-1);
  assert.deepEqual(made.ids, [1]);
});
