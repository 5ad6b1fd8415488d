"""Chapter 17, the paper of 2017: its formulas, the number of parameters, and the costs of layers by counting.

The functions follow "Attention Is All You Need" (https://arxiv.org/abs/1706.03762); the section is named in each.
Formulas that are in other chapters are not repeated: attention in `heads`, norms and the MLP with the block, positions
in chapter 8, and the whole model in chapter 9.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from jumok.config import BlockConfig, EncoderDecoderConfig

# --- training and search ----------------------------------------------------------------------------------------------


def learning_rate(step: int, *, width: int = 512, warmup: int = 4000) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), section 5.3: it rises linearly, then decays as 1/sqrt(step).

    Args:
        step: from 1. width: d_model. warmup: steps of the rise.

    Raises:
        ValueError: the step is less than 1.
    """
    if step < 1:
        raise ValueError(f"step={step}: the first step is 1, because 0^-0.5 is not defined")
    return float(width**-0.5 * min(step**-0.5, step * warmup**-1.5))


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.1) -> Tensor:
    """The cross-entropy with a smoothed target, section 5.4: 1 - ε on the right token, and ε spread over all V tokens.

    Args:
        logits: (N, V). targets: (N,). smoothing: ε.

    Returns:
        (N,), in nats; equal to `jumok.models.losses.cross_entropies`.
    """
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)  # (N, V)
    v = logits.shape[-1]
    target = torch.full_like(log_p, smoothing / v)  # (N, V)
    target[torch.arange(len(targets)), targets] += 1 - smoothing
    return -(target * log_p).sum(dim=-1)


def length_penalty(tokens: int, alpha: float = 0.6) -> float:
    """((5 + tokens) / 6)^α, by which the beam search of section 6.1 divides a log-probability.

    The formula is that of https://arxiv.org/abs/1609.08144, section 7.
    `jumok.inference.answer_search.Search.score` divides by tokens^α, as `transformers` does.
    """
    return float(((5 + tokens) / 6) ** alpha)


# --- parameters -------------------------------------------------------------------------------------------------------


def parameter_table(config: EncoderDecoderConfig) -> dict[str, int]:
    """The number of parameters of each part, by formula; the sum is `EncoderDecoder(config).parameter_count()`.

    Args:
        config: of family "original", which has sinusoidal positions.

    Raises:
        ValueError: the family has learned positions.
    """
    if config.family != "original":
        raise ValueError(f'family={config.family!r} has learned positions; the model of 2017 is family="original"')
    c = config.n_embd
    attention = 4 * (c * c + c)  # four matrices and their biases
    norm = 2 * c

    def mlp(block: BlockConfig) -> int:
        return 2 * c * block.mlp_width + block.mlp_width + c

    encoder, decoder = config.encoder_block(), config.decoder_block()
    return {
        "embedding": config.vocab_size * c,
        "encoder attention": config.n_layer * attention,
        "encoder MLP": config.n_layer * mlp(encoder),
        "decoder self-attention": config.n_decoder_layer * attention,
        "decoder cross-attention": config.n_decoder_layer * attention,
        "decoder MLP": config.n_decoder_layer * mlp(decoder),
        "norms": (2 * config.n_layer + 3 * config.n_decoder_layer) * norm,
    }


# --- section 4: the cost of layers ------------------------------------------------------------------------------------


def self_attention(x: Tensor) -> Tensor:
    """softmax(x xᵀ / sqrt(C)) x without projections, as section 4 counts it: (T, C) -> (T, C)."""
    return (x @ x.T * x.shape[-1] ** -0.5).softmax(dim=-1) @ x


def restricted_attention(x: Tensor, reach: int) -> Tensor:
    """The same, where each position attends to the last `reach` positions up to its own: (T, C) -> (T, C)."""
    t, c = x.shape
    padded = torch.cat((x.new_zeros(reach - 1, c), x))  # (T+r-1, C)
    window = padded.unfold(0, reach, 1)  # (T, C, r)
    scores = (x[:, None] @ window)[:, 0] * c**-0.5  # (T, r)
    real = torch.arange(t)[:, None] + torch.arange(reach) >= reach - 1  # (T, r): not before the first position
    weights = scores.masked_fill(~real, float("-inf")).softmax(dim=-1)  # (T, r)
    return (window @ weights[:, :, None])[..., 0]


def recurrent(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """tanh(W x_t + U h_{t-1}), one position after the other: (T, C), (C, C), (C, C) -> (T, C)."""
    h = x.new_zeros(1, x.shape[1])
    states = []
    for x_t in x[:, None]:  # (1, C) each
        h = torch.tanh(x_t @ w.T + h @ u.T)
        states.append(h)
    return torch.cat(states)


def convolution(x: Tensor, kernel: Tensor, dilation: int = 1) -> Tensor:
    """A causal convolution: (T, C), (C, C, k) -> (T, C). Tap j uses the position (k - 1 - j) · dilation back."""
    k = kernel.shape[-1]
    padded = nn.functional.pad(x.T[None], ((k - 1) * dilation, 0))  # (1, C, T + (k-1)·dilation)
    return nn.functional.conv1d(padded, kernel, dilation=dilation)[0].T


def count_multiplications(compute: Callable[[], Tensor]) -> int:
    """The multiplications of matrix products and convolutions in a computation, counted by PyTorch as it runs."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        compute()
    return counter.get_total_flops() // 2  # a multiplication and an addition each


def layers_until_connected(layer: Callable[[Tensor, int], Tensor], t: int, width: int = 4) -> int:
    """How many layers it takes until the last output depends on the first input.

    Args:
        layer: takes (T, C) and the number of the layer from 0, returns (T, C). t: T. width: C.

    Raises:
        ValueError: T layers are not enough.
    """
    x = torch.randn(t, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = x
    for number in range(t):
        y = layer(y, number)
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if bool((gradient[0] != 0).any()):
            return number + 1
    raise ValueError(f"{t} layers do not connect {t} positions")
