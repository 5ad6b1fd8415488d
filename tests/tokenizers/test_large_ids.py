"""A tokenizer.json with an id of billions."""

from __future__ import annotations

import json

import pytest

from jumok.errors import TokenizerError
from jumok.tokenizers import Tokenizer, train_tokenizer


def test_an_id_of_billions_is_refused_before_memory_is_taken() -> None:
    """One changed id, 4,294,967,295, ended the process: the library lists all ids up to it, and aborts without memory."""
    content = json.loads(train_tokenizer("가나다").to_json())
    vocab = content["model"]["vocab"]
    vocab["가"] = 2**32 - 1
    with pytest.raises(TokenizerError, match=r"has the id 4,294,967,295; ids may be up to 5,000,000\."):
        Tokenizer.from_json(json.dumps(content))
    vocab["가"] = 4_000_000
    assert Tokenizer.from_json(json.dumps(content)).vocab_size == 4_000_001
