"""What a model predicts at each place of a sequence, at its end and after each layer (the logit lens).

Shapes use the legend of `jumok.nn.attention`; B is 1 and left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.errors import ViewError
from jumok.inference.sampling import Candidate
from jumok.interpret.record import Recording, record
from jumok.models import Model
from jumok.view.model_input import PredictedPlaces
from jumok.view.token_text import TokenNames
from jumok.view.traced_attention import float_array
from jumok.view.weight_encoding import Floats

LENS_TOP = 3
SMALLEST = 1e-45  # a probability below it is zero in float32
LOGITS_AT_ONCE = 1 << 24  # numbers, 64 MB


@dataclass(frozen=True, kw_only=True)
class TokenPrediction:
    """What the model predicts at a place.

    Fields:
        p, rank, nats: of the token that stands there: its probability, how many tokens are likelier plus one, and -ln
            p; None where a mask stands.
        top: the likeliest tokens, the likeliest first.
    """

    p: float | None
    rank: int | None
    nats: float | None
    top: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class TokenPredictions:
    """What the model predicts at each place of a sequence.

    Fields:
        sequence: which of the trace's. kind: "next" (from the tokens before the place), "here" (from the tokens
            around it; the token itself is masked, and some others with it, see `jumok.interpret.text_loss`).
        tokens: for each place, or None where nothing is predicted, as at the first of a text.
        after: of the token that would follow the last one (kind "next").
    """

    sequence: int
    kind: Literal["next", "here"]
    tokens: tuple[TokenPrediction | None, ...]
    after: TokenPrediction | None


@dataclass(frozen=True, kw_only=True)
class Lens:
    """The logit lens: what the model would predict if each layer were its last.

    The final norm and the output layer are applied to the residual stream after each layer
    (https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). Places are those of
    `TokenPredictions`: place i is predicted from the residual stream of the place before it (kind "next"), or from its
    own while the token is masked ("here").

    Fields:
        names: "embedding", "layer 1", ...; L of them.
        ids, shares: (L, T, 3), the likeliest tokens and their probabilities. p: (L, T), that of the token which stands
            there. Where nothing is predicted, ids are -1 and numbers NaN.
    """

    sequence: int
    names: tuple[str, ...]
    ids: NDArray[np.int64] = field(repr=False)
    shares: Floats = field(repr=False)
    p: Floats = field(repr=False)


def require_finite_stream(recording: Recording) -> None:
    """Raise ViewError unless the end of each residual stream is finite."""
    for name, stream in recording.residual.items():
        if not bool(torch.isfinite(stream[-1]).all()):
            raise ViewError(
                "the model's numbers are not finite (residual stream {name!r}): its parameters are damaged "
                "or its training diverged. Train again with a lower learning rate, or load an earlier "
                "copy.",
                name=name,
            )


def stages_of(model: Model, recording: Recording, places: PredictedPlaces) -> list[Tensor]:
    """Return the residual stream after the embedding and each layer, where the model predicts: (N, C) each."""
    if places.masked is None:
        return [stream[0, places.rows] for stream in recording.residual[places.stack]]
    with record(model, layers=[0], heads=[0], residual=True, values=False) as masked:
        model(places.masked)
    at = torch.tensor(places.masked_in, dtype=torch.int64), torch.tensor(places.rows, dtype=torch.int64)
    return [stream[at] for stream in masked.residual[places.stack]]


def predict_places(
    places: PredictedPlaces, stage: Tensor, length: int, top: int, names: TokenNames
) -> TokenPredictions:
    """Return the predictions from the end of the residual stream.

    Args:
        stage: (N, C), the last of `stages_of`. length: of the sequence. top: how many likely tokens to keep.
    """
    wanted = torch.tensor(places.wanted, dtype=torch.int64)
    found = zip(*_ranked(places.logits, stage, wanted, top, names.vocab_size), places.wanted, strict=True)
    by_place = dict(zip(places.places, (_prediction(*one, names) for one in found), strict=True))
    return TokenPredictions(
        sequence=places.part,
        kind=places.kind,
        tokens=tuple(by_place.get(place) for place in range(length)),
        after=by_place.get(length),
    )


def lens_of(places: PredictedPlaces, stages: list[Tensor], length: int, names: TokenNames) -> Lens:
    """Return the logit lens; arguments as for `predict_places`."""
    wanted = torch.tensor(places.wanted, dtype=torch.int64)
    inside = [i for i, place in enumerate(places.places) if place < length]
    columns = [places.places[i] for i in inside]
    top = min(LENS_TOP, names.vocab_size)
    lens = Lens(
        sequence=places.part,
        names=("embedding", *(f"layer {i}" for i in range(1, len(stages)))),
        ids=np.full((len(stages), length, top), -1, np.int64),
        shares=np.full((len(stages), length, top), np.nan, np.float32),
        p=np.full((len(stages), length), np.nan, np.float32),
    )
    for layer, stage in enumerate(stages):
        found = _ranked(places.logits, stage[inside], wanted[inside], top, names.vocab_size)
        lens.ids[layer, columns], lens.shares[layer, columns], lens.p[layer, columns] = found[:3]
    return lens


def _prediction(
    ids: NDArray[np.int64], shares: Floats, p: float, rank: int, wanted: int, names: TokenNames
) -> TokenPrediction:
    """Return the prediction at one place, from what `_ranked` found there and the id that stands there."""
    top = zip(ids.tolist(), shares.tolist(), strict=True)
    return TokenPrediction(
        p=None if wanted < 0 else float(p),
        rank=None if wanted < 0 else int(rank),
        nats=None if wanted < 0 else -math.log(max(float(p), SMALLEST)),
        top=tuple(Candidate(token, names.name(token), share) for token, share in top),
    )


def _ranked(
    logits_of: Callable[[Tensor], Tensor], stream: Tensor, wanted: Tensor, top: int, known: int
) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64]]:
    """Rank the tokens that are predicted at places of the residual stream, (N, C).

    Args:
        logits_of: (n, C) -> (n, V). wanted: (N,), the ids that stand there, -1 for none. known: how many ids there are.

    Returns:
        The likeliest tokens and their probabilities, (N, top) each, and of the wanted ones, (N,), the probability and
        the rank; NaN and 0 where none is wanted.
    """
    ids, shares, p, ranks = [], [], [], []
    step = max(1, LOGITS_AT_ONCE // known)
    for start in range(0, max(1, len(stream)), step):  # also for no place at all
        logits = logits_of(stream[start : start + step])[:, :known]  # (n, V)
        chances = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(dim=-1).cpu()
        best = chances.topk(min(top, known), dim=-1)
        here = wanted[start : start + step]
        own = chances.gather(1, here.clamp(min=0)[:, None])  # (n, 1)
        ids.append(best.indices.numpy())
        shares.append(float_array(best.values))
        p.append(float_array(own[:, 0].masked_fill(here < 0, math.nan)))
        ranks.append((chances > own).sum(dim=1).add(1).masked_fill(here < 0, 0).numpy())
    return np.concatenate(ids), np.concatenate(shares), np.concatenate(p), np.concatenate(ranks)
