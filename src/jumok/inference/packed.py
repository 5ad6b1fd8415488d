"""A GPT prepared to read one new token at a time, which is what generation spends its time on.

For one token a model has little to compute and all of its parameters to read, so speed depends on how they lie in
memory and on how much Python runs between two products. `PackedGPT` computes the same numbers as the model, up to
rounding, in a few calls a layer.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config.features import changes_angles
from jumok.inference.matrices import Matrices, Quantization
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.blocks import MLP, Block, SwiGLU
from jumok.nn.cache import KVCache, LayerCache
from jumok.nn.layers import Dropout, RMSNorm

PARTS = {
    nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm,
    Block, MultiHeadAttention, ScaledDotProductAttention, MLP, SwiGLU, RMSNorm, Dropout,
}  # fmt: skip


def hooks_of(model: nn.Module) -> list[Mapping[int, object]]:
    """The dictionaries in which PyTorch keeps the hooks of the model's parts, and of all modules; empty ones too."""
    everywhere = nn.modules.module
    own = [hooks for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks, *own]


def can_pack(model: GPT) -> bool:
    """Whether a `PackedGPT` can replace this model: a plain GPT in float32 or float64 on a CPU, without hooks.

    A part of another class may compute anything, so a model that has one runs itself. A model for which
    `changes_angles` is true keeps no keys.
    """
    weight = model.token_embedding.weight
    return (
        type(model) is GPT
        and not changes_angles(model.config)
        and is_plain(model)
        and weight.dtype in (torch.float32, torch.float64)
        and all(p.device.type == "cpu" and p.dtype == weight.dtype for p in model.parameters())
        and not any(hooks_of(model))
    )


def is_plain(model: GPT) -> bool:
    """Whether the next token is computed by jumok's own parts alone, in the order of `GPT.hidden`."""
    return type(model).hidden is GPT.hidden and all(type(part) in PARTS for part in _parts_in_use(model))


def _parts_in_use(model: GPT) -> Iterator[nn.Module]:
    """The parts that compute the next token; a classifier beside them is left out."""
    beside = {id(part) for head in (model.pooling, model.classifier) if head is not None for part in head.modules()}
    return (part for part in model.modules() if part is not model and id(part) not in beside)


