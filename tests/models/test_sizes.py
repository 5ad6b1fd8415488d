"""Sizes that exceed any memory: in config.json, in a stock folder, and as options."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import math
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import jumok
from conftest import Jumok, loss_of
from jumok import memory
from jumok.config import (
    SIZES,
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    ModelConfig,
    RungConfig,
    TrainConfig,
    count_cached,
    count_constants,
    count_parameters,
    field_types,
    stacks,
)
from jumok.errors import ConfigError, JumokError, RunError
from jumok.evaluation.classification import MOST_CONFUSED, judge
from jumok.files import require_space
from jumok.interop.huggingface import to_hf
from jumok.memory import free_memory, require_memory
from jumok.models import MODELS, build
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training import policy as plan
from jumok.training.trainer import Trainer
from jumok.view.trace import trace

Start = Callable[..., Trainer]
TINY: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 8, "context_length": 12}
GB = 10**9

SHAPES: list[ModelConfig] = [
    GPTConfig(vocab_size=31, **TINY),
    GPTConfig(vocab_size=31, **TINY, tie_embeddings=False, n_kv_head=1, head_dim=6, mlp_width=20),
    GPTConfig(vocab_size=31, **TINY, family="classic"),
    GPTConfig(vocab_size=31, **TINY, labels=("no", "yes"), pooling="mean"),
    RungConfig(vocab_size=31, **TINY, family="classic", residual=False, norm=False, feed_forward=False),
    RungConfig(vocab_size=31, **TINY, family="classic", mixing="none"),
    RungConfig(vocab_size=31, **TINY, family="classic", mixing="average"),
    *(BERTConfig(vocab_size=31, **TINY, head=head) for head in ("none", "pooler", "mlm")),
    BERTConfig(vocab_size=31, **TINY, head="classify", labels=("no", "yes"), pooling="mean"),
    EncoderDecoderConfig(vocab_size=31, **TINY),
    EncoderDecoderConfig(vocab_size=31, **TINY, family="original", n_decoder_layer=1, decoder_mlp_width=24),
]


# --- counting ---


@pytest.mark.parametrize("config", SHAPES, ids=str)
def test_numbers_are_counted_without_building(config: ModelConfig) -> None:
    """Exactly: the count decides whether a model is built."""
    model = build(config)
    assert count_parameters(config) == sum(parameter.numel() for parameter in model.parameters())
    assert count_constants(config) == sum(buffer.numel() for buffer in model.buffers())
    blocks = [part for part in model.modules() if type(part).__name__ == "Block"]
    assert sum(count for count, _, _ in stacks(config)) == len(blocks)
    if isinstance(model, GPT):
        cache = model.new_cache(3)
        held = sum(
            2 * layer.keys_values()[0][:, :, :1].shape[0:2].numel() * model.config.head_dim for layer in cache.layers
        )
        assert 3 * count_cached(config) == held or config.mixing == "none"  # type: ignore[attr-defined]


def test_free_memory() -> None:
    """It is above zero and at most an exabyte; a limit that means "unlimited" is ignored."""
    free = free_memory()
    assert free is not None
    assert 1e6 < free < 1e18


def test_memory_of_a_gpu_that_pytorch_has_taken_and_does_not_use_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample during a training would be refused: nearly all memory is in PyTorch's cache then."""
    for name, found in {
        "mem_get_info": (1 * GB, 80 * GB),
        "memory_reserved": 70 * GB,
        "memory_allocated": 9 * GB,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, found=found: found)
    assert free_memory("cuda") == 62 * GB


def test_a_container_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_of_groups", lambda: iter([1 << 50, 7 * GB]))
    monkeypatch.setattr(memory, "_free_of_system", lambda: 64 * GB)
    assert free_memory() == 7 * GB
    monkeypatch.setattr(memory, "_free_of_groups", lambda: iter([]))
    monkeypatch.setattr(memory, "_free_of_system", lambda: None)
    assert free_memory() is None
    require_memory(10**30, "anything")  # if it is unknown, nothing is refused


