"""The table of `jumok.config.features`: each model in each backend computes what the modules do, or is refused.

The table of docs/interop.md says the same, and its tokenizers are tried.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_gguf
import torch
from torch import Tensor, nn

import foreign_tokenizers
import llama
from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GenerationRules,
    GPTConfig,
    GPTVariantConfig,
    ModelConfig,
    RopeScaling,
    RungConfig,
    to_dict,
)
from jumok.config.features import (
    FEATURES,
    LLAMA_CPP,
    NATIVE,
    ONNX,
    PAGE,
    TRANSFORMERS,
    features_of,
    implements,
    kind_of,
    obstacle,
)
from jumok.errors import JumokError
from jumok.inference.native.from_torch import can_run, pack
from jumok.inference.native.slots import NativeSlots
from jumok.inference.slots import Chunk
from jumok.interop.gguf import to_gguf
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.onnx import to_onnx
from jumok.messages import speaking
from jumok.models import Model, build
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.model_page import FORMAT, VERSION, ModelPage, packed_parameters, rounded
from tokenizers import Tokenizer as HFTokenizer

TOKENIZER = train_tokenizer("나는 학교에 갔다.", "char")
V, T = TOKENIZER.vocab_size, 40
SIZES: dict[str, Any] = {"vocab_size": V, "context_length": T, "n_layer": 2, "n_head": 4, "n_embd": 32}
LABELS = ("a", "b", "c")
NEOX: dict[str, Any] = {
    "architecture": "GPTNeoX", "norm": "layer", "gated": False, "activation": "gelu", "parallel": True,
    "qkv_bias": True, "out_bias": True, "mlp_bias": True, "rotary_dim": 4, "tie_embeddings": False,
}  # fmt: skip
QWEN2: dict[str, Any] = {"architecture": "Qwen2", "qkv_bias": True}


def gpt(**changes: Any) -> GPTConfig:
    return GPTConfig(**{**SIZES, **changes})


def variant(scaling: dict[str, Any] | None = None, **changes: Any) -> GPTConfig:
    rope = None if scaling is None else RopeScaling(**{"factor": 4.0, "original_context": 16, **scaling})
    return GPTVariantConfig(**{**SIZES, "rope_scaling": rope, **changes})


def bert(**changes: Any) -> BERTConfig:
    return BERTConfig(**{**SIZES, "pad_id": 1, **changes})


def pair(**changes: Any) -> EncoderDecoderConfig:
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    return EncoderDecoderConfig(**{**SIZES, "n_decoder_head": 2, "n_decoder_layer": 1, **ids, **changes})


def biases(*names: str) -> dict[str, bool]:
    return {f"{name}_bias": True for name in names}


BIASED = (("qkv",), ("out",), ("mlp",), ("qkv", "mlp"), ("out", "mlp"))
EXAMPLES: dict[str, ModelConfig] = {
    "modern": gpt(),
    "modern, grouped": gpt(n_kv_head=2, head_dim=6, tie_embeddings=False, rope_theta=500.0),
    "modern, rules": gpt(generation=GenerationRules(suppress_tokens=(5,))),
    "modern, four ends": gpt(eos_ids=(5, 6, 7, 8)),
    "modern, classes": gpt(labels=LABELS, pad_id=1),
    "classic": gpt(family="classic"),
    "classic, narrow heads": gpt(family="classic", n_head=3, head_dim=8, tie_embeddings=False),
    "classic, wide heads": gpt(family="classic", head_dim=10),
    "classic, relu": gpt(family="classic", activation="relu"),
    "classic, classes": gpt(family="classic", labels=LABELS, pad_id=1),
    "classic, classes by the mean": gpt(family="classic", labels=LABELS, pad_id=1, pooling="mean"),
    "Llama": variant(n_kv_head=2, rope_theta=500.0, tie_embeddings=False),
    "Llama, classes": variant(labels=LABELS, pad_id=1),
    "Llama with biases": variant(**biases("qkv", "out", "mlp")),
    **{f"Llama, {names}": variant(**biases(*names)) for names in BIASED},
    "Llama with norms of q and k": variant(qk_norm=True),
    "Llama with LayerNorm": variant(norm="layer"),
    "Llama with a window": variant(sliding_window=9),
    "Llama, rotated in part": variant(rotary_dim=4),
    "linear": variant({"kind": "linear"}),
    "dynamic": variant({"kind": "dynamic"}),
    "llama3": variant({"kind": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "yarn": variant({"kind": "yarn"}, **QWEN2),
    "Mistral": variant(architecture="Mistral", sliding_window=T),
    "Mistral with biases": variant(architecture="Mistral", **biases("qkv", "out")),
    "Mistral with windows": variant(architecture="Mistral", sliding_window=9),
    "Mistral, one layer with a window": variant(architecture="Mistral", sliding_window=9, sliding_layers=(1,)),
    "Qwen2": variant(**QWEN2, n_kv_head=2),
    "Qwen2 without biases": variant(architecture="Qwen2"),
    "Qwen2 with a window": variant(**QWEN2, sliding_window=7, sliding_layers=(1,)),
    "Qwen3": variant({"kind": "dynamic"}, architecture="Qwen3", qk_norm=True),
    "Qwen3 without norms of q and k": variant(architecture="Qwen3"),
    "Qwen3 with biases": variant(architecture="Qwen3", qk_norm=True, **biases("qkv", "out")),
    "GPT-NeoX": variant(**NEOX),
    "GPT-NeoX, tied": variant(**{**NEOX, "tie_embeddings": True}),
    "GPT-NeoX, grouped": variant(**NEOX, n_kv_head=2),
    "GPT-NeoX, relu": variant(**{**NEOX, "activation": "relu"}),
    "GPT-NeoX in sequence": variant(**{**NEOX, "parallel": False}),
    "GPT-NeoX in sequence, other biases": variant(
        **{**NEOX, "parallel": False, "activation": "gelu_tanh", "rotary_dim": 8, "qkv_bias": False, "out_bias": False}
    ),
    "GPT-NeoX, classes": variant(**NEOX, labels=LABELS, pad_id=1),
    "a model of the ladder": RungConfig(**SIZES, family="classic", norm=False),
    "BERT": bert(),
    "BERT, classes": bert(head="classify", labels=LABELS),
    "BERT, classes, mean": bert(head="classify", labels=LABELS, pooling="mean"),
    "BERT, no head": bert(head="none"),
    "BERT, pooler": bert(head="pooler"),
    "RoBERTa": bert(family="roberta"),
    "RoBERTa, classes": bert(family="roberta", head="classify", labels=LABELS),
    "ELECTRA": bert(family="electra", embedding_width=16),
    "ELECTRA, classes": bert(family="electra", embedding_width=16, head="classify", labels=LABELS),
    "ELECTRA, no head": bert(family="electra", head="none"),
    "BART": pair(),
    "BART, gelu_tanh": pair(activation="gelu_tanh"),
    "BART, silu": pair(activation="silu", scale_embedding=True, decoder_mlp_width=20),
    "Marian": pair(family="original"),
    "Marian, no start": pair(family="original", decoder_start_id=None),
}
GPTS = [name for name, config in EXAMPLES.items() if isinstance(config, GPTConfig)]
each_example = pytest.mark.parametrize("name", EXAMPLES)


def tiny(name: str) -> Any:
    """A model with random parameters, in eval mode."""
    torch.manual_seed(7)
    model = build(EXAMPLES[name]).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for buffer in model.buffers():
        if buffer.shape == (V,):  # the output bias of an encoder-decoder
            buffer.normal_()
    model.tokenizer = TOKENIZER
    return model


def some_ids(rows: int = 2, length: int = T) -> Tensor:
    """Ids without the one that pads."""
    return torch.randint(2, V, (rows, length), generator=torch.Generator().manual_seed(length))


LENGTHS = torch.tensor([[T], [11]])
MASK = torch.arange(T) < LENGTHS
IDS, TARGETS, TYPES = some_ids().where(MASK, 1), some_ids(2, 9), some_ids(2, T) % 2


@torch.no_grad()
def by_modules(model: Model, types: Tensor = TYPES) -> dict[str, Tensor]:
    """What a model computes for IDS, by the names of `transformers`."""
    if isinstance(model, EncoderDecoder):
        return {"logits": model(IDS, TARGETS, MASK)}
    if isinstance(model, GPT):
        return {"logits": model.classify(model.hidden(IDS), MASK) if model.config.labels else model(IDS)}
    hidden = model(IDS, MASK, types)
    if model.config.head == "mlm":
        return {"logits": model.mlm_logits(hidden)}
    if model.config.head == "classify":
        return {"logits": model.classify(hidden, MASK)}
    pooled = {"pooler_output": model.pooled(hidden, MASK)} if model.config.head == "pooler" else {}
    return {"last_hidden_state": hidden, **pooled}


def require_close(found: Any, wanted: Tensor, tolerance: float) -> None:
    found = torch.as_tensor(np.asarray(found)).to(wanted.dtype).view_as(wanted)
    if wanted.dim() == 3 and wanted.shape[:2] == MASK.shape:  # what stands at padding is nobody's concern
        found, wanted = found[MASK], wanted[MASK]
    assert wanted.std() > 0.05
    assert float((found - wanted).abs().max()) < tolerance * max(1.0, float(wanted.abs().max()))


def require_refused(config: ModelConfig, backend: str, export: Callable[[], object]) -> None:
    with pytest.raises(JumokError) as error:
        export()
    assert str(error.value) == obstacle(config, backend)


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", FEATURES)
def test_an_example_has_each_value(feature: str) -> None:
    assert {features_of(config)[feature] for config in EXAMPLES.values()} == FEATURES[feature].keys()


def test_the_message_names_the_value_what_is_possible_and_what_else_to_use() -> None:
    said = {
        ("Mistral with windows", LLAMA_CPP): "this model has sliding_window=9, which llama.cpp does not compute (only "
        "None); use `jumok convert --to hf`, `jumok convert --to onnx`.",
        ("Llama, rotated in part", TRANSFORMERS): "this model has rotary_dim=4, which transformers does not compute "
        "(only 'head_dim'); use `jumok convert --to onnx`.",
        ("BERT, classes, mean", TRANSFORMERS): "this model has pooling='mean', which transformers does not compute "
        "(only 'first'); use `jumok convert --to onnx`, `jumok convert --to page`.",
        ("a model of the ladder", PAGE): "this model has type='rung', which jumok share does not compute (only 'gpt', "
        "'bert', 'encoder_decoder'); use `jumok view`.",
    }
    for (name, backend), message in said.items():
        assert obstacle(EXAMPLES[name], backend) == message
    with speaking("ko"):
        assert "llama.cpp에서 계산하지 못합니다" in str(obstacle(EXAMPLES["Mistral with windows"], LLAMA_CPP))


# --- the backends -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each_example
@torch.no_grad()
def test_transformers(name: str, tmp_path: Path) -> None:
    """In float64. The folder has no unknown or missing tensors, and is read back bit for bit."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = tiny(name).double()
    model.tokenizer = None
    if not implements(model.config, TRANSFORMERS):
        require_refused(model.config, TRANSFORMERS, lambda: to_hf(model, tmp_path / "hf"))
        return
    to_hf(model, tmp_path / "hf")
    [kind] = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))["architectures"]
    stock, info = getattr(transformers, kind).from_pretrained(
        tmp_path / "hf", dtype=torch.float64, output_loading_info=True
    )
    if name != "BERT, no head":  # its class has a pooler
        assert not any(info.values())
    inputs: dict[str, Any] = {"input_ids": IDS, "attention_mask": MASK.long()}
    if isinstance(model, BERT):
        inputs["token_type_ids"] = TYPES
    if isinstance(model, EncoderDecoder):
        inputs["decoder_input_ids"] = TARGETS
    found = stock.eval()(**inputs)
    for output, wanted in by_modules(model).items():
        require_close(found[output], wanted, 1e-9)
    again = from_hf(tmp_path / "hf")
    for output, wanted in by_modules(model).items():
        require_close(by_modules(again)[output], wanted, 1e-9)


