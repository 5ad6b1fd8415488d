/** What went wrong, as a key of the words table with the values of its sentence. */
export class EngineError extends Error {
  /** @param {string} code @param {Record<string, unknown>} [values] */
  constructor(code, values = {}) {
    super(`${code} ${JSON.stringify(values)}`);
    this.name = "EngineError";
    this.code = code;
    this.values = values;
  }
}