@pytest.mark.slow
def test_usual_sizes_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that fits is not refused, also on a machine with 8 GB."""
    monkeypatch.setattr(memory, "free_memory", lambda: 8 * GB)
    with torch.device("meta"):
        shapes: list[ModelConfig] = [
            GPTConfig(vocab_size=8_000, **{k: v for k, v in size.items() if k in field_types(GPTConfig)})
            for size in SIZES.values()
        ]
        shapes.append(
            EncoderDecoderConfig(
                family="original", vocab_size=37_000, n_layer=6, n_head=8, n_embd=512, context_length=512
            )
        )
        shapes.append(BERTConfig(vocab_size=30_000, n_layer=12, n_head=12, n_embd=768, context_length=512))
        for shape in shapes:
            assert build(shape).parameter_count() == count_parameters(shape)


@pytest.mark.parametrize("task", ["lm", "mlm"])
def test_the_least_is_less_than_what_a_step_keeps(start: Start, task: str) -> None:
    """Otherwise something that fits would be refused."""
    trainer = start(task=task, n_layer=2, precision="bfloat16")
    kept: dict[int, int] = {}  # bytes, by their place in memory

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        loss_of(trainer, *trainer.task.batch(0))
    least = plan.least_memory(trainer.model.config, trainer.config, trainer.task)
    assert 0 < least["kept"] < sum(kept.values())


def test_a_step_that_does_not_fit_is_refused(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--batch-size 1000000 used all memory, and the system killed the process without a message."""
    monkeypatch.setattr(memory, "free_memory", lambda: 10**9)
    monkeypatch.setattr(plan, "free_memory", lambda _: 10_000)
    monkeypatch.setattr(plan, "measure_step", lambda *_: pytest.fail("a step was tried"))
    with pytest.raises(
        ConfigError,
        match=r"a training step over 1,024 tokens without recompute takes [\d,.]+ .B of memory at least, and",
    ):
        start(batch_size=64, attention="auto")
    assert not (tmp_path / "run").exists()


# --- a config.json that says nonsense ---

NUMBERS = [10**7, 10**12, 10**30, 10**400, -1, 0]
OTHERS = [True, 2.5, 1e300, "4", None, [], {}]
VALUES = [*NUMBERS, *OTHERS]
KINDS: dict[str, Callable[[int], GPT | BERT | EncoderDecoder]] = {
    "gpt": lambda vocab: GPT(GPTConfig(vocab_size=vocab, **TINY)),
    "classic": lambda vocab: GPT(GPTConfig(vocab_size=vocab, family="classic", **TINY)),
    "bert": lambda vocab: BERT(BERTConfig(vocab_size=vocab, **TINY)),
    "bart": lambda vocab: EncoderDecoder(EncoderDecoderConfig(vocab_size=vocab, **TINY, decoder_start_id=2, eos_id=3)),
}


@pytest.fixture(scope="module")
def tokenizer(tales: str) -> Tokenizer:
    return train_tokenizer(tales, "char", special_tokens=["[PAD]", "[MASK]", "[CLS]", "[SEP]", "[UNK]"])


def saved(kind: str, tokenizer: Tokenizer, folder: Path) -> Path:
    model = KINDS[kind](tokenizer.vocab_size)
    model.tokenizer = tokenizer
    jumok.save(model, folder)
    return folder


def outcome(folder: Path) -> str:
    """Return the message of the error in loading; any exception other than a JumokError fails the test."""
    try:
        jumok.load(folder)
    except JumokError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_any_value_in_a_config_gives_a_message(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """n_layer=10^7 ran for ever, n_embd=10^7 ended in an error of the allocator, 10^400 in an OverflowError."""
    folder = saved(kind, tokenizer, tmp_path / "run")
    path = folder / "config.json"
    good = json.loads(path.read_text(encoding="utf-8"))
    for name, before in good["model"].items():
        for value in VALUES if type(before) is int else (10**30, 1e300, None, []):
            if (name, value) == ("context_length", 10**7):
                continue  # the machine may have enough memory for the angles of these positions
            path.write_text(json.dumps({**good, "model": {**good["model"], name: value}}), encoding="utf-8")
            said = outcome(folder)
            assert said or name not in {"n_layer", "n_embd", "vocab_size"} or value is None, (name, value)
            assert len(said) < 20_000, (name, value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n_layer", 10_000, r"describes a model of [\d,]+ parameters, but its file of tensors contains [\d,]+ numbers"),
        ("mlp_width", 10**8, r"describes a model of 4.8e\+09 parameters, but its file of tensors contains"),
        ("n_layer", 10**30, r"n_layer=10000000... \(31 digits\) is out of range: it must be between 1 and 10,000"),
    ],
)
def test_a_config_is_compared_with_the_size_of_the_file(
    jumok: Jumok, tokenizer: Tokenizer, own_folder: Path, field: str, value: int, words: str
) -> None:
    """A file of 14 MB cannot contain 10^12 parameters."""
    path = saved("gpt", tokenizer, own_folder / "run") / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["model"][field] = value
    path.write_text(json.dumps(config), encoding="utf-8")
    for command in (("generate", "run"), ("convert", "run", "out", "--to", "hf"), ("view", "run", "옛날")):
        end = jumok(*command)
        assert end.code == 1
        assert end.err.startswith("jumok: run")
        assert re.search(words, end.err), end.err


