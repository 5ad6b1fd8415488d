"""Checks of the exercise on the masking of BERT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jumok.course.practice.checking import Code, Steps, passed, require, require_shape, require_tensors
from jumok.models.losses import IGNORED

PAD, CLS, SEP, MASK, VOCAB = 0, 1, 2, 3, 2000
SPECIAL = [PAD, CLS, SEP, MASK]


def bert_masking(code: Code) -> Steps:
    """Which tokens are chosen, what stands in their places, and what the labels are, by shares over many tokens."""
    function = code.function("mask_tokens")
    ids = _texts()
    inputs, labels = _call(function, ids)
    ordinary = ~torch.isin(ids, torch.tensor(SPECIAL))
    _require_labels(ids, inputs, labels, ordinary)
    yield passed("labels")
    chosen = labels != IGNORED
    share = (chosen.sum() / ordinary.sum()).item()
    require(0.13 < share < 0.17, "rate", share=100 * share)
    yield passed("share-chosen")
    if not 0.1 < 100 * (inputs[chosen] == MASK).float().mean() < 99.9:
        few = ids[:16]
        calls = [_call(function, few) for _ in range(30)]
        fates = {round((made[written != IGNORED] == MASK).float().mean().item(), 1) for made, written in calls}
        require(len(fates) == 1, "one-draw")
    _require_shares(ids, inputs, chosen)
    yield passed("shares-right")
    again, _ = _call(function, ids)
    require(not torch.equal(again, inputs), "same-each-time")
    rows = {tuple(row.tolist()) for row in chosen}
    require(len(rows) > len(chosen) // 2, "same-in-all-rows")
    yield passed("random-choice")


def _texts() -> Tensor:
    """256 texts of 128 ids: [CLS], ordinary tokens, [SEP], padding."""
    random = torch.Generator().manual_seed(7)
    ids = torch.randint(len(SPECIAL), VOCAB, (256, 128), generator=random)
    ids[:, 0] = CLS
    ends = torch.randint(60, 128, (256, 1), generator=random)
    places = torch.arange(128)
    return ids.masked_fill(places == ends, SEP).masked_fill(places > ends, PAD)


def _call(function: Callable[..., Any], ids: Tensor) -> tuple[Tensor, Tensor]:
    given = ids.clone()
    inputs, labels = require_tensors(function(given, list(SPECIAL), MASK, VOCAB), 2)
    require(torch.equal(given, ids), "in-place")
    for tensor in (inputs, labels):
        require_shape(tensor, tuple(ids.shape), "(B, T)")
    require(not inputs.is_floating_point() and not labels.is_floating_point(), "float-ids")
    return inputs, labels


def _require_labels(ids: Tensor, inputs: Tensor, labels: Tensor, ordinary: Tensor) -> None:
    """Check which places have a label, and which."""
    chosen = labels != IGNORED
    require(not bool((inputs == IGNORED).any()), "swapped")
    inverted = bool((inputs != ids).any()) and torch.equal(labels == IGNORED, inputs != ids)
    require(not inverted, "labels-inverted")
    require(not torch.equal(labels, ids), "labels-everywhere")
    require(bool(chosen.any()), "no-labels")
    rest = labels[~ordinary].unique().tolist()  # nothing is chosen there, so all of these labels are alike
    require(len(rest) > 1 or rest == [IGNORED], "ignored-value", value=rest[0])
    require(not bool((chosen & (ids == PAD)).any()), "padding-chosen")
    require(not bool((chosen & ~ordinary).any()), "special-chosen")
    changed = inputs != ids
    require(not bool((changed & ~ordinary).any()), "special-chosen")
    require(not bool((labels[chosen] == MASK).any()), "labels-of-inputs")
    require(torch.equal(labels[chosen], ids[chosen]), "wrong-labels")
    require(not bool((changed & ~chosen).any()), "changed-without-label")


def _require_shares(ids: Tensor, inputs: Tensor, chosen: Tensor) -> None:
    """Check what stands in the chosen places."""
    here, before = inputs[chosen], ids[chosen]
    masked = here == MASK
    kept = here == before
    random = ~masked & ~kept
    shares = [100 * one.float().mean().item() for one in (masked, random, kept)]
    values: dict[str, object] = dict(zip(("masked", "random", "kept"), shares, strict=True))
    require(shares[0] < 99.9, "always-mask")
    require(shares[2] > 0.1, "never-kept", **values)
    require(shares[1] > 0.1, "never-random", **values)
    near_two, all_the_rest = 1 < shares[1] < 4 and shares[2] > 15, 16 < shares[1] < 20 and shares[2] < 4
    require(not (near_two or all_the_rest), "share-of-the-rest", **values)
    near = abs(shares[0] - 80) < 4 and abs(shares[1] - 10) < 3 and abs(shares[2] - 10) < 3
    require(near, "shares", **values)
    others = here[random]
    require(len(others.unique()) > 50, "one-random-token")
    require(bool(((others >= 0) & (others < VOCAB)).all()), "outside-the-vocabulary")
