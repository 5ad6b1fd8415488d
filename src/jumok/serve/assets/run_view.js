// One run: its curve with the learning rate and the validations, live; samples, figures, configuration; stop and resume.

import { button, element, tableElement } from "../../view/assets/base/controls.js";
import { count, shortCount, t } from "../../view/assets/base/words.js";
import { drawChart } from "./chart.js";
import { badge, facts, loss, lossUnit, speed, time } from "./format.js";
import { ask, isGone, post } from "./server.js";

const EVERY = 2000; // milliseconds
const TALKS = new Set(["chat", "preference", "reward"]); // tasks of models that answer

/** @typedef {import("./shell.js").Shell} Shell */

export class RunView {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.name = name;
    /** @type {any} */
    this.run = null;
    this.asked = false; // a stop was asked for
    this.shown = "";
    this.following = new AbortController();
    this.resized = () => this.drawCurve();
    window.addEventListener("resize", this.resized);
    void this.follow();
  }

  close() {
    this.following.abort();
    window.removeEventListener("resize", this.resized);
  }

  show() {
    if (this.run) this.render();
  }

  /** Load the run again and again, until the view is closed. */
  async follow() {
    const { signal } = this.following;
    while (!signal.aborted) {
      const error = await this.shell.trying(() => this.load(signal), signal);
      if (isGone(error)) return;
      await new Promise((resolve) => setTimeout(resolve, EVERY));
    }
  }

  /** Load the run; what has not changed stays, and with it what the keyboard points at. @param {AbortSignal} signal */
  async load(signal) {
    const found = await ask("jumok/run", { name: this.name }, signal);
    const text = JSON.stringify(found);
    if (text === this.shown) return;
    this.shown = text;
    if (found.started) {
      this.renderStarted(found.started);
      return;
    }
    if (found.state !== "running") this.asked = false;
    this.run = found;
    this.render();
  }

  /** @param {{name: string, code: number | null, said: string}} started */
  renderStarted({ name, code, said }) {
    this.host.replaceChildren(
      element("div", { class: "headline" }, [
        element("a", { class: "back", href: "#runs", text: t("runs.back") }),
        element("h2", { text: name }),
        badge(code === null ? "starting" : "failed"),
      ]),
      ...(said ? [element("pre", { class: "said", text: said })] : []),
    );
  }

  // --- what stands there ---

  render() {
    const { run } = this;
    const samples = this.host.querySelector(".samples");
    const opened = new Set([...this.host.querySelectorAll("details[open]")].map((one) => one.id));
    this.curve = element("div", { class: "chart-host", id: "curve" });
    const parts = [
      element("div", { class: "headline" }, [
        element("a", { class: "back", href: "#runs", text: t("runs.back") }),
        element("h2", { text: run.name }),
        badge(run.state),
        element("span", { class: "gap" }),
        ...this.actions(),
      ]),
      run.state === "running" && run.last
        ? element("progress", { max: 1, value: run.last.progress ?? 0, "aria-label": t("run.progress") })
        : null,
      element("div", { class: "two" }, [
        element("section", { class: "box" }, [element("h3", { text: t("run.curve") }), this.curve]),
        element("section", { class: "box" }, [element("div", { id: "run-figures" }, [this.figuresOf()])]),
      ]),
      element("section", { class: "box" }, [element("h3", { text: t("run.samples") }), this.samplesOf()]),
      this.folded("validations", t("run.validations"), this.validationsOf()),
      this.folded(
        "config",
        t("run.config"),
        element("pre", { class: "config", text: JSON.stringify(run.config, null, 1) }),
      ),
    ];
    this.host.replaceChildren(.../** @type {HTMLElement[]} */ (parts.filter(Boolean)));
    for (const details of this.host.querySelectorAll("details")) details.open = opened.has(details.id);
    const list = this.host.querySelector(".samples");
    if (list && samples) list.scrollTop = samples.scrollTop;
    this.drawCurve();
  }

  figuresOf() {
    const { run } = this;
    const { last } = run;
    return facts([
      [t("run.loss"), last ? loss(last.loss, run) : null],
      [t("run.held_out"), run.held_out || null],
      [t("run.verdict"), run.verdict ? t(`run.verdict.${run.verdict}`) : null],
      [t("run.best"), run.best ? `${run.best.headline} (${t("run.sample", { n: count(run.best.step) })})` : null],
      [t("run.step"), last ? count(last.step) : null],
      [t("run.speed"), last ? speed(last.tokens_per_second) : null],
      [t("run.seconds"), last ? time(last.seconds) : null],
      [t("run.remaining"), run.state === "running" && last ? time(last.remaining) : null],
      [t("run.parameters"), run.parameters ? shortCount(run.parameters) : null],
      [t("run.task"), run.task ? t(`task.${run.task}`) : null],
      [
        t("run.shape"),
        run.n_layer
          ? t("run.shape.value", {
              kind: `${run.kind} ${run.family ?? ""}`.trim(),
              layers: run.n_layer,
              width: run.n_embd,
              heads: run.n_head,
            })
          : null,
      ],
      [t("run.context"), run.context_length ? count(run.context_length) : null],
      [
        t("run.tokenizer"),
        run.tokenizer ? t("run.tokenizer.value", { kind: run.tokenizer, n: count(run.vocab_size ?? 0) }) : null,
      ],
      [t("run.text"), (run.sources ?? []).join(", ")],
    ]);
  }

  actions() {
    const { run, shell } = this;
    const actions = [];
    const place = TALKS.has(run.task) ? "chat" : "write";
    if (run.usable)
      actions.push(
        button(t(`run.${place}`), { id: "open", onclick: () => shell.go(`${place}=${encodeURIComponent(run.name)}`) }),
      );
    if (!shell.about.writes) return actions;
    if (run.state === "running" || run.state === "starting") {
      actions.push(
        button(t(this.asked ? "run.stopping" : "run.stop"), {
          id: "stop",
          class: "primary",
          title: t("run.stop.about"),
          disabled: this.asked,
          onclick: () => this.act("jumok/runs/stop", {}, true),
        }),
      );
    } else if (run.state === "stopped") {
      actions.push(
        button(t("run.resume"), { id: "resume", class: "primary", onclick: () => this.act("jumok/runs/resume", {}) }),
      );
    }
    return actions;
  }

  /** @param {string} path @param {object} more @param {boolean} [stops] */
  async act(path, more, stops = false) {
    await this.shell.trying(async () => {
      await post(path, { name: this.name, ...more });
      this.asked = stops;
      this.shell.say(t("run.asked"));
      this.shown = "";
      await this.load(this.following.signal);
    });
  }

  samplesOf() {
    const samples = [...this.run.samples].reverse();
    return element(
      "div",
      { class: "samples", tabindex: 0, role: "region", "aria-label": t("run.samples") },
      samples.map(({ step, text, kept }) =>
        element("article", {}, [
          element("h4", { text: t(kept ? "run.sample.kept" : "run.sample", { n: count(step) }) }),
          element("p", { text }),
        ]),
      ),
    );
  }

  validationsOf() {
    const rows = this.run.validations.map((/** @type {any} */ one) => [
      one.step,
      one.headline,
      time(one.seconds),
      one.best ? "✓" : "",
    ]);
    return tableElement({
      caption: t("run.validations"),
      columns: [t("run.step"), t("run.loss.validation"), t("run.seconds"), t("run.best")],
      rows,
    });
  }

  /** @param {string} id @param {string} title @param {HTMLElement} content */
  folded(id, title, content) {
    return element("details", { class: "box", id: `fold-${id}` }, [element("summary", { text: title }), content]);
  }

  drawCurve() {
    const { run, curve } = this;
    if (!curve) return;
    if (!run.curve.length) {
      curve.replaceChildren(element("p", { class: "nothing", text: t("run.curve.none") }));
      return;
    }
    const colours = this.shell.lineColours();
    const train = run.curve.map((/** @type {number[]} */ [step, , loss]) => [step, loss]);
    const rate = run.curve.map((/** @type {number[]} */ [step, , , one]) => [step, one]);
    const validation = run.validations
      .filter((/** @type {any} */ one) => one.figures.loss !== undefined)
      .map((/** @type {any} */ one) => [one.step, one.figures.loss]);
    drawChart(curve, {
      label: `${t("run.curve")}: ${t("run.loss.train")} ${loss(run.last?.loss, run)}`,
      x: t("run.step"),
      y: `${t("run.loss")} (${lossUnit(run)})`,
      series: [
        { name: t("run.rate"), points: rate, colour: "var(--faint)", width: 1.2, dashed: true, second: true },
        { name: t("run.loss.train"), points: train, colour: colours[0], width: 1.8 },
        {
          name: t("run.loss.validation"),
          points: validation,
          colour: colours[1],
          width: 2.2,
          dots: validation.length < 60,
        },
      ],
      lines: typeof run.floor === "number" ? [{ name: t("run.floor"), y: run.floor }] : [],
    });
  }
}
