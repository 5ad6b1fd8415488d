"""The input of a model of each kind, for a text: the ids, the call, and the places at which it predicts tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from jumok.config import require_count
from jumok.errors import ConfigError, TextError
from jumok.inference.answer import answer_ids, with_special_tokens
from jumok.inference.answer_search import Search
from jumok.inference.fill_mask import mask_token, masked_ids
from jumok.inference.generate import generate
from jumok.inference.requests import require_answering
from jumok.inference.sampling import Sampling
from jumok.interpret.text_loss import masked_in_turn
from jumok.messages import Language, in_each_language, tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.special_ids import Framing, prompt_ids
from jumok.tokenizers import ROLES, Tokenizer

Note = dict[Language, str]  # a sentence about what is not as someone might expect it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A sequence as ids."""

    name: Literal["text", "source", "target"]
    ids: list[int]
    prompt: int


@dataclass(frozen=True, kw_only=True)
class PredictedPlaces:
    """The places at which a model predicts a token.

    Fields:
        stack: of the residual stream. part: which of the parts. logits: from the end of that stream, (N, C) -> (N, V).
        rows: positions of the stream that predict. places: what they predict; one after the last is the token that
            would follow. wanted: the ids that stand there, -1 for none.
        masked: copies of the text, (R, T), from whose streams to predict instead: place i from copy masked_in[i].
    """

    stack: str
    part: int
    kind: Literal["next", "here"]
    logits: Callable[[Tensor], Tensor]
    rows: list[int]
    places: list[int]
    wanted: list[int]
    masked: Tensor | None = None
    masked_in: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """What to run, and what a trace shows of it. predicted: None if the model predicts no tokens."""

    parts: list[Part]
    run: Callable[[], object]
    predicted: PredictedPlaces | None
    notes: list[Note]


def model_input(
    model: Model, text: str, target: str | None, tokens: int, sampling: Sampling | None, seed: int | None
) -> ModelInput:
    """Return the input of a model for a text; arguments and errors as for `jumok.view.trace.trace`."""
    require_count("tokens", tokens, 0)
    if target is not None and not isinstance(model, EncoderDecoder):
        raise ConfigError(
            "target={target!r} is the answer of an encoder–decoder, and this model is of the kind "
            "{kind}; leave it out.",
            target=target,
            kind=type(model).__name__,
        )
    if tokens and (isinstance(model, BERT) or (isinstance(model, GPT) and model.config.labels)):
        raise ConfigError(
            "tokens={tokens}: this {kind} reads texts and writes none; leave it out.",
            tokens=tokens,
            kind=type(model).__name__,
        )
    if isinstance(model, GPT):
        return _read_by_gpt(model, text, tokens, sampling or Sampling(), seed)
    if isinstance(model, BERT):
        return _read_by_bert(model, text)
    return _read_by_encoder_decoder(model, text, target, tokens)


def _read_by_gpt(model: GPT, text: str, tokens: int, sampling: Sampling, seed: int | None) -> ModelInput:
    tokenizer = require_tokenizer(model)
    reads = tokenizer.encode if model.config.labels else tokenizer.encode_prompt
    ids: list[int] = reads(text).tolist()
    if not ids and not tokens:
        raise _empty(tr("text"), tr(" or ask for tokens, which then begin as after a newline"))
    notes = _lost(tokenizer, ids)
    if model.config.labels:
        framed = Framing.of(model.config, tokenizer).frame(tokenizer.encode(text))
        ids = [int(i) for i in framed.ids]
        part = Part(name="text", ids=ids, prompt=len(ids))
        notes += [_cut_end(model.config.context_length)] * framed.cut + [_no_language_head()]
        return ModelInput(parts=[part], run=_runner(model.hidden, model, ids), predicted=None, notes=notes)
    ids = prompt_ids(model.config, tokenizer, text)
    prompt, context = len(ids), model.config.context_length
    if tokens:
        ids += generate(model, text, tokens=tokens, seed=seed, **vars(sampling))[0].ids
    cut = max(0, len(ids) - context)
    if cut:
        notes.append(
            in_each_language(
                "The text is longer than the model's context of {context} tokens: the first {cut:,} are left out.",
                context=context,
                cut=cut,
            )
        )
        ids, prompt = ids[cut:], max(0, prompt - cut)
    predicted = _next_places("self", 0, lambda x: model.head(model.norm(x)), ids)
    part = Part(name="text", ids=ids, prompt=prompt)
    return ModelInput(parts=[part], run=_runner(model.hidden, model, ids), predicted=predicted, notes=notes)


def _next_places(stack: str, part: int, logits: Callable[[Tensor], Tensor], ids: list[int]) -> PredictedPlaces:
    """Return where a decoder predicts: at each place the next token."""
    places = list(range(1, len(ids) + 1))
    return PredictedPlaces(
        stack=stack,
        part=part,
        kind="next",
        logits=logits,
        rows=list(range(len(ids))),
        places=places,
        wanted=[*ids[1:], -1],
    )


