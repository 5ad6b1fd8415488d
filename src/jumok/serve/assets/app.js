// @ts-check
// The entry of the playground.

import { CompareView } from "./compare_view.js";
import { LadderView } from "./ladder_view.js";
import { NewView } from "./new_view.js";
import { RunView } from "./run_view.js";
import { RunsView } from "./runs_view.js";
import { Shell } from "./shell.js";
import { TokensView } from "./tokens_view.js";
import "./words.js";
import { WriteHost } from "./write_host.js";

const shell = new Shell({
  write: (host, owner, name) => new WriteHost(host, owner, name),
  compare: (host, owner) => new CompareView(host, owner),
  tokens: (host, owner) => new TokensView(host, owner),
  runs: (host, owner) => new RunsView(host, owner),
  run: (host, owner, name) => new RunView(host, owner, name),
  new: (host, owner) => new NewView(host, owner),
  ladder: (host, owner, name) => new LadderView(host, owner, name),
});
void shell.start();
