"""From ids to the logits of the next one, over and over: what writing spends its time on.

For one new token a model has little to compute and all of its weights to read, so what counts is how they lie in
memory and how much Python stands between two products. `Decoder` is a GPT prepared for that: the same numbers as
the model's, up to rounding, in a few calls a layer. `Texts` are texts that grow side by side by a token at a time, each
with its own window; it takes the decoder where there is one, and the model itself where someone is watching it
(hooks), or where it is something else than a plain GPT on a CPU.

The model sees the last ids only as far as its context reaches. That window is a function of their number alone
(`window_start`), so writing with and without a cache of keys and values gives the same logits.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.errors import ConfigError
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.blocks import MLP, Block, SwiGLU
from jumok.nn.cache import KVCache, LayerCache
from jumok.nn.layers import Dropout, RMSNorm

Weights = Literal["full", "int8"]
WEIGHTS: tuple[Weights, ...] = ("full", "int8")

PANEL = 32  # columns of a matrix that lie together; measured: 24 to 32 is best, 8 and 128 take twice as long
GOLDEN = (5**0.5 - 1) / 2  # whose multiples spread evenly over the unit interval, none twice


# --- what the model sees ----------------------------------------------------------------------------------------------


def window_start(length: int, context: int) -> int:
    """Where the window begins that a model sees of `length` ids.

    0 while all of them fit; then it moves on by half a context at a time, because after each move the cache has to be
    filled again. So at least half a context is always in view.
    """
    stride = max(1, context // 2)
    return -(-max(0, length - context) // stride) * stride


def next_logits(model: GPT, ids: Tensor, cache: KVCache | None = None) -> Tensor:
    """Logits of the id after `ids`, as far back as the window reaches, by the model itself.

    Args:
        ids: (B, n), at least one id each, and any number of them.
        cache: used for all calls of one text as it grows by an id at a time, and for no other text.

    Returns:
        (B, V), float32 or better.
    """
    length = ids.shape[1]
    start = window_start(length, model.config.context_length)
    if cache is not None and cache.length == length - 1 - start:
        start = length - 1  # the cache has all but the newest
    elif cache is not None:
        cache.clear()
    logits: Tensor = model.head(model.hidden(ids[:, start:], cache)[:, -1])  # (B, V)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Texts:
    """Texts that grow side by side, each by an id at a time.

    Args:
        model: in eval mode as long as this is used.
        prompts: the ids of each text, at least one; they need not be equally long.
        cache: keep keys and values of past tokens; without it the result is the same, later.
        weights: "full", or "int8" for rounded ones (see `Decoder`).

    Raises:
        ConfigError: int8 was asked for where there is no decoder.
    """

    def __init__(
        self, model: GPT, prompts: Sequence[Sequence[int]], *, cache: bool = True, weights: Weights = "full"
    ) -> None:
        self.ids = [list(prompt) for prompt in prompts]
        self._model, self._hooks = model, _hooks(model)
        self._fast = _Fast(model, self.ids, weights) if cache and can_decode(model) else None
        self._plain = None if self._fast else _Plain(model, self.ids, cache)
        if weights != "full" and self._fast is None:
            raise ConfigError(
                "weights={weights!r} is for a plain GPT in float32 on the CPU, with a cache and without "
                "hooks; leave it out, or move the model there: model.float().cpu().",
                weights=weights,
            )

    @torch.inference_mode()
    def next_logits(self) -> Tensor:
        """Logits of the id after each text: (B, V), float32 or better."""
        if self._plain is not None:
            return self._plain.next_logits()
        assert self._fast is not None
        if any(self._hooks):  # since a moment ago: whoever watches sees a whole window
            self._fast.forget()
            return _Plain(self._model, self.ids, cache=False).next_logits()
        return self._fast.next_logits()

    def append(self, ids: Sequence[int]) -> None:
        """Let each text grow by an id."""
        for text, new in zip(self.ids, ids, strict=True):
            text.append(new)
        if self._plain is not None:
            self._plain.append(ids)

    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts alone, one or more, by their places in `ids`, rising."""
        self.ids = [self.ids[row] for row in rows]
        if self._fast is not None:
            self._fast.select(rows, self.ids)
        else:
            assert self._plain is not None
            self._plain.select(rows)


