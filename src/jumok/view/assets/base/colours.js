// All colours of the page, light and dark. Contrasts are those of WCAG 2: text at least 4.5 to 1, marks at least 3 to 1.
//
// HEAD_COLOURS were searched, not chosen: sixteen colours whose smallest distance in OKLab is as large as possible, for
// eyes that see all colours and for the three kinds of colour blindness (simulated as in Machado et al. 2009,
// https://doi.org/10.1109/TVCG.2009.113), the first four and the first eight before the rest. They therefore differ in
// lightness as much as in hue. Blue against orange, the pair that all eyes tell apart, is kept for signs.

/** @typedef {readonly number[]} Colour [r, g, b], 0 to 255 */
/**
 * @typedef {{name: "light"|"dark", surface: string, panel: string, raised: string, ink: string, muted: string,
 *   faint: string, rule: string, accent: string, accentInk: string, focus: string, positive: string, negative: string,
 *   masked: string, highlight: string}} Theme
 */

/** @type {{light: Theme, dark: Theme}} */
// prettier-ignore
const THEME_COLOURS = {
  light: {
    name: "light", surface: "#ffffff", panel: "#f5f6f8", raised: "#ffffff", ink: "#1a1e26", muted: "#566070",
    faint: "#7a8391", rule: "#e2e5ea", accent: "#1a5fb4", accentInk: "#ffffff", focus: "#1a5fb4",
    positive: "#1862b5", negative: "#b04704", masked: "#f0f1f4", highlight: "#fdf0c4",
  },
  dark: {
    name: "dark", surface: "#15181d", panel: "#0e1014", raised: "#1e2229", ink: "#e8ebf0", muted: "#a5aebb",
    faint: "#7d8795", rule: "#2c323b", accent: "#74b0f6", accentInk: "#0a1220", focus: "#74b0f6",
    positive: "#62abf5", negative: "#f2954f", masked: "#1d2127", highlight: "#40371a",
  },
};

// prettier-ignore
const HEAD_COLOURS = {
  light: [
    "#164ec8", "#e95916", "#0ba690", "#852c6f", "#6f0043", "#644e9b", "#4e370b", "#9b5985",
    "#c8374e", "#6f5916", "#646fde", "#431690", "#902143", "#007a59", "#9b85bc", "#b18559",
  ],
  dark: [
    "#5985f4", "#e99021", "#43dea6", "#c8b1ff", "#b1e9ff", "#bc596f", "#f4e921", "#9085b1",
    "#6fa67a", "#43ffbc", "#b190e9", "#90c8d3", "#de5921", "#7a6fc8", "#43b1a6", "#e9b16f",
  ],
};

// The stops of a scale lie at equal steps; between them colours are mixed in OKLab, where equal steps look equal.
const SCALE_STOPS = {
  cool: {
    light: ["#ffffff", "#d3e4f4", "#8ebae0", "#4188c6", "#18549c", "#0a2552"],
    dark: ["#15181d", "#1c3450", "#28609a", "#4c99d6", "#a3d5f5", "#f3fbff"],
  },
  warm: {
    light: ["#ffffff", "#fdecc8", "#fbd08a", "#f5ab52", "#e8853a"],
    dark: ["#15181d", "#33281a", "#54391a", "#7c4a17", "#98540f"],
  },
  sign: {
    light: ["#8a3500", "#d9701f", "#f6bf8d", "#ffffff", "#9cc4ea", "#3a82cc", "#0d3f80"],
    dark: ["#ffc48f", "#e0853c", "#74441d", "#15181d", "#1f4a78", "#4794e0", "#b4dcff"],
  },
};

/**
 * The colours of a theme by what they are for, as "#rrggbb".
 * @param {string} name "dark"; anything else is the light theme
 */
export function themeColours(name) {
  return THEME_COLOURS[name === "dark" ? "dark" : "light"];
}

/** The colour of a head: sixteen that stay apart, then the same again. @param {number} head @param {Theme} theme */
export function headColour(head, theme) {
  const colours = HEAD_COLOURS[theme.name];
  return colours[head % colours.length];
}

