// The entry of a saved page: reads the trace in it, shows it, or says what is wrong.

import { keepFocus } from "../base/focus.js";
import { showTrouble } from "../base/page_chrome.js";
import { Shell } from "./shell.js";
import { EngineError } from "../model/errors.js";
import { readTrace } from "./trace.js";
import { messageOf } from "../base/words.js";

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
    const code = error instanceof EngineError ? error.code : "error.unknown";
    showTrouble(code, (language) => messageOf(error, language), "error");
    throw error;
  }
}

keepFocus();
openPage();