def test_a_stock_config_is_compared_with_the_size_of_the_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "stock"
    to_hf(jumok.load(saved("bert", tokenizer, tmp_path / "run")), folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "num_hidden_layers": 9_999}))
    with pytest.raises(
        RunError, match=r"stock/config.json describes a model of [\d,]+ parameters, but its file of tensors"
    ):
        jumok.load(folder)


# --- settings ---


@pytest.mark.parametrize("field", dataclasses.fields(TrainConfig), ids=lambda field: str(field.name))
def test_any_training_setting_gives_a_message(field: dataclasses.Field[Any]) -> None:
    """--matrix-learning-rate 1e300 overflowed while a line was printed, --accumulate 10^23 never ended a step."""
    for value in [*VALUES, math.inf, math.nan]:
        said = ""
        with suppress(ConfigError):
            said = f"{TrainConfig(**{field.name: value})}"
        usual = not isinstance(value, float | int) or abs(value) <= 10**9
        assert usual or not said, value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--batch-size", 1_000_000_000), "a training step over "),
        (("--n-embd", 10_000_000), "parameters takes "),
        (("--n-layer", 10**7), "n_layer=10000000 is out of range: it must be between 1 and 10,000."),
        (("--vocab-size", 10**30), "it must be between 256 and 1,000,000,000."),
        (("--accumulate", 10**23), "is out of range: it must be between 1 and 100,000."),
        (("--matrix-learning-rate", 1e300), "it must be between 0 and 1,000."),
        (("--learning-rate", 1e300), "it must be between 0 and 1,000."),
        (("--minutes", 1e300), "it must be more than 0 and at most 1,000,000."),
        (("--steps", 10**30), "it must be between 1 and 1,000,000,000."),
        (("--eval-every", 10**30), "it must be between 0 and 1,000,000,000."),
        (("--seed", 10**30), "it must be between 0 and 2,147,483,647."),
        (("--seed", -1), "it must be between 0 and 2,147,483,647."),
        (("--min-count", 10**30), "it must be between 1 and 1,000,000,000."),
        (("--context-length", 10**30), "it must be between 1 and 100,000,000."),
    ],
    ids=str,
)
def test_options_that_exceed_any_memory(
    jumok: Jumok, own_folder: Path, tales: str, flags: tuple[object, ...], words: str
) -> None:
    (own_folder / "t.txt").write_text(tales, encoding="utf-8")
    small = ("--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--device", "cpu")
    small += ("--precision", "float32", "--attention", "chunked")
    length = () if flags[0] in ("--minutes", "--steps") else ("--steps", 1)
    kind = ("--tokenizer", "bpe") if flags[0] == "--vocab-size" else ()
    end = jumok("train", "t.txt", *small, *length, *kind, "--out", "run", "--quiet", *flags)
    assert end.code == 2, end.err
    assert words in end.err
    assert not (own_folder / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "flags", "words"),
    [
        ("gpt", ("--samples", 10**12), "generating 1.0e+12 texts takes "),
        ("gpt", ("--seed", 10**30), ""),
        ("gpt", ("--seed", -1), "seed=-1 is out of range"),
        ("gpt", ("--temperature", 1e300), ""),
        ("gpt", ("--top-k", 10**30), ""),
        ("gpt", ("--tokens", 10**30, "--stop", "\n"), ""),
        ("bart", ("--beam", 10**12), "generating 1.0e+12 texts takes "),
        ("bart", ("--samples", 10**12), "generating 1.0e+12 texts takes "),
        ("bart", ("--temperature", 1.0, "--samples", 10**12), "generating 1.0e+12 texts takes "),
        ("bart", ("--tokens", 10**30), "it must be between 1 and 12."),
        ("bart", ("--length-penalty", 1e300), "it must be between -100 and 100."),
        ("bart", ("--no-repeat-ngram", 10**30), ""),
        ("bert", ("--top", 10**30), ""),
    ],
    ids=str,
)
def test_samples_and_beams_that_exceed_any_memory(
    jumok: Jumok, tokenizer: Tokenizer, own_folder: Path, kind: str, flags: tuple[object, ...], words: str
) -> None:
    """--samples 10^12 made a list of them first, --beam 10^12 took all the memory there is."""
    saved(kind, tokenizer, own_folder / "run")
    few = () if "--tokens" in flags or kind == "bert" else ("--tokens", 3)
    end = jumok("generate", "run", "--prompt", "옛날 [MASK]" if kind == "bert" else "옛날", *few, *flags)
    assert (end.code, words in end.err) == (2 if words else 0, True), end.err


