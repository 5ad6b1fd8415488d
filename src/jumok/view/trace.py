"""What a page shows of a model and a text, as numbers: attention, probabilities, the logit lens.

`trace` reads the text with the model once, records it (`jumok.record`), and returns a `Trace`. Keys and queries are
kept, and weights are computed one layer at a time when they are asked for, so a trace of 12 layers of 12 heads over
1,024 tokens needs some 100 MB beside the model, not 600 MB for all weights at once.

Shapes use the legend of `jumok.nn.attention`; here B is 1 and left out.
"""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, require_range
from jumok.errors import ConfigError, TextError, ViewError
from jumok.inference.answer import Search, answer_ids, closed, require_answering
from jumok.inference.fill_mask import mask_token
from jumok.inference.generate import generate
from jumok.interpret.ablation import hidden_in_turn, profile
from jumok.interpret.record import AttentionRecord, BlockKind, Recording, record
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.framing import Framing, start_id
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.tokenizers import ROLES, Tokenizer
from jumok.view.pieces import Pieces, Reader

LENS_TOP = 3
SMALLEST = 1e-45  # a probability below it is zero in float32
LOGITS_AT_ONCE = 1 << 24  # numbers, 64 MB

Floats = NDArray[np.float32]
Neurons = Literal["auto", "all", "none"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A sentence about what is not as someone might expect it, in two languages."""

    ko: str
    en: str


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a page says of the model. family: "modern", "classic", "original" or "bert". Numbers as in its config."""

    name: str
    kind: Literal["gpt", "bert", "encoder-decoder"]
    family: str
    n_layer: int
    n_decoder_layer: int | None
    n_head: int
    n_decoder_head: int | None
    n_kv_head: int
    head_dim: int
    n_embd: int
    vocab_size: int
    context_length: int
    parameters: int


@dataclass(frozen=True, kw_only=True)
class TokenSequence:
    """A row of tokens. prompt: how many of them were given; the others were written by the model."""

    name: Literal["text", "source", "target"]
    prompt: int
    pieces: Pieces


@dataclass(frozen=True, kw_only=True)
class HeadStatistics:
    """One number for each head, means over the queries; (H,) each.

    In causal attention the first query is left out, since it has no choice. Between two texts (cross-attention) there
    is no distance, no previous token and no self: None.

    Fields:
        entropy: of a row of weights, in nats. distance: |query - key| weighted, in tokens.
        first, previous, self: the share of the first key, of the one before the query, and of the query's own.
    """

    entropy: Floats
    first: Floats
    distance: Floats | None
    previous: Floats | None
    self: Floats | None


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The attention of one kind of block in all its recorded layers.

    Fields:
        block: "self", "encoder", "decoder" or "cross". queries, keys: which of the trace's sequences they come from.
        layers, heads: those that were recorded. n_head, n_kv_head, head_dim: of the model.
    """

    block: BlockKind
    queries: int
    keys: int
    causal: bool
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    n_head: int
    n_kv_head: int
    head_dim: int
    t: int
    s: int
    records: tuple[AttentionRecord, ...] = field(repr=False)

    def weights(self, layer: int) -> Floats:
        """(H, T, S), float32: how much each query takes from each key, of the heads that were recorded."""
        return _array(self.records[self.layers.index(layer)].weights()[0])

    def head_weights(self, layer: int, place: int) -> Floats:
        """(T, S), float32: the same for one head, the one at this place among `heads`."""
        return _array(self.records[self.layers.index(layer)].weights(self.heads[place])[0, 0])

    def maskless(self, layer: int) -> bool:
        """Whether nothing but the future was hidden from a query."""
        return self.records[self.layers.index(layer)].mask is None

    def queries_of(self, layer: int) -> Floats:
        """(H, T, D), float32: the queries as the scores are made of them."""
        return _array(self.records[self.layers.index(layer)].q[0])

    def keys_of(self, layer: int) -> Floats:
        """(G, S, D), float32: the keys; where some heads were recorded, one for each."""
        return _array(self.records[self.layers.index(layer)].k[0])


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A token with its probability, from 0 to 1."""

    id: int
    text: str
    p: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the model expected at a place.

    Fields:
        p, rank, nats: of the token that stands there: its probability, how many tokens are likelier plus one, and -ln
            p; None at a place where there is only a blank to be filled.
        top: the likeliest tokens, the likeliest first.
    """

    p: float | None
    rank: int | None
    nats: float | None
    top: tuple[Guess, ...]


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the model expected at each place of a sequence.

    Fields:
        sequence: which of the trace's. kind: "next" (from what stands before the place), "here" (from what stands
            around it, while the token itself is hidden, and every HIDDEN-th other one with it; see
            `jumok.interpret.ablation`).
        tokens: for each place, or None where nothing was expected, as at the first of a text.
        after: what would come behind the last token (kind "next").
    """

    sequence: int
    kind: Literal["next", "here"]
    tokens: tuple[Prediction | None, ...]
    after: Prediction | None


@dataclass(frozen=True, kw_only=True)
class Lens:
    """The logit lens: what the model would expect if each layer were its last.

    The final norm and the output layer read the residual stream behind each layer
    (https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens). Places are those of
    `Predictions`: what stands at place i was expected from the residual stream of the place before it (kind "next"), or
    of its own while the token was hidden ("here").

    Fields:
        names: "embedding", "layer 1", ...; L of them.
        ids, shares: (L, T, 3), the likeliest tokens and their probabilities. p: (L, T), that of the token which stands
            there. Where nothing is expected, ids are -1 and numbers NaN.
    """

    sequence: int
    names: tuple[str, ...]
    ids: NDArray[np.int64] = field(repr=False)
    shares: Floats = field(repr=False)
    p: Floats = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A model and a text, looked at from inside.

    Fields:
        exact: whether weights, queries and keys are to be kept in 16 bits. neurons: of which layers q and k are to be
        kept: all, none, a list, or "auto", what has room; open_layer first, or where it is None the layer that shows
        most at a glance. name: what to show for an id.
    """

    model: ModelFacts
    sequences: tuple[TokenSequence, ...]
    attentions: tuple[Attention, ...]
    predictions: Predictions | None
    lens: Lens | None
    notes: tuple[Note, ...]
    exact: bool = False
    neurons: Neurons | tuple[int, ...] = "auto"
    open_layer: int | None = None
    name: Callable[[int], str] = field(repr=False)


@torch.inference_mode()
def trace(
    model: Model,
    text: str,
    *,
    target: str | None = None,
    tokens: int = 0,
    temperature: float = 0.8,
    seed: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    top: int = 10,
    lens: bool = True,
    exact: bool = False,
    neurons: Neurons | Sequence[int] = "auto",
    open_layer: int | None = None,
    name: str | None = None,
) -> Trace:
    """Look at what a model does with a text.

    A GPT reads the text as it is, and `tokens` more that it writes; a text longer than its context loses its beginning.
    One that classifies, and a BERT, read it between the tokens that belong around it, and of a longer one the
    beginning; a BERT with head="mlm" looks at blanks, written [MASK], too. An encoder–decoder reads the text as its
    source and `target` as its answer, or the likeliest answer that it writes itself, of at most `tokens` tokens.

    Args:
        model: with its tokenizer, as `jumok.load` returns it.
        target: the answer of an encoder–decoder. tokens: how many to write; 0: none, and as many as an answer takes.
        temperature, seed: of what a GPT writes; see `jumok.generate`.
        layers, heads: which to look at, from 0; None: all.
        top: how many likely tokens to tell for each place. lens: make the logit lens.
        exact, neurons, open_layer: see `Trace`.
        name: of the model, for the page.

    Raises:
        TextError: the text or the target is empty, or the tokenizer makes nothing of it.
        TokenizerError: the model has no tokenizer, or it cannot encode the text.
        ConfigError: there is no such layer or head, a number is out of range, or a setting is for another kind of
            model.
        ViewError: the model's numbers are not finite.
    """
    require_range("tokens", tokens, 0)
    require_range("top", top, 1)
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
    reader = Reader(require_tokenizer(model))
    with eval_mode(model):
        if isinstance(model, GPT):
            reading = _read_by_gpt(model, text, tokens, temperature, seed)
        elif isinstance(model, BERT):
            reading = _read_by_bert(model, text)
        else:
            reading = _read_by_encoder_decoder(model, text, target, tokens)
        with record(model, layers, heads, residual=True, values=False) as recording:
            reading.run()
        attentions = _attentions(recording, reading)
        kept = sorted({layer for attention in attentions for layer in attention.layers})
        for given in ([] if open_layer is None else [open_layer], neurons):
            wrong = [] if isinstance(given, str) else [layer for layer in given if layer not in kept]
            if wrong:
                raise ConfigError(
                    "there are no layers {layers} here; the layers are {kept}.", layers=reprlib.repr(wrong), kept=kept
                )
        predictions, found_lens = _expected(model, recording, reading, reader, top, lens)
    return Trace(
        model=model_facts(model, os.fsencode(name or type(model).__name__).decode(errors="replace")),
        sequences=tuple(
            TokenSequence(name=part.name, prompt=part.prompt, pieces=reader.read(part.ids)) for part in reading.parts
        ),
        attentions=attentions,
        predictions=predictions,
        lens=found_lens,
        notes=tuple(reading.notes),
        exact=exact,
        neurons=neurons if isinstance(neurons, str) else tuple(neurons),
        open_layer=open_layer,
        name=reader.name,
    )


def model_facts(model: Model, name: str) -> ModelFacts:
    """What a page says of a model."""
    config = model.config
    both = config if isinstance(config, EncoderDecoderConfig) else None
    return ModelFacts(
        name=name,
        kind="gpt" if isinstance(model, GPT) else "bert" if isinstance(model, BERT) else "encoder-decoder",
        family="bert" if isinstance(config, BERTConfig) else config.family,
        n_layer=config.n_layer,
        n_decoder_layer=both.n_decoder_layer if both else None,
        n_head=config.n_head,
        n_decoder_head=both.n_decoder_head if both else None,
        n_kv_head=config.n_kv_head if isinstance(config, GPTConfig) else config.n_head,
        head_dim=config.head_dim if isinstance(config, GPTConfig) else config.n_embd // config.n_head,
        n_embd=config.n_embd,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        parameters=model.parameter_count(),
    )


def head_statistics(weights: Floats, *, causal: bool, crossing: bool) -> HeadStatistics:
    """One number of each kind for each head: `jumok.interpret.ablation.profile` of the queries that have a choice.

    Args:
        weights: (H, T, S), the last T of S positions if causal. crossing: queries and keys are of two texts.
    """
    _, t, s = weights.shape
    first_row = 1 if causal and t == s and t > 1 else 0
    found = profile(torch.from_numpy(weights[:, first_row:]))
    # A page has no NaN: where no query has such a token, as in a text of one token, the share of it is zero.
    entropy, first, distance, previous, own = (
        np.nan_to_num(_array(one)) for one in (found.entropy, found.first, found.distance, found.previous, found.self)
    )
    if crossing:
        return HeadStatistics(entropy=entropy, first=first, distance=None, previous=None, self=None)
    return HeadStatistics(entropy=entropy, first=first, distance=distance, previous=previous, self=own)


# --- how each kind of model reads -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A sequence as ids."""

    name: Literal["text", "source", "target"]
    ids: list[int]
    prompt: int


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """The places where a model expects something.

    Fields:
        stack: of the residual stream. part: which of the parts. logits: from the end of that stream, (N, C) -> (N, V).
        rows: where in the stream to look for what is expected. places: where that is to stand; one behind the last is
            the token that would follow. wanted: the ids that stand there, -1 for none.
        hidden: texts, (R, T), to look for it in instead, place i in the one with the number hidden_in[i].
    """

    stack: str
    part: int
    kind: Literal["next", "here"]
    logits: Callable[[Tensor], Tensor]
    rows: list[int]
    places: list[int]
    wanted: list[int]
    hidden: Tensor | None = None
    hidden_in: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class _Reading:
    parts: list[_Part]
    run: Callable[[], object]
    judged: _Judged | None
    notes: list[Note]


def _read_by_gpt(model: GPT, text: str, tokens: int, temperature: float, seed: int | None) -> _Reading:
    tokenizer = require_tokenizer(model)
    context = model.config.context_length
    ids: list[int] = tokenizer.encode(text).tolist()
    if not ids and not tokens:
        raise _empty(tr("text"), tr(" or ask for tokens, which then begin as after a newline"))
    notes = _lost(tokenizer, ids)
    if model.config.labels:
        framed = Framing.of(model.config, tokenizer).frame(tokenizer.encode(text))
        ids = [int(i) for i in framed.ids]
        part = _Part(name="text", ids=ids, prompt=len(ids))
        notes += [_cut_end(context)] * framed.cut + [_no_language_head()]
        return _Reading(parts=[part], run=_runner(model.hidden, model, ids), judged=None, notes=notes)
    ids = ids or [start_id(tokenizer)]
    prompt = len(ids)
    if tokens:
        ids += generate(model, text, tokens=tokens, temperature=temperature, seed=seed)[0].ids
    cut = max(0, len(ids) - context)
    if cut:
        notes.append(
            Note(
                ko=f"글이 모델의 컨텍스트({context}토큰)보다 길어 앞의 {cut:,}토큰을 제외했습니다.",
                en=f"The text is longer than the model's context of {context} tokens: the first {cut:,} are left out.",
            )
        )
        ids, prompt = ids[cut:], max(0, prompt - cut)
    judged = _Judged(
        stack="self",
        part=0,
        kind="next",
        logits=lambda x: model.head(model.norm(x)),
        rows=list(range(len(ids))),
        places=list(range(1, len(ids) + 1)),
        wanted=[*ids[1:], -1],
    )
    part = _Part(name="text", ids=ids, prompt=prompt)
    return _Reading(parts=[part], run=_runner(model.hidden, model, ids), judged=judged, notes=notes)


def _read_by_bert(model: BERT, text: str) -> _Reading:
    tokenizer = require_tokenizer(model)
    blank = -1
    parts = [text]
    if model.config.head == "mlm":
        name = mask_token(tokenizer)
        blank, parts = tokenizer.special_tokens[name], text.split(name)
    ids: list[int] = []
    for i, part in enumerate(parts):
        if i:
            ids.append(blank)
        # The blank before a hidden word is part of the token that is hidden, in a tokenizer with such tokens.
        held = tokenizer.kind == "bpe" and i + 1 < len(parts)
        ids += tokenizer.encode(part.removesuffix(" ") if held else part).tolist()
    if not ids:
        raise _empty(tr("text"))
    notes = _lost(tokenizer, [i for i in ids if i != blank])
    framing = Framing.of(model.config, tokenizer)
    framed = framing.frame(np.array(ids))
    ids = framed.ids.tolist()
    if framed.cut:
        notes.append(_cut_end(model.config.context_length))
    judged = None
    if model.config.head == "mlm":
        judged = _judged_by_bert(model, ids, blank)
    else:
        notes.append(_no_language_head())
    whole = _Part(name="text", ids=ids, prompt=len(ids))
    return _Reading(parts=[whole], run=_runner(model, model, ids), judged=judged, notes=notes)


def _judged_by_bert(model: BERT, ids: list[int], blank: int) -> _Judged:
    """What a BERT expects at each place. Where it can see the token it would only copy it, so the token is hidden."""
    text = torch.tensor(ids, device=model.token_embedding.weight.device)
    hidden, places = hidden_in_turn(model, text)
    order = [place for row in places for place in row.tolist()]
    blanks = [place for place, token in enumerate(ids) if token == blank]  # what the text itself hides
    return _Judged(
        stack="self",
        part=0,
        kind="here",
        logits=model.mlm_logits,
        rows=blanks + order,
        places=blanks + order,
        wanted=[-1] * len(blanks) + [ids[place] for place in order],
        hidden=torch.cat((text[None], hidden)),
        hidden_in=[0] * len(blanks) + [row for row, inside in enumerate(places, 1) for _ in inside],
    )


def _read_by_encoder_decoder(model: EncoderDecoder, text: str, target: str | None, tokens: int) -> _Reading:
    tokenizer, config = require_answering(model), model.config
    context = config.context_length
    if not len(tokenizer.encode(text)):
        raise _empty(tr("text"))
    whole = closed(tokenizer, text, config)
    source: list[int] = closed(tokenizer, text, config, context).tolist()
    notes = _lost(tokenizer, tokenizer.encode(text).tolist()) + [_cut_end(context)] * (len(whole) > context)
    if target is None:
        search = Search(max_tokens=min(tokens, context) or None)
        written = list(answer_ids(model, [np.array(source)], search)[0][0].ids)
    elif len(tokenizer.encode(target)):
        written = closed(tokenizer, target, config).tolist()
        notes += _lost(tokenizer, tokenizer.encode(target).tolist())
    else:
        raise _empty(tr("target"), tr("; without any the model writes one"))
    assert config.decoder_start_id is not None  # that it has one was required
    if written[-1:] == [config.eos_id]:
        written = written[:-1]  # the decoder does not read it; it is what should come after the last token
    if len(written) >= context:
        notes.append(_full(context) if target is None else _cut_end(context))
    ids = [config.decoder_start_id, *written][:context]
    device = model.token_embedding.weight.device
    prompt = len(ids) if target is not None else 1

    def run() -> None:
        encoded = model.encode(torch.tensor([source], device=device))
        model.hidden(torch.tensor([ids], device=device), encoded)

    parts = [
        _Part(name="source", ids=source, prompt=len(source)),
        _Part(name="target", ids=ids, prompt=prompt),
    ]
    judged = _Judged(
        stack="decoder",
        part=1,
        kind="next",
        logits=model.logits,
        rows=list(range(len(ids))),
        places=list(range(1, len(ids) + 1)),
        wanted=[*ids[1:], -1],
    )
    return _Reading(parts=parts, run=run, judged=judged, notes=notes)


def _runner(call: Callable[..., object], model: Model, ids: list[int]) -> Callable[[], object]:
    device = model.token_embedding.weight.device
    return lambda: call(torch.tensor([ids], device=device))


def _empty(what: str, remedy: str = "") -> TextError:
    return TextError(
        "the {what} has nothing that the tokenizer can encode; give some words{remedy}.", what=what, remedy=remedy
    )


def _lost(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Note]:
    """A note if the tokenizer wrote a mark where it had no token for something."""
    unknown = [name for name in ROLES["unk_token"] if tokenizer.special_tokens.get(name, -1) in ids]
    if tokenizer.kind != "other" or not unknown:
        return []
    return [
        Note(
            ko=f"이 모델의 어휘에 없는 글자는 {unknown[0]} 토큰으로 표시합니다.",
            en=f"Some characters are not in the model's tokenizer; they are shown as {unknown[0]}.",
        )
    ]


def _cut_end(context: int) -> Note:
    return Note(
        ko=f"글이 모델의 컨텍스트({context}토큰)보다 길어 뒷부분을 제외했습니다.",
        en=f"The text is longer than the {context} tokens that the model reads at once: its end is left out.",
    )


def _full(context: int) -> Note:
    return Note(
        ko=f"{context}토큰을 모두 생성할 때까지 끝 토큰이 나오지 않았습니다.",
        en=f"The answer has no end: the model wrote until its {context} tokens were used up.",
    )


def _no_language_head() -> Note:
    return Note(
        ko="이 모델에는 토큰을 예측하는 출력층이 없으므로 확률과 로짓 렌즈를 표시하지 않습니다.",
        en="This model has no output layer that predicts tokens, so there are no probabilities and no logit lens.",
    )


# --- what was recorded ------------------------------------------------------------------------------------------------


def _attentions(recording: Recording, reading: _Reading) -> tuple[Attention, ...]:
    found = []
    for block in dict.fromkeys(entry.block for entry in recording.attentions):
        records = tuple(entry for entry in recording.attentions if entry.block == block)
        one = records[0]
        last = len(reading.parts) - 1
        found.append(
            Attention(
                block=block,
                queries=0 if block == "encoder" else last,
                keys=last if block == "decoder" else 0,
                causal=one.causal,
                layers=tuple(entry.layer for entry in records),
                heads=one.heads,
                n_head=one.n_head,
                n_kv_head=one.n_kv_head,
                head_dim=one.head_dim,
                t=one.t,
                s=one.s,
                records=records,
            )
        )
    return tuple(found)


def _expected(
    model: Model, recording: Recording, reading: _Reading, reader: Reader, top: int, wants_lens: bool
) -> tuple[Predictions | None, Lens | None]:
    judged = reading.judged
    streams = recording.residual
    for name, stream in streams.items():
        if not bool(torch.isfinite(stream[-1]).all()):
            raise ViewError(
                "the model's numbers are not finite (residual stream {name!r}): its weights are damaged "
                "or its training diverged. Train again with a lower learning rate, or load an earlier "
                "copy.",
                name=name,
            )
    if judged is None:
        return None, None
    length = len(reading.parts[judged.part].ids)
    wanted = torch.tensor(judged.wanted, dtype=torch.int64)
    if judged.hidden is None:
        stages = [stream[0, judged.rows] for stream in streams[judged.stack]]
    else:
        with record(model, layers=[0], heads=[0], residual=True, values=False) as hidden:
            model(judged.hidden)
        at = torch.tensor(judged.hidden_in, dtype=torch.int64), torch.tensor(judged.rows, dtype=torch.int64)
        stages = [stream[at] for stream in hidden.residual[judged.stack]]  # (N, C) each
    expected = expectations(judged.logits, stages[-1], wanted, top, reader)
    by_place = dict(zip(judged.places, expected, strict=True))
    predictions = Predictions(
        sequence=judged.part,
        kind=judged.kind,
        tokens=tuple(by_place.get(place) for place in range(length)),
        after=by_place.get(length),
    )
    if not wants_lens:
        return predictions, None
    inside = [i for i, place in enumerate(judged.places) if place < length]
    places = [judged.places[i] for i in inside]
    names = ("embedding", *(f"layer {i}" for i in range(1, len(stages))))
    lens_top = min(LENS_TOP, reader.vocab_size)
    lens = Lens(
        sequence=judged.part,
        names=names,
        ids=np.full((len(names), length, lens_top), -1, np.int64),
        shares=np.full((len(names), length, lens_top), np.nan, np.float32),
        p=np.full((len(names), length), np.nan, np.float32),
    )
    for layer, stage in enumerate(stages):
        found = _looked_up(judged.logits, stage[inside], wanted[inside], lens_top, reader.vocab_size)
        lens.ids[layer, places], lens.shares[layer, places], lens.p[layer, places] = found[:3]
    return predictions, lens


def expectations(
    logits_of: Callable[[Tensor], Tensor], stream: Tensor, wanted: Tensor, top: int, reader: Reader
) -> list[Prediction]:
    """What the end of the residual stream, (N, C), expects.

    Args:
        logits_of: (n, C) -> (n, V). wanted: (N,), the ids that stand there, -1 for none.
    """
    ids, shares, p, ranks = _looked_up(logits_of, stream, wanted, top, reader.vocab_size)
    return [
        Prediction(
            p=None if wanted[i] < 0 else float(p[i]),
            rank=None if wanted[i] < 0 else int(ranks[i]),
            nats=None if wanted[i] < 0 else -math.log(max(float(p[i]), SMALLEST)),
            top=tuple(
                Guess(id=token, text=reader.name(token), p=share)
                for token, share in zip(ids[i].tolist(), shares[i].tolist(), strict=True)
            ),
        )
        for i in range(len(wanted))
    ]


def _looked_up(
    logits_of: Callable[[Tensor], Tensor], stream: Tensor, wanted: Tensor, top: int, known: int
) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64]]:
    """What a place of the residual stream, (N, C), makes of its next tokens.

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
        shares.append(_array(best.values))
        p.append(_array(own[:, 0].masked_fill(here < 0, math.nan)))
        ranks.append((chances > own).sum(dim=1).add(1).masked_fill(here < 0, 0).numpy())
    return np.concatenate(ids), np.concatenate(shares), np.concatenate(p), np.concatenate(ranks)


def _array(tensor: Tensor) -> Floats:
    return tensor.to(device="cpu", dtype=torch.float32).numpy()
