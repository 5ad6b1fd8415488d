"""Names and defaults of the settings of the stock classes, and the matching fields of jumok."""

from __future__ import annotations

# From their names to ours. The *_DEFAULTS are those of the class, for settings that a file omits.
SIZES = {  # of most classes
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "intermediate_size": "mlp_width",
}
QWEN3 = {
    **SIZES,
    "num_key_value_heads": "n_kv_head",
    "head_dim": "head_dim",
    "attention_dropout": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
    "rms_norm_eps": "norm_eps",
}
QWEN3_DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": 128,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
}
GPT2 = {
    "vocab_size": "vocab_size",
    "n_positions": "context_length",
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "n_inner": "mlp_width",
    "resid_pdrop": "dropout",
    "attn_pdrop": "attention_dropout",
    "tie_word_embeddings": "tie_embeddings",
    "layer_norm_epsilon": "norm_eps",
}
GPT2_DEFAULTS = {
    "n_inner": None,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "tie_word_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}
IDS = {
    "pad_token_id": "pad_id",
    "bos_token_id": "bos_id",
    "eos_token_id": "eos_id",
    "decoder_start_token_id": "decoder_start_id",
    "forced_bos_token_id": "forced_bos_id",
    "forced_eos_token_id": "forced_eos_id",
}
ENCODER_DECODER = {
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "encoder_layers": "n_layer",
    "decoder_layers": "n_decoder_layer",
    "encoder_attention_heads": "n_head",
    "decoder_attention_heads": "n_decoder_head",
    "d_model": "n_embd",
    "encoder_ffn_dim": "mlp_width",
    "decoder_ffn_dim": "decoder_mlp_width",
    "scale_embedding": "scale_embedding",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    **IDS,
}
BART_DEFAULTS = {
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_bos_token_id": None,
    "forced_eos_token_id": 2,
}
# The defaults of MarianConfig are 58100 and 0, but every file of a Marian model contains its ids.
MARIAN_DEFAULTS = {**BART_DEFAULTS, **dict.fromkeys(IDS)}

# Names of GPT-2 for the tanh form of GELU; its "gelu" is the exact form, which our GPT does not support.
GPT2_ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "relu": "relu"}
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"}

CLASSIFIER = "ForSequenceClassification"
MOST_LABELS = 100_000  # of a classifier
SINGLE_LABEL = "single_label_classification"  # the name for a softmax over the classes
# The class to assume by model_type if a config.json names none: the one with the fewest parameters.
PLAIN = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "electra": "ElectraModel",
    "bart": "BartModel",
    "marian": "MarianMTModel",
}