# --- limits of the process, and memory that runs out all the same ---


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of a process and what it uses are read from /proc")
def test_limits_of_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulimit -v` was not known: a model was built that could not be, and PyTorch's allocator ended in a traceback."""
    import resource

    most = 1 << 40
    monkeypatch.setattr(resource, "getrlimit", lambda which: (most if which == resource.RLIMIT_AS else -1, -1))
    left = list(memory._free_of_limits())
    assert len(left) == 1
    assert most - (1 << 38) < left[0] < most


def test_what_a_container_uses_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The limit itself was taken for what is free, although the other processes of the container use some of it."""
    for name, content in (("max", "8000"), ("current", "5000"), ("stat", "anon 1\ninactive_file 700\n")):
        (tmp_path / f"memory.{name}").write_text(content, encoding="ascii")
    monkeypatch.setattr(memory, "control_groups", lambda controller: [tmp_path])
    assert list(memory._free_of_groups()) == [3_700]


@pytest.mark.parametrize("config", SHAPES, ids=str)
def test_a_constructor_checks_its_room(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `build` did: BERT(BERTConfig(vocab_size=10**8, ...)) in Python ended in an error of the allocator."""
    monkeypatch.setattr(memory, "free_memory", lambda: 700)
    with pytest.raises(ConfigError, match="of memory at least, and 1 kB are free here; choose smaller sizes"):
        MODELS[type(config)](config)


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            True,
        ),
        (RuntimeError("Storage size calculation overflowed with sizes=[9, 9]"), True),
        (RuntimeError("MPS backend out of memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ConfigError("the prompt says: out of memory"), False),
    ],
    ids=str,
)
def test_errors_that_mean_that_memory_ran_out(error: Exception, ran_out: bool) -> None:
    assert memory.is_out_of_memory(error) is ran_out


def test_a_vocabulary_that_exceeds_any_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """--vocab-size 1000000000 aborted the process in the library, which reserves its tables first."""
    monkeypatch.setattr(memory, "free_memory", lambda: GB)
    with pytest.raises(ConfigError, match=r"a vocabulary of 1,000,000,000 tokens takes 64 GB of memory at least"):
        train_tokenizer("옛날 옛날에", "bpe", vocab_size=10**9)


@pytest.mark.parametrize("labels", [3, MOST_CONFUSED + 1])
def test_a_confusion_matrix_of_many_labels_is_left_out(labels: int) -> None:
    """10,000 labels made 10^8 Python numbers, 2 GB, and a picture of them that took minutes."""
    found = judge(torch.zeros(2, labels).log_softmax(1), np.array([0, 2]), [f"{i}" for i in range(labels)], tokens=4)
    assert (found.confusion is None) is (labels > MOST_CONFUSED)
    assert (found.accuracy, found.f1) == (0.5, {"0": 2 / 3, "2": 0.0})


def test_a_corpus_that_exceeds_the_disk(tmp_path: Path) -> None:
    """`jumok corpus write stories --chars 10**15` filled the disk."""
    with (tmp_path / "stories.txt").open("wb") as file:
        require_space(file, 10)
        with pytest.raises(ConfigError, match=r"this takes 2,400 TB on the disk at least, and .* are free there"):
            require_space(file, 2.4e15)
    require_space(io.BytesIO(), 2.4e15)  # no file: nothing is known


def test_attention_that_exceeds_any_memory(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 20,000 tokens took all memory for the weights of one layer, and ended in a traceback."""
    model = KINDS["gpt"](tokenizer.vocab_size)
    model.tokenizer = tokenizer
    monkeypatch.setattr(memory, "free_memory", lambda: 1_000)
    with pytest.raises(ConfigError, match=r"the attention of 2 heads over 12 tokens takes 2 kB .* use a shorter text"):
        trace(model, "옛날 옛날에 살았던 사람들이 있었다")
