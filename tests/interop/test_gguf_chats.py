"""Conversations in llama.cpp: for templates × tokenizers × turns the same ids as in jumok, or an error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

import llama
import talking_models
from foreign_tokenizers import byte_level
from jumok.errors import JumokError
from jumok.inference.chat import answer_chats
from jumok.models.special_ids import prompt_ids
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from jumok.tokenizers._own_template import CHAT_TOKENS, TEMPLATE, TEMPLATE_AFTER_BOS
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as HFTokenizer

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

from jumok.interop.gguf import to_gguf  # noqa: E402
from jumok.interop.gguf.modelfile import modelfile  # noqa: E402

WITH_LLAMA = pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp is not installed")

# Small templates that write tokens and spaces where those of published models do.
MISTRAL = """\
{{- bos_token }}{% for message in messages %}{% if message.role == 'user' %}
{{- '[INST] ' + message.content + ' [/INST]' }}
{%- elif message.role == 'assistant' %}{{ ' ' + message.content | trim + eos_token }}
{%- else %}{{ raise_exception('no system message') }}{% endif %}{% endfor %}"""
TEMPLATES = {
    "own": TEMPLATE,
    "own after BOS": TEMPLATE_AFTER_BOS,
    "Llama 3": """\
{% for message in messages %}{% set turn = '<|head|>' + message.role + '<|im_start|>\\n\\n' + message.content | trim
+ '<|im_end|>' %}{% if loop.first %}{% set turn = bos_token + turn %}{% endif %}{{ turn }}{% endfor %}
{% if add_generation_prompt %}{{ '<|head|>assistant<|im_start|>\\n\\n' }}{% endif %}""",
    "ChatML": """\
{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "Zephyr": """\
{% for message in messages %}{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}""",
    "Gemma": """\
{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no system message') }}
{%- endif %}{{ '<|head|>' + ('model' if message.role == 'assistant' else 'user') + '\\n' + message.content | trim
+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|head|>model\\n' }}{% endif %}""",
    "Mistral": MISTRAL,
    "Solar": """\
{% for message in messages %}{{ '### ' + message.role + ':\\n' + message.content }}
{%- if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '### assistant:\\n' }}{% endif %}""",
    "Phi": """\
{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}""",
    "BOS for a system message alone": """\
{% for message in messages %}{% if message.role == 'system' %}{{ bos_token }}{% endif %}
{{- '<|im_start|>' + message.content + '<|im_end|>' }}{% endfor %}""",
}
BOS, EOS = "<s>", "</s>"
SPECIAL = (BOS, EOS, "<|im_start|>", "<|im_end|>", "<|head|>", *CHAT_TOKENS[:4])
WORDS = "나는 학교에 갔다. user assistant system model INST []/<|>_#:\n1234567890?!"


