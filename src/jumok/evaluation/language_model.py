"""How well a model predicts a text: nats and bits per character, bits per byte, loss per token, perplexity.

A text of tokens x_1 ... x_n is worth

    nats = - sum over i of ln p(x_i | x_a(i) ... x_(i-1)),

each token counted once, whole text, natural logarithm. x_0, which stands before the text, is a newline, as in
`generate` without a prompt, or the special tokens that an imported model reads there. a(i) follows from windows of
context_length tokens that move on by `stride` tokens: a token is predicted in the first window that reaches it, so it
sees at least context_length - stride tokens before it, or all there are. Then

    nats_per_char  = nats / characters       bits_per_char  = nats / ln 2 / characters
    loss_per_token = nats / n                bits_per_byte  = nats / ln 2 / bytes in UTF-8
    perplexity     = exp(nats / n)

with characters and bytes of the text in NFC. Numbers per character and per byte compare across tokenizers, those per
token do not. Where a tokenizer can spell a text in several ways, only the way it spells it counts, so the nats are an
upper bound (https://arxiv.org/abs/2109.02550 measures how tight).

A tokenizer that loses characters, as those that became [UNK], makes the numbers per character and per byte too small.
Where it loses more than `jumok.tokenizers.MOST_LOST` of a text, they are left out. The numbers per token remain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from jumok.config import require_count
from jumok.data.ids import tokenize
from jumok.data.rows import evenly_spread
from jumok.errors import TextError
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.gpt import GPT, token_losses
from jumok.models.losses import MOST_LOGITS
from jumok.models.modes import eval_mode
from jumok.models.special_ids import start_ids
from jumok.text import Text
from jumok.text.hangul import nfc
from jumok.tokenizers import Ids, LostText, Tokenizer, lost_text

LARGEST_BATCH = 32  # windows


@dataclass(frozen=True, kw_only=True)
class TextEvaluation:
    """How well a model predicts a text; the head of this module defines each number.

    nats_per_char, bits_per_char, bits_per_byte: None where the tokenizer loses too much of the text. lost_chars,
    lost_example: what it loses, see `jumok.tokenizers.LostText`.
    """

    nats_per_char: float | None
    bits_per_char: float | None
    bits_per_byte: float | None
    loss_per_token: float
    perplexity: float
    chars: int
    bytes: int
    tokens: int
    lost_chars: int = 0
    lost_example: tuple[str, str] = ("", "")

    @property
    def lost(self) -> LostText:
        """What the tokenizer loses of the text."""
        return LostText(self.lost_chars, self.chars, self.lost_example)


class Score(NamedTuple):
    """Nats of all predicted tokens together, and how many these are."""

    nats: float
    tokens: int


def evaluate_text(model: GPT, text: str | Text, *, stride: int | None = None) -> TextEvaluation:
    """Predict each token of a text once, and measure how well.

    Args:
        model: with its tokenizer at `model.tokenizer`; it runs where it is, in eval mode meanwhile.
        text: the text itself, or one that `jumok.text.read` returned, which may be larger than memory.
        stride: tokens that the window moves on by, at most the context; None: half a context. Less is slower and
            gives each token more context.

    Raises:
        ConfigError: the stride is out of range.
        TextError: the text is empty, or has no tokens.
        TokenizerError: the model has no tokenizer, one with other ids, or one that cannot encode the text.
        JumokError: the losses are not finite.
    """
    tokenizer = require_tokenizer(model)
    if isinstance(text, Text):
        chars, size = text.chars, text.utf8_bytes
    else:
        text = nfc(text)
        chars, size = len(text), len(text.encode(errors="replace"))  # the tokenizer refuses what UTF-8 cannot express
    with encoded(text, tokenizer) as ids:
        nats, tokens = score(model, ids, stride=stride, before=start_ids(model.config, tokenizer))
    per_token, lost = nats / tokens, lost_text(tokenizer, text)
    per_char = per_character(per_token, tokens, chars, size)
    return TextEvaluation(
        **(dict.fromkeys(per_char) if lost.too_much else per_char),
        loss_per_token=per_token,
        perplexity=math.exp(per_token) if per_token < 700 else math.inf,
        chars=chars,
        bytes=size,
        tokens=tokens,
        lost_chars=lost.lost,
        lost_example=lost.example,
    )


def per_character(per_token: float, tokens: int, chars: int, size: int) -> dict[str, float]:
    """Return the numbers per character and per byte of a text that follow from its nats per token.

    Args:
        tokens, chars, size: of the whole text; size is in bytes.
    """
    nats = per_token * tokens / chars
    bits = nats / math.log(2)
    return {"nats_per_char": nats, "bits_per_char": bits, "bits_per_byte": bits * chars / size}


@contextmanager
def encoded(text: str | Text, tokenizer: Tokenizer) -> Iterator[Ids]:
    """Yield the ids of a text, one or more; those of a `Text` lie in a temporary file meanwhile.

    Raises:
        TextError: the text is empty, or has no tokens.
        TokenizerError: the tokenizer cannot encode it.
    """
    chars = text.chars if isinstance(text, Text) else len(text)
    if chars == 0:
        raise TextError("the text is empty; there is nothing to predict.")
    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "ids.npy"
        ids: Ids = tokenize(text, tokenizer, path) if isinstance(text, Text) else tokenizer.encode(nfc(text))
        if len(ids) == 0:
            raise TextError("the tokenizer makes no tokens from the {chars} characters of the text.", chars=chars)
        yield ids


@torch.inference_mode()
def score(
    model: GPT,
    ids: Ids,
    *,
    stride: int | None = None,
    max_windows: int | None = None,
    before: Sequence[int] = (),
) -> Score:
    """Return the nats of a text given as ids, or of a sample of its windows.

    All windows together predict each token once. With fewer, the tokens of the sample are a share of the text, whose
    size is `tokens`; for nats per character, take the characters per token of the whole text.

    Args:
        ids: (n,), may be mapped from a file. before: the ids that stand before them, which are not predicted; without
            any, ids[0] is only seen, too.
        stride: tokens that the window moves on by; None: half a context.
        max_windows: the most windows to look at, evenly spread over the text; None: all. The same ones each time.

    Raises:
        ConfigError: a number is out of range. TextError: there is no token to predict.
        JumokError: the losses are not finite.
    """
    context = model.config.context_length
    stride = max(1, context // 2) if stride is None else stride
    count = len(ids) + len(before) - 1
    given = max(0, len(before) - 1)  # of these are not predicted
    if count - given < 1:
        raise TextError("a text of {count} tokens leaves none to predict; give a longer one.", count=len(ids))
    chosen = windows(count, context, stride, max_windows)
    chosen[:, 1] = np.maximum(chosen[:, 1], given)
    width, device = min(context, count), model.token_embedding.weight.device
    batch = max(1, min(LARGEST_BATCH, MOST_LOGITS // (width * model.config.vocab_size)))
    nats = 0.0
    with eval_mode(model):
        for rows in np.split(chosen, range(batch, len(chosen), batch)):  # (B, 2)
            block = np.stack([_cut(ids, before, start, start + width + 1) for start, _ in rows.tolist()])
            tokens = torch.from_numpy(block).to(device)  # (B, T+1)
            hidden = model.hidden(tokens[:, :-1])  # (B, T, C)
            skipped = torch.from_numpy(rows[:, 1] - rows[:, 0]).to(device)  # (B,), predicted by a window before
            counted = torch.arange(width, device=device) >= skipped[:, None]  # (B, T)
            losses = token_losses(hidden[counted][None], model.head.weight, tokens[:, 1:][counted][None])  # (1, N)
            nats += float(losses.cpu().sum(dtype=torch.float64))  # some devices have no float64
    require_finite(nats)
    return Score(nats, int((chosen[:, 0] + width - chosen[:, 1]).sum()))


def windows(count: int, context: int, stride: int, limit: int | None = None) -> NDArray[np.int64]:
    """Windows that together predict each of `count` tokens once.

    Token i is predicted from what stands before it, so a window that starts at s sees positions s to s + T - 1 and
    can predict tokens s to s + T - 1, where position i holds what stands before token i and T is
    min(context, count). The last window is moved back to end with the text.

    Args:
        stride: tokens that the window moves on by, from 1 to context. limit: the most windows, evenly spread.

    Returns:
        (W, 2): for each window its start s, and the first token that no window before it predicts.

    Raises:
        ConfigError: a number is out of range.
    """
    require_count("stride", stride, 1, context)
    width = min(context, count)
    starts = np.minimum(np.arange(0, count - width + stride, stride, dtype=np.int64), count - width)
    firsts = np.concatenate(([0], starts[:-1] + width))
    found = np.stack((starts, firsts), axis=1)
    if limit is None or limit >= len(found):
        return found
    require_count("max_windows", limit, 1)
    return found[evenly_spread(len(found), limit)]


def _cut(ids: Ids, before: Sequence[int], start: int, stop: int) -> NDArray[np.int64]:
    """Positions start to stop of the ids, with those of `before` in front of them."""
    given = len(before)
    inside = ids[max(0, start - given) : max(0, stop - given)].astype(np.int64)
    return np.concatenate((np.array(before[start:stop], np.int64), inside))
