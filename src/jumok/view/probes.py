"""Probes for a page: ablation of each head, and induction scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from jumok.interpret.ablation import Ranking, ranking
from jumok.interpret.heads import LEAST_REPEATED, Head, Repetition, repetition
from jumok.interpret.text_loss import Passage, require_language_head
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.special_ids import frame_of
from jumok.view.predictions import short
from jumok.view.trace import Trace
from jumok.view.traced_attention import STATISTICS, Attention, head_statistics


@dataclass(frozen=True, kw_only=True)
class Probes:
    """The results. repetition: None but for a GPT with room for a repeated sequence."""

    ranking: Ranking
    repetition: Repetition | None


def probe_trace(model: Model, trace: Trace) -> Probes:
    """Probe a model on the tokens of a trace that was made of it.

    Raises:
        ViewError: the model predicts no tokens. TextError: there is only one token.
    """
    require_language_head(model)
    ids = [[token["id"] for token in one["tokens"]] for one in trace.sequences]
    if isinstance(model, EncoderDecoder):
        assert model.config.eos_id is not None  # the trace required it
        passage = Passage(model, [*ids[1][1:], model.config.eos_id], ids[0])
    else:
        passage = Passage(model, ids[0])
    return Probes(ranking=ranking(model, passage), repetition=_repetition(model))


def _repetition(model: Model) -> Repetition | None:
    if not isinstance(model, GPT):
        return None
    begin = frame_of(model.config, require_tokenizer(model)).before
    if model.config.context_length - len(begin) < LEAST_REPEATED:
        return None
    return repetition(model)


def head_figures(trace: Trace, probes: Probes) -> Iterator[dict[str, Any]]:
    """Yield the numbers of each head of the trace, the largest effect first; None where there is no such number.

    They are its block, layer and head, "delta_nats" (`Effect`), the names of `head_statistics`, and "induction".
    """
    found: dict[Head, dict[str, float]] = {}
    for one in trace.attentions:
        for layer in one.layers:
            figures = head_statistics(one.weights(layer), causal=one.causal, crossing=one.block == "cross")
            for place, number in enumerate(one.heads):
                found[Head(one.block, layer, number)] = {name: values[place] for name, values in figures.items()}
    copies = None if probes.repetition is None else probes.repetition.induction
    for head, delta in probes.ranking.effects:
        if head in found:
            yield {
                **head._asdict(),
                "delta_nats": delta,
                **{name: found[head].get(name) for name in STATISTICS},
                "induction": None if copies is None else float(copies[head.layer, head.head]),
            }


def probes_json(probes: Probes, trace: Trace) -> dict[str, Any]:
    """Return the object "probes" of docs/viewer.md, for the layers and heads of the trace."""
    repeated = probes.repetition
    shown = {Head(one.block, layer, head) for one in trace.attentions for layer in one.layers for head in one.heads}
    return {
        "baseline_nats": round(probes.ranking.nats, 6),
        "tokens": probes.ranking.tokens,
        "ablation": [
            {**head._asdict(), "delta_nats": round(delta, 6)} for head, delta in probes.ranking.effects if head in shown
        ],
        "induction": None if repeated is None else {"self": _rounded(repeated.induction, trace.attentions[0])},
        "previous": None if repeated is None else {"self": _rounded(repeated.previous, trace.attentions[0])},
    }


def _rounded(scores: torch.Tensor, shown: Attention) -> list[list[float]]:
    """Scores of the layers and heads that are shown."""
    return [[short(float(scores[layer, head])) for head in shown.heads] for layer in shown.layers]