class _Plain:
    """Texts that the model itself reads; those of equal length side by side."""

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], cache: bool) -> None:
        lengths = sorted({len(text) for text in texts})
        self._groups = [[row for row, text in enumerate(texts) if len(text) == length] for length in lengths]
        self._model = model
        self._device = model.token_embedding.weight.device
        self._ids = [torch.tensor([texts[row] for row in group], device=self._device) for group in self._groups]
        self._caches = [model.new_cache(len(group)) if cache else None for group in self._groups]

    def next_logits(self) -> Tensor:
        parts = [next_logits(self._model, ids, cache) for ids, cache in zip(self._ids, self._caches, strict=True)]
        order = torch.tensor([row for group in self._groups for row in group], device=self._device).argsort()  # (B,)
        return torch.cat(parts)[order]  # (B, V)

    def append(self, ids: Sequence[int]) -> None:
        new = torch.tensor(ids, device=self._device)
        self._ids = [
            torch.cat((old, new[group, None]), dim=1) for old, group in zip(self._ids, self._groups, strict=True)
        ]

    def select(self, rows: Sequence[int]) -> None:
        places = {row: place for place, row in enumerate(rows)}
        left = []
        for group, ids, cache in zip(self._groups, self._ids, self._caches, strict=True):
            kept = [number for number, row in enumerate(group) if row in places]
            if not kept:
                continue
            chosen = torch.tensor(kept, device=self._device)
            if cache is not None:
                cache.select(chosen)
            left.append(([places[group[number]] for number in kept], ids[chosen], cache))
        self._groups, self._ids, self._caches = map(list, zip(*left, strict=True))


