"""The config.json of `transformers` and our configurations: one in terms of the other, both ways, without torch.

    our configuration                     stock class
    GPTConfig, family "modern"            Qwen3ForCausalLM; with labels Qwen3ForSequenceClassification
    GPTConfig, family "classic"           GPT2LMHeadModel; with labels GPT2ForSequenceClassification
    BERTConfig                            BertModel, BertForMaskedLM, BertForSequenceClassification, by its head
    EncoderDecoderConfig, "classic"       BartForConditionalGeneration (and BartModel, to read)
    EncoderDecoderConfig, "original"      MarianMTModel

A stock setting that changes what a model computes, and that jumok does not support, is refused by name. Settings that
act in training alone, such as the rates of other dropouts than the two of jumok, are not kept.
"""

from __future__ import annotations

from jumok.config.huggingface._names import HEADS
from jumok.config.huggingface._reading import architecture, our_config, read_json, read_stock
from jumok.config.huggingface._writing import pooling_obstacle, stock_class, their_config, their_generation_config

__all__ = [
    "HEADS",
    "architecture",
    "our_config",
    "pooling_obstacle",
    "read_json",
    "read_stock",
    "stock_class",
    "their_config",
    "their_generation_config",
]
