// The entry of the playground.

import { keepFocus } from "../../view/assets/base/focus.js";
import { ChatView } from "./chat_view.js";
import { NewView } from "./new_view.js";
import { RunView } from "./run_view.js";
import { RunsView } from "./runs_view.js";
import { Shell } from "./shell.js";
import { TokensView } from "./tokens_view.js";
import { WriteView } from "./write_view.js";

const shell = new Shell({
  chat: (host, owner, name) => new ChatView(host, owner, name),
  write: (host, owner, name) => new WriteView(host, owner, name),
  tokens: (host, owner) => new TokensView(host, owner),
  runs: (host, owner) => new RunsView(host, owner),
  run: (host, owner, name) => new RunView(host, owner, name),
  new: (host, owner) => new NewView(host, owner),
});
keepFocus();
void shell.start();
