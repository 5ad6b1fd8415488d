"""How well an encoder–decoder answers: its answers compared with the targets, and the loss of the targets.

With the rows of a table as pairs of a source and a target,

    exact_match     share of the answers that are the target, character by character in NFC, from 0 to 1
    chrf            F2 score of n-grams of 1 to 6 characters, from 0 to 100 (https://aclanthology.org/W15-3049)
    bleu            of n-grams of 1 to 4 words, from 0 to 100 (https://aclanthology.org/P02-1040)
    loss_per_token  mean of -ln p(token | source, tokens of the target before it), [EOS] included, without smoothing
    token_accuracy  share of those tokens for which no other is likelier, from 0 to 1

chrF and BLEU are those of sacrebleu (https://aclanthology.org/W18-6319) over all rows together, with its defaults; its
words, "13a", are split off at spaces and punctuation, in Korean too. Where no text has four words, BLEU is of the
n-grams that there are (its "effective order"). A Korean word with another ending is another word for BLEU, so chrF
is more informative.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig
from jumok.data.batches import LengthBatches
from jumok.data.rows import Rows
from jumok.errors import JumokError, TextError
from jumok.inference.answer import answer_ids, with_special_tokens
from jumok.inference.answer_search import Answer, Search, SearchSettings
from jumok.inference.requests import require_answering
from jumok.models.checks import require_finite
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import IGNORED, MOST_LOGITS, cross_entropies
from jumok.models.modes import eval_mode
from jumok.text import Table
from jumok.text.hangul import nfc
from jumok.tokenizers import Ids, Tokenizer

COLUMNS = ("source", "target")
MOST_TOKENS = 1 << 14  # in one batch of pairs, padding included

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class PairEvaluation:
    """How well a model answers; the head of this module defines the first five.

    rows: pairs that were looked at. left_out: rows with an empty cell, which were not. cut: rows of which a text was
    longer than the model's context. tokens: of the sources and targets.
    """

    exact_match: float
    chrf: float | None
    bleu: float | None
    loss_per_token: float
    token_accuracy: float
    rows: int
    left_out: int
    cut: int
    tokens: int


def evaluate_pairs(
    model: EncoderDecoder,
    pairs: Table | Sequence[Pair],
    *,
    metrics: bool = True,
    **search: Unpack[SearchSettings],
) -> PairEvaluation:
    """Answer each source, and compare with its target.

    Args:
        model: with its tokenizer at `model.tokenizer`; it runs where it is, in eval mode meanwhile.
        pairs: a table with the columns source and target, or the pairs themselves.
        metrics: compute chrF and BLEU, for which sacrebleu is needed; without it they are None.
        search: beam, length_penalty, no_repeat_ngram, max_tokens: see `jumok.inference.answer_search.Search`.

    Raises:
        ConfigError: a setting is out of range, or the model is no encoder–decoder.
        TextError: a column is missing, or no row has a source and a target.
        TokenizerError: the model cannot read or write text.
        JumokError: sacrebleu is not installed, or the model's figures are not finite.
    """
    how = Search(**search)
    tokenizer = require_answering(model)
    if metrics and not has_sacrebleu():
        raise JumokError(
            "chrF and BLEU are computed by sacrebleu, which is not installed: pip install 'jumok[metrics]'. "
            "Without them: evaluate_pairs(..., metrics=False)."
        )
    given = as_pairs(pairs)
    kept = whole_pairs(given)
    if not kept:
        raise TextError(
            "none of the {count:,} rows has both a source and a target; there is nothing to answer.", count=len(given)
        )
    coded = [encode_pair(tokenizer, model.config, pair) for pair in kept]
    loss, accuracy = forced_figures(model, coded)
    answers = answer_ids(model, [one.source for one in coded], how, seed=0)
    texts, targets = [nfc(best(found)) for found in answers], [nfc(target) for _, target in kept]
    chrf, bleu = corpus_scores(texts, targets) if metrics else (None, None)
    return PairEvaluation(
        exact_match=sum(text == target for text, target in zip(texts, targets, strict=True)) / len(kept),
        chrf=chrf,
        bleu=bleu,
        loss_per_token=loss,
        token_accuracy=accuracy,
        rows=len(kept),
        left_out=len(given) - len(kept),
        cut=sum(one.is_cut for one in coded),
        tokens=sum(len(one.source) + len(one.target) for one in coded),
    )


def best(answers: Sequence[Answer]) -> str:
    """Return the text of the first of the answers to a source; "" if a search ended without one."""
    return answers[0].text if answers else ""


# --- pairs of texts ---------------------------------------------------------------------------------------------------


def as_pairs(pairs: Table | Sequence[Pair]) -> list[Pair]:
    """Return the pairs of a table with the columns source and target; other columns are not looked at.

    Raises:
        TextError: one of the two columns is missing.
    """
    if not isinstance(pairs, Table):
        return list(pairs)
    return list(zip(*(pairs.column(name) for name in COLUMNS), strict=True))


def whole_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Those of which neither text is empty or blank."""
    return [pair for pair in pairs if all(text.strip() for text in pair)]


