// The words of a page in two languages, and how numbers are written.

/** @type {Map<string, readonly [string, string]>} */
const words = new Map();

/**
 * Add entries to the words that `t` knows. A key may be defined once.
 * @param {Record<string, readonly [string, string]>} table [Korean, English] of each key
 */
export function defineWords(table) {
  for (const [key, entry] of Object.entries(table)) {
    if (words.has(key)) throw new Error(`the word ${key} is defined twice`);
    words.set(key, entry);
  }
}

const LANGUAGES = ["ko", "en"];
/** @type {"ko"|"en"} */
let spoken = "ko";

/** Set the language of the whole page: "ko" or "en"; anything else is taken as English. @param {string} language */
export function setLanguage(language) {
  spoken = language === "ko" ? "ko" : "en";
}

/** The language that the page could be switched to. */
export function otherLanguage() {
  return spoken === "ko" ? "en" : "ko";
}

/**
 * The language that the reader's browser asks for: Korean if it names Korean first, English otherwise.
 * @param {readonly string[]} [languages]
 */
export function preferredLanguage(languages = globalThis.navigator?.languages ?? []) {
  return (languages[0] ?? "").toLowerCase().startsWith("ko") ? "ko" : "en";
}

/**
 * A label in the language of the page (or in the one given), with {name} replaced by values.name, and {name:s} by the
 * "s" of a plural.
 * @param {string} key @param {Record<string, unknown>} [values] @param {string} [language]
 */
export function t(key, values = {}, language = spoken) {
  const entry = words.get(key);
  if (!entry) return key;
  return entry[LANGUAGES.indexOf(language)].replace(/\{(\w+)(:s)?\}/g, (whole, name, plural) => {
    if (!(name in values)) return whole;
    return plural ? (String(values[name]) === "1" ? "" : "s") : String(values[name]);
  });
}

/** The sentence of an error, in the language of the page or in the one given. @param {any} error @param {string} [language] */
export function messageOf(error, language) {
  const known = words.has(error?.code);
  return known
    ? t(error.code, error.values, language)
    : t("error.unknown", { detail: String(error?.message ?? error) }, language);
}

/** One sentence of {ko, en}, as the notes of a trace bring them. @param {{ko?: string, en?: string}} pair */
export function inLanguage(pair) {
  return pair[spoken] ?? pair.en ?? pair.ko ?? "";
}

/** A count with separators: 12,345. @param {number} n */
export function count(n) {
  // Not by toLocaleString, whose first call takes 20 ms.
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * A large count in few characters, as the language counts: 12.4M in English, 1,240만 in Korean, where a space follows
 * the word and none a digit (1,240만 개, 12개).
 * @param {number} n
 */
export function shortCount(n) {
  const short = (/** @type {number} */ value) => (value >= 100 ? count(value) : String(Number(value.toPrecision(3))));
  if (spoken === "ko") {
    if (n >= 1e8) return `${short(n / 1e8)}억 `;
    return n >= 1e4 ? `${short(n / 1e4)}만 ` : count(n);
  }
  if (n >= 1e9) return `${short(n / 1e9)}B`;
  if (n >= 1e6) return `${short(n / 1e6)}M`;
  return n >= 1e4 ? `${short(n / 1e3)}k` : count(n);
}

/**
 * How many decimals of a number are true that may be off by `error`: the last one printed is then off by at most one.
 * Negative if the digit before the point is not true, either.
 * @param {number} error @param {number} most
 */
export function trueDecimals(error, most) {
  return error > 0 ? Math.min(most, Math.floor(-Math.log10(2 * error))) : most;
}

/**
 * A number with a true minus sign and a fixed number of decimals, −0.125; fewer if it may be off by more than half of
 * the last one. "≈" stands before a number whose only digit may be off by more than one.
 * @param {number} x @param {number} [digits] @param {number} [error] how far it may be off
 */
export function decimal(x, digits = 3, error = 0) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x < 0 ? "−∞" : "∞";
  const size = Math.abs(x);
  const certain = trueDecimals(error, digits);
  const decimals = error < size ? Math.max(certain, Math.min(digits, -Math.floor(Math.log10(size)))) : certain;
  const unit = 10 ** -decimals;
  const shown = decimals < 0 ? String(Math.round(size / unit) * unit) : size.toFixed(decimals);
  const sign = x < 0 && Number(shown) !== 0 ? "−" : "";
  return error && (decimals < 0 || decimals > certain) ? `≈${sign}${shown}` : sign + shown;
}

/** The same with its sign always shown: +0.125. @param {number} x @param {number} [digits] */
export function signed(x, digits = 3) {
  const shown = decimal(x, digits);
  return x > 0 && Number(shown) !== 0 ? `+${shown}` : shown;
}

/**
 * A share in per cent, with more decimals the smaller it is: 42.0%, 4.20%, 0.42%, <0.01%; fewer as in `decimal`.
 * @param {number} x @param {number} [error] how far the share may be off
 */
export function percent(x, error = 0) {
  if (!Number.isFinite(x)) return "NaN";
  const value = 100 * x;
  if (value === 0 && !error) return "0%";
  const digits = value >= 99.995 ? 0 : value >= 99.9 || value < 10 ? 2 : 1;
  const decimals = Math.max(0, trueDecimals(100 * error, digits));
  if (value < 0.01 || Number(value.toFixed(decimals)) === 0) return `<${(10 ** -decimals).toFixed(decimals)}%`;
  return `${decimal(value, digits, 100 * error)}%`;
}