/**
 * Set the colours of a theme as CSS variables: `--accent` is "#rrggbb", and `--accent-parts` "r g b", to which a style
 * may add an opacity. (Chrome has color-mix since version 111.)
 * @param {CSSStyleDeclaration} style @param {Theme} theme
 */
export function setColours(style, theme) {
  for (const [name, colour] of Object.entries(theme)) {
    if (name === "name") continue;
    const variable = `--${name.replace(/[A-Z]/g, (sign) => `-${sign.toLowerCase()}`)}`;
    style.setProperty(variable, colour);
    style.setProperty(`${variable}-parts`, rgb(colour).join(" "));
  }
}

/** "#rrggbb" of [r, g, b], 0 to 255. @param {Colour} colour */
export function hex([r, g, b]) {
  return `#${[r, g, b].map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
}

/** [r, g, b] of "#rrggbb". @param {string} colour */
export function rgb(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}

/** @param {number} part */
const colourLinear = (part) => (part <= 10.31475 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4);
/** @param {number} part */
const colourGamma = (part) =>
  255 * Math.min(1, Math.max(0, part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));

// https://bottosson.github.io/posts/oklab/
/** @param {Colour} colour */
function colourToLab(colour) {
  const [r, g, b] = colour.map(colourLinear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/** @param {number[]} list */
function colourFromLab([light, a, b]) {
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(colourGamma);
}

/**
 * The colour between two: share 0 is the first, 1 the second. All as [r, g, b].
 * @param {Colour} from @param {Colour} to @param {number} share
 */
export function mix(from, to, share) {
  const a = colourToLab(from);
  const b = colourToLab(to);
  return colourFromLab(a.map((part, i) => part + (b[i] - part) * share));
}

/** @type {Map<string, Uint8ClampedArray<ArrayBuffer>>} */
const scaleTables = new Map();

/**
 * A whole scale as 256 colours, r g b a in bytes, for bitmaps. It is made once and shared: do not write to it.
 * @param {"cool"|"warm"|"sign"} scale @param {Theme} theme
 */
export function scaleTable(scale, theme) {
  const name = `${scale} ${theme.name}`;
  let table = scaleTables.get(name);
  if (!table) {
    const stops = SCALE_STOPS[scale][theme.name].map(rgb);
    table = new Uint8ClampedArray(4 * 256);
    for (let i = 0; i < 256; i++) {
      const at = (i / 255) * (stops.length - 1);
      const below = Math.min(Math.floor(at), stops.length - 2);
      table.set([...mix(stops[below], stops[below + 1], at - below), 255], 4 * i);
    }
    scaleTables.set(name, table);
  }
  return table;
}

/** @param {"cool"|"warm"|"sign"} scale @param {number} value @param {Theme} theme */
function scaleColour(scale, value, theme) {
  const table = scaleTable(scale, theme);
  const at = 4 * Math.round(255 * Math.min(1, Math.max(0, value || 0)));
  return [table[at], table[at + 1], table[at + 2]];
}

/**
 * From the surface to deep blue (to pale blue on dark): weights and probabilities.
 * @param {number} value 0 to 1
 * @param {Theme} theme
 */
export function sequential(value, theme) {
  return scaleColour("cool", value, theme);
}

/**
 * From the surface to orange, never too dark for ink to stay readable on it: surprise, and the numbers of a head.
 * @param {number} value @param {Theme} theme
 */
export function warm(value, theme) {
  return scaleColour("warm", value, theme);
}

/** Orange for negative, blue for positive, the surface at nought. @param {number} value -1 to 1 @param {Theme} theme */
export function diverging(value, theme) {
  return scaleColour("sign", ((value || 0) + 1) / 2, theme);
}

/** The relative luminance of [r, g, b], 0 to 1, as WCAG defines it. @param {Colour} colour */
function luminance(colour) {
  const [r, g, b] = colour.map(colourLinear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The contrast of two [r, g, b], 1 to 21, as WCAG defines it. @param {Colour} one @param {Colour} other */
export function contrast(one, other) {
  const [dim, bright] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dim + 0.05);
}

/** Black or white, whichever is easier to read on [r, g, b]: at least 4.5 to 1 on any colour. @param {Colour} colour */
export function inkOn(colour) {
  return luminance(colour) > 0.179 ? "#000000" : "#ffffff";
}
