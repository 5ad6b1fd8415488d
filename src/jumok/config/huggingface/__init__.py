"""Conversion between the config.json of `transformers` and the configurations of jumok, without torch.

    configuration of jumok                stock class (of transformers)
    GPTConfig, family "modern"            Qwen3ForCausalLM; with labels Qwen3ForSequenceClassification
    GPTConfig, family "classic"           GPT2LMHeadModel; with labels GPT2ForSequenceClassification
    BERTConfig, family "bert"             BertModel, BertForMaskedLM, BertForSequenceClassification, by its head
    BERTConfig, family "roberta"          the same of Roberta (also reads those of XLMRoberta)
    BERTConfig, family "electra"          the same of Electra (also reads ElectraForPreTraining, as an ElectraModel)
    GPTVariantConfig                      LlamaForCausalLM, Qwen2, Qwen3, Mistral, GPTNeoX; with labels as above
    EncoderDecoderConfig, "classic"       BartForConditionalGeneration (also reads BartModel)
    EncoderDecoderConfig, "original"      MarianMTModel

A setting that changes the result of the model and that jumok does not support raises an error that names it. Settings
that affect only training, such as the rates of further dropouts, are ignored.
"""

from __future__ import annotations

from jumok.config.huggingface._classes import DECODERS, ENCODERS
from jumok.config.huggingface._reading import our_config, read_json, read_stock
from jumok.config.huggingface._writing import stock_class, their_config, their_generation_config

__all__ = [
    "DECODERS",
    "ENCODERS",
    "our_config",
    "read_json",
    "read_stock",
    "stock_class",
    "their_config",
    "their_generation_config",
]