def sentencepiece(kind: str) -> HFTokenizer:
    """A BPE of SentencePiece that puts a space always, as before version 4.34 (legacy), first, or never."""
    letters = dict.fromkeys(["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *sorted({*WORDS} - {*" \n"})])
    vocab = {letter: i for i, letter in enumerate(letters)}
    pipeline = HFTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if kind in ("first", "always"):
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=kind, split=False)
    else:
        prepend = [normalizers.Prepend("▁")] if kind == "legacy" else []
        pipeline.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    pipeline.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return pipeline


def published(pipeline: HFTokenizer, template: str, *, begins: bool) -> Tokenizer:
    """A tokenizer as of a published model. begins: its file puts BOS before a text."""
    pipeline.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
    pipeline.add_tokens([AddedToken(one, normalized=False) for one in CHAT_TOKENS[4:]])
    if begins:
        pipeline.post_processor = processors.TemplateProcessing(
            f"{BOS} $A", special_tokens=[(BOS, pipeline.token_to_id(BOS))]
        )
    tokenizer = Tokenizer(pipeline)
    tokenizer.roles = {"bos_token": BOS, "eos_token": EOS}
    tokenizer.chat_templates = {"default": template}
    return tokenizer


def own(kind: str, template: str) -> Tokenizer:
    """A tokenizer of jumok with all tokens of the templates."""
    special = ["[MASK]", *SPECIAL[:5], "[INST]", "[/INST]"]
    tokenizer = with_chat(train_tokenizer(WORDS * 3, kind, special_tokens=[one for one in special if "/" not in one]))  # type: ignore[arg-type]
    tokenizer.roles = {"bos_token": BOS, "eos_token": "<|end|>"}
    tokenizer.chat_templates = {"default": template}
    return tokenizer


TOKENIZERS: dict[str, Callable[[str], Tokenizer]] = {
    "char": lambda template: own("char", template),
    "bpe": lambda template: own("bpe", template),
    "byte-level": lambda template: published(byte_level(False), template, begins=False),
    "byte-level after BOS": lambda template: published(byte_level(False), template, begins=True),
    **{
        f"SentencePiece, {kind}{', BOS' * begins}": lambda template, kind=kind, begins=begins: published(  # type: ignore[misc]
            sentencepiece(kind), template, begins=begins
        )
        for kind, begins in product(("always", "first", "never", "legacy"), (False, True))
    },
}
TURNS = ["나는?", " 학교에 ", "1\n2", "\n갔다", "갔다.\n", "  나  "]
CHATS = [
    [{"role": ("user", "assistant")[i % 2], "content": one} for i, one in enumerate(TURNS[:count])]
    for count in (1, 3, 5)
]
CHATS += [[{"role": "system", "content": "학교 "}, *chat] for chat in CHATS]
CHATS += [[{"role": "user", "content": one}] for one in TURNS]
# A space before the first word alone; or after special tokens, but not where a message begins with one itself.
REFUSED = {
    *product(("SentencePiece, first", "SentencePiece, first, BOS"), ("Solar",)),
    *product(("SentencePiece, always", "SentencePiece, always, BOS"), ("Phi", "BOS for a system message alone")),
}
TYPICAL = {
    ("char", "own"), ("byte-level after BOS", "own after BOS"), ("byte-level after BOS", "Zephyr"),
    ("SentencePiece, first, BOS", "Mistral"), ("SentencePiece, legacy, BOS", "Mistral"),
    ("SentencePiece, first", "Solar"),
}  # fmt: skip


@WITH_LLAMA
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "template"),
    [
        pytest.param(*pair, marks=[] if pair in TYPICAL else pytest.mark.long, id=" - ".join(pair))
        for pair in product(TOKENIZERS, TEMPLATES)
    ],
)
def test_conversations_have_the_same_ids(name: str, template: str, tmp_path: Path) -> None:
    """llama.cpp put BOS before chats that were learned without it, and spaces where `prepend_scheme: first` has none.

    A prompt has the same ids, too, or those after what the file's writer is told to put before it.
    """
    tokenizer = TOKENIZERS[name](TEMPLATES[template])
    assert tokenizer.chat is not None
    model = talking_models.random(tokenizer)
    if (name, template) in REFUSED:
        with pytest.raises(JumokError, match="space after every special token or after none"):
            to_gguf(model, tmp_path / "m.gguf", "f32")
        return
    notes = to_gguf(model, tmp_path / "m.gguf", "f32").notes
    before = "".join({"Conversations": BOS, "This": " ", "A": ""}[note.split()[0]] for note in notes)
    count = 0
    with llama.started(tmp_path / "m.gguf", slots=1, context=128, threads=1, exact=True) as other:

        def read(text: str) -> list[int]:
            return list(other.post("/tokenize", content=text, parse_special=True, add_special=True)["tokens"])

        for chat in CHATS:
            try:
                ids = tokenizer.chat.encode(chat)
            except JumokError as error:
                assert "no system message" in str(error)  # noqa: PT017
                continue
            prompt = other.post("/apply-template", messages=chat)["prompt"]
            assert read(prompt) == ids, (chat, prompt)
            written = tokenizer.chat.render(chat)  # as a prompt; one that begins with BOS has it twice in all programs
            assert notes or read(written) == prompt_ids(model.config, tokenizer, written)
            count += 1
        for text in ("나는 학교에", "1\n2"):
            assert read(before + text) == prompt_ids(model.config, tokenizer, text)
        if not before:  # the note is there if it is true
            texts = (" 나", f"나{BOS}는")
            assert any(read(text) != prompt_ids(model.config, tokenizer, text) for text in texts) == bool(notes)
    assert count == (9 if template in ("Mistral", "Gemma") else 12)