class _Fast:
    """Texts that a `Decoder` reads. The model fills the cache with all but the newest token of each window."""

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], weights: Weights) -> None:
        self._model, self._texts = model, texts
        self._decoder = Decoder(model, len(texts), weights)
        self._cache = model.new_cache(len(texts))
        self._held = [-1] * len(texts)  # positions of each text in the cache
        self._equal = len({len(text) for text in texts}) == 1

    def select(self, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> None:
        """Go on with these rows alone, whose texts are given."""
        self._texts, self._held = texts, [self._held[row] for row in rows]
        self._cache.select(torch.tensor(rows))
        self._decoder = self._decoder.for_batch(len(rows))

    def forget(self) -> None:
        """What the cache holds is no longer what the texts end with."""
        self._held = [-1] * len(self._texts)

    def next_logits(self) -> Tensor:
        with torch.autocast("cpu", enabled=False):  # casting all weights for each token would cost more than it saves
            return self._next_logits()

    def _next_logits(self) -> Tensor:
        context = self._model.config.context_length
        starts = [window_start(len(text), context) for text in self._texts]
        before = [len(text) - 1 - start for text, start in zip(self._texts, starts, strict=True)]
        if moved := [row for row, held in enumerate(self._held) if held != before[row]]:
            self._fill(moved, [tuple(self._texts[row][starts[row] : -1]) for row in moved])
        newest = torch.tensor([text[-1] for text in self._texts])
        self._held = [held + 1 for held in before]
        return self._decoder.logits(newest, self._cache, None if self._equal else torch.tensor(before))

    def _fill(self, rows: list[int], windows: list[tuple[int, ...]]) -> None:
        """Put windows into rows of the cache, in one pass, and equal ones once.

        The shorter ones are filled up at their ends: no token sees a later one, and the decoder masks what is there.
        """
        different = list(dict.fromkeys(windows))
        longest = max(map(len, different))
        fresh = self._model.new_cache(len(different))
        if longest:
            padded = [[*window, *[0] * (longest - len(window))] for window in different]
            self._model.hidden(torch.tensor(padded), fresh)
        chosen = torch.tensor([different.index(window) for window in windows])
        for layer, filled in zip(self._cache.layers, fresh.layers, strict=True):
            layer.replace(torch.tensor(rows), filled, chosen)


# --- where the decoder stands for the model ---------------------------------------------------------------------------

PARTS = {
    nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm,
    Block, MultiHeadAttention, ScaledDotProductAttention, MLP, SwiGLU, RMSNorm, Dropout,
}  # fmt: skip


def _hooks(model: nn.Module) -> list[Mapping[int, object]]:
    """Where PyTorch keeps the hooks on parts of the model, and on all modules there are; empty ones too."""
    everywhere = nn.modules.module
    own = [hooks for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks, *own]


def can_decode(model: GPT) -> bool:
    """Whether a `Decoder` computes what this model does: a plain GPT in float32 or float64 on a CPU, without hooks.

    A part that was exchanged for one of another class may do anything, so the model has to do it itself.
    """
    weight = model.token_embedding.weight
    return (
        type(model) is GPT
        and weight.dtype in (torch.float32, torch.float64)
        and all(p.device.type == "cpu" and p.dtype == weight.dtype for p in model.parameters())
        and all(type(part) in PARTS for part in _written_with(model))
        and not any(_hooks(model))
    )


def _written_with(model: GPT) -> Iterator[nn.Module]:
    """The parts that take part in writing; not those of a classifier beside them."""
    beside = {id(part) for head in (model.pooling, model.classifier) if head is not None for part in head.modules()}
    return (part for part in model.modules() if part is not model and id(part) not in beside)


# --- one token through a GPT ------------------------------------------------------------------------------------------


class Decoder:
    """A GPT prepared to read one token of each of some texts at a time.

    It holds copies of the weights as they were when it was made, laid out for few rows, and a place for each
    intermediate result, and computes what `model.head(model.hidden(ids, cache))` does: logits differ by rounding only,
    less than 1e-5 of the largest. Attention goes through the model's own seam. The copies of the matrices are kept as
    long as the model lives, and shared by all its decoders; see `_packed`.

    Args:
        model: one for which `can_decode` is true, in eval mode whenever this is used.
        batch: number of texts, B.
        weights: "full", or "int8": each row of each matrix in 8 bits and a scale, multiplied by inputs in bfloat16.
            This takes a quarter of the memory traffic, and costs some quality.

    Raises:
        ConfigError: int8 is not in this build of PyTorch.
    """

    @torch.inference_mode()
    def __init__(self, model: GPT, batch: int = 1, weights: Weights | _Matrices = "full") -> None:
        self._model = model
        self._matrices = weights if isinstance(weights, _Matrices) else _Matrices(weights)
        self._embedding = model.token_embedding.weight.detach()
        self._positions = None if model.position_embedding is None else model.position_embedding.weight.detach()
        self._rotary: tuple[Tensor, Tensor] | None = None
        if model.cos is not None and model.sin is not None:
            self._rotary = (model.cos, model.sin[:, : model.config.head_dim // 2])
        self._blocks = [_Block(block, batch, self._matrices) for block in model.blocks if isinstance(block, Block)]
        self._norm = _norm(model.norm, (batch, model.config.n_embd))
        self._head = self._matrices.product(batch, model.head)

    def for_batch(self, batch: int) -> Decoder:
        """The same for another number of texts: its matrices are shared, and not looked at again."""
        return Decoder(self._model, batch, self._matrices)

    @torch.inference_mode()
    def logits(self, ids: Tensor, cache: KVCache, positions: Tensor | None = None) -> Tensor:
        """Logits after each text's newest token; the cache is extended by it.

        Args:
            ids: (B,), the newest token of each text.
            cache: keys and values of the tokens before.
            positions: (B,), how many tokens of each text are before, or None: `cache.length` of all.

        Returns:
            (B, V), of the type of the weights.

        Raises:
            ValueError: a text is longer than the context; the caller has to slide its window first.
        """
        x = F.embedding(ids, self._embedding)  # (B, C)
        where = _Where(cache.length, positions)
        if self._positions is not None:
            x += where.rows(self._positions)
        rotary = None
        if self._rotary is not None:
            cos, sin = (where.rows(table).unsqueeze(1) for table in self._rotary)
            rotary = (cos, sin)  # (B or 1, 1, D) and (B or 1, 1, D/2)
        for block, layer in zip(self._blocks, cache.layers, strict=True):
            block(x, rotary, layer, where)
        return self._head(self._norm(x)).clone()


class _Where:
    """Which position the newest token of each text has: the same in all, or one of its own."""

    def __init__(self, length: int, positions: Tensor | None) -> None:
        self.length, self.positions, self.mask = length, positions, None
        if positions is not None:
            keys = torch.arange(int(positions.max()) + 1)
            self.mask = (keys <= positions[:, None])[:, None, None, :]  # (B, 1, 1, S)

    def rows(self, table: Tensor) -> Tensor:
        """What a table has for them: (positions, N) -> (B, N), or (1, N)."""
        return table.narrow(0, self.length, 1) if self.positions is None else table[self.positions]


class _Block:
    """A `Block` without its modules: attention, then an MLP, each added in place to what comes in."""

    def __init__(self, block: Block, batch: int, matrices: _Matrices) -> None:
        shape = (batch, block.attention.q_proj.in_features)
        self._attention_norm = _norm(block.attention_norm, shape)
        self._attention = _Attention(block.attention, batch, matrices)
        self._mlp_norm = _norm(block.mlp_norm, shape)
        self._mlp = _MLP(block.mlp, batch, matrices)

    def __call__(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, cache: LayerCache, where: _Where) -> None:
        """x: (B, C)."""
        x += self._attention(self._attention_norm(x), rotary, cache, where)
        x += self._mlp(self._mlp_norm(x))


class _Attention:
    """A `MultiHeadAttention` for one position: q, k and v of all heads side by side, and views into them."""

    def __init__(self, layer: MultiHeadAttention, batch: int, matrices: _Matrices) -> None:
        h, g, d = layer.n_head, layer.n_kv_head, layer.head_dim
        self._qkv = matrices.product(batch, layer.q_proj, layer.k_proj, layer.v_proj)
        heads = self._qkv.out.view(batch, h + 2 * g, d)
        self._q, self._kv = heads[:, :h, None], heads[:, h:, None]  # (B, H, 1, D), (B, 2G, 1, D)
        self._qk = heads[:, : h + g]  # (B, H+G, D)
        self._left, self._right = self._qk.chunk(2, dim=-1)  # (B, H+G, D/2) each
        self._norm: _Root | None = None
        if layer.q_norm is not None and layer.k_norm is not None:
            weight = torch.cat((layer.q_norm.weight.expand(h, d), layer.k_norm.weight.expand(g, d)))  # (H+G, D)
            self._norm = _Root(weight, layer.q_norm.eps, self._qk.shape)
        self._attend = layer.attend
        self._o = matrices.product(batch, layer.o_proj)

    def __call__(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, cache: LayerCache, where: _Where) -> Tensor:
        """(B, C) -> (B, C)."""
        self._qkv(x)
        if self._norm is not None and rotary is not None:  # modern; the classic family has neither
            cos, sin = rotary
            qk = self._norm(self._qk)  # (B, H+G, D)
            left, right = qk.chunk(2, dim=-1)  # (B, H+G, D/2) each
            torch.mul(qk, cos, out=self._qk)  # `positions.rotate`, half by half
            self._left.addcmul_(right, sin, value=-1)
            self._right.addcmul_(left, sin)
        k, v = cache.append_one(self._kv, where.positions)  # (B, G, S, D) each
        return self._o(self._attend(self._q, k, v, where.mask, True).flatten(1))


class _MLP:
    """An `MLP` or a `SwiGLU`, whose two first matrices are one product."""

    def __init__(self, layer: nn.Module | None, batch: int, matrices: _Matrices) -> None:
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


def _norm(norm: nn.Module | None, shape: Sequence[int]) -> _Root | nn.LayerNorm:
    """What does a norm's work on inputs of a shape; PyTorch's LayerNorm is one call already."""
    if isinstance(norm, RMSNorm):
        return _Root(norm.weight, norm.eps, shape)
    assert isinstance(norm, nn.LayerNorm)
    return norm


class _Root:
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


# --- matrices as a decoder reads them ---------------------------------------------------------------------------------


class _Packed(NamedTuple):
    """Linear layers as a product reads them; nothing writes to it, so that any number of threads may read.

    parts: as `_Product.pack` of a kind returns them. bias: (out,), or None. width: out, of all layers together.
    prints: what `_print` found of each layer when it was packed.
    """

    parts: tuple[Tensor, ...]
    bias: Tensor | None
    width: int
    prints: list[Tensor]


# By the first of the layers that are packed together, and by the kind of product. It goes when the layer does.
_PACKED: WeakKeyDictionary[nn.Module, dict[type[_Product], _Packed]] = WeakKeyDictionary()


class _Matrices:
    """The matrices of a model as its decoders multiply with them, each looked at once."""

    def __init__(self, weights: Weights) -> None:
        self._kind = _Rounded if weights == "int8" else _Panels if torch.backends.mkl.is_available() else _Product
        self._packed: dict[nn.Module, _Packed] = {}

    def product(self, batch: int, *layers: nn.Linear | None) -> _Product:
        """Linear layers over one input as one product, (B, in) -> (B, all out)."""
        given = [layer for layer in layers if layer is not None]
        if given[0] not in self._packed:
            self._packed[given[0]] = _packed(self._kind, given)
        return self._kind(self._packed[given[0]], batch)


def _packed(kind: type[_Product], layers: Sequence[nn.Linear]) -> _Packed:
    """Layers side by side for a kind of product; packed once, and again only when a weight has changed.

    A change is noticed whoever makes it, also one through `.data`, of which PyTorch's count of versions does not know:
    a product with one vector reads each weight once, in a small part of the time that packing takes.
    """
    prints = [one for layer in layers for one in _print(layer)]
    kept = _PACKED.setdefault(layers[0], {})
    found = kept.get(kind)
    if found is None or not _same(found.prints, prints):
        matrix = torch.cat([layer.weight.detach() for layer in layers])  # (out, in)
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        bias = torch.cat(biases) if biases else None  # (out,)
        found = kept[kind] = _Packed(kind.pack(matrix), bias, matrix.shape[0], prints)
    return found


def _print(layer: nn.Linear) -> list[Tensor]:
    """What tells the weights of a layer from others: the product with a fixed vector, (out,), and the bias, (out,)."""
    weight = layer.weight.detach()
    steps = torch.arange(1, weight.shape[1] + 1, dtype=torch.float64)
    vector = steps.mul_(GOLDEN).frac_().add_(0.5).to(weight)  # (in,), no two numbers alike
    with torch.autocast("cpu", enabled=False):  # which would round away what is looked for
        found = torch.mv(weight, vector)
    return [found, *([] if layer.bias is None else [layer.bias.detach().clone()])]


def _same(before: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    """Whether prints are equal in number, type and each bit but the sign of a zero; a NaN equals nothing."""
    return len(before) == len(now) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(before, now, strict=True)
    )


class _Product:
    """A product with a matrix, x Wᵀ + bias.

    Args:
        packed: the matrix. batch: B.

    Attributes:
        out: (B, out), where the result of the last call lies.
    """

    out: Tensor

    def __init__(self, packed: _Packed, batch: int) -> None:
        [self._matrix], self._bias = packed.parts, packed.bias
        self.out = self._matrix.new_empty(batch, packed.width)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """The matrix, (out, in), as this product reads it."""
        return (matrix,)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, in) -> `out`."""
        self._multiply(x)
        return self.out if self._bias is None else self.out.add_(self._bias)

    def _multiply(self, x: Tensor) -> None:
        torch.mm(x, self._matrix.T, out=self.out)


class _Panels(_Product):
    """The matrix in panels of a few columns, each of which lies in one piece of memory.

    Read one after the other, by all threads, they come at the full speed of the memory. MKL runs the usual product of
    one row on one thread, and takes two to four times as long. Other libraries would run the panels one by one.
    """

    def __init__(self, packed: _Packed, batch: int) -> None:
        [self._matrix], self._bias = packed.parts, packed.bias
        panels = self._matrix.shape[0]
        self._parts = self._matrix.new_empty(panels, batch, PANEL)
        self._joined = None if batch == 1 else self._matrix.new_empty(batch, panels, PANEL)
        whole = self._parts if self._joined is None else self._joined
        self.out = whole.view(batch, -1)[:, : packed.width]

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """(out, in) -> (panels, in, PANEL)."""
        panels = F.pad(matrix, (0, 0, 0, -matrix.shape[0] % PANEL)).unflatten(0, (-1, PANEL))  # (panels, PANEL, in)
        return (panels.transpose(1, 2).contiguous(),)

    def _multiply(self, x: Tensor) -> None:
        torch.bmm(x.expand(self._matrix.shape[0], -1, -1), self._matrix, out=self._parts)
        if self._joined is not None:
            self._joined.copy_(self._parts.transpose(0, 1))


class _Rounded(_Product):
    """The matrix in 8 bits, one scale for each of its rows."""

    def __init__(self, packed: _Packed, batch: int) -> None:
        (self._matrix, self._scale), self._bias = packed.parts, packed.bias
        self.out = packed.prints[0].new_empty(batch, packed.width)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """(out, in) -> (out, in) in int8, and the scales, (out,).

        Raises:
            ConfigError: this build of PyTorch has no such product.
        """
        if not hasattr(torch, "_weight_int8pack_mm"):
            raise ConfigError("weights='int8' needs a PyTorch that multiplies 8-bit weights; leave it out.")
        largest = matrix.abs().amax(dim=1).clamp(min=1e-30)  # (out,)
        # Rounded to what the product takes first, so that the integers make up for the rounding of the scales.
        scale = (largest / 127).bfloat16()  # (out,)
        return (matrix / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale

    def _multiply(self, x: Tensor) -> None:
        self.out.copy_(torch._weight_int8pack_mm(x.bfloat16(), self._matrix, self._scale))
