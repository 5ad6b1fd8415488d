// The colours of the pieces, as custom properties: those of every page of jumok.

import { themeColours } from "../base/colours.js";

const USED = "ink muted rule surface panel accent focus positive negative masked".split(" ");

/** @type {(theme: "light" | "dark") => string} */
const properties = (theme) => {
  const colours = /** @type {Record<string, string>} */ (/** @type {unknown} */ (themeColours(theme)));
  return [`color-scheme:${theme}`, ...USED.map((name) => `--piece-${name}:${colours[name]}`)].join(";");
};

/** In a file: the colours that the reader's system asks for. */
export function fileColours() {
  return `svg{${properties("light")}}\n@media (prefers-color-scheme:dark){svg{${properties("dark")}}}`;
}

/** On the site: those of the theme that is chosen there, or of the system. Paper is always light. */
export function siteColours() {
  const [light, dark] = [properties("light"), properties("dark")];
  return (
    `.jumok-piece{${light}}\n@media screen{body[data-theme="dark"] .jumok-piece{${dark}}}\n`
    + `@media screen and (prefers-color-scheme:dark){body:not([data-theme="light"]) .jumok-piece{${dark}}}`
  );
}
