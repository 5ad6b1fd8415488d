"""Probes: what a head looks at, in numbers, and what a model loses without it.

Looking is not mattering: a head may look at something and change nothing, or the other way round
(https://arxiv.org/abs/1902.10186). So there are two kinds of numbers here. Figures of attention weights say where heads
look: `profile`, `rollout`, and `repetition` on random tokens that come twice. Ablation says what a head is worth for a
text: its output is set to zero at the seam, and the loss and the next token are looked at again ("Are Sixteen Heads
Really Better than One?", https://arxiv.org/abs/1905.10650). Other heads may do the work of one that is switched off
(https://arxiv.org/abs/2307.15771), so a small change does not prove that a head did nothing.

Losses are in nats per token, of the tokens that a model of this kind predicts:
    GPT               each token of the text but the first one, from those before it
    BERT              each token of the text, hidden together with every HIDDEN-th other one, from the rest
    encoder–decoder   each token of the target and its [EOS], from the source and the target before it

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import require_range
from jumok.errors import ConfigError, TextError, ViewError
from jumok.inference.answer import answer, closed, require_answering
from jumok.inference.fill_mask import mask_token
from jumok.interpret.record import record
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.framing import Framing
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import Block

HIDDEN = 7  # of a BERT's text every seventh token is hidden at once, about as many as in its training
MOST_LOGITS = 1 << 25  # in one batch: 128 MB in float32
LARGEST_BATCH = 16  # copies of a text with different heads switched off


class Head(NamedTuple):
    """One head. block: "self" of a GPT or a BERT, else "encoder", "decoder" or "cross". Layer and head count from 0."""

    block: str
    layer: int
    head: int


# --- figures of attention weights -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where heads look, each (...,), the mean over the queries that look anywhere; see `profile`."""

    entropy: Tensor
    distance: Tensor
    first: Tensor
    previous: Tensor
    self: Tensor


