"""Generation as a stream of JSON objects: a trace of the prompt, then an event for each token.

The events are those of `docs/viewer.md`; `assets/viewer/live.js` reads them, one object a line.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from jumok.config import require_range
from jumok.errors import ConfigError
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling
from jumok.interpret.record import Recording, record
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.special_ids import start_ids
from jumok.view.predictions import token_predictions
from jumok.view.schema import prediction_json, to_json
from jumok.view.token_text import Pieces, Reader
from jumok.view.trace import Trace, trace
from jumok.view.weight_encoding import FINEST

GROUPINGS = ("character", "word")


def live(
    model: Model,
    text: str,
    *,
    tokens: int = 200,
    sampling: Sampling | None = None,
    seed: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    top: int = 10,
    name: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Continue a text with a GPT, and yield what a page shows meanwhile.

    The event of a token comes when the model has read it, one step after it was drawn; only then it has attention
    weights. Generation ends when the tokens or the context are used up. The recording ends with the iterator; close it.

    Args:
        text: "" begins as after a newline. sampling: None is that of `jumok.generate`.
        layers, heads, top, name: see `jumok.view.trace.trace`. tokens, seed: see `jumok.generate`.

    Yields:
        The JSON object of a trace, without keys and queries; {"event": "token"} objects; {"event": "end"}, with what
        would come next.

    Raises:
        ConfigError: the model is no GPT that writes; others as `trace`.
    """
    if not isinstance(model, GPT) or model.config.labels:
        raise ConfigError(
            "only a GPT that continues texts can be watched while it writes, not a {kind}.", kind=type(model).__name__
        )
    require_range("tokens", tokens, 1)
    tokenizer = require_tokenizer(model)
    if not len(tokenizer.encode(text)):
        text = tokenizer.decode(start_ids(model.config, tokenizer))
    found = trace(model, text, layers=layers, heads=heads, top=top, lens=False, neurons="none", name=name)
    ids = [token.id for token in found.sequences[0].pieces.tokens]
    return _events(model, growing(found), ids, tokens, sampling or Sampling(), seed, layers, heads, top)


def growing(found: Trace) -> dict[str, Any]:
    """The JSON object of a trace to which tokens will be added."""
    header = to_json(found)
    pieces = found.sequences[0].pieces
    for kind in GROUPINGS:  # later tokens may need a group even if those of the prompt do not
        header["sequences"][0]["groups"].setdefault(kind, list(range(len(pieces.tokens))))
        header["sequences"][0]["group_texts"].setdefault(kind, [token.text for token in pieces.tokens])
    return header


def _events(
    model: GPT,
    header: dict[str, Any],
    ids: list[int],
    tokens: int,
    sampling: Sampling,
    seed: int | None,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    top: int,
) -> Iterator[dict[str, Any]]:
    yield header
    reader = Reader(require_tokenizer(model))
    room = min(tokens, model.config.context_length - len(ids))
    with (
        record(model, layers, heads, residual=True, values=False) as recording,
        closing(generate_ids(model, ids, sampling, seed=seed)) as steps,
    ):
        drawn = next(steps) if room else -1
        for _ in range(room):
            ids = [*ids, drawn]
            prediction = _expected(model, recording, drawn, top, reader)
            drawn = next(steps)  # after this the model has read the one before
            yield _event(model, reader, ids, recording, prediction)
        after = _expected(model, recording, -1, top, reader) if room else header["predictions"]["after"]
    yield {"event": "end", "after": after}


def token_event(model: GPT, ids: Sequence[int], *, reader: Reader, top: int = 10) -> dict[str, Any]:
    """The event of the last of some ids, at least two, as `live` yields it. They must fit into the context."""
    device = model.token_embedding.weight.device
    with record(model, residual=True, values=False) as recording:
        model.hidden(torch.tensor([list(ids)], device=device))
    return _event(model, reader, ids, recording, _expected(model, recording, ids[-1], top, reader, place=-2))


def _event(
    model: GPT, reader: Reader, ids: Sequence[int], recording: Recording, prediction: dict[str, Any] | None
) -> dict[str, Any]:
    """The event of the last of some ids, which the model has read."""
    return {
        "event": "token",
        "sequence": 0,
        **_token(reader.read(ids), require_tokenizer(model).decode(ids[:-1])),
        "rows": {"self": _rows(recording)},
        "prediction": prediction,
    }


@torch.inference_mode()
def _expected(
    model: GPT, recording: Recording, token: int, top: int, reader: Reader, *, place: int = -1
) -> dict[str, Any] | None:
    """The prediction after what was read up to a place. token: the one that follows, -1 for none yet."""
    stream = recording.residual["self"][-1][0, place, None]  # (1, C)
    (found,) = token_predictions(lambda x: model.head(model.norm(x)), stream, torch.tensor([token]), top, reader)
    return prediction_json(found)


def _token(pieces: Pieces, before: str) -> dict[str, Any]:
    """The last token, what it adds to the text, and its groups."""
    last = pieces.tokens[-1]
    added = pieces.text[len(before) :] if pieces.text.startswith(before) else ""
    groups = {kind: pieces.groups.get(kind, range(len(pieces.tokens)))[-1] for kind in GROUPINGS}
    texts = {kind: pieces.group_texts[kind][-1] if kind in pieces.groups else last.text for kind in GROUPINGS}
    return {"token": {**vars(last), "added": added}, "groups": groups, "group_texts": texts}


@torch.inference_mode()
def _rows(recording: Recording) -> list[list[str]]:
    """The newest row of each head of each layer, as bytes like those of a PLAIN head, in base64."""
    rows = []
    for entry in recording.attentions:
        weights = entry.weights(rows=slice(-1, None))[0, :, 0].float().cpu().numpy()  # (H, S)
        roots = np.round(FINEST * np.sqrt(weights)).astype(np.uint8)
        rows.append([base64.b64encode(head.tobytes()).decode() for head in roots])
    return rows
