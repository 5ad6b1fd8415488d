// The entry of a page with a model: opens the model, shows the views that its kind has, or says what is wrong.

import { keepFocus } from "../base/focus.js";
import { showTrouble } from "../base/page_chrome.js";
import { messageOf, preferredLanguage, setLanguage, t } from "../base/words.js";
import { AnswerView } from "./answer_view.js";
import { AttentionView } from "./attention_view.js";
import { ChatView } from "./chat_view.js";
import { ClassifyView } from "./classify_view.js";
import { openEngine } from "./engine.js";
import { FillView } from "./fill_view.js";
import { Frame } from "./frame.js";
import { setWords } from "./labels.js";
import { Session } from "./session.js";
import { readState } from "./state.js";
import { StepView } from "./step_view.js";
import { WriteView } from "./write_view.js";

/** @typedef {import("./frame.js").MakeView} MakeView */
/** @typedef {import("./state.js").State} State */

const FIRST_TEXT = 160; // tokens that a page writes when it is opened

/**
 * What a page begins with whose author gave no text, by the kind of model. It must say what one can do here, and suits no
 * model in particular. What an encoder–decoder can answer is not known.
 * @type {Record<string, string>}
 */
const EXAMPLES = {
  classifier: "기대하지 않고 봤는데 생각보다 훨씬 재미있었습니다.",
  bert: "오늘은 [MASK]가 좋아서 친구와 공원에 갔다.",
};

/** @type {[string, MakeView]} of a model with a chat template */
const CHAT = ["chat", (host, session, frame) => new ChatView(host, session, frame)];

/** @type {Record<string, [string, MakeView][]>} */
const VIEWS = {
  gpt: [
    ["write", (host, session, frame) => new WriteView(host, session, frame)],
    ["step", (host, session) => new StepView(host, session)],
    ["attention", (host, session) => new AttentionView(host, session)],
  ],
  classifier: [["classify", (host, session, frame) => new ClassifyView(host, session, frame)]],
  "encoder-decoder": [["answer", (host, session, frame) => new AnswerView(host, session, frame)]],
  bert: [["fill", (host, session, frame) => new FillView(host, session, frame)]],
};

/** What the page says about itself besides the model; a damaged one is reported by the engine. */
function readHeader() {
  try {
    return JSON.parse(document.getElementById("jumok-model")?.textContent ?? "");
  } catch {
    return {};
  }
}

/** @param {Session} session @param {State} state */
function setState(session, state) {
  const { n_layer: layers, n_head: heads } = session.engine.about;
  const off = (state.off ?? []).filter(([layer, head]) => layer < layers && head < heads);
  session.set({ sampling: { ...session.sampling, ...state.sampling }, off });
}

/** Open the page. @returns {Promise<{session: Session, frame: Frame}>} */
async function openPage() {
  const header = readHeader();
  const state = readState(location.hash);
  const language = state.language ?? header.language ?? preferredLanguage();
  setLanguage(language);
  setWords(document);
  const session = new Session(await openEngine(), { language, theme: state.theme });
  setState(session, state);
  const { about } = session.engine;
  const views = [...(about.chat ? [CHAT] : []), ...VIEWS[about.kind]];
  const frame = new Frame(session, views, { bytes: header.bytes });
  document.getElementById("opening")?.remove();
  frame.start();
  const other = state.view ? state.view !== "chat" : state.path !== undefined;
  if (about.chat && other) frame.open("write"); // the text of the link is to be continued
  const first = /** @type {any} */ (frame.made.get(frame.view)?.view);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (state.cut) frame.toast(t("link.lost"));
  const own = state.text !== undefined || state.path !== undefined || state.cut; // of the link, or missing in it
  const given = state.text ?? (own ? "" : header.prompt);
  const usual = own || still ? undefined : FIRST_TEXT;
  const text = given ?? EXAMPLES[session.engine.about.kind] ?? "";
  const { path, sum, tokens = usual } = state;
  await first?.begin?.({ text, example: typeof given !== "string", tokens, path, sum });
  if (state.view && frame.makers.has(state.view)) frame.open(state.view);
  return { session, frame };
}

keepFocus();
const ready = openPage();
// What tests and a curious reader ask: the promise of the page, and what its views share.
Object.defineProperty(window, "jumok", { value: Object.freeze({ ready }), enumerable: true });
ready.catch((error) =>
  showTrouble(error?.code ?? "error.unknown", (language) => messageOf(error, language), "trouble"),
);
