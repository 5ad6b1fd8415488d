"""Writing an ONNX file and what belongs to it."""

from __future__ import annotations

import json
from pathlib import Path

from jumok.config.features import ONNX, kind_of, require
from jumok.errors import JumokError
from jumok.files import write_atomic, writing
from jumok.interop.huggingface.tokenizer import tokenizer_json
from jumok.interop.onnx.graph import Graph
from jumok.interop.onnx.models import bert, language_model, text_classifier
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.gpt import GPT
from jumok.version import __version__

FLOAT32 = 4  # bytes
LARGEST = 2_000_000_000  # bytes; protobuf allows 2 GiB for one message


def write(model: Model, target: Path, tokenizer_path: Path) -> tuple[Path, ...]:
    """Write a model, and return the files that were written; see `jumok.interop.onnx.to_onnx`."""
    require(model.config, ONNX)
    size = FLOAT32 * sum(parameter.numel() for parameter in model.parameters())  # a shared one once
    if size > LARGEST:
        raise JumokError(
            "this model has {size:.1f} GB of parameters, and an ONNX file holds 2 GB; use `jumok convert --to hf`.",
            size=size / 1e9,
        )
    with writing(target, size):
        graph = Graph(model)
        _add(graph, model)
        write_atomic(target, graph.finished(__version__, _facts(model)).SerializeToString())
        if model.tokenizer is None:
            return (target,)
        write_atomic(tokenizer_path, tokenizer_json(model.tokenizer, model.config))
        return target, tokenizer_path


def _add(graph: Graph, model: Model) -> None:
    if isinstance(model, BERT):
        bert(graph, model)
    else:
        assert isinstance(model, GPT)
        (text_classifier if model.config.labels else language_model)(graph, model)


def _facts(model: Model) -> dict[str, str]:
    config = model.config
    labels = list(getattr(config, "labels", ()))
    facts = {"jumok_version": __version__, "kind": kind_of(config), "context_length": str(config.context_length)}
    return facts | ({"labels": json.dumps(labels, ensure_ascii=False)} if labels else {})
