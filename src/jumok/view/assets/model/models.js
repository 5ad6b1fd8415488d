/** Builds the model of a page. */

import { BERT } from "./bert.js";
import { EncoderDecoder } from "./encoder_decoder.js";
import { EngineError } from "./errors.js";
import { GPT } from "./gpt.js";

/** @type {Record<string, typeof GPT | typeof BERT | typeof EncoderDecoder>} */
const MODELS = { gpt: GPT, bert: BERT, encoder_decoder: EncoderDecoder };

/**
 * @param {import("./reader.js").Config} config with its "type", as in config.json
 * @param {import("./matrices.js").Parameters} parameters @returns {GPT | BERT | EncoderDecoder}
 */
export function build(config, parameters) {
  const Kind = MODELS[config.type];
  if (!Kind) throw new EngineError("engine.unknown_model", { type: String(config.type) });
  return new Kind(config, parameters);
}
