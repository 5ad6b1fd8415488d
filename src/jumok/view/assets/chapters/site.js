// The script of the documentation site: each piece at its place in the chapter.

import { setLanguage, t } from "../base/words.js";
import { mount } from "./frame.js";
import { PIECES } from "./pieces.js";
import { siteColours } from "./style.js";

setLanguage(document.documentElement.lang);
const colours = document.createElement("style");
colours.textContent = siteColours();
document.head.append(colours);
for (const host of document.querySelectorAll(".jumok-piece")) {
  const piece = PIECES.find(({ name }) => name === /** @type {HTMLElement} */ (host).dataset.piece);
  if (piece) mount(piece, /** @type {HTMLElement} */ (host), t(`${piece.name}.title`));
}
