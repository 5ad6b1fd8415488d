// @ts-check
// The interface of an engine: what a page asks of a model, wherever the model runs. `page/engine.js` has the engine that
// runs in the page; the playground has one that asks a server. All methods are asynchronous. A call that fails rejects
// with an Error that has `code`, a key of the words table, and `values`, what the sentence of that key shows.
//
// Prompts are token ids, the whole of them each time: the engine keeps keys and values of what it has read, and reuses
// the longest common prefix.

/** The methods of an engine that are sent to where the model runs; `stop` is beside them. */
export const ENGINE_METHODS = Object.freeze([
  "encode",
  "spell",
  "decode",
  "next",
  "score",
  "write",
  "record",
  "recordNext",
  "step",
  "classify",
  "answer",
  "fill",
]);

/**
 * A head that is switched off: its layer and its number, from 0.
 * @typedef {[number, number]} Head
 */

/**
 * How the next token is drawn; the fields and their order are those of `jumok.inference.sampling.Sampling`.
 * @typedef {object} Sampling
 * @property {number} [temperature] divides the logits; 0 takes the likeliest token. 0.8 unless given.
 * @property {number} [top_k] 0: all.
 * @property {number} [top_p] 1: all.
 * @property {number} [min_p] 0: all.
 * @property {number} [repetition_penalty] 1: off.
 * @property {number} [seed] of the random numbers of this call; left out: a new one each time.
 */

/**
 * What a page says about its model.
 * @typedef {object} About
 * @property {"gpt" | "classifier" | "bert" | "encoder-decoder"} kind
 * @property {string} name
 * @property {string} [title]
 * @property {string} [note]
 * @property {string} [licence]
 * @property {string} family
 * @property {number} n_layer
 * @property {number | null} [n_decoder_layer]
 * @property {number} n_head
 * @property {number | null} [n_decoder_head]
 * @property {number} n_kv_head
 * @property {number} n_embd
 * @property {number} head_dim
 * @property {number} context_length
 * @property {number} vocab_size
 * @property {number} parameters
 * @property {string[]} labels of a classifier; [] for other models.
 * @property {"char" | "jamo" | "bpe" | "other"} tokenizer
 * @property {string} task
 * @property {Sampling} sampling with which the page begins.
 */

/**
 * A token of a text. `text` is readable: a space is ␣, a byte of an incomplete character <EA>.
 * @typedef {object} Piece
 * @property {number} id
 * @property {string} text
 * @property {number} start the UTF-16 units of the normalised text that the token is a part of; `start` = `end`: none.
 * @property {number} end
 */

/**
 * The tokens of a text.
 * @typedef {object} Encoded
 * @property {number[]} ids never empty for a GPT: "" gives the id that a text begins with.
 * @property {Piece[]} pieces one for each id.
 * @property {string} text what the ids spell, to which `start` and `end` belong.
 * @property {number} read how many of the ids a model reads at once: the last ones for a GPT, the first ones else.
 */

/**
 * A token that may come next.
 * @typedef {object} Alternative
 * @property {number} id
 * @property {string} text readable.
 * @property {number} logit
 * @property {number} probability the softmax of the logits.
 * @property {number} chosen_probability after temperature and filters: with which it is drawn. 0: it was ruled out.
 */

/**
 * The distribution of the next token.
 * @typedef {object} Next
 * @property {Alternative[]} alternatives the likeliest first.
 * @property {number} entropy of the softmax of the logits, in nats.
 * @property {number} kept how many tokens may be drawn.
 */

/**
 * How well a token of a text was predicted from those before it.
 * @typedef {object} Scored
 * @property {number} id
 * @property {number} surprise -ln p, in nats.
 * @property {number} probability
 * @property {number} rank 1: the likeliest.
 * @property {Alternative[]} alternatives
 */

/**
 * A token as it is written. `text` is readable; `added` is the text that became final with it, often "" or more than
 * one character.
 * @typedef {object} Written
 * @property {number} id
 * @property {string} text
 * @property {string} added
 * @property {number} probability of the softmax of the logits.
 * @property {number} surprise
 * @property {number} entropy
 * @property {Alternative[]} alternatives
 * @property {number} per_second tokens a second, lately.
 */

/**
 * @typedef {object} WriteSettings
 * @property {number} [tokens] the most tokens; 200 unless given.
 * @property {Sampling} [sampling]
 * @property {Head[]} [off]
 * @property {number} [top]
 */

/**
 * @typedef {object} WriteResult
 * @property {number[]} ids the prompt and what was written.
 * @property {"length" | "stop" | "end"} ended "stop": by `engine.stop()`; "end": at an id that ends a text.
 * @property {string} [rest] the text that the last tokens' `added` had held back.
 */

