// The interface of an engine: what a page asks of a model. A call that fails rejects with an EngineError. Prompts are
// token ids, the whole of them each time: the engine keeps keys and values of what it has read, and reuses the longest
// common prefix. C width, H heads, G key/value heads, D width of a head, F width of the MLP, T tokens, V ids; arrays
// are rows after rows.

/** A head that is switched off: its layer and its number, from 0. */
export type Head = [layer: number, head: number];

/** How the next token is drawn; the fields and their order are those of `jumok.inference.sampling.Sampling`. */
export interface Sampling {
  temperature?: number; // divides the logits; 0 takes the likeliest token. 0.8 unless given
  top_k?: number; // 0: all
  top_p?: number; // 1: all
  min_p?: number; // 0: all
  repetition_penalty?: number; // 1: off
  seed?: number; // of the random numbers of this call; left out: a new one each time
}

/** What a page says about its model; labels are [] unless it is a classifier, sampling is that of the beginning. */
export interface About {
  kind: "gpt" | "classifier" | "bert" | "encoder-decoder";
  name: string;
  title?: string;
  note?: string;
  licence?: string;
  family: string;
  n_layer: number;
  n_decoder_layer?: number | null;
  n_head: number;
  n_decoder_head?: number | null;
  n_kv_head: number;
  n_embd: number;
  head_dim: number;
  context_length: number;
  vocab_size: number;
  parameters: number;
  labels: string[];
  tokenizer: "char" | "jamo" | "bpe" | "other";
  prompt_tokens: boolean; // whether special tokens in a prompt are read as tokens
  task: string;
  sampling: Sampling;
  features?: Features; // of a GPT
  chat: Record<string, number> | null; // ids of the special tokens; null: the model has not the chat template of jumok
}

/** What a GPT computes that others compute in another way. */
export interface Features {
  norm: "rms" | "layer";
  norm_eps: number;
  rotary: boolean;
  qk_norm_eps: number | null; // null: q and k have no norm
  qkv_bias: boolean;
  out_bias: boolean;
  gated: boolean;
  activation: "relu" | "silu" | "gelu" | "gelu_tanh";
  mlp_bias: boolean;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
  reasoning_content?: string; // of an assistant
}

/** A conversation that is read: its ids, each to be shown, how many messages are left out, and the most tokens to write. */
export interface Prompt {
  ids: number[];
  names: string[];
  left: number;
  tokens: number;
}

/**
 * A token of a text. `text` is readable: a space is ␣, a byte of an incomplete character <EA>. `start` and `end` are the
 * UTF-16 units of the normalised text that the token is a part of; if they are equal, none.
 */
export interface Piece {
  id: number;
  text: string;
  start: number;
  end: number;
}

/** The tokens of a text, one piece for each id. A GPT has at least one: "" gives the id that a text begins with. */
export interface Encoded {
  ids: number[];
  pieces: Piece[];
  text: string; // what the ids spell
}

/** A token that may come next; chosen_probability is that after temperature and filters, 0 if it was ruled out. */
export interface Alternative {
  id: number;
  text: string;
  logit: number;
  probability: number;
  chosen_probability: number;
}

/** The part of 0 to 1 in which a random number draws this token. */
export interface Segment {
  id: number;
  text: string;
  from: number;
  to: number;
}

/** look: ask for the ruler, in which the segments of this id and of this random number are, too. */
export interface NextSettings {
  off?: Head[];
  sampling?: Sampling;
  top?: number;
  look?: { id?: number; number?: number };
}

/** The distribution of the next token: the likeliest first, its entropy in nats, how many tokens may be drawn. */
export interface Next {
  alternatives: Alternative[];
  entropy: number;
  kept: number;
  ruler: Segment[]; // after the settings, from left to right
}

/** How well a token of a text was predicted from those before it; surprise is -ln p, in nats. */
export interface Scored {
  id: number;
  surprise: number;
  probability: number;
  rank: number; // 1: the likeliest
  alternatives: Alternative[];
}

/** A token as it is written; `added` is the text that became final with it, often "" or more than one character. */
export interface Written {
  id: number;
  text: string;
  added: string;
  probability: number;
  surprise: number;
  entropy: number;
  alternatives: Alternative[];
  draw?: number; // the random number that drew it; missing where the likeliest was taken, and of ids that were begun with
  per_second: number; // tokens, lately
  thought?: boolean; // of an answer: whether the token is of its reasoning,
  special?: boolean; // and whether it is a token of the template
}

export interface WriteSettings {
  tokens?: number; // the most; 200 unless given
  sampling?: Sampling;
  off?: Head[];
  top?: number;
  begun?: number[]; // an answer is written: ids that it begins with
}