@WITH_LLAMA
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["byte-level after BOS", pytest.param("SentencePiece, first, BOS", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("template", ["ChatML", "own after BOS"])
def test_answers_are_those_of_jumok(name: str, template: str, tmp_path: Path) -> None:
    """With a BOS more, the likeliest answer was another one."""
    tokenizer = TOKENIZERS[name](TEMPLATES[template])
    model = talking_models.random(tokenizer, n_layer=2)
    with torch.no_grad():
        model.head.weight.mul_(8.0)
        model.head.weight[[*tokenizer.special_tokens.values()]] = 0.0
    to_gguf(model, tmp_path / "m.gguf", "f32")
    with llama.started(tmp_path / "m.gguf", slots=1, context=128, threads=1, exact=True) as other:
        for chat in CHATS[:3]:
            [[ours]] = answer_chats(model, [chat], tokens=8)
            prompt = other.post("/apply-template", messages=chat)["prompt"]
            how = {**llama.sampling(8, 0.0), "return_tokens": True}
            assert other.post("/completion", prompt=prompt, **how)["tokens"] == list(ours.ids)


@pytest.mark.parametrize("template", ["own", "own after BOS", "ChatML"])
def test_ollama_gets_bos_once(template: str, tmp_path: Path) -> None:
    """Ollama puts before a prompt what llama.cpp does, and takes nothing away: no Modelfile writes BOS."""
    tokenizer = TOKENIZERS["byte-level after BOS"](TEMPLATES[template])
    model = talking_models.random(tokenizer)
    to_gguf(model, tmp_path / "m.gguf")
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["tokenizer.ggml.add_bos_token"].contents() == (template == "own after BOS")
    lines = modelfile(tmp_path / "m.gguf", model.config, tokenizer, 0.8)
    assert BOS not in lines
    assert "bos_token" not in lines
    assert ("TEMPLATE" in lines) == template.startswith("own")


def test_a_template_gets_the_tokens_of_the_tokenizer(tmp_path: Path) -> None:
    """llama.cpp takes eos_token from the ids that end a text, which may be others, and knows no unk_token."""
    source = "\n{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"
    tokenizer = published(byte_level(False), source, begins=False)
    tokenizer.roles = {"eos_token": "<|im_end|>", "unk_token": BOS}
    to_gguf(talking_models.random(tokenizer), tmp_path / "m.gguf")
    found = gguf.GGUFReader(tmp_path / "m.gguf").fields["tokenizer.chat_template"].contents()
    assert found == '{%- set unk_token = "<s>" %}{%- set eos_token = "<|im_end|>" %}\n' + source


@pytest.mark.parametrize("kind", ["always", "first", "never", "legacy"])
def test_spaces_that_llama_cpp_adds_to_prompts_are_told(kind: str, tmp_path: Path) -> None:
    """Without a chat template, too, a space before a space, or after a special token, was added in silence."""
    tokenizer = published(sentencepiece(kind), "", begins=True)
    tokenizer.chat_templates = {}
    notes = to_gguf(talking_models.random(tokenizer), tmp_path / "m.gguf").notes
    assert ["one space more" in note for note in notes] == ([True] if kind in ("always", "first") else [])
