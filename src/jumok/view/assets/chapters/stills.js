// @ts-check
// The still pictures of the pieces, for print, for a terminal and for readers without JavaScript.

import { setLanguage, t } from "../base/words.js";
import { asText, shape } from "./drawing.js";
import { PIECES } from "./pieces.js";
import { fileColours } from "./style.js";

const MARGIN = 10;

/**
 * A piece as an SVG file.
 * @param {import("./frame.js").Piece} piece
 * @param {"ko" | "en"} language
 * @param {string} rules what drawing.css holds
 * @returns {string}
 */
export function still(piece, language, rules) {
  setLanguage(language);
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

/**
 * All pieces, by the name of their file.
 * @param {"ko" | "en"} language
 * @param {string} rules
 * @returns {Record<string, string>}
 */
export function stills(language, rules) {
  return Object.fromEntries(PIECES.map((piece) => [`try-${piece.name}.svg`, still(piece, language, rules)]));
}