def _read_by_bert(model: BERT, text: str) -> ModelInput:
    tokenizer = require_tokenizer(model)
    fills = model.config.head == "mlm"
    ids: list[int] = masked_ids(tokenizer, text) if fills else tokenizer.encode(text).tolist()
    mask = tokenizer.special_tokens[mask_token(tokenizer)] if fills else -1
    if not ids:
        raise _empty(tr("text"))
    notes = _lost(tokenizer, [i for i in ids if i != mask])
    framing = Framing.of(model.config, tokenizer)
    framed = framing.frame(np.array(ids))
    ids = framed.ids.tolist()
    if framed.cut:
        notes.append(_cut_end(model.config.context_length))
    predicted = None
    if fills:
        predicted = _masked_places(model, ids, mask)
    else:
        notes.append(_no_language_head())
    whole = Part(name="text", ids=ids, prompt=len(ids))
    return ModelInput(parts=[whole], run=_runner(model, model, ids), predicted=predicted, notes=notes)


def _masked_places(model: BERT, ids: list[int], mask: int) -> PredictedPlaces:
    """Return where a BERT predicts: at the masks of the text, and at each other token while it is masked."""
    text = torch.tensor(ids, device=model.token_embedding.weight.device)
    masked, places = masked_in_turn(model, text)
    order = [place for row in places for place in row.tolist()]
    given = [place for place, token in enumerate(ids) if token == mask]
    return PredictedPlaces(
        stack="self",
        part=0,
        kind="here",
        logits=model.mlm_logits,
        rows=given + order,
        places=given + order,
        wanted=[-1] * len(given) + [ids[place] for place in order],
        masked=torch.cat((text[None], masked)),
        masked_in=[0] * len(given) + [row for row, inside in enumerate(places, 1) for _ in inside],
    )


def _read_by_encoder_decoder(model: EncoderDecoder, text: str, target: str | None, tokens: int) -> ModelInput:
    tokenizer, config = require_answering(model), model.config
    context = config.context_length
    if not len(tokenizer.encode(text)):
        raise _empty(tr("text"))
    whole = with_special_tokens(tokenizer, text, config)
    source: list[int] = with_special_tokens(tokenizer, text, config, context).tolist()
    notes = _lost(tokenizer, tokenizer.encode(text).tolist()) + [_cut_end(context)] * (len(whole) > context)
    if target is None:
        search = Search(max_tokens=min(tokens, context) or None)
        written = list(answer_ids(model, [np.array(source)], search)[0][0].ids)
    elif len(tokenizer.encode(target)):
        written = with_special_tokens(tokenizer, target, config).tolist()
        notes += _lost(tokenizer, tokenizer.encode(target).tolist())
    else:
        raise _empty(tr("target"), tr("; without any the model writes one"))
    assert config.decoder_start_id is not None  # `require_answering` has checked it
    if written[-1:] == [config.eos_id]:
        written = written[:-1]  # the decoder does not read it; it comes after the last token
    if len(written) >= context:
        written_out = in_each_language(
            "The answer has no end: the model wrote until its {context} tokens were used up.", context=context
        )
        notes.append(written_out if target is None else _cut_end(context))
    ids = [config.decoder_start_id, *written][:context]
    device = model.token_embedding.weight.device
    prompt = len(ids) if target is not None else 1

    def run() -> None:
        encoded = model.encode(torch.tensor([source], device=device))
        model.hidden(torch.tensor([ids], device=device), encoded)

    parts = [Part(name="source", ids=source, prompt=len(source)), Part(name="target", ids=ids, prompt=prompt)]
    predicted = _next_places("decoder", 1, model.logits, ids)
    return ModelInput(parts=parts, run=run, predicted=predicted, notes=notes)


def _runner(call: Callable[..., object], model: Model, ids: list[int]) -> Callable[[], object]:
    device = model.token_embedding.weight.device
    return lambda: call(torch.tensor([ids], device=device))


def _empty(what: str, remedy: str = "") -> TextError:
    return TextError(
        "the {what} has nothing that the tokenizer can encode; give some words{remedy}.", what=what, remedy=remedy
    )


def _lost(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Note]:
    """Return a note if the tokenizer has no token for some characters."""
    unknown = [name for name in ROLES["unk_token"] if tokenizer.special_tokens.get(name, -1) in ids]
    if tokenizer.kind != "other" or not unknown:
        return []
    return [
        in_each_language(
            "Some characters are not in the model's tokenizer; they are shown as {unknown}.", unknown=unknown[0]
        )
    ]


def _cut_end(context: int) -> Note:
    return in_each_language(
        "The text is longer than the {context} tokens that the model reads at once: its end is left out.",
        context=context,
    )


def _no_language_head() -> Note:
    return in_each_language(
        "This model has no output layer that predicts tokens, so there are no token probabilities and no logit lens."
    )
