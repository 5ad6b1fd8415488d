"""Writing an ONNX file and what belongs to it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from jumok.config.features import ONNX, kind_of, require
from jumok.errors import RunError
from jumok.files import atomic_path, space, write_atomic
from jumok.interop.huggingface.tokenizer import tokenizer_json
from jumok.interop.onnx.graph import Graph
from jumok.interop.onnx.models import bert, language_model, text_classifier
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.gpt import GPT

FLOAT32 = 4  # bytes


def write(model: Model, target: Path, data_path: Path, tokenizer_path: Path, *, largest_file: int) -> tuple[Path, ...]:
    """Write a model, and return the files that were written; see `jumok.interop.onnx.to_onnx`."""
    require(model.config, ONNX)
    size = FLOAT32 * sum(parameter.numel() for parameter in model.parameters())  # a shared one once
    paths = [target]
    try:
        with ExitStack() as files:
            temporary = files.enter_context(atomic_path(target))
            data = None
            if size > largest_file:
                place = files.enter_context(atomic_path(data_path))
                data = files.enter_context(place.open("wb"))
                paths.append(data_path)
            graph = Graph(model, data, data_path.name)
            _add(graph, model)
            made = graph.finished(version("jumok"), _facts(model))
            with temporary.open("wb") as file:
                file.write(made.SerializeToString())
        if model.tokenizer is not None:
            write_atomic(tokenizer_path, tokenizer_json(model.tokenizer, model.config))
            paths.append(tokenizer_path)
        return tuple(paths)
    except OSError as error:
        room = space(target, needed=size)
        reason = error.strerror or error
        raise RunError("cannot write {path}: {reason} ({room}).", path=target, reason=reason, room=room) from error


def _add(graph: Graph, model: Model) -> None:
    if isinstance(model, BERT):
        bert(graph, model)
    else:
        assert isinstance(model, GPT)
        (text_classifier if model.config.labels else language_model)(graph, model)


def _facts(model: Model) -> dict[str, str]:
    config = model.config
    labels = list(getattr(config, "labels", ()))
    facts = {"jumok_version": version("jumok"), "kind": kind_of(config), "context_length": str(config.context_length)}
    return facts | ({"labels": json.dumps(labels, ensure_ascii=False)} if labels else {})
