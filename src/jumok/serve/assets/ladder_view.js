// @ts-check
// A ladder as a race: the validation losses of ten models, live.

import { headColour, themeColours } from "../../view/assets/base/colours.js";
import { button, element, segmented } from "../../view/assets/base/controls.js";
import { shortCount, t } from "../../view/assets/base/words.js";
import { drawChart } from "./chart.js";
import { badge, nats, speed, time } from "./format.js";
import { ask, isGone, post } from "./server.js";

const EVERY = 2000; // milliseconds

/** @typedef {import("./shell.js").Shell} Shell */

export class LadderView {
  /** @param {HTMLElement} host @param {Shell} shell @param {string} name */
  constructor(host, shell, name) {
    this.host = host;
    this.shell = shell;
    this.name = name;
    this.by = "tokens";
    this.timer = 0;
    /** @type {any} */
    this.race = null;
    this.shown = "";
    this.resized = () => this.race && this.draw();
    window.addEventListener("resize", this.resized);
    void this.look();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = -1;
    window.removeEventListener("resize", this.resized);
  }

  show() {
    if (this.race) this.render();
  }

  async look() {
    const error = await this.shell.trying(async () => {
      const race = await ask("ladder", { name: this.name });
      const text = JSON.stringify(race);
      if (text === this.shown) return;
      this.shown = text;
      this.race = race;
      this.render();
    });
    if (this.timer >= 0 && !isGone(error)) this.timer = window.setTimeout(() => this.look(), EVERY);
  }

  render() {
    const { race, shell } = this;
    const focused = document.activeElement?.id;
    const axes = /** @type {[string, string][]} */ ([
      ["tokens", t("ladder.by.tokens")],
      ["seconds", t("ladder.by.seconds")],
    ]);
    this.chart = element("div", { class: "chart-host" });
    const runs = race.state === "running";
    const act = runs ? "stop" : race.state === "stopped" ? "resume" : "";
    this.host.replaceChildren(
      element("div", { class: "headline" }, [
        element("a", { class: "back", href: "#runs", text: t("runs.back") }),
        element("h2", { text: t("ladder.title", { name: race.name }) }),
        badge(race.state),
        element("span", { class: "gap" }),
        act && shell.about.writes
          ? button(t(`run.${act}`), { id: "act", class: "primary", onclick: () => this.act(act) })
          : null,
      ]),
      element("section", { class: "box" }, [
        element("div", { class: "line" }, [
          element("p", { class: "remark", text: `${t("ladder.about")} (${race.text})` }),
          segmented(t("ladder.by"), axes, this.by, (/** @type {string} */ by) => {
            this.by = by;
            this.render();
          }),
        ]),
        this.chart,
      ]),
      element("section", { class: "box scrolls" }, [this.table()]),
    );
    this.draw();
    if (focused) document.getElementById(focused)?.focus();
  }

  /** @param {string} act */
  async act(act) {
    await this.shell.trying(async () => {
      await post(`ladder/${act}`, { name: this.name });
      this.shell.say(t("run.asked"));
    });
  }

  /** @param {any} rung */
  colour(rung) {
    return headColour(rung.number - 1, themeColours(this.shell.dark ? "dark" : "light"));
  }

  /** @param {any} rung */
  title(rung) {
    return `${rung.number}. ${rung.title[this.shell.language]}`;
  }

  draw() {
    const { race, chart } = this;
    if (!chart) return;
    const at = this.by === "tokens" ? 0 : 1;
    const series = race.rungs
      .filter((/** @type {any} */ rung) => rung.curve.length)
      .map((/** @type {any} */ rung) => ({
        name: this.title(rung),
        colour: this.colour(rung),
        width: rung.state === "running" ? 3 : 1.8,
        points: rung.curve.map((/** @type {number[]} */ point) => [point[at] ?? 0, point[2]]),
      }));
    drawChart(chart, {
      label: t("ladder.chart"),
      x: t(`ladder.by.${this.by}`),
      series,
      height: Math.round(Math.min(420, Math.max(260, chart.clientWidth * 0.5))),
      showX: this.by === "tokens" ? shortCount : time,
      lines: typeof race.floor === "number" ? [{ name: t("run.floor"), y: race.floor }] : [],
    });
  }

  table() {
    const columns = [
      t("ladder.model"),
      t("ladder.state"),
      t("ladder.nats"),
      t("run.parameters"),
      t("run.speed"),
      t("ladder.after"),
    ];
    const newest = (/** @type {any} */ rung) => rung.nats_per_char ?? rung.curve.at(-1)?.[2];
    return element("table", { class: "table" }, [
      element("thead", {}, [
        element(
          "tr",
          {},
          columns.map((text) => element("th", { scope: "col", text })),
        ),
      ]),
      element(
        "tbody",
        {},
        this.race.rungs.map((/** @type {any} */ rung) => {
          const dot = element("span", { class: "dot", "aria-hidden": "true" });
          dot.style.background = this.colour(rung);
          const started = rung.state !== "waiting";
          const name = started
            ? element("a", { href: `#run=${encodeURIComponent(rung.run)}`, text: this.title(rung) })
            : element("span", { text: this.title(rung) });
          return element("tr", {}, [
            element("th", { scope: "row", title: rung.adds[this.shell.language] }, [dot, name]),
            element("td", {}, [badge(rung.state)]),
            element("td", { class: "number", text: nats(newest(rung)) }),
            element("td", { class: "number", text: rung.parameters ? shortCount(rung.parameters) : "–" }),
            element("td", { class: "number", text: speed(rung.tokens_per_second) }),
            element("td", { class: "after", text: rung.after.slice(0, 60) }),
          ]);
        }),
      ),
    ]);
  }
}
