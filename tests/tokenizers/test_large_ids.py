"""A tokenizer.json whose ids and merges do not fit together."""

from __future__ import annotations

import json

import pytest

from jumok.errors import TokenizerError
from jumok.tokenizers import Tokenizer, train_tokenizer


def test_an_id_of_billions_is_refused_before_memory_is_taken() -> None:
    """One id, 4,294,967,295, ended the process: the library lists all ids up to it, and aborts without memory."""
    content = json.loads(train_tokenizer("가나다").to_json())
    vocab = content["model"]["vocab"]
    vocab["가"] = 2**32 - 1
    with pytest.raises(TokenizerError, match=r"has the id 4,294,967,295; ids may be up to 5,000,000\."):
        Tokenizer.from_json(json.dumps(content))
    vocab["가"] = 4_000_000
    assert Tokenizer.from_json(json.dumps(content)).vocab_size == 4_000_001


def test_a_panic_while_the_kind_is_recognised_makes_it_another_kind() -> None:
    """The last piece had the id of a special token. The library panicked later, and that ended the program."""
    text = "나는 물고기를 보았다. 나는 물을 보았다. 나는 나를 보았다. 그는 밤을 보았다."
    tokenizer = train_tokenizer(text, kind="bpe", vocab_size=263, special_tokens=["[PAD]", "[EOS]"])
    content = json.loads(tokenizer.to_json())
    vocab, merges = content["model"]["vocab"], content["model"]["merges"]
    vocab["".join(merges[-1])] = vocab["[EOS]"]
    for _ in range(20):  # the order of the library's hash maps, which decides, changes from time to time
        assert Tokenizer.from_json(json.dumps(content)).kind == "other"


def test_merges_that_do_not_fit_are_refused_or_another_kind() -> None:
    """The library panics, which is no Exception; or it reads the file, and refuses to build the same pipeline."""
    content = json.loads(train_tokenizer("가나다 가나다 가나다", kind="bpe", vocab_size=260).to_json())
    assert content["model"]["merges"]
    for merge in (["", "x"], ["가", "나"], ["ê", "°" * 9]):
        content["model"]["merges"][0] = merge
        try:
            assert Tokenizer.from_json(json.dumps(content)).kind == "other"
        except TokenizerError as error:
            if "not a complete tokenizer.json" not in str(error):
                raise
