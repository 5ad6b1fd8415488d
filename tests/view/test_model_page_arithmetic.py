"""The model in a page computes what PyTorch computes with the same rounded parameters.

Tiny models with random parameters are written as for a page; Node reads them with the modules of the page
(tests/js/model_driver.mjs), by plain JavaScript and by WebAssembly, and each answer is compared with that of PyTorch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, to_dict
from jumok.config.features import kind_of
from jumok.inference.slots import window_start
from jumok.interpret.ablation import ablate
from jumok.interpret.record import record
from jumok.models import Model, build
from jumok.view.model_page import FORMAT, VERSION, packed_parameters, rounded

SCRIPTS = Path(__file__).resolve().parents[1] / "js"
CLOSE = 1e-4  # of logits of size 1 to 10
CONTEXT, VOCAB = 24, 50

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")]

SIZES: dict[str, Any] = {"vocab_size": VOCAB, "context_length": CONTEXT, "n_layer": 2}
CONFIGS: dict[str, ModelConfig] = {
    "modern": GPTConfig(**SIZES, n_embd=40, n_head=4, n_kv_head=2, head_dim=6),
    "modern untied": GPTConfig(**SIZES, n_embd=32, n_head=2, tie_embeddings=False, rope_theta=500.0),
    "classic": GPTConfig(**SIZES, n_embd=40, n_head=4, family="classic"),
    "classic narrow": GPTConfig(
        **SIZES, n_embd=30, n_head=3, head_dim=4, family="classic", activation="relu", tie_embeddings=False
    ),
    "bert": BERTConfig(**SIZES, n_embd=32),
    "seq2seq": EncoderDecoderConfig(**SIZES, n_embd=32, n_head=4, n_decoder_head=2, n_decoder_layer=1),
    "original": EncoderDecoderConfig(**SIZES, n_embd=32, family="original"),
    "silu": EncoderDecoderConfig(**SIZES, n_embd=32, activation="silu", scale_embedding=True, decoder_mlp_width=20),
}
WRITERS = ("modern", "modern untied", "classic", "classic narrow")
EXACT = ("modern", "classic narrow", "bert", "seq2seq")  # that are read with 16 bits too
KERNELS = ("simd", "javascript")


def scrambled(config: ModelConfig) -> Model:
    """A model all of whose parameters are random, also those that training begins with at zero or one."""
    torch.manual_seed(7)
    model = build(config)
    for name, parameter in model.named_parameters():
        size = 2 * parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.2
        parameter.data = parameter.data + size * torch.randn_like(parameter) * (0.3 if "embedding" in name else 1)
    for buffer in model.buffers():
        if buffer.shape == (VOCAB,):  # the output bias of an encoder-decoder
            buffer.normal_()
    return model.eval()


def some_ids(count: int, seed: int = 1) -> list[int]:
    torch.manual_seed(seed)
    return torch.randint(VOCAB, (count,)).tolist()


IDS, LONG, SOURCE = some_ids(20), some_ids(57, 2), some_ids(9, 3)
OFF = [[0, 1], [1, 0], [1, 1]]

WRITING: list[dict[str, Any]] = [
    {"what": "read", "ids": IDS},
    {"what": "read", "ids": IDS, "off": OFF},
    {"what": "cached", "ids": IDS, "cuts": [0, 1, 2, 8, 19]},
    {"what": "cached", "ids": IDS, "cuts": [0, 13]},
    {"what": "greedy", "ids": IDS[:3], "tokens": 48},  # the window moves twice
    {"what": "changed", "ids": LONG, "other": LONG[:30]},
    {"what": "record", "ids": IDS},
    {"what": "record", "ids": IDS, "off": OFF},
    {"what": "step", "ids": LONG, "layer": 1},
]
FILLING: list[dict[str, Any]] = [{"what": "record", "ids": IDS, "off": OFF}]
ANSWERING: list[dict[str, Any]] = [
    {"what": "answer", "source": SOURCE, "ids": IDS},
    {"what": "answer", "source": SOURCE, "ids": IDS, "off": [["cross", 0, 1], ["encoder", 1, 0]]},
    {"what": "record", "source": SOURCE, "ids": IDS},
]


def asks_of(config: ModelConfig) -> list[dict[str, Any]]:
    """What is asked of a model of this kind."""
    if isinstance(config, EncoderDecoderConfig):
        return ANSWERING
    return FILLING if isinstance(config, BERTConfig) else WRITING


class Answers:
    """What Node computed, and the models with the rounded parameters."""

    def __init__(self) -> None:
        self.models: dict[tuple[str, bool], Model] = {}
        jobs, keys = [], []
        for name, config in CONFIGS.items():
            model = scrambled(config)
            for exact in (False, True) if name in EXACT else (False,):
                self.models[name, exact] = rounded(model, exact=exact)
                entries, text = packed_parameters(model, exact=exact)
                header = {"format": FORMAT, "version": VERSION, "config": {"type": kind_of(config), **to_dict(config)}}
                for kernels in KERNELS:
                    job = {"header": {**header, **entries}, "base64": text, "kernels": kernels, "asks": asks_of(config)}
                    jobs.append(job)
                    keys += [(name, exact, kernels, json.dumps(ask)) for ask in asks_of(config)]
        command = ["node", str(SCRIPTS / "model_driver.mjs")]
        done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.found: dict[Any, Any] = dict(zip(keys, json.loads(done.stdout), strict=True))

    def each(self, what: str, *names: str) -> list[tuple[Any, dict[str, Any], Any]]:
        """The model, the question and the answer of all questions of a kind."""
        return [
            (self.models[name, exact], json.loads(ask), found)
            for (name, exact, _, ask), found in self.found.items()
            if json.loads(ask)["what"] == what and (not names or name in names)
        ]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


def require_close(found: Any, expected: Tensor) -> None:
    expected = expected.float().flatten()
    assert len(found) == len(expected)
    assert bool(expected.isfinite().all())
    numbers = torch.tensor(found)
    assert float((numbers - expected).abs().max()) < CLOSE * max(1.0, float(expected.abs().max()) / 10)


def heads(ask: dict[str, Any]) -> list[Any]:
    return [tuple(head) for head in ask.get("off", ())]


@torch.no_grad()
def test_logits_of_a_gpt(answers: Answers) -> None:
    asked = answers.each("read")
    assert len(asked) == 2 * 2 * (len(WRITERS) + 2)
    for model, ask, found in asked:
        with ablate(model, heads(ask)):
            require_close(found, model(torch.tensor([ask["ids"]])))
    sizes = [model(torch.tensor([IDS])).abs().max() for model, _, _ in asked]
    assert 1 < min(sizes) <= max(sizes) < 100  # neither zero nor so large that an error of CLOSE were too strict


@torch.no_grad()
def test_with_a_cache_the_logits_are_the_same(answers: Answers) -> None:
    for model, ask, found in answers.each("cached"):
        require_close(found, model(torch.tensor([ask["ids"]])))


@torch.no_grad()
def test_the_greedy_text_is_the_same_beyond_the_context(answers: Answers) -> None:
    for model, ask, found in answers.each("greedy"):
        text = list(ask["ids"])
        for _ in range(ask["tokens"]):
            window = text[window_start(len(text), CONTEXT) :]
            text.append(int(model(torch.tensor([window]))[0, -1].argmax()))
        assert found == text
        assert len(set(text)) > 5


@torch.no_grad()
def test_a_text_that_is_read_in_parts_and_changed(answers: Answers) -> None:
    for model, ask, found in answers.each("changed"):
        windows = [torch.tensor([ids[window_start(len(ids), CONTEXT) :]]) for ids in (ask["ids"], ask["other"])]
        first, other = (model(window)[0, -1] for window in windows)
        with ablate(model, [(0, 0)]):
            without = model(windows[0])[0, -1]
        require_close(found, torch.cat((first, other, without, first)))


@torch.no_grad()
def test_what_is_recorded(answers: Answers) -> None:
    """Queries, keys, values and weights are those of `jumok.interpret.record`."""
    for model, ask, found in answers.each("record", *WRITERS, "bert"):
        with record(model) as recording, ablate(model, heads(ask)):
            out = model(torch.tensor([ask["ids"]]))
        for layer, seen in enumerate(recording.attentions):
            notes = found[f"self {layer}"]
            require_close(notes["q_rotated"], seen.q[0].transpose(0, 1))
            for name, tensor in (("k_rotated", seen.k), ("keys", seen.k), ("v", seen.v), ("values", seen.v)):
                require_close(notes[name], tensor[0].transpose(0, 1))
            weights = seen.weights()[0].transpose(0, 1)  # (T, H, S)
            require_close(notes["weights"], weights)
            outputs = (seen.weights() @ seen.v.repeat_interleave(seen.n_head // seen.n_kv_head, 1))[0].transpose(0, 1)
            kept = torch.tensor([(layer, head) not in heads(ask) for head in range(seen.n_head)])
            require_close(notes["heads"], outputs * kept[:, None])
            scores = torch.tensor([float("-inf") if score is None else score for score in notes["scores"]])
            require_close(scores.view_as(weights).softmax(-1).flatten().tolist(), weights)
        if "norm" in found["model"]:
            require_close(
                found["model"]["norm"],
                model.hidden(torch.tensor([ask["ids"]])) if not heads(ask) else _norm(model, ask),
            )
            require_close(found["model"]["logits"], out[0, -1])


def _norm(model: Any, ask: dict[str, Any]) -> Tensor:
    with ablate(model, heads(ask)):
        return model.hidden(torch.tensor([ask["ids"]]))


@torch.no_grad()
def test_the_residual_stream_is_the_sum_of_what_is_recorded(answers: Answers) -> None:
    for model, ask, found in answers.each("record", *WRITERS):
        start = found["model"]["embedding"]
        if "position_embedding" in found["model"]:
            start = [a + b for a, b in zip(start, found["model"]["position_embedding"], strict=True)]
        stream = torch.tensor(start)
        for layer in range(model.config.n_layer):
            notes = {name: torch.tensor(value) for name, value in found[f"self {layer}"].items() if name != "scores"}
            require_close(notes["input"].tolist(), stream)
            require_close(notes["residual1"].tolist(), stream + notes["attention_out"])
            stream = stream + notes["attention_out"] + notes["mlp_out"]
            require_close(notes["residual2"].tolist(), stream)
            block = model.blocks[layer]
            x = notes["input"].view(1, len(ask["ids"]), -1)
            require_close(notes["norm1"].tolist(), block.attention_norm(x))
            require_close(notes["norm2"].tolist(), block.mlp_norm(notes["residual1"].view_as(x)))
            require_close(notes["mlp_out"].tolist(), block.mlp(notes["norm2"].view_as(x)))


@torch.no_grad()
def test_one_step(answers: Answers) -> None:
    for model, ask, found in answers.each("step"):
        start = window_start(len(ask["ids"]), CONTEXT)
        ids = torch.tensor([ask["ids"][start:]])
        with record(model) as recording:
            logits = model(ids)
        seen, layer = recording.attentions[ask["layer"]], found["layers"][ask["layer"]]
        assert (found["length"], found["position"]) == (ids.shape[1], ids.shape[1] - 1)
        require_close(found["logits"], logits[0, -1])
        require_close(layer["keys"], seen.k[0])  # (G, T, D)
        require_close(layer["values"], seen.v[0])
        require_close(layer["weights"], seen.weights()[0, :, -1])
        require_close(layer["q_rotated"], seen.q[0, :, -1])
        require_close(layer["joined"], torch.tensor(layer["heads"]))
        require_close([layer["norms"]["mlp"]], torch.tensor(layer["mlp_out"]).norm()[None])
        other = found["layers"][1 - ask["layer"]]
        assert set(other) == {"layer", "norms"}
        assert all(size > 0 for size in other["norms"].values())


@torch.no_grad()
def test_an_encoder_and_a_decoder(answers: Answers) -> None:
    asked = answers.each("answer")
    assert len(asked) == 2 * 2 * (3 + 1)
    for model, ask, found in asked:
        with ablate(model, heads(ask)):
            require_close(found, model(torch.tensor([ask["source"]]), torch.tensor([ask["ids"]])))


@torch.no_grad()
def test_attention_to_the_source(answers: Answers) -> None:
    for model, ask, found in answers.each("record", "seq2seq", "original", "silu"):
        with record(model) as recording:
            model(torch.tensor([ask["source"]]), torch.tensor([ask["ids"]]))
        assert {seen.block for seen in recording.attentions} == {"encoder", "decoder", "cross"}
        for seen in recording.attentions:
            notes = found[f"{seen.block} {seen.layer}"]
            require_close(notes["weights"], seen.weights()[0].transpose(0, 1))
            require_close(notes["keys"], seen.k[0].transpose(0, 1))


@pytest.mark.parametrize(("exact", "most"), [(False, 0.02), (True, 0.002)], ids=["8 bits", "16 bits"])
@torch.no_grad()
def test_rounding_changes_little(exact: bool, most: float) -> None:
    model, ids = scrambled(CONFIGS["modern"]), torch.tensor([IDS])
    before, after = (one(ids).log_softmax(-1) for one in (model, rounded(model, exact=exact)))
    change = float((before.exp() * (before - after)).sum(-1).mean())  # nats
    assert 0 < change < most