/** The prompt and what was written; `ended` is "stop" by `engine.stop()`, "end" at an id that ends a text, "loop" where an answer repeats itself. */
export interface WriteResult {
  ids: number[];
  ended: "length" | "stop" | "end" | "loop";
  rest?: string; // the text that the last tokens' `added` had held back
}

/** One layer of a step. Only the layer that was asked for has arrays; norms are lengths of what is added. */
export interface StepLayer {
  layer: number;
  norms: { attention: number; mlp: number; residual: number }; // residual: of the sum after this layer
  input?: Float32Array; // (C), the residual stream before this layer
  norm1?: Float32Array; // (C)
  q_projected?: Float32Array; // (H, D), x·W, where the heads of q and k have a norm
  k_projected?: Float32Array; // (G, D), likewise
  q?: Float32Array; // (H, D), after the norm of a head if there is one
  k?: Float32Array; // (G, D), likewise
  v?: Float32Array; // (G, D)
  q_rotated?: Float32Array; // (H, D); equal to q where positions are learned
  k_rotated?: Float32Array; // (G, D)
  keys?: Float32Array; // (G, T, D)
  values?: Float32Array; // (G, T, D)
  scores?: Float32Array; // (H, T), before the softmax
  weights?: Float32Array; // (H, T)
  heads?: Float32Array; // (H, D), 0 for heads that are switched off
  joined?: Float32Array; // (H·D): the heads in one vector, the input of o_proj
  attention_out?: Float32Array; // (C)
  residual1?: Float32Array; // (C)
  norm2?: Float32Array; // (C)
  mlp_gate?: Float32Array; // (F), before the activation; of gated MLPs
  mlp_up?: Float32Array; // (F), before the activation or the product with the gate
  mlp_hidden?: Float32Array; // (F), after the activation (and the gate)
  mlp_out?: Float32Array; // (C)
  residual2?: Float32Array; // (C)
}

/** Everything of one step at the last position of the window that the model sees, which has `length` tokens. */
export interface Step {
  token: { id: number; text: string };
  position: number;
  length: number;
  texts: string[];
  layer: number;
  embedding: Float32Array; // (C)
  position_embedding: Float32Array | null; // (C); null where positions are rotated
  layers: StepLayer[];
  norm: Float32Array; // (C), after the last norm
  logits: Float32Array; // (V)
  top: Alternative[];
}

/**
 * The probabilities of the labels, in the order of the model's, and by how much the log-probability of the likeliest one
 * changes when a word is left out; words are UTF-16 units of the text. Of `tokens` tokens, `read` were read.
 */
export interface Classified {
  labels: { label: string; probability: number }[];
  words: { text: string; start: number; end: number; effect: number }[];
  read: number;
  tokens: number;
}

/** An answer, the mean log-probability of its tokens, and the trace of the source and the answer if it was asked for. */
export interface Answered {
  text: string;
  ids: number[];
  score: number;
  finish: "stop" | "length";
  cross: object | null;
}

/** A text with the likeliest token at each mask; masks are UTF-16 units of the text that was given. */
export interface Filled {
  text: string;
  masks: { start: number; end: number; candidates: { id: number; text: string; probability: number }[] }[];
}

export interface Engine {
  about: About;
  encode(text: string): Promise<Encoded>;
  /** What ids spell, and where each one stands. */
  spell(ids: number[]): Promise<Encoded>;
  /** The text of ids, without half a character at its end. */
  decode(ids: number[]): Promise<string>;
  prompt(messages: Message[], settings: { tokens: number }): Promise<Prompt>;
  next(ids: number[], settings?: NextSettings): Promise<Next>;
  /** One for each id but the first; null for those before the window that the model sees. */
  score(ids: number[], settings?: { off?: Head[]; top?: number }): Promise<(Scored | null)[]>;
  write(ids: number[], settings?: WriteSettings, onToken?: (token: Written) => void): Promise<WriteResult>;
  /** The trace of a text (docs/viewer.md, "jumok-trace"). */
  record(ids: number[], settings?: { off?: Head[]; top?: number }): Promise<object>;
  step(ids: number[], settings?: { layer?: number; off?: Head[]; top?: number }): Promise<Step>;
  /** A later call ends the search for words of an earlier one, which then has the words so far. */
  classify(text: string, settings?: { words?: boolean }): Promise<Classified>;
  answer(
    text: string,
    settings?: { tokens?: number; trace?: boolean },
    onToken?: (token: { id: number; text: string; added: string }) => void,
  ): Promise<Answered>;
  fill(text: string, settings?: { top?: number }): Promise<Filled>;
  /** End a running `write` or `answer` after the token at hand. */
  stop(): Promise<void>;
}
