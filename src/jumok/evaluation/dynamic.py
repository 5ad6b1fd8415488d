"""How well a model predicts a text from which it learns as it reads: dynamic evaluation.

The text is read in segments. The tokens of a segment are predicted, and their losses count. Then the parameters take a
step of gradient descent on the mean of these losses, and the next segment follows. Each parameter tensor moves by a
fixed share of its own norm, which suits models of different sizes (LARS, without momentum and weight decay). So each
token is predicted by parameters that have learned from earlier tokens only, as in compressors that adapt, such as PPMd
and zpaq. The steps are taken by a copy of the model.

The figures tell how well the model and this rule of learning predict the text together. They are not those of the model
alone, which are in `jumok.evaluation.language_model`; that module defines each of them.

Source: Krause et al., "Dynamic Evaluation of Neural Sequence Models", https://arxiv.org/abs/1709.07432; of
Transformers: https://arxiv.org/abs/1904.08378. LARS: https://arxiv.org/abs/1708.03888.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from jumok.config import count_kept, require_range
from jumok.data.ids import IdSequence
from jumok.errors import JumokError
from jumok.evaluation.language_model import Score, TextEvaluation, cut, evaluation_of
from jumok.memory import free_memory, require_memory
from jumok.messages import tr
from jumok.models.checks import require_finite_losses
from jumok.models.gpt import GPT, token_losses
from jumok.text import Text

RATE = 0.003  # near the best one for models of two families and two tokenizers, see bench/LOG.md
COPIES = 2  # of the parameters: those that learn, and their gradients

Rule = Callable[[Iterable[Tensor]], Optimizer]


class RelativeDescent(Optimizer):
    """Gradient descent in which each tensor moves by `rate` times its own norm."""

    def __init__(self, params: Iterable[Tensor], *, rate: float) -> None:
        super().__init__(params, {"rate": rate})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move each tensor that has a gradient other than zero."""
        assert closure is None
        for group in self.param_groups:
            for parameter in (p for p in group["params"] if p.grad is not None):
                share = parameter.norm() / parameter.grad.norm().clamp(min=1e-30)
                parameter.sub_(parameter.grad * (group["rate"] * share))


def evaluate_text_dynamically(
    model: GPT,
    text: str | Text,
    *,
    rate: float | None = None,
    stride: int | None = None,
    progress: Callable[[float], None] | None = None,
    allow_lossy: bool = False,
) -> TextEvaluation:
    """Predict each token of a text once, learn from it afterwards, and measure how well it was predicted.

    Args:
        model: with its tokenizer at `model.tokenizer`. It is not changed; a copy on the same device, in eval mode and
            in float32 or better, learns.
        text, allow_lossy: as for `jumok.evaluation.language_model.evaluate_text`.
        rate: the length of a step as a share of the norm of each parameter tensor, at least 0; None: RATE.
        stride: tokens of a segment, at most the context; None: a quarter of the context. Less is slower.
        progress: called after each segment with the share of the text that was read.

    Raises:
        ConfigError: a number is out of range, or there is too little memory.
        TextError: the text is empty, or has no tokens.
        TokenizerError: the model has no tokenizer, one with other ids, or one that cannot encode the text.
        JumokError: the losses are not finite, or no parameter requires a gradient.
    """
    rate = RATE if rate is None else rate
    require_range("rate", rate, 0)

    def scored(ids: IdSequence, before: Sequence[int]) -> Score:
        rule = partial(RelativeDescent, rate=rate)
        return dynamic_score(model, ids, before=before, stride=stride, rule=rule, progress=progress)

    return evaluation_of(model, text, scored, allow_lossy=allow_lossy)


def dynamic_score(
    model: GPT,
    ids: IdSequence,
    *,
    before: Sequence[int],
    rule: Rule,
    stride: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Score:
    """The nats of a text given as ids, learned from while it is read.

    Segment k, of tokens k·stride to (k + 1)·stride - 1, is predicted in the window that ends with it, which has
    context_length tokens or begins with the text. The step follows the gradient of their mean loss.

    Args:
        ids: (n,), n at least 1; may be mapped from a file. before: the ids that stand before them; the last is read.
        rule: makes the optimizer of the copy's parameters. stride, progress: see `evaluate_text_dynamically`.

    Raises:
        ConfigError: the stride is out of range, or there is too little memory.
        JumokError: the losses are not finite, or no parameter requires a gradient.
    """
    context, count, nats = model.config.context_length, len(ids), 0.0
    stride = max(1, context // 4) if stride is None else stride
    require_range("stride", stride, 1, context)
    require_room_to_adapt(model, min(context, count))
    with torch.inference_mode(False), torch.enable_grad():
        own = learning_copy(model)
        weight = own.head.weight
        optimizer = rule([parameter for parameter in own.parameters() if parameter.requires_grad])
        for first in range(0, count, stride):
            stop = min(first + stride, count)
            start = max(0, stop - context)
            tokens = torch.from_numpy(cut(ids, before[-1:], start, stop + 1))[None].to(weight.device)  # (1, T+1)
            hidden = own.hidden(tokens[:, :-1])[:, first - start :]  # (1, S, C), S tokens of the segment
            losses = token_losses(hidden, weight, tokens[:, 1 + first - start :])  # (1, S)
            nats += float(losses.detach().cpu().sum(dtype=torch.float64))
            _require_finite(nats, learned=first > 0)
            if stop < count:
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
            if progress is not None:
                progress(stop / count)
    return Score(nats, count)


def learning_copy(model: GPT) -> GPT:
    """A copy of a model in eval mode, in float32 or better, whose parameters can learn. The tokenizer is shared.

    Raises:
        JumokError: no parameter requires a gradient.
    """
    own = copy.deepcopy(model, {id(model.tokenizer): model.tokenizer}).eval()
    if not any(parameter.requires_grad for parameter in own.parameters()):
        raise JumokError(
            "no parameter of this model requires a gradient, so it cannot learn from the text; call "
            "model.requires_grad_() first."
        )
    return own.to(torch.promote_types(own.head.weight.dtype, torch.float32))


def require_room_to_adapt(model: GPT, tokens: int) -> None:
    """Raise ConfigError if there is too little memory for a copy of a model that learns from windows of `tokens`."""
    weight = model.head.weight
    size = max(weight.itemsize, torch.float32.itemsize)
    needed = size * (COPIES * model.parameter_count() + tokens * count_kept(model.config))
    what = tr("a training step over {tokens} tokens", tokens=f"{tokens:,}")
    require_memory(needed, what, tr("evaluate without learning"), free=free_memory(weight.device))


def _require_finite(nats: float, *, learned: bool) -> None:
    if learned and not math.isfinite(nats):
        raise JumokError(
            "the losses are not finite any more: learning from the text diverged. Give a lower learning rate."
        )
    require_finite_losses(nats)