/**
 * One layer of a step. Only the layer that was asked for has what is marked with *; the others have norms.
 * Arrays are rows after rows: (H, D) has the D numbers of head 0 first.
 * @typedef {object} StepLayer
 * @property {number} layer
 * @property {{attention: number, mlp: number, residual: number}} norms lengths of what the sub-layers add, and of their
 *   sum after this layer.
 * @property {Float32Array} [input] * (C), the residual stream before this layer.
 * @property {Float32Array} [norm1] * (C)
 * @property {Float32Array} [q] * (H, D), after the norm of a head if there is one.
 * @property {Float32Array} [k] * (G, D), likewise.
 * @property {Float32Array} [v] * (G, D)
 * @property {Float32Array} [q_rotated] * (H, D); equal to q where positions are learned.
 * @property {Float32Array} [k_rotated] * (G, D)
 * @property {Float32Array} [keys] * (G, T, D)
 * @property {Float32Array} [values] * (G, T, D)
 * @property {Float32Array} [scores] * (H, T), before the softmax.
 * @property {Float32Array} [weights] * (H, T)
 * @property {Float32Array} [heads] * (H, D), 0 for heads that are switched off.
 * @property {Float32Array} [joined] * (H·D): the heads in one vector, the input of o_proj.
 * @property {Float32Array} [attention_out] * (C)
 * @property {Float32Array} [residual1] * (C)
 * @property {Float32Array} [norm2] * (C)
 * @property {Float32Array} [mlp_hidden] * (F), after the activation (and the gate).
 * @property {Float32Array} [mlp_out] * (C)
 * @property {Float32Array} [residual2] * (C)
 */

/**
 * Everything of one step at the last position.
 * @typedef {object} Step
 * @property {{id: number, text: string}} token the last one that was read.
 * @property {number} position its place in the window that the model sees.
 * @property {number} length T, the tokens in that window.
 * @property {string[]} texts the tokens in that window, readable.
 * @property {number} layer the one that was asked for.
 * @property {Float32Array} embedding (C)
 * @property {Float32Array | null} position_embedding (C); null where positions are rotated.
 * @property {StepLayer[]} layers
 * @property {Float32Array} norm (C), after the last norm.
 * @property {Float32Array} logits (V)
 * @property {Alternative[]} top the likeliest next tokens.
 */

/**
 * @typedef {object} Classified
 * @property {{label: string, probability: number}[]} labels in the order of the model's.
 * @property {{text: string, start: number, end: number, effect: number}[]} words UTF-16 units of the text that was
 *   given. effect: by how much the log-probability of the likeliest label falls when the word is left out.
 * @property {number} read tokens that were read, and `tokens` that the text has.
 * @property {number} tokens
 */

/**
 * @typedef {object} Answered
 * @property {string} text
 * @property {number[]} ids
 * @property {number} score the sum of the log-probabilities divided by the number of tokens.
 * @property {"stop" | "length"} finish
 * @property {{text: string, ids: number[], score: number, finish: "stop" | "length"}[]} answers all beams, the best first.
 * @property {object | null} cross the JSON of a trace of the source and the answer.
 */

/**
 * @typedef {object} Filled
 * @property {string} text with the likeliest token at each mask.
 * @property {{start: number, end: number, candidates: {id: number, text: string, probability: number}[]}[]} masks
 *   start and end of each mask in the text that was given, in UTF-16 units.
 */

/**
 * @typedef {object} Engine
 * @property {About} about
 * @property {(text: string) => Promise<Encoded>} encode
 * @property {(ids: number[]) => Promise<Encoded>} spell the same of ids: what they spell, and where each one stands.
 * @property {(ids: number[]) => Promise<string>} decode half a character at the end is kept back.
 * @property {(ids: number[], settings?: {off?: Head[], sampling?: Sampling, top?: number}) => Promise<Next>} next
 * @property {(ids: number[], settings?: {off?: Head[], top?: number}) => Promise<(Scored | null)[]>} score
 *   one for each id but the first; null for those before the window that the model sees.
 * @property {(ids: number[], settings?: WriteSettings, onToken?: (token: Written) => void) => Promise<WriteResult>} write
 * @property {(ids: number[], settings?: {layers?: number[], off?: Head[], top?: number}) => Promise<object>} record the
 *   JSON of a trace (docs/viewer.md, "jumok-trace"); all layers unless some are given.
 * @property {(ids: number[]) => Promise<object>} recordNext the token event for `trace.append`; ids are those of the last
 *   `record` or `recordNext` and one more.
 * @property {(ids: number[], settings?: {layer?: number, off?: Head[], top?: number}) => Promise<Step>} step
 * @property {(text: string, settings?: {words?: boolean}) => Promise<Classified>} classify a later call ends the
 *   search for words of an earlier one, which then has the words so far.
 * @property {(text: string, settings?: {tokens?: number, beams?: number, sampling?: Sampling, trace?: boolean},
 *   onToken?: (token: {id: number, text: string, added: string}) => void) => Promise<Answered>} answer
 * @property {(text: string, settings?: {top?: number}) => Promise<Filled>} fill
 * @property {() => Promise<void>} stop ends a running `write` or `answer` after the token at hand.
 */