@dataclass(frozen=True, kw_only=True)
class CodedPair:
    """A pair as ids: source (S,), target (T,). longest: tokens of the longer one, uncut. is_cut: it was cut."""

    source: Ids
    target: Ids
    longest: int
    is_cut: bool


def encode_pair(tokenizer: Tokenizer, config: EncoderDecoderConfig, pair: Pair) -> CodedPair:
    """A pair as the ids that a model learns from.

    A source is its text and [EOS], or what `with_special_tokens` puts around it; a long text is cut before [EOS]. A
    target is the same, and always ends with [EOS]; but a long one that is cut has no [EOS], so that a model does not
    learn to stop there.
    """
    assert config.eos_id is not None
    most = config.context_length
    source, target = (with_special_tokens(tokenizer, text, config) for text in pair)
    if target[-1:] != [config.eos_id]:  # nothing around a text may say that it ends
        target = np.append(target, np.int64(config.eos_id))
    longest = max(len(source), len(target))
    if len(source) > most:
        source = with_special_tokens(tokenizer, pair[0], config, most)
    return CodedPair(source=source, target=target[:most], longest=longest, is_cut=longest > most)


def pair_batch(
    sources: Rows, targets: Rows, rows: NDArray[np.int64], config: EncoderDecoderConfig
) -> tuple[Tensor, Tensor]:
    """Return some pairs as a batch: sources (B, S) and targets (B, T), int64, padded on the right with IGNORED."""
    source, target = (part.padded(rows, IGNORED, most=config.context_length) for part in (sources, targets))
    return source, target


# --- figures ----------------------------------------------------------------------------------------------------------


def target_losses(model: EncoderDecoder, source: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of each token of some targets, in nats, (N,).

    Args:
        source, target: see `forced_logits`. smoothing: see `jumok.models.losses.cross_entropies`.
    """
    return cross_entropies(*forced_logits(model, source, target), smoothing)


def forced_logits(model: EncoderDecoder, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of each token of some targets, (N, V), and the tokens, (N,).

    The decoder sees `decoder_start_id` and then the right tokens, whatever it would have written itself ("teacher
    forcing").

    Args:
        source: (B, S). target: (B, T). Both as `pair_batch` makes them; IGNORED does not count.
    """
    start = model.config.decoder_start_id
    assert start is not None
    mask, counted = source != IGNORED, target != IGNORED  # (B, S), (B, T)
    seen = F.pad(target[:, :-1].clamp(min=0), (1, 0), value=start)  # (B, T)
    hidden = model.hidden(seen, model.encode(source.clamp(min=0), mask), mask)  # (B, T, C)
    return model.logits(hidden[counted]), target[counted]


@torch.inference_mode()
def forced_figures(model: EncoderDecoder, pairs: Sequence[CodedPair]) -> tuple[float, float]:
    """loss_per_token and token_accuracy over all tokens of the targets.

    Raises:
        JumokError: the loss is not finite.
    """
    sources, targets = Rows.of([pair.source for pair in pairs]), Rows.of([pair.target for pair in pairs])
    # Only target tokens have logits, which are about half of a batch.
    affordable = min(MOST_TOKENS, 2 * MOST_LOGITS // model.config.vocab_size)
    most = max(model.config.context_length, affordable)
    batches = LengthBatches(np.stack((sources.lengths, targets.lengths), axis=1), most, seed=0)
    device = model.token_embedding.weight.device
    nats, right = 0.0, 0
    with eval_mode(model):
        for number in range(batches.count):
            rows = batches.rows(number)
            source, target = pair_batch(sources, targets, rows, model.config)
            logits, tokens = forced_logits(model, source.to(device), target.to(device))
            nats += float(cross_entropies(logits, tokens).sum())
            right += int((logits.gather(-1, tokens[:, None])[:, 0] >= logits.amax(dim=-1)).sum())
    require_finite(nats)
    total = int(targets.lengths.sum())
    return nats / total, right / total


def corpus_scores(answers: Sequence[str], targets: Sequence[str]) -> tuple[float, float]:
    """chrF and BLEU of some answers, one target each, from 0 to 100 each, as sacrebleu computes them."""
    import sacrebleu

    return (
        float(sacrebleu.corpus_chrf(answers, [targets]).score),
        float(sacrebleu.corpus_bleu(answers, [targets], use_effective_order=True).score),
    )


def has_sacrebleu() -> bool:
    """Return whether chrF and BLEU can be computed."""
    return importlib.util.find_spec("sacrebleu") is not None
