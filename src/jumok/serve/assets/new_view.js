// @ts-check
// The form for a new run or a ladder: a text, a size, a time; the plan before it is started.

import { button, choice, element, segmented } from "../../view/assets/base/controls.js";
import { count, shortCount, t } from "../../view/assets/base/words.js";
import { facts, megabytes, time } from "./format.js";
import { post, upload } from "./server.js";

/** @typedef {import("./shell.js").Shell} Shell */

export class NewView {
  /** @param {HTMLElement} host @param {Shell} shell */
  constructor(host, shell) {
    this.host = host;
    this.shell = shell;
    this.kind = "run";
    /** @type {any} what the server found in the text; null: the built-in one */
    this.text = null;
    this.name = "";
    this.size = "micro";
    this.tokenizer = "char";
    this.minutes = 5;
    /** @type {any} */
    this.plan = null;
    this.busy = "";
    this.show();
  }

  close() {
    this.planning?.abort();
  }

  show() {
    const focused = document.activeElement?.id;
    const { shell } = this;
    if (!shell.about.writes) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("new.closed") }));
      return;
    }
    const kinds = /** @type {[string, string][]} */ ([
      ["run", t("new.kind.run")],
      ["ladder", t("new.kind.ladder")],
    ]);
    const ladder = this.kind === "ladder";
    this.host.replaceChildren(
      element("div", { class: "headline" }, [
        element("a", { class: "back", href: "#runs", text: t("runs.back") }),
        element("h2", { text: t("new.title") }),
      ]),
      element("form", { class: "box form", onsubmit: (/** @type {Event} */ event) => this.submitted(event) }, [
        element("div", { class: "line" }, [
          segmented(t("new.kind"), kinds, this.kind, (/** @type {string} */ kind) => this.set({ kind })),
        ]),
        ladder ? element("p", { class: "remark", text: t("new.ladder.about") }) : null,
        this.textField(),
        element("div", { class: "line" }, [
          this.field("name", "text", t("new.name"), { maxlength: 60, required: true, autocomplete: "off" }),
          ladder
            ? null
            : choice(
                t("new.size"),
                shell.about.sizes.map((/** @type {string} */ one) => [one, one]),
                this.size,
                (/** @type {string} */ size) => this.set({ size }),
                { id: "size" },
              ),
          ladder
            ? null
            : choice(
                t("new.tokenizer"),
                shell.about.tokenizers.map((/** @type {string} */ one) => [one, t(`new.tokenizer.${one}`)]),
                this.tokenizer,
                (/** @type {string} */ tokenizer) => this.set({ tokenizer }),
                { id: "tokenizer" },
              ),
          this.field("minutes", "number", t(ladder ? "new.minutes.rung" : "new.minutes"), {
            min: 0.05,
            max: 10080,
            step: "any",
            required: true,
          }),
        ]),
        element("div", { class: "line" }, [
          ladder
            ? null
            : button(t(this.busy === "plan" ? "new.planning" : "new.plan"), {
                id: "plan",
                disabled: this.busy !== "",
                onclick: () => this.makePlan(),
              }),
          element("button", {
            type: "submit",
            id: "start",
            class: "button primary",
            disabled: this.busy !== "",
            text: t("new.start"),
          }),
        ]),
      ]),
      this.planned(),
    );
    if (focused) document.getElementById(focused)?.focus();
  }

  /** Change what is chosen; a plan was made for what was chosen before. @param {object} fields */
  set(fields) {
    Object.assign(this, fields);
    this.forgetPlan();
    this.show();
  }

  forgetPlan() {
    this.planning?.abort();
    this.plan = null;
    document.getElementById("planned")?.remove();
  }

  /**
   * @param {"name" | "minutes"} name
   * @param {string} type
   * @param {string} label
   * @param {object} rest
   */
  field(name, type, label, rest) {
    const input = element("input", {
      id: name,
      type,
      value: this[name],
      ...rest,
      oninput: (/** @type {any} */ { target }) => {
        Object.assign(this, { [name]: type === "number" ? Number(target.value) : target.value });
        if (name !== "name") this.forgetPlan();
      },
    });
    return element("label", { class: "choice" }, [element("span", { class: "choice-label", text: label }), input]);
  }

  textField() {
    const file = element("input", {
      type: "file",
      id: "file",
      accept: ".txt,.md,.csv,.tsv,.jsonl,text/plain",
      onchange: (/** @type {any} */ { target }) => this.send(target.files[0]),
    });
    const drop = element(
      "label",
      {
        class: "drop",
        for: "file",
        ondragover: (/** @type {Event} */ event) => event.preventDefault(),
        ondrop: (/** @type {DragEvent} */ event) => {
          event.preventDefault();
          void this.send(event.dataTransfer?.files[0]);
        },
      },
      [
        element("strong", { text: t("new.text.drop") }),
        element("span", { text: t("new.text.builtin") }),
        element("span", { text: t("new.text.most", { n: count(this.shell.about.most_upload / 1e6) }) }),
        file,
      ],
    );
    return this.text ? this.textFacts() : drop;
  }

  textFacts() {
    const { upload: name, chars, encoding, opening, error, columns, column } = this.text;
    const none = column === null ? [["", t("new.column.choose")]] : [];
    const names = columns.map((/** @type {string} */ one) => [one, one]);
    return element("div", { class: "text-facts" }, [
      element("div", { class: "line" }, [
        element("strong", { text: name }),
        chars ? element("span", { text: t("new.text.facts", { chars: count(chars), encoding }) }) : null,
        button(t("new.text.remove"), {
          id: "remove",
          class: "quiet",
          onclick: () => this.set({ text: null }),
        }),
      ]),
      columns.length
        ? choice(t("new.column"), [...none, ...names], column ?? "", (one) => this.chooseColumn(one), {
            id: "column",
            required: true,
          })
        : null,
      error ? element("p", { class: "said", role: "alert", text: error }) : null,
      opening ? element("p", { class: "opening", text: opening }) : null,
    ]);
  }

  planned() {
    const { plan } = this;
    if (!plan) return element("div");
    const memory = Object.values(plan.memory).reduce((/** @type {number} */ sum, one) => sum + Number(one), 0);
    return element("section", { class: "box", id: "planned" }, [
      element("h3", { text: t("new.plan.title") }),
      facts([
        [t("run.parameters"), shortCount(plan.parameters)],
        [t("new.plan.steps"), count(plan.steps)],
        [t("new.plan.step"), `${(1000 * plan.seconds_per_step).toFixed(0)} ms`],
        [t("new.plan.time"), time(plan.seconds)],
        [t("new.plan.tokens"), shortCount(plan.train_tokens)],
        [t("new.plan.passes"), plan.passes.toFixed(1)],
        [t("new.plan.memory"), megabytes(memory)],
        [t("new.plan.device"), `${plan.device} (${plan.threads})`],
        ...Object.entries(plan.choices).map(
          ([name, one]) => /** @type {[string, string]} */ ([name, `${one.chosen}: ${one.why}`]),
        ),
      ]),
      ...plan.notices.map((/** @type {string} */ text) => element("p", { class: "remark", text })),
    ]);
  }

  // --- what is asked of the server ---

  /** @param {File | undefined} file */
  async send(file) {
    if (!file) return;
    const most = this.shell.about.most_upload;
    if (file.size > most) {
      this.shell.failed(t("new.text.large", { n: count(file.size / 1e6) }));
      return;
    }
    this.shell.say(t("new.text.sending", { name: file.name }));
    await this.working("upload", async () => {
      const text = await upload(file);
      const stem = text.upload.replace(/-[0-9a-f]{8}\.\w+$/, "");
      Object.assign(this, { text, plan: null, name: this.name || stem });
      this.shell.say(text.chars ? t("new.text.facts", { chars: count(text.chars), encoding: text.encoding }) : "");
    });
  }

  /** @param {string} column */
  async chooseColumn(column) {
    this.forgetPlan();
    await this.working("column", async () => {
      this.text = await post("uploads/facts", { upload: this.text.upload, column: column || null });
    });
  }

  settings() {
    const source = { text: this.text?.upload ?? null, column: this.text?.column ?? null };
    if (this.kind === "ladder") return { ...source, minutes: this.minutes };
    return { ...source, size: this.size, tokenizer: this.tokenizer, minutes: this.minutes };
  }

  async makePlan() {
    const column = /** @type {HTMLSelectElement | null} */ (document.getElementById("column"));
    if (column && !column.reportValidity()) return;
    this.planning = new AbortController();
    const { signal } = this.planning;
    await this.working(
      "plan",
      async () => {
        this.plan = await post("plan", this.settings(), signal);
      },
      signal,
    );
  }

  /** @param {Event} event */
  async submitted(event) {
    event.preventDefault();
    await this.working("start", async () => {
      const ladder = this.kind === "ladder";
      const { name } = await post(ladder ? "ladder/start" : "runs/start", { name: this.name, ...this.settings() });
      this.shell.go(ladder ? "runs" : `run=${encodeURIComponent(name)}`);
    });
  }

  /** @param {string} name @param {() => Promise<void>} work @param {AbortSignal} [signal] */
  async working(name, work, signal) {
    this.busy = name;
    this.show();
    await this.shell.trying(work, signal);
    this.busy = "";
    if (this.host.isConnected) this.show();
  }
}
