// @ts-check
// The runs that can be used as models, and their engines; a run is loaded when it is first asked for.

import { element } from "../../view/assets/base/controls.js";
import { ask, post } from "./server.js";
import { ServerEngine } from "./server_engine.js";

/** @typedef {{name: string, kind: string, labels: string[] | null, servable: boolean, served: boolean}} Run */

/** The runs with parameters, those that the server has loaded first. @returns {Promise<Run[]>} */
export async function usableRuns() {
  const { runs } = await ask("runs");
  const usable = runs.filter((/** @type {Run} */ run) => run.servable || run.served);
  return usable.sort((/** @type {Run} */ a, /** @type {Run} */ b) => Number(b.served) - Number(a.served));
}

/** Whether a run continues texts. @param {Run} run */
export const writes = (run) => run.kind === "gpt" && !run.labels?.length;

/** The engine of a run. @param {string} name @returns {Promise<ServerEngine>} */
export async function engineOf(name) {
  await post("runs/load", { name });
  return ServerEngine.open(name);
}

/**
 * A list of runs to choose from.
 * @param {string} id
 * @param {string} label
 * @param {Run[]} runs
 * @param {string} value
 * @param {(name: string) => void} onchange
 */
export function runChoice(id, label, runs, value, onchange) {
  const select = element(
    "select",
    { id, onchange: () => onchange(select.value) },
    runs.map(({ name }) => element("option", { value: name, text: name, selected: name === value })),
  );
  return element("label", { class: "choice" }, [element("span", { class: "choice-label", text: label }), select]);
}
