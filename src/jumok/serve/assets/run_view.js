// @ts-check
// One run: its curve with the learning rate and the validations, live; samples, figures, configuration; stop and resume.

import { button, element, tableElement } from "../../view/assets/base/controls.js";
import { count, shortCount, t } from "../../view/assets/base/words.js";
import { drawChart } from "./chart.js";
import { badge, facts, nats, speed, time } from "./format.js";
import { ask, isGone, listen, post } from "./server.js";

const AGAIN = 3000; // milliseconds after a stream has ended
const MOST_POINTS = 1500; // after so many the server is asked for a thinner curve
const FURTHER = 5; // minutes that are offered

/** @typedef {import("./shell.js").Shell} Shell */

export class RunView {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.name = name;
    /** @type {any} */
    this.run = null;
    this.minutes = FURTHER;
    this.asked = false; // a stop was asked for
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

  /** Load the run, and hear of its events until the view is closed. */
  async follow() {
    const { signal } = this.following;
    while (!signal.aborted) {
      const error = await this.shell.trying(async () => {
        if (!(await this.load(signal))) return;
        const place = { name: this.name, place: this.run.place };
        await listen(
          `events?${new URLSearchParams(/** @type {any} */ (place))}`,
          null,
          ({ events }) => this.take(events),
          signal,
        );
      }, signal);
      if (isGone(error)) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  /**
   * Load the run. One that was just started has no folder yet, and its process is shown.
   * @param {AbortSignal} signal
   * @returns {Promise<boolean>} whether there is a folder.
   */
  async load(signal) {
    const found = await ask("run", { name: this.name }, signal);
    if (found.started) {
      this.renderStarted(found.started);
      return false;
    }
    this.run = found;
    this.render();
    return true;
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

  /** @param {any[]} events */
  take(events) {
    const { run } = this;
    const past = { step: run.last?.step, eval: run.validations.at(-1)?.step, sample: run.samples.at(-1)?.step };
    let drawn = true; // a picture that has not changed stays, and with it what the keyboard points at
    for (const event of events) {
      // What was loaded anew meanwhile is known already.
      if (event.step <= (past[/** @type {"step"} */ (event.event)] ?? -1)) continue;
      if (event.event !== "state") drawn = false;
      if (event.event === "step") {
        run.last = event;
        if (event.loss !== null)
          run.train_curve.push([event.step, event.seconds, event.loss, event.rate, event.tokens_per_second]);
      } else if (event.event === "eval") {
        run.validations.push(event);
        const best = run.best?.figures?.loss ?? Infinity;
        if ((event.figures.loss ?? Infinity) < best) run.best = event;
      } else if (event.event === "sample") run.samples.push(event);
      else if (event.event === "state") this.stateIs(event.state);
      else void this.reload();
    }
    if (run.train_curve.length > MOST_POINTS) void this.reload();
    else if (!drawn) this.render();
  }

  /** @param {string} now "running" or "ended" */
  stateIs(now) {
    if (now === "ended") this.asked = false;
    if ((this.run.state === "running") !== (now === "running")) void this.reload();
  }

  async reload() {
    await this.shell.trying(async () => {
      await this.load(this.following.signal);
    }, this.following.signal);
  }

  // --- what stands there ---

  render() {
    const { run } = this;
    const samples = this.host.querySelector(".samples");
    const opened = new Set([...this.host.querySelectorAll("details[open]")].map((one) => one.id));
    const focused = document.activeElement?.id;
    const typing = document.activeElement?.id === "minutes";
    if (typing) return this.refresh();
    this.curve = element("div", { class: "chart-host", id: "curve" });
    this.figures = element("div", { id: "run-figures" }, [this.figuresOf()]);
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
        element("section", { class: "box" }, [this.figures]),
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
    if (focused) document.getElementById(focused)?.focus();
  }

  /** Only what changes by itself, so that a field in which one types stays. */
  refresh() {
    this.figures?.replaceChildren(this.figuresOf());
    this.drawCurve();
  }

  figuresOf() {
    const { run } = this;
    const { last } = run;
    return facts([
      [t("run.loss"), last ? nats(last.loss) : null],
      [t("run.held_out"), run.held_out || null],
      [t("run.verdict"), run.verdict ? t(`run.verdict.${run.verdict}`) : null],
      [t("run.best"), run.best ? `${run.best.headline} (${t("run.sample", { n: count(run.best.step) })})` : null],
      [t("run.step"), last ? count(last.step) : null],
      [t("run.speed"), last ? speed(last.tokens_per_second) : null],
      [t("run.seconds"), last ? time(last.seconds) : null],
      [t("run.remaining"), run.state === "running" && last ? time(last.remaining) : null],
      [t("run.parameters"), run.parameters ? shortCount(run.parameters) : null],
      [t("run.task"), run.task],
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
    if (run.servable && ["gpt", "bert", "encoder_decoder"].includes(run.kind)) {
      actions.push(
        button(t("run.write"), { id: "open-write", onclick: () => shell.go(`write=${encodeURIComponent(run.name)}`) }),
      );
    }
    if (run.served && !run.named)
      actions.push(button(t("run.unload"), { id: "unload", onclick: () => this.act("runs/unload", {}) }));
    if (!shell.about.writes || run.name.includes("/")) return actions;
    if (run.state === "running" || run.state === "starting") {
      actions.push(
        button(t(this.asked ? "run.stopping" : "run.stop"), {
          id: "stop",
          class: "primary",
          title: t("run.stop.about"),
          disabled: this.asked,
          onclick: () => this.act("runs/stop", {}, true),
        }),
      );
    } else if (run.state === "stopped") {
      actions.push(
        button(t("run.resume"), { id: "resume", class: "primary", onclick: () => this.act("runs/resume", {}) }),
      );
    } else if (run.state === "finished") {
      const field = element("input", {
        id: "minutes",
        type: "number",
        min: 0.1,
        step: "any",
        value: this.minutes,
        "aria-label": t("run.minutes"),
        oninput: (/** @type {any} */ { target }) => {
          this.minutes = Number(target.value) || FURTHER;
        },
      });
      actions.push(
        element("span", { class: "together" }, [
          field,
          element("span", { text: t("run.minutes") }),
          button(t("run.further"), { id: "resume", onclick: () => this.act("runs/resume", { minutes: this.minutes }) }),
        ]),
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
      await this.reload();
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
    if (!run.train_curve.length) {
      curve.replaceChildren(element("p", { class: "nothing", text: t("run.curve.none") }));
      return;
    }
    const colours = this.shell.lineColours();
    const train = run.train_curve.map((/** @type {number[]} */ [step, , loss]) => [step, loss]);
    const rate = run.train_curve.map((/** @type {number[]} */ [step, , , one]) => [step, one]);
    const validation = run.validations
      .filter((/** @type {any} */ one) => one.figures.loss !== undefined)
      .map((/** @type {any} */ one) => [one.step, one.figures.loss]);
    drawChart(curve, {
      label: `${t("run.curve")}: ${t("run.loss.train")} ${nats(run.last?.loss)}`,
      x: t("run.step"),
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
