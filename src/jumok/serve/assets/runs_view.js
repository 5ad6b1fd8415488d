// The list of runs: what they are, how far they are, and their curves, live.

import { button, element } from "../../view/assets/base/controls.js";
import { count, shortCount, t } from "../../view/assets/base/words.js";
import { spark } from "./chart.js";
import { badge, loss, speed, time } from "./format.js";
import { ask } from "./server.js";

const EVERY = 2000; // milliseconds

/** @typedef {import("./shell.js").Shell} Shell */

export class RunsView {
  /** @param {HTMLElement} host @param {Shell} shell */
  constructor(host, shell) {
    this.host = host;
    this.shell = shell;
    this.timer = 0;
    this.shown = "";
    this.list = element("div", { class: "runs" });
    this.show();
  }

  show() {
    this.host.replaceChildren(
      element("div", { class: "headline" }, [
        element("h2", { text: t("runs.title") }),
        button(t("runs.new"), {
          id: "new-run",
          class: "primary",
          hidden: !this.shell.about.writes,
          onclick: () => this.shell.go("new"),
        }),
      ]),
      this.list,
    );
    this.shown = "";
    void this.look();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = -1;
  }

  async look() {
    await this.shell.trying(async () => {
      const listed = await ask("jumok/runs");
      const text = JSON.stringify(listed);
      if (text === this.shown) return;
      this.shown = text;
      this.render(listed);
    });
    if (this.timer >= 0) this.timer = window.setTimeout(() => this.look(), EVERY);
  }

  /** @param {any} listed */
  render({ runs, started }) {
    const order = { running: 0, starting: 1 };
    const rank = (/** @type {any} */ run) => order[/** @type {"running"} */ (run.state)] ?? 2;
    runs.sort((/** @type {any} */ a, /** @type {any} */ b) => rank(a) - rank(b) || (b.changed ?? 0) - (a.changed ?? 0));
    const empty = !runs.length && !started;
    this.list.replaceChildren(
      ...(empty ? [element("p", { class: "nothing", text: t("runs.none") })] : []),
      ...(started ? [startedCard(started)] : []),
      ...runs.map((/** @type {any} */ run) => card(run)),
    );
  }
}

/** A process that has no folder yet, or ended without one. @param {any} started */
function startedCard({ name, code, said }) {
  return element("article", { class: "card pending" }, [
    element("div", { class: "card-head" }, [
      element("h3", { text: name }),
      badge(code === null ? "starting" : "failed"),
    ]),
    said ? element("pre", { class: "said", text: said }) : null,
  ]);
}

/** @param {any} run */
function card(run) {
  const { name, state, last, best } = run;
  const link = element("a", { href: `#run=${encodeURIComponent(name)}`, id: `run-${name}`, text: name });
  const shape = [
    run.task ? t(`task.${run.task}`) : null,
    run.parameters ? t("run.parameters.count", { n: shortCount(run.parameters) }) : null,
    run.tokenizer,
    (run.sources ?? []).join(", ") || null,
  ]
    .filter(Boolean)
    .join(" · ");
  const figures = [
    [t("run.loss"), loss(last?.loss, run)],
    [t("run.best"), loss(best?.figures?.loss, run)],
    [t("run.step"), last ? count(last.step) : "–"],
    state === "running" ? [t("run.speed"), speed(last?.tokens_per_second)] : [t("run.seconds"), time(last?.seconds)],
  ];
  const curve = run.spark.length > 1 ? spark(run.spark, t("run.curve")) : null;
  const progress =
    state === "running" && last
      ? element("progress", { max: 1, value: last.progress ?? 0, "aria-label": t("run.progress") })
      : null;
  return element("article", { class: "card" }, [
    element("div", { class: "card-head" }, [element("h3", {}, [link]), badge(state)]),
    element("p", { class: "card-shape", text: shape }),
    element("div", { class: "card-body" }, [
      /** @type {any} */ (curve),
      element(
        "dl",
        { class: "numbers" },
        figures.map(([label, value]) =>
          element("div", {}, [element("dt", { text: label }), element("dd", { text: value })]),
        ),
      ),
    ]),
    progress,
    state === "running" && last
      ? element("p", { class: "card-shape", text: `${t("run.remaining")} ${time(last.remaining)}` })
      : null,
  ]);
}
