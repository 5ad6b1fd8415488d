"""Prompts that a chat template has written already: the same ids in jumok, `transformers` and llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import llama
import talking_models
from foreign_tokenizers import byte_level
from foreign_tokenizers import llama as sentencepiece
from jumok.evaluation.language_model import encoded
from jumok.inference.generate import generate, stream
from jumok.inference.requests import text_request
from jumok.inference.sampling import Sampling
from jumok.interop.huggingface import to_hf
from jumok.models.special_ids import prompt_ids
from jumok.text import from_string
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from jumok.view.trace import trace
from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer

TEXT = talking_models.TEXT
KINDS = pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
PROMPT = "<|user|>\n하나 둘?<|end|>\n<|assistant|>\n"


def of_kind(kind: str) -> Tokenizer:
    more = {"vocab_size": 400} if kind == "bpe" else {}
    return with_chat(train_tokenizer(TEXT, kind, special_tokens=["[MASK]"], **more))  # type: ignore[arg-type]


def foreign(pipeline: HFTokenizer) -> Tokenizer:
    pipeline.add_special_tokens([AddedToken("[MASK]", normalized=False)])
    return with_chat(Tokenizer(pipeline))


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "char": lambda: of_kind("char"),
    "jamo": lambda: of_kind("jamo"),
    "bpe": lambda: of_kind("bpe"),
    "byte-level": lambda: foreign(byte_level(False)),
    "byte-level of pieces": lambda: foreign(byte_level(False, split=True)),
    "SentencePiece, always": lambda: foreign(talking_models.metaspace()),
    "SentencePiece, first": lambda: foreign(sentencepiece()),
}


def prompts(tokenizer: Tokenizer) -> list[str]:
    """Every special token at each place of a text, beside others, and nearly."""
    found = ["", PROMPT, "나는 학교에 갔다.", *tokenizer.special_tokens]
    for token in tokenizer.special_tokens:
        found += [f"{token}가 나", f"가 나{token}", f"가{token}\n 나", f" {token} ", f"가{token}{token}나", token[:-1]]
        found += [f"\u1100{token}\u1161 e{token}\u0301", f"가\n{token}\n\n", token.replace("|", "｜").upper()]
    return found


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_prompt_has_the_ids_of_transformers(name: str, tmp_path: Path) -> None:
    """A prompt that a template had written was spelled in letters: 44 ids, where stock programs read 19."""
    transformers = pytest.importorskip("transformers")
    tokenizer = TOKENIZERS[name]()
    model = talking_models.random(tokenizer)
    to_hf(model, tmp_path)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in prompts(tokenizer):
        expected = stock(text)["input_ids"]
        assert tokenizer.encode_prompt(text).tolist() == expected, text
        if text:
            assert prompt_ids(model.config, tokenizer, text) == expected


@pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", pytest.param("bpe", marks=pytest.mark.long)])
def test_a_prompt_has_the_ids_of_llama_cpp(kind: str, tmp_path: Path) -> None:
    from jumok.interop.gguf import to_gguf

    tokenizer = of_kind(kind)
    to_gguf(talking_models.random(tokenizer), tmp_path / "m.gguf", "f32")
    with llama.started(tmp_path / "m.gguf", slots=1, context=128, threads=1, exact=True) as other:
        for text in prompts(tokenizer):
            if "\u1161" not in text:  # llama.cpp does not normalise
                read = other.post("/tokenize", content=text, parse_special=True, add_special=True)["tokens"]
                assert read == tokenizer.encode_prompt(text).tolist(), text


@KINDS
def test_a_tokenizer_without_a_template_has_no_special_tokens_in_a_prompt(kind: str) -> None:
    """Neither has its export, which says `split_special_tokens`."""
    tokenizer = train_tokenizer(TEXT, kind, special_tokens=["[MASK]"])
    assert tokenizer.encode_prompt("가[MASK]나").tolist() == tokenizer.encode("가[MASK]나").tolist()


@KINDS
def test_all_that_continues_a_prompt_reads_its_tokens(kind: str) -> None:
    """Generate, its stream, the viewer and the requests of a server begin with the ids of the chat."""
    model = talking_models.taught(kind)
    assert model.tokenizer is not None
    assert model.tokenizer.chat is not None
    [chat] = [one[:-1] for one in talking_models.LEARNED[1:]]
    text, answer = model.tokenizer.chat.render(chat), talking_models.LEARNED[1][-1]["content"]
    ids = model.tokenizer.chat.encode(chat)
    [found] = generate(model, text, tokens=40, temperature=0)
    assert (found.text, found.finish) == (answer, "stop")
    assert "".join(stream(model, text, tokens=40, temperature=0)) == answer
    [cut] = generate(model, text, tokens=40, temperature=0, stop=["여섯"])
    assert cut.text == answer.split("여섯")[0]
    assert text_request(model, text, Sampling(), tokens=1).prompt == ids
    [seen] = trace(model, text).sequences
    assert [one["id"] for one in seen["tokens"]] == ids


@KINDS
def test_a_text_to_learn_from_has_no_special_tokens(kind: str) -> None:
    """A text is evaluated as it is learned: what looks like a special token in it is spelled."""
    tokenizer = of_kind(kind)
    for source in (PROMPT, from_string(PROMPT)):
        with encoded(source, tokenizer) as ids:
            assert not {*ids.tolist()} & {*tokenizer.special_tokens.values()}
            assert tokenizer.decode(ids) == PROMPT
