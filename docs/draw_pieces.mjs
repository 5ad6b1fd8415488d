// Write the still pictures of the interactive pieces: node docs/draw_pieces.mjs FOLDER LANGUAGE

import { readFileSync, writeFileSync } from "node:fs";
import { stills } from "../src/jumok/view/assets/chapters/stills.js";

const [folder, language] = process.argv.slice(2);
const rules = readFileSync(new URL("../src/jumok/view/assets/chapters/drawing.css", import.meta.url), "utf8");
for (const [name, svg] of Object.entries(stills(language, rules))) writeFileSync(`${folder}/${name}`, svg);
