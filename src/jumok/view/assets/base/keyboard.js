// Keys and what they do. Letters are found by their place when the keyboard writes Hangul.

/** @type {Record<string, string>} */
const LETTER_KEYS = { KeyG: "g", KeyT: "t", KeyL: "l", KeyS: "s", KeyX: "x", KeyP: "p", KeyN: "n" };
/** @type {Record<string, string>} */
const SIGN_KEYS = { BracketLeft: "[", BracketRight: "]", Comma: ",", Period: ".", Slash: "/" };

/** The help overlay: pairs of keys and the word that says what they do. @type {[string[], string][]} */
export const KEY_HELP = [
  [["↑", "↓", "←", "→"], "key.arrows"],
  [["[", "]"], "key.layer"],
  [[",", "."], "key.head"],
  [["1", "–", "6"], "key.views"],
  [["g"], "key.group"],
  [["+", "−", "0"], "key.zoom"],
  [["s"], "key.save"],
  [["t"], "key.theme"],
  [["l"], "key.language"],
  [["Esc"], "key.escape"],
  [["?"], "key.help"],
];

/**
 * The sign that a key press means: Latin letters and signs also from a Hangul keyboard.
 * @param {KeyboardEvent} event
 */
export function keySign(event) {
  const { key, code } = event;
  if (key === "?" || (key !== "/" && code === "Slash" && event.shiftKey)) return "?";
  if (/^[\x20-\x7e]$/.test(key)) return key.toLowerCase();
  if (LETTER_KEYS[code]) return LETTER_KEYS[code];
  if (SIGN_KEYS[code] && !event.shiftKey) return SIGN_KEYS[code];
  return key;
}

/** Whether a key press belongs to a field that is being used, or to the browser. @param {KeyboardEvent} event */
export function isForeignKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  const target = /** @type {HTMLElement|null} */ (event.target);
  const name = target?.tagName;
  if (name === "INPUT" || name === "TEXTAREA" || target?.isContentEditable) return true;
  return name === "SELECT" && (event.key.startsWith("Arrow") || /^[\p{L}\p{N}]$/u.test(event.key));
}