class PackedGPT:
    """A GPT prepared to read one token of each of some texts at a time.

    It has copies of the parameters as they were when it was made, laid out for few rows, and a buffer for each
    intermediate result. It computes what `model.head(model.hidden(ids, cache))` does: logits differ by rounding only,
    less than 1e-5 of the largest. Attention goes through the model's own seam. The copies of the matrices are kept as
    long as the model lives, and shared; see `jumok.inference.matrices`.

    Args:
        model: one for which `can_pack` is true, in eval mode while this is used.
        batch: number of texts, B.
        quantize: "int8": each row of each matrix in 8 bits and a scale, multiplied by inputs in bfloat16. This takes a
            quarter of the memory traffic, and costs some quality. None: the matrices as they are.

    Raises:
        ConfigError: int8 is not in this build of PyTorch.
    """

    @torch.inference_mode()
    def __init__(self, model: GPT, batch: int = 1, quantize: Quantization | Matrices | None = None) -> None:
        self._model = model
        self._matrices = quantize if isinstance(quantize, Matrices) else Matrices(quantize)
        self._embedding = model.token_embedding.weight.detach()
        self._positions = None if model.position_embedding is None else model.position_embedding.weight.detach()
        turned = 0 if model.cos is None else model.cos.shape[1]  # dimensions of a head that are rotated
        self._rest = model.config.head_dim - turned
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        self._blocks = [_Block(block, batch, self._matrices, turned) for block in blocks]
        self._windows = [model.config.window(i) for i in range(len(blocks))]
        self._norm = _norm(model.norm, (batch, model.config.n_embd))
        self._head = self._matrices.product(batch, model.head)

    def for_batch(self, batch: int) -> PackedGPT:
        """The same for another number of texts. Its matrices are shared, and not compared with the model's again."""
        return PackedGPT(self._model, batch, self._matrices)

    @torch.inference_mode()
    def logits(self, ids: Tensor, cache: KVCache) -> Tensor:
        """Logits after each text's newest token; the cache is extended by it.

        Args:
            ids: (B,), the newest token of each text.
            cache: keys and values of the tokens before. Its rows may have different lengths, see `KVCache.begin_at`.

        Returns:
            (B, V), of the type of the parameters.

        Raises:
            ValueError: a text is longer than the context; the caller has to slide its window first.
        """
        x = F.embedding(ids, self._embedding)  # (B, C)
        if self._positions is not None:
            x += _newest(self._positions, cache)
        rotary = None
        angles = self._model.angles(cache.length, cache.length + 1, cache.positions)
        if angles is not None:
            cos, sin = (x.view(-1, 1, x.shape[-1]) for x in angles)
            sin = sin.narrow(2, 0, sin.shape[-1] // 2)
            if self._rest:  # these dimensions are multiplied by 1
                cos = F.pad(cos, (0, self._rest), value=1.0)
            rotary = (cos, sin)  # (B or 1, 1, D) and (B or 1, 1, half of those that are rotated)
        masks = {window: _mask(cache, window) for window in set(self._windows)}
        for block, window, layer in zip(self._blocks, self._windows, cache.layers, strict=True):
            block(x, rotary, layer, masks[window])
        return self._head(self._norm(x)).clone()


def _newest(table: Tensor, cache: KVCache) -> Tensor:
    """The rows of a table of positions, (positions, N), for the token after those in a cache: (B, N), or (1, N)."""
    return table.narrow(0, cache.length, 1) if cache.positions is None else table[cache.positions[:, 0]]


def _mask(cache: KVCache, window: int | None) -> Tensor | None:
    """What the next token of each text sees, of the positions in a cache and itself: (1, S), (B, 1, 1, S) or None, all.

    window: it sees at most so many positions, its own included; None: those of its text.
    """
    if window is None or cache.length < window:
        return cache.mask
    newest: int | Tensor = cache.length if cache.positions is None else cache.positions[:, :, None, None]
    near = torch.arange(cache.length + 1)[None] > newest - window
    return near if cache.mask is None else cache.mask & near


class _Block:
    """A `Block` without its modules: attention, then an MLP, each added in place to what comes in."""

    def __init__(self, block: Block, batch: int, matrices: Matrices, turned: int) -> None:
        shape = (batch, block.attention.q_proj.in_features)
        self._attention_norm = _norm(block.attention_norm, shape)
        self._attention = _Attention(block.attention, batch, matrices, turned)
        self._mlp_norm = _norm(block.mlp_norm, shape)
        self._mlp = _MLP(block.mlp, batch, matrices)
        self._parallel = block.parallel

    def __call__(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, cache: LayerCache, mask: Tensor | None) -> None:
        """x: (B, C)."""
        attended = self._attention(self._attention_norm(x), rotary, cache, mask)
        if self._parallel:
            x += attended.add_(self._mlp(self._mlp_norm(x)))
        else:
            x += attended
            x += self._mlp(self._mlp_norm(x))


class _Attention:
    """A `MultiHeadAttention` for one position: q, k and v of all heads side by side, and views into them."""

    def __init__(self, layer: MultiHeadAttention, batch: int, matrices: Matrices, turned: int) -> None:
        h, g, d = layer.n_head, layer.n_kv_head, layer.head_dim
        self._qkv = matrices.product(batch, layer.q_proj, layer.k_proj, layer.v_proj)
        heads = self._qkv.out.view(batch, h + 2 * g, d)
        self._q, self._kv = heads[:, :h, None], heads[:, h:, None]  # (B, H, 1, D), (B, 2G, 1, D)
        self._qk = heads[:, : h + g]  # (B, H+G, D)
        self._turned = turned
        self._left, self._right = self._qk[..., :turned].chunk(2, dim=-1)  # (B, H+G, turned/2) each
        self._norm: _FastRMSNorm | None = None
        if layer.q_norm is not None and layer.k_norm is not None:
            weight = torch.cat((layer.q_norm.weight.expand(h, d), layer.k_norm.weight.expand(g, d)))  # (H+G, D)
            self._norm = _FastRMSNorm(weight, layer.q_norm.eps, self._qk.shape)
        self._attend = layer.attend
        self._o = matrices.product(batch, layer.o_proj)

    def __call__(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, cache: LayerCache, mask: Tensor | None
    ) -> Tensor:
        """(B, C) -> (B, C)."""
        self._qkv(x)
        if rotary is not None:  # without it, in the classic family, there are no norms either
            cos, sin = rotary
            qk = self._qk.clone() if self._norm is None else self._norm(self._qk)  # (B, H+G, D)
            left, right = qk[..., : self._turned].chunk(2, dim=-1)  # (B, H+G, turned/2) each
            torch.mul(qk, cos, out=self._qk)  # `positions.rotate`, half by half
            self._left.addcmul_(right, sin, value=-1)
            self._right.addcmul_(left, sin)
        k, v = cache.append_joined(self._kv)  # (B, G, S, D) each
        return self._o(self._attend(self._q, k, v, mask, True).flatten(1))


class _MLP:
    """An `MLP` or a `SwiGLU`, whose two first matrices are one product."""

    def __init__(self, layer: nn.Module | None, batch: int, matrices: Matrices) -> None:
        self._activation: Callable[[Tensor], Tensor]
        self._gated: Tensor | None = None
        if isinstance(layer, SwiGLU):
            self._up = matrices.product(batch, layer.gate_proj, layer.up_proj)
            self._given, self._gated = self._up.out.chunk(2, dim=-1)
            self._activation = F.silu
        else:
            assert isinstance(layer, MLP)
            self._up = matrices.product(batch, layer.up_proj)
            self._given, self._activation = self._up.out, layer.activation
        self._down = matrices.product(batch, layer.down_proj)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, C) -> (B, C)."""
        self._up(x)
        y = self._activation(self._given)
        return self._down(y if self._gated is None else y.mul_(self._gated))


def _norm(norm: nn.Module | None, shape: Sequence[int]) -> _FastRMSNorm | nn.LayerNorm:
    """A norm for inputs of one shape; PyTorch's LayerNorm is one call already."""
    if isinstance(norm, RMSNorm):
        return _FastRMSNorm(norm.weight, norm.eps, shape)
    assert isinstance(norm, nn.LayerNorm)
    return norm


class _FastRMSNorm:
    """RMSNorm in four calls: x / sqrt(mean(x²) + eps) · weight = x / hypot(|x|, sqrt(N eps)) · (sqrt(N) weight).

    Args:
        weight: (N,), or one for each row of the inputs. eps: as in RMSNorm. shape: (..., N), of the inputs.
    """

    def __init__(self, weight: Tensor, eps: float, shape: Sequence[int]) -> None:
        width = shape[-1]
        self._gain = weight.detach() * width**0.5
        self._least = weight.new_tensor((width * eps) ** 0.5)
        self._length = weight.new_empty(*shape[:-1], 1)
        self._out = weight.new_empty(shape)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., N) -> (..., N), in the same place each time."""
        torch.linalg.vector_norm(x, dim=-1, keepdim=True, out=self._length)
        torch.hypot(self._length, self._least, out=self._length)
        return torch.div(x, self._length, out=self._out).mul_(self._gain)