def profile(weights: Tensor) -> Profile:
    """Where heads look, in five numbers for each.

    Args:
        weights: (..., T, S), rows that sum to one, the queries being the last T of S positions; rows of zeros, which
            look at nothing, are left out.

    Returns:
        Each (...,), float32 or better; NaN where no query has such a token:

        - entropy: of a row, in nats. It is 0 if the row is one token, ln n if it is n tokens equally.
        - distance: how many tokens away it looks. Between two texts, as in cross-attention, it means little.
        - first, previous, self: the share that goes to the first token, to the one before, and to itself. The first
          token often takes what a head has no use for (https://arxiv.org/abs/2309.17453).
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    t, s = weights.shape[-2:]
    here = torch.arange(s - t, s, device=weights.device)  # (T,), positions of the queries
    away = (here[:, None] - torch.arange(s, device=weights.device)).abs()  # (T, S)
    looks = weights.sum(dim=-1) != 0  # (..., T); NaN looks, and stays
    has_previous = looks & (here > 0)
    own = weights.gather(-1, here.clamp(min=0)[:, None].expand(*weights.shape[:-1], 1))[..., 0]  # (..., T)
    before = weights.gather(-1, (here - 1).clamp(min=0)[:, None].expand(*weights.shape[:-1], 1))[..., 0]  # (..., T)
    return Profile(
        entropy=_mean(torch.special.entr(weights).sum(dim=-1), looks),
        distance=_mean((weights * away).sum(dim=-1), looks),
        first=_mean(weights[..., 0], looks),
        previous=_mean(before, has_previous),
        self=_mean(own, looks & (here >= 0)),
    )


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """The mean of those that count: (..., T) -> (...,); NaN where none does."""
    return values.where(counted, 0.0).sum(dim=-1) / counted.sum(dim=-1)


def rollout(weights: Sequence[Tensor]) -> Tensor:
    """How much of each input reaches each position, if all there were is attention and the residual stream.

    Each layer passes on half of what stands at a position and half of what its heads, on average, bring there; layers
    are multiplied (https://arxiv.org/abs/2005.00928). Values and MLPs are ignored, so the picture is a rough one.

    Args:
        weights: of each layer of one stack of self-attention, the first one first: (..., H, T, T).

    Returns:
        (..., T, T), rows that sum to one.

    Raises:
        ConfigError: there is no layer, or the shapes are not those of self-attention.
    """
    shapes = {tuple(layer.shape[:-3]) + tuple(layer.shape[-2:]) for layer in weights}
    if len(shapes) != 1 or weights[0].shape[-1] != weights[0].shape[-2]:
        raise ConfigError(
            "rollout needs the weights of all layers of one stack of self-attention, each (..., H, "
            "T, T); given: {shapes}.",
            shapes=[tuple(layer.shape) for layer in weights],
        )
    reached = stay = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)  # (T, T)
    for layer in weights:
        passed = (layer.mean(dim=-3) + stay) / 2  # (..., T, T)
        reached = passed / passed.sum(dim=-1, keepdim=True) @ reached  # (..., T, T)
    return reached


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What the heads of a GPT do with random tokens that come twice; each (n_layer, H), shares from 0 to 1.

    previous: looks at the token before. induction: looks at the token *behind* the earlier occurrence of its own, which
    is what comes next if the text repeats itself.
    """

    previous: Tensor
    induction: Tensor


def repetition(model: Model, *, length: int | None = None, sequences: int = 4, seed: int = 0) -> Repetition:
    """Find the heads that copy: a head that looks at the previous token, and above it one that finds the place again.

    The two together are an induction head (https://arxiv.org/abs/2209.11895), how Transformers learn from what they
    have just read. The tokens are random so that nothing but their repetition can tell what comes next.

    Args:
        model: a GPT; it runs where it is, in eval mode meanwhile.
        length: of the part that is repeated [32, or half the context]. sequences: how many. seed: of the tokens.

    Raises:
        ConfigError: a number is out of range. ViewError: the model is no GPT, or has no attention.
    """
    if not isinstance(model, GPT):
        raise ViewError(
            "repeated tokens are a test for models that write from left to right, and this one is of "
            "the kind {kind}; give a GPT.",
            kind=type(model).__name__,
        )
    most = model.config.context_length // 2
    length = min(32, most) if length is None else length
    require_range("length", length, 2, most)
    require_range("sequences", sequences, 1)
    ordinary = torch.tensor(_ordinary(model))  # (N,)
    random = torch.Generator().manual_seed(seed)
    # None of them twice in one part, while there are enough of them.
    shuffled = [torch.randperm(len(ordinary), generator=random) for _ in range(sequences)]
    once = ordinary[torch.stack(shuffled)[:, torch.arange(length) % len(ordinary)]]  # (B, L)
    ids = torch.cat((once, once), dim=1).to(model.token_embedding.weight.device)  # (B, 2*L)
    with eval_mode(model), torch.inference_mode(), record(model, values=False) as recording:
        model.hidden(ids)
    at = torch.arange(2 * length)
    previous, induction = [], []
    for attention in recording.attentions:
        weights = attention.weights().float()  # (B, H, 2*L, 2*L)
        previous.append(weights[..., at[1:], at[:-1]].mean(dim=(0, 2)))  # (H,)
        induction.append(weights[..., at[length:], at[1 : length + 1]].mean(dim=(0, 2)))  # (H,)
    return Repetition(previous=torch.stack(previous).cpu(), induction=torch.stack(induction).cpu())


def _ordinary(model: Model) -> list[int]:
    """The ids that stand for text."""
    if model.tokenizer is None:
        return list(range(model.config.vocab_size))
    tokenizer = require_tokenizer(model)
    special = set(tokenizer.special_tokens.values())
    return [token for token in range(tokenizer.vocab_size) if token not in special]


# --- heads switched off -----------------------------------------------------------------------------------------------


def heads_of(model: Model) -> tuple[Head, ...]:
    """All heads of a model, in its order."""
    return tuple(
        Head(block, layer, head)
        for (block, layer), attention in _layers(model).items()
        for head in range(attention.n_head)
    )


@contextmanager
def ablate(model: Model, heads: Iterable[tuple[str, int, int] | tuple[int, int]]) -> Iterator[None]:
    """Switch heads off inside the block: what they add to the residual stream is zero (but for a bias of the layer).

    The model itself is not changed; the hooks are gone afterwards, whatever happens.

    Args:
        heads: (block, layer, head) each, or (layer, head) for a GPT or a BERT.

    Raises:
        ConfigError: the model has no such head.
        ViewError: the model did not run inside the block, or a compiled copy of it did, which hooks do not reach.
    """
    off = [_checked(model, head) for head in heads]
    keep = {
        place: torch.tensor([[Head(*place, head) not in off for head in range(attention.n_head)]])  # (1, H)
        for place, attention in _layers(model).items()
        if any((head.block, head.layer) == place for head in off)
    }
    with _kept(model, keep):
        yield


@contextmanager
def _kept(model: Model, keep: Mapping[tuple[str, int], Tensor]) -> Iterator[None]:
    """Keep only some heads. keep: for a layer (B, H) or (1, H), bool."""
    reached = set()

    def silence(place: tuple[str, int], module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        reached.add(place)
        return output.masked_fill(~keep[place].to(output.device)[:, :, None, None], 0.0)  # (B, H, T, D)

    layers = _layers(model)
    hooks = [layers[place].attend.register_forward_hook(partial(silence, place)) for place in keep]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if keep and not reached:
        raise ViewError(
            "no head was switched off: the model did not run inside the block, or a compiled copy of it did. Run the "
            "model itself, not what torch.compile made of it."
        )


def _checked(model: Model, head: tuple[str, int, int] | tuple[int, int]) -> Head:
    layers = _layers(model)
    if len(head) == 2:
        if isinstance(model, EncoderDecoder):
            raise ConfigError(
                "head {head} names no block; an encoder–decoder has several: ('cross', 0, 1) for example.", head=head
            )
        head = ("self", *head)
    block, layer, number = head
    attention = layers.get((block, layer))
    if attention is None or not 0 <= number < attention.n_head:
        counts: dict[str, int] = {}
        for known, _ in layers:
            counts[known] = counts.get(known, 0) + 1
        there = ", ".join(
            tr("{block!r} with layers 0 to {last}", block=known, last=count - 1) for known, count in counts.items()
        )
        width = next(iter(layers.values())).n_head if layers else 0
        raise ConfigError(
            "there is no head {head}; this model has {blocks}, and heads 0 to {last} in each.",
            head=head,
            blocks=there or tr("none"),
            last=width - 1,
        )
    return Head(block, layer, number)


# --- a text as a model predicts it ------------------------------------------------------------------------------------


class Passage:
    """A text as a model predicts it, with and without some of the heads.

    Args:
        model: a GPT, a BERT with head="mlm", or an encoder–decoder; in eval mode while it runs.
        ids: (T,), the text; for a BERT between its special tokens; for an encoder–decoder the target without the id
            that the decoder begins with.
        source: (S,), of an encoder–decoder.

    Raises:
        ViewError: the model predicts no tokens. TextError: the text leaves no token to predict.
    """

    def __init__(self, model: Model, ids: Sequence[int], source: Sequence[int] | None = None) -> None:
        require_language_head(model)
        self.model = model
        device = model.token_embedding.weight.device
        self._text = text = torch.tensor(list(ids), dtype=torch.int64, device=device)  # (T,)
        if isinstance(model, BERT):
            self._inputs, self._places = hidden_in_turn(model, text)  # (R, T): one row for each set of hidden tokens
            self.targets = torch.cat([text[places] for places in self._places] or [text[:0]])  # (N,)
        elif isinstance(model, EncoderDecoder):
            require_answering(model)
            start = torch.tensor([model.config.decoder_start_id], device=device)
            self._inputs = torch.cat((start, text[:-1]))[None]  # (1, T)
            self._source = torch.tensor(list(source or ()), dtype=torch.int64, device=device)  # (S,)
            self.targets = text  # (N,)
        else:
            self._inputs = text[None, :-1]  # (1, T-1)
            self.targets = text[1:]  # (N,)
        if not len(self.targets):
            raise TextError("a text of {count} tokens leaves none to predict; give a longer one.", count=len(text))

    @classmethod
    def of(cls, model: Model, text: str, target: str | None = None) -> Passage:
        """The passage that a text is.

        Args:
            text: of a GPT its last tokens are taken that fit into the context; of a BERT the first ones.
            target: of an encoder–decoder; None: what it answers.

        Raises:
            TextError: the text is empty, or the source or the target too long.
            ConfigError: a target for a model that has none.
            As `Passage` does.
        """
        require_language_head(model)
        tokenizer = require_tokenizer(model)
        if not text:
            raise TextError("the text is empty; give one to look at.")
        if not isinstance(model, EncoderDecoder):
            if target is not None:
                raise ConfigError(
                    "a target is for an encoder–decoder, and this model is of the kind {kind}.",
                    kind=type(model).__name__,
                )
            ids = tokenizer.encode(text)
            if isinstance(model, BERT):
                return cls(model, Framing.of(model.config, tokenizer).frame(ids).ids.tolist())
            return cls(model, ids[-model.config.context_length :].tolist())
        require_answering(model)
        most = model.config.context_length
        source = closed(tokenizer, text, model.config).tolist()
        if target is None:
            written = list(answer(model, [text])[0][0].ids)
        else:
            written = closed(tokenizer, target, model.config).tolist()
        for name, found in ((tr("text"), source), (tr("target"), written)):
            if len(found) > most:
                raise TextError(
                    "the {name} has {count:,} tokens, and this model reads at most {most:,}; shorten it.",
                    name=name,
                    count=len(found),
                    most=most,
                )
        return cls(model, written, source)

    def nats(self) -> float:
        """The loss, in nats per token, of the model as it is now: inside `ablate`, without those heads."""
        with eval_mode(self.model), torch.inference_mode():
            return float(self._losses(1)[0])

    def nats_without(self, heads: Sequence[Head]) -> list[float]:
        """The loss without each of these heads, one at a time."""
        rows, width = self._inputs.shape
        size = max(1, min(LARGEST_BATCH, MOST_LOGITS // (rows * width * self.model.config.vocab_size)))
        layers = _layers(self.model)
        losses: list[float] = []
        with eval_mode(self.model), torch.inference_mode():
            for first in range(0, len(heads), size):
                batch = heads[first : first + size]
                keep = {}
                for place in {(head.block, head.layer) for head in batch}:
                    kept = torch.ones(len(batch), layers[place].n_head, dtype=torch.bool)  # (B, H)
                    for row, head in enumerate(batch):
                        if (head.block, head.layer) == place:
                            kept[row, head.head] = False
                    keep[place] = kept.repeat_interleave(rows, dim=0)  # (B*R, H)
                with _kept(self.model, keep):
                    losses += self._losses(len(batch)).tolist()
        return losses

    def next_shares(self) -> Tensor | None:
        """How probable each token is behind a text, or at the end of a target: (V,); None for a BERT."""
        model = self.model
        if isinstance(model, BERT):
            return None
        with eval_mode(model), torch.inference_mode():
            logits = (model(self._text[None]) if isinstance(model, GPT) else self._logits(1))[0, -1]  # (V,)
            require_finite(logits)
            return logits[: require_tokenizer(model).vocab_size].float().softmax(dim=-1).cpu()

    def _losses(self, copies: int) -> Tensor:
        """The loss of each copy of the text: (copies,), float64."""
        logits = self._logits(copies)  # (copies, N, V)
        require_finite(logits)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), self.targets.repeat(copies), reduction="none")
        return losses.view(copies, -1).cpu().double().mean(dim=1)

    def _logits(self, copies: int) -> Tensor:
        """Of each predicted token: (copies, N, V)."""
        model, ids = self.model, self._inputs.repeat(copies, 1)  # (copies*R, T)
        if isinstance(model, BERT):
            hidden = model(ids).unflatten(0, (copies, -1))  # (copies, R, T, C)
            found = [hidden[:, row, places] for row, places in enumerate(self._places)]
            return model.mlm_logits(torch.cat(found, dim=1))
        if isinstance(model, EncoderDecoder):
            return model(self._source.repeat(copies, 1), ids)
        return model(ids)


def hidden_in_turn(model: BERT, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A text with every HIDDEN-th token hidden, so often that each token is hidden once; special tokens never are.

    Args:
        ids: (T,).

    Returns:
        The texts, (R, T), and for each of the R the places that are hidden in it.
    """
    tokenizer = require_tokenizer(model)
    special = torch.tensor(list(tokenizer.special_tokens.values()), dtype=torch.int64, device=ids.device)
    counted = (~torch.isin(ids, special)).nonzero()[:, 0]
    hidden = [counted[first::HIDDEN] for first in range(min(HIDDEN, len(counted)))]
    texts = ids.repeat(len(hidden), 1)
    for row, places in enumerate(hidden):
        texts[row, places] = tokenizer.special_tokens[mask_token(tokenizer)]
    return texts, hidden


def require_language_head(model: Model) -> None:
    """Raise ViewError unless the model predicts tokens."""
    if isinstance(model, BERT) and model.config.head != "mlm":
        found = tr('a BERT with head="{head}"', head=model.config.head)
    elif isinstance(model, GPT | BERT) and model.config.labels:
        found = tr("a classifier")
    else:
        return
    raise ViewError(
        "this model is {found}: it predicts no tokens, so there is no change of loss to measure. "
        "Its attention can be viewed without probes.",
        found=found,
    )


# --- which heads matter -----------------------------------------------------------------------------------------------


class Effect(NamedTuple):
    """A head, and by how many nats per token the loss grows without it; below zero the model is better off."""

    head: Head
    delta_nats: float


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Which heads matter for a text. nats: the loss per token with all heads. tokens: how many it is the mean of.

    effects: of every head, the one that is missed most comes first.
    """

    nats: float
    tokens: int
    effects: tuple[Effect, ...]


def ranking(model: Model, text: str | Passage, target: str | None = None) -> Ranking:
    """Switch off each head in turn, and see by how much the loss of a text grows.

    Args:
        model: a GPT, a BERT with head="mlm", or an encoder–decoder. text, target: see `Passage.of`.

    Raises:
        ViewError, TextError, ConfigError: see `Passage`.
    """
    passage = text if isinstance(text, Passage) else Passage.of(model, text, target)
    heads, nats = heads_of(model), passage.nats()
    effects = [Effect(head, without - nats) for head, without in zip(heads, passage.nats_without(heads), strict=True)]
    effects.sort(key=lambda effect: -effect.delta_nats)
    return Ranking(nats=nats, tokens=len(passage.targets), effects=tuple(effects))


class Candidate(NamedTuple):
    """A token that may come next, readable, and its probability with all heads and without some."""

    token: str
    probability: float
    without: float


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What switching heads off changes for a text.

    nats, nats_without: the loss per token. candidates: the likeliest next tokens behind the text, or behind the target
    of an encoder–decoder before its [EOS]; of those with all heads, then those that are among them only without. Empty
    for a BERT, where nothing comes next.
    """

    nats: float
    nats_without: float
    candidates: tuple[Candidate, ...]


def ablation(
    model: Model,
    text: str | Passage,
    heads: Iterable[tuple[str, int, int] | tuple[int, int]],
    *,
    target: str | None = None,
    top: int = 10,
) -> Ablation:
    """Switch heads off, all at once, and see what changes for a text.

    Args:
        model, text, target: see `Passage.of`. heads: see `ablate`. top: how many next tokens to compare.

    Raises:
        As `Passage` and `ablate`; ConfigError if `top` is below 1.
    """
    require_range("top", top, 1)
    passage = text if isinstance(text, Passage) else Passage.of(model, text, target)
    nats, before = passage.nats(), passage.next_shares()
    with ablate(model, heads):
        nats_without, after = passage.nats(), passage.next_shares()
    candidates: tuple[Candidate, ...] = ()
    if before is not None and after is not None:
        likeliest = [shares.topk(min(top, len(shares))).indices.tolist() for shares in (before, after)]
        order = list(dict.fromkeys(likeliest[0] + likeliest[1]))
        names = require_tokenizer(model).pieces(order)
        candidates = tuple(
            Candidate(name, float(before[token]), float(after[token])) for name, token in zip(names, order, strict=True)
        )
    return Ablation(nats=nats, nats_without=nats_without, candidates=candidates)


def _layers(model: Model) -> dict[tuple[str, int], MultiHeadAttention]:
    """The layers of attention by block and number, in the order of the model."""
    if isinstance(model, EncoderDecoder):
        found = {("encoder", i): block.attention for i, block in enumerate(_blocks(model.encoder))}
        for i, block in enumerate(_blocks(model.decoder)):
            assert block.cross_attention is not None
            found |= {("decoder", i): block.attention, ("cross", i): block.cross_attention}
        return found
    return {("self", i): block.attention for i, block in enumerate(_blocks(model.blocks))}


def _blocks(stack: nn.ModuleList) -> list[Block]:
    return [block for block in stack if isinstance(block, Block)]
