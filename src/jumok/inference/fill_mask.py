"""Fill-mask: a BERT that was trained on masked tokens predicts the tokens at each [MASK] of a text.

Of several masks the one with the most confident prediction is filled first; the others are then predicted again with
that token in place. One pass over all masks would choose each token on its own, and so could join the beginning of one
word with the end of another. A mask is one token of the tokenizer: a character, a letter of a syllable or a piece of a
word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import require_count
from jumok.errors import ConfigError, JumokError, TokenizerError
from jumok.inference.sampling import Candidate
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framing
from jumok.tokenizers import ROLES, Tokenizer

LARGEST_BATCH = 32  # windows of a long text that are read at once
JOINED = "##"  # how WordPiece marks a token that continues the word before it
NEAR = 8  # tokens before a token that decide whether its text begins with a space


@dataclass(frozen=True, kw_only=True)
class FilledMask:
    """One mask. position: of its [MASK] in the text that was given, in characters. candidates: the likeliest first."""

    position: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True)
class FilledText:
    """A text whose masks are filled, and the candidates for each of them, in the order of the text."""

    text: str
    masks: tuple[FilledMask, ...]


def fill_mask(model: Model, text: str, top: int = 5) -> FilledText:
    """Fill each [MASK] of a text.

    Args:
        model: a BERT with head="mlm" and its tokenizer, as `jumok.load` returns it; a stock BertForMaskedLM too.
        text: with one mask or more, each written as the model's mask token, mostly "[MASK]". It may be longer than
            the context: each mask is then predicted in the middle of a window.
        top: how many candidates to return for each mask.

    Returns:
        The text with the first candidate at each mask, in NFC for a jumok tokenizer. Candidates and probabilities are
        those when the mask was filled, given the masks that were filled before it. A WordPiece candidate that continues
        a word has its "##", which the text leaves out. With a bpe tokenizer, whose words include the space before them,
        only words with a space are candidates after a space, and only words without one elsewhere. With a mask token
        that includes the space before it, as that of RoBERTa, a candidate decides itself whether one is there.

    Raises:
        ConfigError: the text has no mask, or the tokenizer does not read each as one; or top is less than 1.
        TokenizerError: the model has no tokenizer, or it has no mask token, or it cannot encode the text.
        JumokError: the model does not predict masked tokens; or its logits are not finite.
    """
    require_count("top", top, 1)
    bert = require_masked_model(model)
    tokenizer = require_tokenizer(bert)
    name = mask_token(tokenizer)
    parts = text.split(name)
    if len(parts) == 1:
        raise ConfigError(
            "the text has no {mask}, which marks what is to be filled in; write it where a token is "
            'missing, for example "나는 {mask} 읽었다".',
            mask=name,
        )
    ids = masked_ids(tokenizer, text)
    places = [place for place, i in enumerate(ids) if i == tokenizer.special_tokens[name]]
    if len(places) != len(parts) - 1:
        raise ConfigError(
            "the tokenizer reads {found} of the {count} {mask} in the text as the token; write a space before and "
            "after each.",
            found=len(places),
            count=len(parts) - 1,
            mask=name,
        )
    filled, candidates = fill_ids(bert, ids, places, _allowed(parts, tokenizer), top)
    positions = (end + i * len(name) for i, end in enumerate(accumulate(map(len, parts[:-1]))))
    masks = tuple(
        FilledMask(position=position, candidates=found) for position, found in zip(positions, candidates, strict=True)
    )
    # A foreign tokenizer may lose spaces and capitals, so there the text is kept as it was given.
    if tokenizer.kind != "other":
        return FilledText(text=tokenizer.decode(filled), masks=masks)
    tokens = [_text_at(filled, place, tokenizer) for place in places]
    return FilledText(text=_joined(parts, tokens, tokenizer.strips(name)), masks=masks)


def require_masked_model(model: Model) -> BERT:
    """Return the model, which must predict masked tokens.

    Raises:
        JumokError: it does not predict them.
    """
    if not isinstance(model, BERT) or model.config.head != "mlm":
        found = (
            tr('BERT with head="{head}"', head=model.config.head) if isinstance(model, BERT) else type(model).__name__
        )
        raise JumokError(
            'this model is a {found}, and masked tokens are predicted by a BERT with head="mlm"; train '
            "one with `jumok train TEXT --task mlm`, or load a BertForMaskedLM.",
            found=found,
        )
    return model


def mask_token(tokenizer: Tokenizer) -> str:
    """Return the name of the mask token.

    Raises:
        TokenizerError: there is none.
    """
    names = ROLES["mask_token"]
    found = next((name for name in names if name in tokenizer.special_tokens), None)
    if found is None:
        has = ", ".join(tokenizer.special_tokens) or tr("none at all")
        raise TokenizerError(
            "predicting masked tokens needs a tokenizer with {names} as a special token, and this one has {has}; "
            'train one with jumok.train_tokenizer(..., special_tokens=["[PAD]", "[CLS]", "[SEP]", '
            '"[MASK]"]), as `jumok train --task mlm` does by default.',
            names=" / ".join(names),
            has=has,
        )
    return found


def ordinary_ids(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which ids stand for text: (vocab_size,), False for special tokens."""
    ordinary = np.ones(tokenizer.vocab_size, np.bool_)
    ordinary[list(tokenizer.special_tokens.values())] = False
    return ordinary


