"""What a page shows of a model and a text, as numbers: attention, probabilities, the logit lens.

`trace` runs the model on the text once, records it (`jumok.record`), and returns a `Trace`. Keys and queries are kept,
and attention weights are computed one layer at a time when they are asked for, so a trace of 12 layers of 12 heads over
1,024 tokens needs some 100 MB beside the model, not 600 MB for all weights at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.config.features import task_of
from jumok.errors import ConfigError
from jumok.inference.classify import predict
from jumok.inference.sampling import Sampling
from jumok.interpret.record import Recording, record
from jumok.memory import require_memory
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.view.model_input import ModelInput, Note, model_input
from jumok.view.predictions import lens_of, predict_places, require_finite_stream, stages_of
from jumok.view.token_text import TokenNames
from jumok.view.traced_attention import Attention, attentions_of


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a model computes on a text.

    Fields:
        model, sequences, predictions, lens, classes: as in docs/viewer.md; None where the model predicts no tokens, or
            no class.
    """

    model: dict[str, Any]
    sequences: list[dict[str, Any]]
    attentions: tuple[Attention, ...]
    predictions: dict[str, Any] | None
    lens: dict[str, Any] | None
    classes: list[tuple[str, float]] | None
    notes: tuple[Note, ...]


@torch.inference_mode()
def trace(
    model: Model,
    text: str,
    *,
    target: str | None = None,
    tokens: int = 0,
    sampling: Sampling | None = None,
    seed: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    name: str | None = None,
) -> Trace:
    """Run a model on a text, and record what it computes.

    A GPT reads the text and the `tokens` that it generates; a text longer than its context loses its beginning. A
    classifier and a BERT read it between special tokens; a longer one loses its end. A BERT with head="mlm" also
    predicts masks, written [MASK]. An encoder–decoder reads the text as its source and `target` as its answer, or its
    own greedy answer of at most `tokens` tokens.

    Args:
        model: with its tokenizer, as `jumok.load` returns it.
        target: the answer of an encoder–decoder. tokens: how many to generate; 0: none, or as many as an answer has.
        sampling, seed: of what a GPT generates; see `jumok.generate`.
        layers, heads: which to record, from 0; None: all.
        name: of the model, for the page.

    Raises:
        TextError: the text or the target is empty, or the tokenizer cannot encode anything of it.
        TokenizerError: the model has no tokenizer, or it cannot encode the text.
        ConfigError: there is no such layer or head, a setting is out of range or for another kind of model, or there
            is too little memory for the weights.
        ViewError: the model's numbers are not finite.
    """
    with eval_mode(model):
        given = model_input(model, text, target, tokens, sampling, seed)
    names = TokenNames(require_tokenizer(model))
    _require_weights(model, given, heads)
    with eval_mode(model):
        with record(model, layers, heads, residual=True) as recording:
            given.run()
        attentions = tuple(attentions_of(recording, len(given.parts)))
        require_finite_stream(recording)
        predictions, logit_lens = _predictions(model, recording, given, names)
        classes = _classes(model, text)
    return Trace(
        model={"name": _whole(name or type(model).__name__), **model_facts(model)},
        sequences=[{"name": one.name, "prompt": one.prompt, **names.read(one.ids)} for one in given.parts],
        attentions=attentions,
        predictions=predictions,
        lens=logit_lens,
        classes=classes,
        notes=tuple(given.notes),
    )


def _whole(name: str) -> str:
    """Return `name` with U+FFFD for halves of surrogate pairs, as Python reads file names that are not UTF-8."""
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _require_weights(model: Model, given: ModelInput, heads: Sequence[int] | None) -> None:
    """Raise ConfigError if there is too little memory for the scores and the weights of one layer, in float32."""
    count, longest = model.config.n_head if heads is None else len(heads), max(len(part.ids) for part in given.parts)
    require_memory(
        2 * 4 * count * longest**2,
        tr("the attention of {heads} heads over {tokens:,} tokens", heads=count, tokens=longest),
        tr("use a shorter text, or fewer {--heads}"),
    )


def _predictions(
    model: Model, recording: Recording, given: ModelInput, names: TokenNames
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the predictions and the logit lens of an input, where the model predicts tokens."""
    places = given.predicted
    if places is None:
        return None, None
    length, stages = len(given.parts[-1].ids), stages_of(model, recording, places)
    predictions = predict_places(places, stages[-1], length, names)
    return predictions, lens_of(places, stages, length, names)


def _classes(model: Model, text: str) -> list[tuple[str, float]] | None:
    """Return the classes and their probabilities for a text, the likeliest first; None if the model has none."""
    if not getattr(model.config, "labels", ()):
        return None
    probabilities = predict(model, [text])[0].probabilities
    return sorted(probabilities.items(), key=lambda one: -one[1])


def model_facts(model: Model) -> dict[str, Any]:
    """Return what a page says about a model, as "model" of docs/viewer.md, without its name."""
    config = model.config
    both = config if isinstance(config, EncoderDecoderConfig) else None
    return {
        "kind": "gpt" if isinstance(model, GPT) else "bert" if isinstance(model, BERT) else "encoder-decoder",
        "task": None if isinstance(config, BERTConfig) and config.head in ("none", "pooler") else task_of(config),
        "family": "bert" if isinstance(config, BERTConfig) else config.family,
        "n_layer": config.n_layer,
        "n_decoder_layer": both.n_decoder_layer if both else None,
        "n_head": config.n_head,
        "n_decoder_head": both.n_decoder_head if both else None,
        "n_kv_head": config.n_kv_head if isinstance(config, GPTConfig) else config.n_head,
        "head_dim": config.head_dim if isinstance(config, GPTConfig) else config.n_embd // config.n_head,
        "n_embd": config.n_embd,
        "vocab_size": config.vocab_size,
        "context_length": config.context_length,
        "parameters": model.parameter_count(),
    }


def attention_of(trace: Trace, block: str | None, layer: int | None, head: int | None) -> Attention:
    """Return the attention of a block of a trace.

    Args:
        block: None: "cross" if there is one, or the first. layer, head: must be in it; None: any.

    Raises:
        ConfigError: the trace has no such block, layer or head.
    """
    by_block = {attention.block: attention for attention in trace.attentions}
    name = block or ("cross" if "cross" in by_block else next(iter(by_block)))
    attention = next((found for known, found in by_block.items() if known == name), None)
    if attention is None:
        raise ConfigError(
            "block={name!r} does not exist; this model has {blocks}.", name=name, blocks=", ".join(map(repr, by_block))
        )
    for what, number, there in (("layer", layer, attention.layers), ("head", head, attention.heads)):
        if number is not None and number not in there:
            known = ", ".join(map(str, there))
            raise ConfigError(
                "{what}={number} does not exist here; counted from 0, there are {known}.",
                what=what,
                number=number,
                known=known,
            )
    return attention