@each_example
@torch.no_grad()
def test_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = tiny(name)
    if not implements(model.config, ONNX):
        require_refused(model.config, ONNX, lambda: to_onnx(model, tmp_path / "m.onnx"))
        assert not list(tmp_path.iterdir())
        return
    to_onnx(model, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    given = {"input_ids": IDS, "attention_mask": MASK.long(), "token_type_ids": TYPES}
    inputs = {
        one.name: np.zeros((2, one.shape[1], 0, one.shape[3]), np.float32)
        if one.name.startswith("past")
        else given[one.name].numpy()
        for one in session.get_inputs()
    }
    wanted = by_modules(model)
    for output, one in zip(wanted, session.run(list(wanted), inputs), strict=True):
        require_close(one, wanted[output], 1e-4)


@pytest.mark.compile
@pytest.mark.parametrize("name", GPTS)
@torch.no_grad()
def test_the_step_in_cpp(name: str, native_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", native_cache)
    monkeypatch.delenv("JUMOK_NATIVE", raising=False)
    model = tiny(name)
    assert can_run(model) == implements(model.config, NATIVE)
    if can_run(model):
        slots = NativeSlots(pack(model), 1)
        ids = IDS[0].tolist()
        found = torch.cat([torch.from_numpy(slots.read([Chunk(0, at, [token])])) for at, token in enumerate(ids)])
        require_close(found, model(IDS[:1])[0], 1e-5)


@pytest.fixture(scope="module")
def in_pages() -> dict[str, list[float]]:
    """What the programs of pages compute for the first row, with 16 bits for each number of a matrix."""
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    jobs, names = [], [name for name, config in EXAMPLES.items() if implements(config, PAGE)]
    for name in names:
        config, model = EXAMPLES[name], tiny(name)
        entries, text = packed_parameters(model, exact=True)
        header = {"format": FORMAT, "version": VERSION, "config": {"type": kind_of(config), **to_dict(config)}}
        ids, source = IDS[0].tolist(), {"source": IDS[0].tolist(), "ids": TARGETS[0].tolist()}
        task = "classify" if getattr(config, "labels", ()) else kind_of(config)
        ask = {
            "gpt": {"what": "read", "ids": ids},
            "classify": {"what": "classify", "ids": ids},
            "bert": {"what": "predict", "ids": ids, "positions": list(range(T))},
            "encoder_decoder": {"what": "answer", **source},
        }[task]
        jobs.append({"header": {**header, **entries}, "base64": text, "kernels": "javascript", "asks": [ask]})
    script = Path(__file__).resolve().parents[1] / "js" / "model_driver.mjs"
    done = subprocess.run(["node", str(script)], input=json.dumps(jobs), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(names, json.loads(done.stdout), strict=True))


@pytest.mark.slow
@each_example
@torch.no_grad()
def test_pages(name: str, request: pytest.FixtureRequest) -> None:
    model = tiny(name)
    if not implements(model.config, PAGE):
        require_refused(model.config, PAGE, lambda: ModelPage(model, "m"))
        return
    with_rounded_matrices = rounded(model, exact=True)
    found = request.getfixturevalue("in_pages")[name]
    [wanted] = by_modules(with_rounded_matrices, types=0 * TYPES).values()  # a page has one text
    require_close(found, wanted[0], 1e-4)


@each_example
def test_gguf_is_written_or_refused(name: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    model = tiny(name)
    if implements(model.config, LLAMA_CPP):
        assert len(gguf.GGUFReader(to_gguf(model, tmp_path / "m.gguf").path).tensors) > 10
    else:
        require_refused(model.config, LLAMA_CPP, lambda: to_gguf(model, tmp_path / "m.gguf"))
        assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp is not installed")
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, config in EXAMPLES.items() if implements(config, LLAMA_CPP)])
def test_llama_cpp(name: str, tmp_path: Path) -> None:
    model = tiny(name)
    with test_gguf.started(model, tmp_path) as other:
        test_gguf.same_logits(other, model, IDS[0].tolist()[:-1])


# --- the table of docs/interop.md -------------------------------------------------------------------------------------

DOCS = Path(__file__).resolve().parents[2] / "docs"
WORDS = {"yes": True, "no": False, "예": True, "아니요": False}


def cells(page: str) -> dict[str, list[bool]]:
    """The cells of the table, by the first cell of each row."""
    _, _, table = (DOCS / page).read_text(encoding="utf-8").partition("| | hf | gguf | onnx | page | in |\n")
    rows = [line.strip("|").split("|") for line in table.partition("\n\n")[0].splitlines()[1:]]
    return {name.strip(): [WORDS[cell.strip()] for cell in row] for name, *row in rows}


TABLE = cells("interop.md")


BACKENDS = {"hf": TRANSFORMERS, "gguf": LLAMA_CPP, "onnx": ONNX, "page": PAGE, "in": TRANSFORMERS}
MODELS = {
    "GPT, modern (Qwen3)": "modern",
    "GPT, classic (GPT-2)": "classic",
    "Llama": "Llama",
    "Mistral": "Mistral",
    "Qwen2": "Qwen2",
    "GPT-NeoX": "GPT-NeoX",
    "GPT classifier, pooling last": "modern, classes",
    "GPT classifier, pooling mean": "classic, classes by the mean",
    "BERT": "BERT",
    "BERT classifier": "BERT, classes",
    "RoBERTa": "RoBERTa",
    "ELECTRA": "ELECTRA",
    "encoder–decoder, classic (BART)": "BART",
    "encoder–decoder, original (Marian)": "Marian",
    "model of the ladder": "a model of the ladder",
}
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    **{f"tokenizer `{kind}`": partial(train_tokenizer, "나는 학교에 갔다.", kind) for kind in ("char", "jamo", "bpe")},
    "tokenizer WordPiece": lambda: Tokenizer(foreign_tokenizers.word_piece()),
    "tokenizer of SentencePiece (BPE)": lambda: Tokenizer(foreign_tokenizers.llama()),
}


