// @ts-check
// The views of a page with a model, for a run of the server: a text that is written, one step of it, and so on.

import { element } from "../../view/assets/base/controls.js";
import { t } from "../../view/assets/base/words.js";
import { AnswerView } from "../../view/assets/page/answer_view.js";
import { AttentionView } from "../../view/assets/page/attention_view.js";
import { ClassifyView } from "../../view/assets/page/classify_view.js";
import { FillView } from "../../view/assets/page/fill_view.js";
import { setWords } from "../../view/assets/page/labels.js";
import { Session } from "../../view/assets/page/session.js";
import { StepView } from "../../view/assets/page/step_view.js";
import { WriteView } from "../../view/assets/page/write_view.js";
import { engineOf, runChoice, usableRuns } from "./models.js";

/** @typedef {import("./shell.js").Shell} Shell */
/** @typedef {(host: HTMLElement, session: Session, frame: any) => any} MakeView */

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

export class WriteHost {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name the run to begin with; "": the first one */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.name = name;
    /** @type {import("./models.js").Run[]} */
    this.runs = [];
    /** @type {Session | null} */
    this.session = null;
    /** @type {Map<string, {view: any, host: HTMLElement}>} */
    this.made = new Map();
    this.view = "";
    /** @type {symbol | null | undefined} what is being opened; null: the reader has gone elsewhere */
    this.opening = undefined;
    this.stage = element("div", { class: "write-stage" });
    void this.begin();
  }

  close() {
    this.opening = null; // what is still being opened is not wanted any more
    void this.session?.engine.stop();
    for (const { view } of this.made.values()) {
      view.hide();
      view.close?.();
    }
    this.made.clear();
    this.session = null;
  }

  /** The language or the theme is another one. */
  show() {
    this.session?.set(this.settings);
    this.render();
    setWords(this.stage);
  }

  get settings() {
    return { language: this.shell.language, theme: this.shell.dark ? "dark" : "light" };
  }

  async begin() {
    await this.shell.trying(async () => {
      const { opening } = this;
      this.runs = await usableRuns();
      if (this.opening !== opening) return;
      if (!this.runs.some(({ name }) => name === this.name)) this.name = this.runs[0]?.name ?? "";
      this.render();
      if (this.name) await this.open();
    });
  }

  async open() {
    this.close();
    const opening = (this.opening = Symbol(this.name));
    this.stage.replaceChildren(
      element("p", { class: "nothing", role: "status", text: t("write.loading", { name: this.name }) }),
    );
    const engine = await engineOf(this.name);
    if (this.opening !== opening) return;
    this.stage.replaceChildren();
    this.session = new Session(engine, this.settings);
    const focused = document.activeElement?.id;
    this.choose(VIEWS[engine.about.kind][0][0]);
    if (focused?.startsWith("tab-")) document.getElementById(focused)?.focus(); // one who walks the tabs stays there
    this.made.get(this.view)?.view.begin?.({ tokens: 100 });
  }

  /** @param {string} name */
  choose(name) {
    const { session } = this;
    if (!session) return;
    this.made.get(this.view)?.view.hide();
    this.view = name;
    if (!this.made.has(name)) {
      const host = element("section", { class: "view", id: `panel-${name}` });
      this.stage.append(host);
      const make = /** @type {MakeView} */ (new Map(VIEWS[session.engine.about.kind]).get(name));
      this.made.set(name, { host, view: make(host, session, this) });
      setWords(host);
    }
    for (const [other, { host }] of this.made) host.hidden = other !== name;
    this.made.get(name)?.view.show();
    this.render();
  }

  render() {
    if (!this.runs.length) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("write.none") }));
      return;
    }
    const names = this.session ? VIEWS[this.session.engine.about.kind].map(([name]) => name) : [];
    const tabs =
      names.length < 2
        ? null
        : element(
            "div",
            { class: "segmented", role: "group", "aria-label": t("desk.tabs") },
            names.map((name) =>
              element("button", {
                type: "button",
                class: "button",
                id: `view-${name}`,
                "aria-pressed": String(name === this.view),
                text: t(`tab.${name}`),
                onclick: () => this.choose(name),
              }),
            ),
          );
    const bar = element("div", { class: "write-head" }, [
      runChoice("write-model", t("write.model"), this.runs, this.name, (name) => {
        this.name = name;
        void this.shell.trying(() => this.open());
      }),
      tabs,
    ]);
    if (this.stage.isConnected) this.host.firstElementChild?.replaceWith(bar);
    else this.host.replaceChildren(bar, this.stage);
  }

  // --- what the views ask of their frame ---

  /** @param {any} error */
  failed(error) {
    this.shell.failed(error);
  }

  /** @param {string} text */
  announce(text) {
    this.shell.announce(text);
  }

  /** @param {string} text */
  toast(text) {
    this.shell.say(text);
  }

  /** @param {Element} root */
  setWords(root) {
    setWords(root);
  }

  noteState() {}

  async copyLink() {
    await navigator.clipboard.writeText(`${location.href.split("#")[0]}#write=${encodeURIComponent(this.name)}`);
    this.shell.say(t("link.copied"));
  }
}
