// Where normalisation may change a text that goes on, as `jumok.text.boundaries`. Characters are single code points.

// Vowel and final jamo combine with the character before them, as do all marks.
const JOINING = /^[\u1160-\u11ff\ud7b0-\ud7ff\u{16d63}-\u{16d6a}\p{M}]/u;
const LETTER = /^\p{L}/u;

/** Whether normalisation never combines or reorders a character with those before it. @param {string} character */
export function startsAnew(character) {
  if (character < "\u0300" || (character >= "\uac00" && character <= "\ud7a3")) return true;
  return !JOINING.test(character);
}

/** Whether normalisation never changes a character because of one that follows. @param {string} character */
export function isSettled(character) {
  if (character >= "\u11a8" && character <= "\u11c2") return true;
  return character < "\x7f" && !LETTER.test(character) && !"<=>".includes(character);
}

/** Whether a character is white space for Python, `str.isspace`. @param {string} character */
export function isBlank(character) {
  return /^\p{White_Space}/u.test(character) || (character >= "\x1c" && character <= "\x1f");
}

/** The last place, among characters, at which one starts anew; -1: none. @param {string[]} characters */
export function lastFreshStart(characters) {
  let at = characters.length - 1;
  while (at >= 0 && !startsAnew(characters[at])) at -= 1;
  return at;
}
