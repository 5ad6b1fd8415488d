// Write the still pictures of the interactive pieces, for print and for readers without JavaScript:
// node --import ./tests/js/toml.mjs docs/draw_pieces.mjs FOLDER LANGUAGE

import { readFileSync, writeFileSync } from "node:fs";
import { setLanguage, t } from "../src/jumok/view/assets/base/words.js";
import { asText, shape } from "../src/jumok/view/assets/chapters/drawing.js";
import { PIECES } from "../src/jumok/view/assets/chapters/pieces.js";
import { fileColours } from "../src/jumok/view/assets/chapters/style.js";

const [folder, language] = process.argv.slice(2);
const rules = readFileSync(new URL("../src/jumok/view/assets/chapters/drawing.css", import.meta.url), "utf8");
const MARGIN = 10;

/**
 * Return a piece as the text of an SVG file.
 * @param {import("./frame.js").Piece} piece
 * @returns {string}
 */
function still(piece) {
  const drawn = piece.draw(piece.still);
  const [width, height] = [Number(drawn.attributes.width) + 2 * MARGIN, Number(drawn.attributes.height) + 2 * MARGIN];
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    ...drawn.attributes,
    viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`,
    width,
    height,
    lang: language,
    role: "img",
    "aria-labelledby": "t d",
  };
  const page = shape("rect", { class: "page", x: -MARGIN, y: -MARGIN, width, height });
  return `${asText(
    shape("svg", attributes, [
      shape("title", { id: "t" }, [t(`${piece.name}.title`)]),
      shape("desc", { id: "d" }, [piece.say(piece.still)]),
      shape("style", {}, [`\n${fileColours()}\n${rules}`]),
      page,
      ...drawn.children,
    ]),
  )}\n`;
}

setLanguage(language);
for (const piece of PIECES) writeFileSync(`${folder}/try-${piece.name}.svg`, still(piece));
