"""Export to GGUF: what the file says, and what llama.cpp computes with it. Skipped without the package gguf."""

from __future__ import annotations

import errno
import io
import json
import random
import re
import shlex
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import llama
import talking_models
from conftest import Jumok
from jumok.config import GPTConfig, GPTVariantConfig
from jumok.errors import JumokError, RunError, TokenizerError
from jumok.inference.chat import answer_chats
from jumok.inference.generate import generate
from jumok.interop.gguf import to_gguf
from jumok.interop.gguf.modelfile import MARK, command, modelfile
from jumok.models.gpt import GPT
from jumok.runs.load import save
from jumok.tokenizers import Tokenizer, train_tokenizer
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as HFTokenizer

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

WITH_LLAMA = pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp is not installed")
TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다… It's the 'start' of 12 days.\n\n그래서  우리는 집에 갔다 :)\n" * 4
PROMPT = "나는 학교에"


def tokenizer_of(kind: str, text: str = TEXT) -> Tokenizer:
    return train_tokenizer(text, kind, special_tokens=["[MASK]"], **({"vocab_size": 400} if kind == "bpe" else {}))


def tiny(tokenizer: Tokenizer, seed: int = 0, **changes: Any) -> GPT:
    """A small model with random parameters, large enough that two ids are rarely about as likely."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": 256, "n_layer": 2, "n_head": 4, "n_embd": 32}
    kind = GPTVariantConfig if "architecture" in changes else GPTConfig
    model = GPT(kind(**{**sizes, **changes})).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    with torch.no_grad():
        model.head.weight.mul_(4.0)  # sharp
        for i, piece in enumerate(tokenizer.bytes_of(range(tokenizer.vocab_size)) or ()):
            if i in tokenizer.special_tokens.values() or "\ufffd" in piece.decode(errors="replace"):
                model.head.weight[i] = 0.0  # no text, or part of a character: never the likeliest
    model.tokenizer = tokenizer
    return model


def fields(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


# --- what the file says -----------------------------------------------------------------------------------------------


def test_the_file_describes_the_model_and_nothing_of_its_text(tmp_path: Path) -> None:
    model = tiny(tokenizer_of("char"), n_kv_head=2, rope_theta=500.0, vocab_size=500)
    found = to_gguf(model, tmp_path / "novel.gguf", name="소설", licence="cc0-1.0")
    said = fields(found.path)
    wanted = {
        "general.architecture": "qwen3", "general.name": "소설", "general.license": "cc0-1.0",
        "general.file_type": 0, "general.quantization_version": 2, "general.type": "model",
        "qwen3.context_length": 256, "qwen3.block_count": 2, "qwen3.attention.head_count_kv": 2,
        "qwen3.rope.freq_base": 500.0, "tokenizer.ggml.model": "llama", "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": False, "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }  # fmt: skip
    assert {name: said[name] for name in wanted} == wanted
    tokens = said["tokenizer.ggml.tokens"]
    assert len(tokens) == len(set(tokens)) == 500
    assert tokens[said["tokenizer.ggml.eos_token_id"]] == "<0xFF>"
    assert found.bytes == found.path.stat().st_size
    assert "학교에".encode() not in found.path.read_bytes()
    assert {one.name for one in tmp_path.iterdir()} == {"novel.gguf"}


@pytest.mark.parametrize(
    ("kind", "type_name"), [("f32", "F32"), ("f16", "F16"), ("q8_0", "Q8_0")], ids=lambda value: value
)
def test_matrices_have_the_type_and_vectors_stay_float32(tmp_path: Path, kind: Any, type_name: str) -> None:
    model = tiny(tokenizer_of("char"), family="classic")
    assert to_gguf(model, tmp_path / "m.gguf", kind).others == {}
    for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors:
        matrix = len(tensor.shape) == 2 and tensor.name != "position_embd.weight"
        assert tensor.tensor_type.name == (type_name if matrix else "F32"), tensor.name


def test_what_a_type_cannot_hold_has_another_one_and_is_named(tmp_path: Path) -> None:
    model = tiny(tokenizer_of("char"), mlp_width=40)
    found = to_gguf(model, tmp_path / "m.gguf", "q8_0")
    assert found.others == {f"blk.{i}.ffn_down.weight": "f16" for i in range(2)}  # rows of 40 numbers
    with torch.no_grad():
        model.token_embedding.weight[3, 3] = 1e6
    assert to_gguf(model, tmp_path / "m.gguf", "f16").others == {"token_embd.weight": "f32"}


def test_what_else_is_refused(tmp_path: Path) -> None:
    """What a model has is in test_features.py."""
    tokenizer = tokenizer_of("char")
    broken = tiny(tokenizer)
    with torch.no_grad():
        broken.norm.weight[0] = torch.nan
    with pytest.raises(JumokError, match="not finite"):
        to_gguf(broken, tmp_path / "m.gguf")
    with pytest.raises(JumokError, match="never compose"):
        to_gguf(tiny(tokenizer_of("jamo")), tmp_path / "m.gguf")
    unknown = tiny(tokenizer)
    unknown.tokenizer = None
    with pytest.raises(TokenizerError):
        to_gguf(unknown, tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "made"),
    [("novel", "novel"), ("내 소설 2", "2"), ("소설", "jumok"), ("it's", "it-s")],
    ids=lambda value: value,
)
def test_ollama_gets_a_name_that_it_accepts(name: str, made: str) -> None:
    path = Path(f"{name}.Modelfile")
    assert command(path) == f"ollama create {made} -f {shlex.quote(str(path))}"


def test_ollama_gets_our_chat_template() -> None:
    own = talking_models.taught(steps=0)
    assert own.tokenizer is not None
    lines = modelfile(Path("a.gguf"), own.config, own.tokenizer, 0.8)
    assert lines.startswith(f'''{MARK} To use it: ollama create a -f a.Modelfile
FROM ./a.gguf
TEMPLATE """{{{{ range .Messages }}}}<|{{{{ .Role }}}}|>
{{{{ if .Thinking }}}}<think>{{{{ .Thinking }}}}</think>{{{{ end }}}}{{{{ .Content }}}}<|end|>
{{{{ end }}}}<|assistant|>
"""
PARAMETER stop "<|end|>"
PARAMETER temperature 0
''')
    assert "SYSTEM" not in lines


def test_ollama_looks_for_the_template_of_another_model() -> None:
    template = "{% for m in messages %}{{ m.role }} {{ loop.index }}: {{ m.content }}</s>{% endfor %}"
    model = talking_models.talking(["</s>"], template)
    assert model.tokenizer is not None
    model.tokenizer.roles = {"eos_token": "</s>"}
    lines = modelfile(Path("a.gguf"), model.config, model.tokenizer, 0.8).splitlines()
    assert lines[1:4] == ["FROM ./a.gguf", 'PARAMETER stop "</s>"', "PARAMETER temperature 0"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = tiny(tokenizer_of("char")), tmp_path / "m.gguf"
    to_gguf(model, path)
    before = path.read_bytes()

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(RunError, match="No space left"):
        to_gguf(model, path, "f16")

    def short(_: Any) -> None:  # what NumPy says
        raise OSError("16384 requested and 9648 written")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", short)
    with pytest.raises(RunError, match=r"the disk took a part of the file only \(.* free on that disk\)"):
        to_gguf(model, path, "f16")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.interop.gguf.find_spec", lambda _: None)
    with pytest.raises(JumokError, match=re.escape("pip install 'jumok[gguf]'")):
        to_gguf(tiny(tokenizer_of("char")), tmp_path / "m.gguf")


@pytest.mark.slow
def test_the_command_writes_a_modelfile_and_replaces_only_its_own_files(tmp_path: Path, jumok: Jumok) -> None:
    run, path, beside = tmp_path / "소설", tmp_path / "novel.gguf", tmp_path / "novel.Modelfile"
    save(tiny(tokenizer_of("bpe"), mlp_width=40), run)
    convert = ["convert", run, path, "--to", "gguf"]
    for _ in range(2):
        done = jumok(*convert, "--type", "q8_0", "--licence", "MIT", "--json")
        assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {"source": str(run), "target": str(path), "to": "gguf"}
    assert "blk.0.ffn_down.weight" in done.err
    assert f"ollama create novel -f {beside}" in done.err
    assert {"FROM ./novel.gguf", 'TEMPLATE "{{ .Prompt }}"', "PARAMETER num_ctx 256"} <= set(
        beside.read_text(encoding="utf-8").splitlines()
    )
    said = fields(path)
    assert (said["general.name"], said["general.license"], said["general.file_type"]) == ("소설", "MIT", 7)
    for foreign in (path, beside):
        ours = foreign.read_bytes()
        foreign.write_bytes(b"GGUF of somebody else")
        assert jumok(*convert).code == 2
        assert foreign.read_bytes() == b"GGUF of somebody else"
        foreign.write_bytes(ours)
    path.write_bytes(b"x")
    assert jumok(*convert, "--force").code == 0
    assert jumok(*convert, "--title", "소설").code == 2
    assert jumok("convert", run, tmp_path / "hf", "--to", "hf", "--type", "f16").code == 2


# --- what ends a text -------------------------------------------------------------------------------------------------


def with_ends(tokenizer: Tokenizer, *ends: int, **changes: Any) -> GPT:
    return tiny(tokenizer, seed=1, eos_ids=ends, **changes)


def test_all_ids_that_end_a_text_are_in_the_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer(byte_level())
    ends = [tokenizer.vocab_size - i for i in (3, 2, 1)]
    for count in (1, 2, 3):
        to_gguf(with_ends(tokenizer, *ends[:count], pad_id=ends[2]), tmp_path / "m.gguf")
        found = fields(tmp_path / "m.gguf")
        names = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
        assert [found.get(name) for name in names] == [*ends[:count], None, None][:3]
        assert found["tokenizer.ggml.padding_token_id"] == ends[2]
        types = found["tokenizer.ggml.token_type"]
        assert [types[end] for end in ends[:count]] == [gguf.TokenType.CONTROL] * count


def test_the_chat_template_of_a_published_model_is_in_the_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer(byte_level())
    tokenizer.chat_templates = {"default": "{{ messages[0].content }}", "tool_use": "{{ tools }}"}
    to_gguf(with_ends(tokenizer), tmp_path / "m.gguf")
    found = fields(tmp_path / "m.gguf")
    assert found["tokenizer.chat_template"] == tokenizer.chat_templates["default"]
    assert found["tokenizer.chat_template.tool_use"] == tokenizer.chat_templates["tool_use"]


@WITH_LLAMA
@pytest.mark.slow
def test_llama_cpp_ends_where_jumok_does(tmp_path: Path) -> None:
    model = tiny(Tokenizer(byte_level()), seed=1)
    (free,) = generate(model, PROMPT, tokens=20, temperature=0)
    last = next(i for i, one in enumerate(free.ids) if i > 3 and one not in free.ids[:i])
    for ends in ((free.ids[last],), (1, free.ids[last]), (1, 2, free.ids[last])):
        assert not {1, 2} & {*free.ids[:last]}
        model = with_ends(Tokenizer(byte_level()), *ends)
        (ours,) = generate(model, PROMPT, tokens=20, temperature=0)
        assert ours.ids == free.ids[: last + 1]
        with started(model, tmp_path) as other:
            how = {**llama.sampling(20, 0.0), "ignore_eos": False}
            answer = other.post("/completion", prompt=PROMPT, return_tokens=True, **how)
        assert answer["stop_type"] == "eos"
        assert answer["content"] == ours.text


# --- tokenizers -------------------------------------------------------------------------------------------------------

# Hangul, jamo and old Hangul; white space of all kinds; emoji; marks; what looks like a token; what ends a C string.
ATOMS = [
    "가", "힣", "한글", "ㅋㅋ", "ㄱ", "\u1112\u119e\u11ab", "\u302e", "나는 ", "학교에", "漢字", "かな", "a", "Word",
    "it's", "'start'", "don't", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u3000", "\u00a0", "\u2028",
    "\u0085", "\ufeff", "\u200b", "\u2581", "😀", "👨\u200d👩\u200d👧", "🇰🇷", "❤\ufe0f", "é", "e\u0323\u0301", "ก็",
    "हिन्दी", "１２", "12", "3", "٣", "½", "Ⅷ", "!", "?", "...", "…", "“", "”", "「", "♥", "~", "-", "_", "=", "'", '"',
    "(", ")", ".", ",", "<0x41>", "<0x", "[MASK]", "<s>", "</s>", "<|end|>", "<|endoftext|>", "[PAD]", "\\n", "\0",
    "\x01", "\U0010ffff", "\ufffd", "ÿ", "Ġ", "ü", "ﬁ",
]  # fmt: skip


def hostile(count: int = 300, seed: int = 7) -> list[str]:
    """Texts in NFC; llama.cpp does not normalise."""
    rng = random.Random(seed)
    made = ("".join(rng.choices(ATOMS, k=rng.randint(1, 14))) for _ in range(count))
    return [unicodedata.normalize("NFC", text) for text in ["", *made]][:count]


def byte_level(*cuts: Any, specials: bool = True, **settings: Any) -> HFTokenizer:
    """A byte-level BPE as published ones are. cuts: pre-tokenizers before ByteLevel; none: the regex of GPT-2."""
    split = any(isinstance(cut, pre_tokenizers.Split) for cut in cuts)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    pipeline = HFTokenizer(models.BPE(**settings))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([*cuts, last]) if cuts else last
    pipeline.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    pipeline.train_from_iterator([TEXT, *ATOMS, *ATOMS], trainer)
    if specials:
        pipeline.add_special_tokens(["<|endoftext|>", "<s>"])
        pipeline.add_tokens([AddedToken("<|end|>", normalized=False)])
    return pipeline


def regex(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def llama2(*, spaced: bool = True, metaspace: bool = False) -> HFTokenizer:
    """A BPE of SentencePiece, converted as `transformers` converts that of Llama 2."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n")), model_writer=file, model_type="bpe", vocab_size=420,
        byte_fallback=True, hard_vocab_limit=False, add_dummy_prefix=spaced, split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False, character_coverage=1.0, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    vocab = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    pairs = [(piece[:i], piece[i:]) for piece in vocab for i in range(1, len(piece))]
    merges = sorted(
        (pair for pair in pairs if pair[0] in vocab and pair[1] in vocab), key=lambda pair: vocab["".join(pair)]
    )
    pipeline = HFTokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    else:
        prepend = [normalizers.Prepend("▁")] if spaced else []
        pipeline.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", "▁")])
    pipeline.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    pipeline.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    pipeline.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    return pipeline


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST
IMPORTED: dict[str, Callable[[], HFTokenizer]] = {
    "GPT-2": byte_level,
    "GPT-2, digits": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True)),
    "Llama 3": lambda: byte_level(regex(LLAMA3), ignore_merges=True),
    "Llama 3, merged": lambda: byte_level(regex(LLAMA3)),
    "Qwen2": lambda: byte_level(regex(QWEN2)),
    "Llama 2": llama2,
    "Llama 2, Metaspace": lambda: llama2(metaspace=True),
    "Llama 2, no space": lambda: llama2(spaced=False),
}


