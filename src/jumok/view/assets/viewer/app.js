// @ts-check
// The entry of a saved page: reads the trace in it, shows it, or says what is wrong.

import { element } from "../base/controls.js";
import { Shell } from "./shell.js";
import { EngineError } from "../model/errors.js";
import { readTrace } from "./trace.js";
import { t } from "../base/words.js";

/** What went wrong, in both languages: no choice may have been made yet. @param {unknown} error */
function showTrouble(error) {
  const [code, values] =
    error instanceof EngineError
      ? [error.code, error.values]
      : ["error.unknown", { detail: error instanceof Error ? error.message : String(error) }];
  const part = (/** @type {string} */ language) => [
    element("h1", { text: t("error.title", {}, language), lang: language }),
    element("p", { text: t(code, values, language), lang: language }),
    element("p", { text: t("error.remedy", {}, language), lang: language }),
  ];
  const order = (navigator.language ?? "").startsWith("ko") ? ["ko", "en"] : ["en", "ko"];
  document.body.replaceChildren(
    element("main", { class: "trouble", role: "alert", "data-error": code }, order.flatMap(part)),
  );
}

function openingState() {
  try {
    return JSON.parse(document.getElementById("jumok-open")?.textContent ?? "") ?? {};
  } catch {
    return {};
  }
}

async function openPage() {
  try {
    const shell = new Shell(readTrace(document.getElementById("jumok-trace")?.textContent ?? ""), openingState());
    Object.defineProperty(window, "jumok", { value: shell.face(), enumerable: true });
    await shell.start();
  } catch (error) {
    showTrouble(error);
    throw error;
  }
}

openPage();
