"""Tokenizers: train one on a text, load any `tokenizer.json`, encode text to ids and decode without loss."""

from __future__ import annotations

from jumok.tokenizers._chat import LARGEST_TEMPLATE, ChatTemplate
from jumok.tokenizers._roles import ROLES
from jumok.tokenizers._stream import Stream
from jumok.tokenizers._tokenizer import Ids, Tokenizer
from jumok.tokenizers._train import train_tokenizer

__all__ = ["LARGEST_TEMPLATE", "ROLES", "ChatTemplate", "Ids", "Stream", "Tokenizer", "train_tokenizer"]