def test_the_table_has_the_rows_that_are_tested_in_both_languages() -> None:
    assert list(TABLE) == [*MODELS, *TOKENIZERS]
    assert list(cells("ko/interop.md").values()) == list(TABLE.values())


@pytest.mark.parametrize("row", MODELS)
def test_the_cells_of_models_are_those_of_the_table_of_features(row: str) -> None:
    config = EXAMPLES[MODELS[row]]
    assert TABLE[row] == [implements(config, backend) for backend in BACKENDS.values()]


def into_hf(model: Model, folder: Path) -> None:
    to_hf(model, folder / "hf")
    read = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder / "hf")
    assert read("나는", add_special_tokens=False)["input_ids"] == model.tokenizer.encode("나는").tolist()


def into_gguf(model: Model, folder: Path) -> None:
    assert to_gguf(model, folder / "m.gguf").path.is_file()


def into_onnx(model: Model, folder: Path) -> None:
    _, tokenizer = to_onnx(model, folder / "m.onnx")
    assert HFTokenizer.from_file(str(tokenizer)).get_vocab_size() == model.tokenizer.vocab_size


def into_page(model: Model, folder: Path) -> None:
    ModelPage(model, "m").save(folder / "m.html")


def back(model: Model, folder: Path) -> None:
    """A folder that `transformers` itself has saved is read."""
    to_hf(model, folder / "hf")
    transformers = pytest.importorskip("transformers")
    transformers.AutoModelForCausalLM.from_pretrained(folder / "hf").save_pretrained(folder / "theirs")
    transformers.AutoTokenizer.from_pretrained(folder / "hf").save_pretrained(folder / "theirs")
    read = from_hf(folder / "theirs")
    assert read.tokenizer.encode("나는 갔다").tolist() == model.tokenizer.encode("나는 갔다").tolist()


FORMATS: dict[str, Callable[[Model, Path], None]] = {
    "hf": into_hf, "gguf": into_gguf, "onnx": into_onnx, "page": into_page, "in": back,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("column", BACKENDS)
@pytest.mark.parametrize("row", TOKENIZERS)
def test_each_cell_of_a_tokenizer_is_true(row: str, column: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[row]()
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"context_length": 24, "n_layer": 2, "n_head": 2, "n_embd": 16}
    model = build(GPTConfig(**sizes, vocab_size=tokenizer.vocab_size)).eval()
    model.tokenizer = tokenizer
    if TABLE[row][[*BACKENDS].index(column)]:
        FORMATS[column](model, tmp_path)
    else:
        with pytest.raises(JumokError, match=re.compile(r"\w+ \w+ \w+")):
            FORMATS[column](model, tmp_path)
        assert not list(tmp_path.iterdir())
