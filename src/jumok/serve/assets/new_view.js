// The form for a new run: a task, a text with its columns, a size, a time.

import { button, choice, element } from "../../view/assets/base/controls.js";
import { count, t } from "../../view/assets/base/words.js";
import { post, upload } from "./server.js";

const TOKENIZERS = ["", "char", "jamo", "bpe"];
const SUFFIXES = ".txt,.md,.csv,.tsv,.jsonl,.json,.parquet,text/plain";

/** @typedef {import("./shell.js").Shell} Shell */

export class NewView {
  /** @param {HTMLElement} host @param {Shell} shell */
  constructor(host, shell) {
    this.host = host;
    this.shell = shell;
    /** @type {any} what the server found in the text; null: the built-in one */
    this.text = null;
    this.task = "lm";
    /** @type {Record<string, string>} the chosen columns of a table */
    this.columns = {};
    this.name = "";
    this.size = "";
    this.tokenizer = "";
    this.minutes = 5;
    this.busy = false;
    this.show();
  }

  close() {}

  show() {
    const { shell } = this;
    if (!shell.about.writes) {
      this.host.replaceChildren(element("p", { class: "nothing", text: t("new.closed") }));
      return;
    }
    const named = (/** @type {string} */ one) => [one, one || t("new.usual")];
    const tokenizers = TOKENIZERS.map((one) => [one, t(one ? `new.tokenizer.${one}` : "new.usual")]);
    this.host.replaceChildren(
      element("div", { class: "headline" }, [
        element("a", { class: "back", href: "#runs", text: t("runs.back") }),
        element("h2", { text: t("new.title") }),
      ]),
      element("form", { class: "box form", onsubmit: (/** @type {Event} */ event) => this.submitted(event) }, [
        this.text ? this.textFacts() : this.textField(),
        element("div", { class: "line" }, [
          this.choice(
            "task",
            Object.keys(shell.about.columns).map((one) => [one, t(`task.${one}`)]),
          ),
          ...this.columnChoices(),
        ]),
        element("div", { class: "line" }, [
          this.field("name", "text", { maxlength: 60, required: true, autocomplete: "off" }),
          this.choice("size", ["", ...shell.about.sizes].map(named)),
          this.choice("tokenizer", tokenizers),
          this.field("minutes", "number", { min: 0.05, max: 10080, step: "any", required: true }),
        ]),
        element("div", { class: "line" }, [
          element("button", {
            type: "submit",
            id: "start",
            class: "button primary",
            disabled: this.busy,
            text: t("new.start"),
          }),
        ]),
      ]),
    );
  }

  /** Change what is chosen. @param {object} fields */
  set(fields) {
    Object.assign(this, fields);
    this.show();
  }

  /** @param {"task" | "size" | "tokenizer"} name @param {readonly (readonly string[])[]} options */
  choice(name, options) {
    return choice(t(`new.${name}`), options, this[name], (one) => this.set({ [name]: one }), { id: name });
  }

  /** @param {"name" | "minutes"} name @param {string} type @param {object} rest */
  field(name, type, rest) {
    const oninput = (/** @type {any} */ { target }) =>
      Object.assign(this, { [name]: type === "number" ? Number(target.value) : target.value });
    const input = element("input", { id: name, type, value: this[name], ...rest, oninput });
    return element("label", { class: "choice" }, [
      element("span", { class: "choice-label", text: t(`new.${name}`) }),
      input,
    ]);
  }

  /** Menus for the columns that the task reads, if the text is a table. */
  columnChoices() {
    const known = /** @type {string[]} */ (this.text?.columns ?? []);
    if (!known.length) return [];
    return this.shell.about.columns[this.task].map((/** @type {string} */ name) => {
      const options = [["", t("new.column.choose")], ...known.map((one) => [one, one])];
      const value = this.columns[name] ?? (known.includes(name) ? name : "");
      const chosen = (/** @type {string} */ one) => this.set({ columns: { ...this.columns, [name]: one } });
      return choice(t(`new.column.${name}`), options, value, chosen, { id: `column-${name}`, required: true });
    });
  }

  textField() {
    const file = element("input", {
      type: "file",
      id: "file",
      accept: SUFFIXES,
      onchange: (/** @type {any} */ { target }) => this.send(target.files[0]),
    });
    return element(
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
        element("span", { text: t(`new.text.builtin.${this.task}`) }),
        element("span", { text: t("new.text.most", { n: count(this.shell.about.most_upload / 1e6) }) }),
        file,
      ],
    );
  }

  textFacts() {
    const { upload: name, chars, encoding, opening, columns } = this.text;
    const facts = columns.length
      ? t("new.text.columns", { n: count(columns.length) })
      : t("new.text.facts", { chars: count(chars), encoding });
    return element("div", { class: "text-facts" }, [
      element("div", { class: "line" }, [
        element("strong", { text: name }),
        element("span", { text: facts }),
        button(t("new.text.remove"), {
          id: "remove",
          class: "quiet",
          onclick: () => this.set({ text: null, columns: {} }),
        }),
      ]),
      opening ? element("p", { class: "opening", text: opening }) : null,
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
    await this.working(async () => {
      const text = await upload(file);
      Object.assign(this, { text, columns: {}, name: this.name || text.upload.replace(/\.\w+$/, "") });
      this.shell.say("");
    });
  }

  /** @param {Event} event */
  async submitted(event) {
    event.preventDefault();
    const { name, task, minutes, size, tokenizer } = this;
    const form = /** @type {HTMLFormElement} */ (event.target);
    const chosen = [...form.querySelectorAll("select[id^=column-]")].map((one) => [
      one.id.slice("column-".length),
      /** @type {HTMLSelectElement} */ (one).value,
    ]);
    const body = {
      ...{ name, task, minutes, columns: Object.fromEntries(chosen), text: this.text?.upload ?? null },
      ...{ size: size || null, tokenizer: tokenizer || null },
    };
    await this.working(async () => {
      const started = await post("jumok/runs/start", body);
      this.shell.go(`run=${encodeURIComponent(started.name)}`);
    });
  }

  /** @param {() => Promise<void>} work */
  async working(work) {
    this.set({ busy: true });
    await this.shell.trying(work);
    this.busy = false;
    if (this.host.isConnected) this.show();
  }
}