def ids_of(other: llama.Llama, text: str, *, special: bool) -> list[int]:
    return list(other.post("/tokenize", content=text, add_special=False, parse_special=special)["tokens"])


def started(model: GPT, folder: Path, kind: Any = "f32") -> Any:
    to_gguf(model, folder / "m.gguf", kind)
    return llama.started(folder / "m.gguf", slots=1, context=256, threads=1, exact=True)


@WITH_LLAMA
@pytest.mark.slow
def test_char_has_the_same_ids_and_texts(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("char", TEXT + "\u2581\u2581\0\0")
    with started(tiny(tokenizer, n_layer=1), tmp_path) as other:
        for text in hostile():
            ids = tokenizer.encode(text).tolist()
            for special in (False, True):
                assert ids_of(other, text, special=special) == ids, repr(text)
            assert other.post("/detokenize", tokens=ids)["content"] == text


@WITH_LLAMA
@pytest.mark.long
def test_bpe_has_the_same_ids(tmp_path: Path, tales: str) -> None:
    """It cut texts in a way of its own, and 9 of 3,000 hostile texts had other ids."""
    tokenizer = tokenizer_of("bpe", TEXT + "".join(ATOMS) * 2)
    with started(tiny(tokenizer, n_layer=1), tmp_path) as other:
        for text in [*hostile(600), tales]:
            assert ids_of(other, text, special=True) == tokenizer.encode(text).tolist(), repr(text)


@WITH_LLAMA
@pytest.mark.long
@pytest.mark.parametrize("name", IMPORTED)
def test_imported_tokenizers_have_the_same_ids(tmp_path: Path, name: str) -> None:
    tokenizer = Tokenizer(IMPORTED[name]())
    assert tokenizer.kind == "other"
    with started(tiny(tokenizer, n_layer=1), tmp_path) as other:
        for text in hostile():
            # Metaspace puts no space before a text that begins with one, nor after a special token in it.
            if "Metaspace" not in name or not re.match("[ ▁]|.*</?s>", text, re.DOTALL):
                assert ids_of(other, text, special=True) == tokenizer.encode(text).tolist(), repr(text)
    said = fields(tmp_path / "m.gguf")
    assert said["tokenizer.ggml.add_bos_token"] == name.startswith("Llama 2")


def changed(pipeline: HFTokenizer, **parts: Any) -> HFTokenizer:
    for part, value in parts.items():
        setattr(pipeline, part, value)
    return pipeline


def test_tokenizers_that_llama_cpp_cannot_use_are_refused(tmp_path: Path) -> None:
    unigram = HFTokenizer(models.Unigram([("<unk>", 0.0), ("가", -1.0)], unk_id=0))
    wordpiece = HFTokenizer(models.WordPiece({"[UNK]": 0, "가": 1}, unk_token="[UNK]"))
    blank = HFTokenizer(models.BPE({"<unk>": 0, "가": 1}, [], unk_token="<unk>"))
    padded = byte_level(specials=False)
    padded.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    other = json.loads(tokenizer_of("bpe").to_json())
    other["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\p{L}+|[^\p{L}]+"
    refused = {
        "Unigram": unigram,
        "WordPiece": wordpiece,
        "BPE without bytes": blank,
        "<mask>": padded,
        "Lowercase": changed(byte_level(), normalizer=normalizers.Lowercase()),
        "pre_tokenizer": byte_level(regex(r"\p{L}+")),
        "part pre_tokenizer": HFTokenizer.from_str(json.dumps(other)),
        "Whitespace": changed(llama2(), pre_tokenizer=pre_tokenizers.Whitespace()),
        "Strip": changed(llama2(), normalizer=normalizers.Strip()),
    }
    for part, pipeline in refused.items():
        with pytest.raises(JumokError, match=re.escape(part)):
            to_gguf(tiny(Tokenizer(pipeline), n_layer=1), tmp_path / "m.gguf")


def test_a_sentencepiece_bpe_with_missing_merges_is_refused(tmp_path: Path) -> None:
    content = json.loads(llama2().to_str())
    lost = content["model"]["merges"].pop()
    with pytest.raises(JumokError, match="".join(lost)):
        to_gguf(tiny(Tokenizer.from_json(json.dumps(content)), n_layer=1), tmp_path / "m.gguf")


# --- what llama.cpp computes ------------------------------------------------------------------------------------------


def log_probabilities(other: llama.Llama, model: GPT, ids: list[int]) -> torch.Tensor:
    """What llama.cpp gives to each next id. The server tells it only of a token that ends a character, so it draws one,
    which changes none of the figures."""
    size, drawn = model.config.vocab_size, int(model.tokenizer.encode(".")[0])
    answer = other.post("/completion", prompt=ids, n_probs=size, logit_bias=[[drawn, 1e6]], **llama.sampling(1, 1.0))
    found = torch.full((size,), torch.nan, dtype=torch.float64)
    for entry in answer["completion_probabilities"][0]["top_logprobs"]:
        found[entry["id"]] = entry["logprob"]
    return found


@torch.inference_mode()
def same_logits(other: llama.Llama, model: GPT, ids: list[int], tolerance: float = 1e-3) -> None:
    """The logits after some ids are equal up to a constant."""
    logits = model(torch.tensor([ids]))[0, -1].double()
    wanted = logits.log_softmax(-1)
    seen = wanted > -60  # llama.cpp computes the probabilities in float32
    if not model.config.block().gated:  # it reads gelu from a table in float16
        tolerance *= max(1.0, float(logits.max() - logits.min()))
    assert float((log_probabilities(other, model, ids) - wanted)[seen].abs().max()) < tolerance


def same_computation(model: GPT, folder: Path) -> None:
    """The logits after a prompt are the same, and the likeliest text."""
    (ours,) = generate(model, PROMPT, tokens=200, temperature=0)
    with started(model, folder) as other:
        same_logits(other, model, model.tokenizer.encode(PROMPT).tolist())
        answer = other.post("/completion", prompt=PROMPT, return_tokens=True, **llama.sampling(200, 0.0))
        assert answer["tokens"] == list(ours.ids)
        assert answer["content"] == ours.text


@WITH_LLAMA
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", pytest.param("bpe", marks=pytest.mark.long)])
def test_llama_cpp_writes_the_same_text(tmp_path: Path, kind: str) -> None:
    same_computation(tiny(tokenizer_of(kind), seed=1), tmp_path)


@WITH_LLAMA
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["char", pytest.param("bpe", marks=pytest.mark.long)])
def test_a_chat_has_the_answers_of_jumok(tmp_path: Path, kind: str) -> None:
    """The server of llama.cpp renders the template, reads its special tokens, ends, and takes the reasoning apart."""
    model = talking_models.taught(kind)
    assert model.tokenizer is not None
    assert model.tokenizer.chat is not None
    long, short = talking_models.LEARNED
    for chat in (long, short):
        [[ours]] = answer_chats(model, [chat[:-1]], tokens=40)
        said = {"role": "assistant", "content": ours.text, "reasoning_content": ours.reasoning}
        assert {key: value for key, value in said.items() if value} == chat[-1]
    with started(model, tmp_path) as other:
        for chat in (long[:1], long[:3], short[:2]):
            prompt = other.post("/apply-template", messages=chat)["prompt"]
            assert prompt == model.tokenizer.chat.render(chat)
            read = other.post("/tokenize", content=prompt, parse_special=True, add_special=True)["tokens"]
            assert read == model.tokenizer.chat.encode(chat)
            [[ours]] = answer_chats(model, [chat], tokens=40)
            how = {**llama.sampling(40, 0.0), "ignore_eos": False}
            answer = other.post("/v1/chat/completions", messages=chat, **how)
            message = answer["choices"][0]["message"]
            assert message["content"] == ours.text != ""
            assert message.get("reasoning_content", "") == ours.reasoning
            assert answer["choices"][0]["finish_reason"] == ours.finish == "stop"
            assert answer["usage"]["completion_tokens"] == len(ours.ids)


@WITH_LLAMA
@pytest.mark.long
def test_a_chat_continues_the_text(tmp_path: Path) -> None:
    model = tiny(tokenizer_of("char"), seed=1)
    (ours,) = generate(model, PROMPT, tokens=20, temperature=0)
    with started(model, tmp_path) as other:
        message = {"role": "user", "content": PROMPT}
        answer = other.post("/v1/chat/completions", messages=[message], **llama.sampling(20, 0.0))
    assert answer["choices"][0]["message"]["content"] == ours.text


def test_a_licence_with_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    """A word of a command line in another encoding has halves of surrogate pairs, which gguf cannot write."""
    found = to_gguf(tiny(tokenizer_of("char")), tmp_path / "m.gguf", name="a\udcff", licence="b\udcff")
    said = fields(found.path)
    assert (said["general.name"], said["general.license"]) == ("a?", "b?")