@torch.inference_mode()
def fill_ids(
    model: BERT, ids: Sequence[int], places: Sequence[int], allowed: Tensor, top: int = 1
) -> tuple[NDArray[np.int64], list[tuple[Candidate, ...]]]:
    """Fill masks among ids, the one with the most confident prediction first.

    Args:
        model: with its tokenizer; it is in eval mode meanwhile.
        ids: (n,), of a text without [CLS] and [SEP], with the mask token's id at each mask.
        places: (N,), where the masks are, rising. allowed: (N, V), bool, what may stand in each, V being the ids that
            the tokenizer knows. top: how many candidates to return for each mask.

    Returns:
        (n,), the ids with the likeliest one at each mask; and the candidates for each mask, the likeliest first.

    Raises:
        JumokError: the logits are not finite.
    """
    filled = np.array(ids, np.int64)
    where = np.array(places, np.int64)
    tokenizer = require_tokenizer(model)
    found: dict[int, tuple[Candidate, ...]] = {}
    with eval_mode(model):
        while len(found) < len(where):
            left = [i for i in range(len(where)) if i not in found]
            logits = _mask_logits(model, filled, where[left])[:, : allowed.shape[1]].cpu()  # (N, V)
            require_finite(logits)
            shares = logits.softmax(dim=-1).masked_fill(~allowed[left], -1.0)  # (N, V), below what any token has
            surest = int(shares.amax(dim=-1).argmax())
            best = shares[surest].topk(min(top, int(allowed[left[surest]].sum())))
            found[left[surest]] = _candidates(best.indices.tolist(), best.values.tolist(), tokenizer)
            filled[where[left[surest]]] = found[left[surest]][0].id
    return filled, [found[i] for i in range(len(where))]


def _mask_logits(model: BERT, ids: NDArray[np.int64], places: NDArray[np.int64]) -> Tensor:
    """Logits at rising places of a text of any length, each in a window that has it in the middle: (N, V)."""
    framing = Framing.of(model.config, require_tokenizer(model))
    device = model.token_embedding.weight.device
    width = min(framing.room, len(ids))
    starts = np.clip(places - framing.room // 2, 0, len(ids) - width)  # (N,)
    windows, rows = np.unique(starts, return_inverse=True)  # (W,), and (N,): which of them is whose
    columns = places - starts + len(framing.before)
    found = []
    for first in range(0, len(windows), LARGEST_BATCH):
        batch = windows[first : first + LARGEST_BATCH].tolist()
        block = np.stack([framing.frame(ids[start : start + width]).ids for start in batch])
        here = (rows >= first) & (rows < first + LARGEST_BATCH)
        hidden = model(torch.from_numpy(block).to(device))  # (B, T, C)
        found.append(model.mlm_logits(hidden[rows[here] - first, columns[here]]))  # (N, V)
    logits = torch.cat(found)  # (N, V); windows rise with places, so the order is theirs
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def masked_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text with the id of the mask token at each mask.

    Raises:
        TokenizerError: the tokenizer has no mask token, or cannot encode the text.
    """
    name = mask_token(tokenizer)
    if tokenizer.kind == "other":  # it finds the token itself, with the white space that belongs to it
        return list(tokenizer.encode(text).tolist())
    *before, last = text.split(name)
    spaced = bool(_spaced(tokenizer).any())
    ids: list[int] = []
    for part in before:
        # A bpe token includes the space before it, so the space before a mask belongs to the mask.
        ids += tokenizer.encode(part.removesuffix(" ") if spaced else part).tolist()
        ids.append(tokenizer.special_tokens[name])
    return ids + tokenizer.encode(last).tolist()


def _allowed(parts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    """Return what may stand in each mask of a text, which has masks between its parts: (N, V)."""
    ordinary = torch.from_numpy(ordinary_ids(tokenizer))  # (V,)
    spaced = _spaced(tokenizer) & ordinary  # (V,): begins with the space before a word
    after_space = (part.endswith(" ") and bool(spaced.any()) for part in parts[:-1])
    return torch.stack([spaced if space else ordinary & ~spaced for space in after_space])


def _spaced(tokenizer: Tokenizer) -> Tensor:
    """Return which tokens are a space with a word or a part of one: (V,), bool. Only those of bpe can be."""
    if tokenizer.kind != "bpe":
        return torch.zeros(tokenizer.vocab_size, dtype=torch.bool)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return torch.tensor([piece[:1] == " " and piece.strip() != "" for piece in pieces])


def _candidates(ids: list[int], probabilities: list[float], tokenizer: Tokenizer) -> tuple[Candidate, ...]:
    """Ids as text. Bytes that are no whole character look like "<EA>"; other tokenizers decode their own."""
    names = [tokenizer.decode([i]) for i in ids] if tokenizer.kind == "other" else tokenizer.pieces(ids)
    return tuple(map(Candidate, ids, names, probabilities))


def _text_at(ids: NDArray[np.int64], place: int, tokenizer: Tokenizer) -> str:
    """Return the text of a token among others, which may begin with a space; of WordPiece, the token itself."""
    if tokenizer.algorithm == "WordPiece":
        return tokenizer.decode(ids[place : place + 1])
    before = ids[max(0, place - NEAR) : place]
    return tokenizer.decode([*before, ids[place]])[len(tokenizer.decode(before)) :]


def _joined(parts: Sequence[str], tokens: Sequence[str], strips: tuple[bool, bool]) -> str:
    """Return the parts of a text with the tokens between them.

    Args:
        strips: whether the white space before and after a mask belongs to it, so that the token replaces it.
    """
    text = parts[0]
    for token, part in zip(tokens, parts[1:], strict=True):
        joined = token.startswith(JOINED)
        text = text.rstrip() if joined or strips[0] else text
        text += token.removeprefix(JOINED) + (part.lstrip() if strips[1] else part)
    return text
