"""Tokenizers: train one on a text, load any `tokenizer.json`, encode text to ids and decode without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumok.lazy import lazily

if TYPE_CHECKING:
    from jumok.tokenizers._chat import LARGEST_TEMPLATE, ChatTemplate
    from jumok.tokenizers._lost_text import MOST_LOST, LostText, lost_text
    from jumok.tokenizers._own_template import Message
    from jumok.tokenizers._pipeline import require_utf8
    from jumok.tokenizers._stream import Stream
    from jumok.tokenizers._tokenizer import ROLES, Ids, Tokenizer
    from jumok.tokenizers._train import train_tokenizer
    from jumok.tokenizers._with_chat import with_chat
else:
    __getattr__ = lazily(
        __name__,
        {
            "_chat": "LARGEST_TEMPLATE ChatTemplate",
            "_lost_text": "MOST_LOST LostText lost_text",
            "_pipeline": "require_utf8",
            "_stream": "Stream",
            "_tokenizer": "ROLES Ids Tokenizer",
            "_train": "train_tokenizer",
            "_own_template": "Message",
            "_with_chat": "with_chat",
        },
    )

__all__ = [
    "LARGEST_TEMPLATE",
    "MOST_LOST",
    "ROLES",
    "ChatTemplate",
    "Ids",
    "LostText",
    "Message",
    "Stream",
    "Tokenizer",
    "lost_text",
    "require_utf8",
    "train_tokenizer",
    "with_chat",
]
