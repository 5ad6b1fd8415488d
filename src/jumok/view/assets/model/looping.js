// Whether an answer has run into a loop, by the rule of `jumok.inference.looping`.

const LONGEST_CYCLE = 128; // ids
const MIN_CYCLES = 4;
const MIN_LENGTH = 64; // ids of all cycles together

/** Whether the last ids are one sequence again and again. @param {number[]} ids @returns {boolean} */
export function isLooping(ids) {
  const last = ids.length - 1;
  for (let cycle = 1; cycle <= LONGEST_CYCLE; cycle += 1) {
    const length = Math.max(MIN_LENGTH, MIN_CYCLES * cycle);
    if (length > ids.length) return false;
    let place = last;
    while (place > last - length + cycle && ids[place] === ids[place - cycle]) place -= 1;
    if (place === last - length + cycle) return true;
  }
  return false;
}
