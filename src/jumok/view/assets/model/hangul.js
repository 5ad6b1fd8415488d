// Which characters are Hangul.

/** @param {string} character */
export function isSyllable(character) {
  return character >= "\uac00" && character <= "\ud7a3";
}

/** @param {string} character */
export function isJamo(character) {
  return /^[\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]/u.test(character);
}
