"""What a model predicts at each place of a sequence, at its end and after each layer (the logit lens).

Shapes use the legend of `jumok.nn.attention`; B is 1 and left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.errors import ViewError
from jumok.interpret.record import Recording, record
from jumok.models import Model
from jumok.view.model_input import PredictedPlaces
from jumok.view.token_text import TokenNames
from jumok.view.traced_attention import float_array
from jumok.view.weight_encoding import Floats

TOP, LENS_TOP = 10, 3  # likely tokens that are kept for each place, at the end and after each layer
RARE = 0.01  # a second or third guess of the lens that is less likely is left out
LOGITS_AT_ONCE = 1 << 24  # numbers, 64 MB


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
    with record(model, layers=[0], heads=[0], residual=True) as masked:
        model(places.masked)
    at = torch.tensor(places.masked_in, dtype=torch.int64), torch.tensor(places.rows, dtype=torch.int64)
    return [stream[at] for stream in masked.residual[places.stack]]


def predict_places(places: PredictedPlaces, stage: Tensor, length: int, names: TokenNames) -> dict[str, Any]:
    """Return the object "predictions" of docs/viewer.md, from the end of the residual stream.

    Args:
        stage: (N, C), the last of `stages_of`. length: of the sequence.
    """
    wanted = torch.tensor(places.wanted, dtype=torch.int64)
    found: dict[int, dict[str, Any]] = {}
    for place, here, *ranked in zip(
        places.places, places.wanted, *_ranked(places.logits, stage, wanted, TOP, names.vocab_size), strict=True
    ):
        ids, shares, p, rank, nats = (numbers.tolist() for numbers in ranked)
        known = here >= 0  # else a mask stands there, or nothing yet
        found[place] = {
            "p": short(p) if known else None,
            "rank": rank if known else None,
            "nats": round(nats, 4) if known else None,
            "top": [[token, names.name(token), short(share)] for token, share in zip(ids, shares, strict=True)],
        }
    tokens = [found.get(place) for place in range(length)]
    return {"sequence": places.part, "kind": places.kind, "tokens": tokens, "after": found.get(length)}


def lens_of(places: PredictedPlaces, stages: list[Tensor], length: int, names: TokenNames) -> dict[str, Any]:
    """Return the object "lens" of docs/viewer.md: what the model would predict if each layer were its last.

    The final norm and the output layer are applied to the residual stream after each layer
    (https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). Arguments as for
    `predict_places`.
    """
    wanted = torch.tensor(places.wanted, dtype=torch.int64)
    inside = [i for i, place in enumerate(places.places) if place < length]
    top: list[list[list[list[Any]]]] = [[[] for _ in range(length)] for _ in stages]
    p: list[list[float | None]] = [[None] * length for _ in stages]
    for layer, stage in enumerate(stages):
        found = _ranked(places.logits, stage[inside], wanted[inside], LENS_TOP, names.vocab_size)
        for i, ids, shares, own in zip(inside, *(numbers.tolist() for numbers in found[:3]), strict=True):
            place = places.places[i]
            guesses = [(token, share) for token, share in zip(ids, shares, strict=True) if share >= RARE]
            guesses = guesses or [(ids[0], shares[0])]
            top[layer][place] = [[token, names.name(token), short(share)] for token, share in guesses]
            p[layer][place] = None if math.isnan(own) else short(own)
    layers = ["embedding", *(f"layer {i}" for i in range(1, len(stages)))]
    return {"sequence": places.part, "names": layers, "top": top, "p": p}


def short(number: float, digits: int = 4) -> float:
    """Return a number with as many digits as a page prints: a share of 99.9% or more has four."""
    return float(f"{number:.{digits}g}")


def _ranked(
    logits_of: Callable[[Tensor], Tensor], stream: Tensor, wanted: Tensor, top: int, known: int
) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64], Floats]:
    """Rank the tokens that are predicted at places of the residual stream, (N, C).

    Args:
        logits_of: (n, C) -> (n, V). wanted: (N,), the ids that stand there, -1 for none. known: how many ids there are.

    Returns:
        The likeliest tokens and their probabilities, (N, top) each, and of the wanted ones, (N,), the probability, the
        rank, and the surprise in nats, which is finite where the probability is 0 in float32; NaN and 0 where none is
        wanted.
    """
    ids, shares, p, ranks, nats = [], [], [], [], []
    step = max(1, LOGITS_AT_ONCE // known)
    for start in range(0, max(1, len(stream)), step):  # also for no place at all
        logits = logits_of(stream[start : start + step])[:, :known]  # (n, V)
        logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1).cpu()
        best = logs.topk(min(top, known), dim=-1)
        here = wanted[start : start + step]
        own = logs.gather(1, here.clamp(min=0)[:, None])  # (n, 1)
        ids.append(best.indices.numpy())
        shares.append(float_array(best.values.exp()))
        p.append(float_array(own[:, 0].exp().masked_fill(here < 0, math.nan)))
        ranks.append((logs > own).sum(dim=1).add(1).masked_fill(here < 0, 0).numpy())
        nats.append(float_array(own[:, 0].neg()))
    ids_shares_p = np.concatenate(ids), np.concatenate(shares), np.concatenate(p)
    return *ids_shares_p, np.concatenate(ranks), np.concatenate(nats)
