"""Text to ids and back without loss: train a tokenizer on a text, load any `tokenizer.json`, stream ids to text."""

from __future__ import annotations

from jumok.tokenizers._boundaries import starts_anew
from jumok.tokenizers._roles import ROLES
from jumok.tokenizers._stream import Stream
from jumok.tokenizers._tokenizer import Tokenizer
from jumok.tokenizers._train import train_tokenizer

__all__ = ["ROLES", "Stream", "Tokenizer", "starts_anew", "train_tokenizer"]
