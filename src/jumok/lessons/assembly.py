"""Chapter 10, three models out of one block: GPT, BERT, and the encoder–decoder.

They differ in who may look at whom, in where keys and values come from, and in what is to be predicted; the block is
the same. The functions put production parameters together with those of the chapters before: embeddings and rotary
positions of chapter 8, the block of chapter 7, heads of chapter 5.

Shapes use the legend of `jumok.nn.attention`: B batch, T query positions, S key positions, C width, V vocabulary. In a
mask True means "may attend".

Sources: GPT-2, https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf;
BERT, https://arxiv.org/abs/1810.04805; the encoder–decoder, https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import GPTConfig
from jumok.lessons.depth import apply_norm, run_block
from jumok.lessons.heads import attend_by_heads
from jumok.lessons.order import attend_with_rotary, embed
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder, Placement
from jumok.models.gpt import GPT
from jumok.nn.attention import causal_mask
from jumok.nn.blocks import Block

NO_TARGET = -100  # PyTorch's own sign for a position whose prediction does not count

# --- the models -------------------------------------------------------------------------------------------------------


def gpt_logits(model: GPT, ids: Tensor) -> Tensor:
    """A whole GPT from its parameters: embeddings, blocks, the last norm, and a product with the output layer.

    Args:
        model: of any family. ids: (B, T).

    Returns:
        (B, T, V); equal to `model(ids)` in eval mode.
    """
    t = ids.shape[1]
    x = embed(ids, model.token_embedding, model.position_embedding)  # (B, T, C)
    for block in model.blocks:
        assert isinstance(block, Block)
        attend = None  # the block's own, causal
        if model.cos is not None and model.sin is not None:
            attend = partial(attend_with_rotary, block.attention, cos=model.cos[:t], sin=model.sin[:t], causal=True)
        x = run_block(block, x, attend)  # (B, T, C)
    x = apply_norm(model.norm, x)  # (B, T, C)
    return x @ model.head.weight.T  # (B, T, V)


def encode(blocks: Iterable[nn.Module], x: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """A stack of blocks in which everyone looks at everyone.

    Args:
        blocks: made with causal=False. x: (B, S, C), embeddings with positions. mask: broadcastable to (B, H, S, S),
            for padding.

    Returns:
        (B, S, C); equal to the production blocks one after the other, `block(x, mask=mask)`, in eval mode.

    Raises:
        ValueError: a block is causal, or looks across.
    """
    for block in blocks:
        assert isinstance(block, Block)
        if block.causal or block.cross_attention is not None:
            raise ValueError("an encoder's block sees both sides of its own text; make it with causal=False")
        x = run_block(block, x, partial(attend_by_heads, block.attention, mask=mask))  # (B, S, C)
    return x


def decode(blocks: Iterable[nn.Module], x: Tensor, encoded: Tensor, *, encoded_mask: Tensor | None = None) -> Tensor:
    """A stack of blocks that look back at their own text, then across at another one.

    Args:
        blocks: made with causal=True, cross=True. x: (B, T, C), embeddings with positions of what is written so far.
        encoded: (B, S, C), the last output of the encoder: every block makes its cross keys and values out of it.
        encoded_mask: broadcastable to (B, H, T, S), for padding.

    Returns:
        (B, T, C); equal to the production blocks one after the other, `block(x, context=encoded,
        context_mask=encoded_mask)`, in eval mode.

    Raises:
        ValueError: a block is not causal, or does not look across.
    """
    for block in blocks:
        assert isinstance(block, Block)
        if not block.causal or block.cross_attention is None:
            raise ValueError("a decoder's block looks back and across; make it with cross=True, and not causal=False")
        x = run_block(block, x, context=encoded, context_mask=encoded_mask)  # (B, T, C)
    return x


def bert_logits(model: BERT, ids: Tensor) -> Tensor:
    """A whole BERT for hidden words from its parameters: the sum of three embeddings, an encoder, a layer, the table.

    Args:
        model: with head="mlm". ids: (B, T), one text each and no padding.

    Returns:
        (B, T, V); equal to `model.mlm_logits(model(ids))` in eval mode.

    Raises:
        ValueError: the model has another head.
    """
    head = model.mlm_head
    if head is None:
        raise ValueError(f'the head is {model.config.head!r}; this needs "mlm", as BERTConfig(head="mlm") gives it')
    x = embed(ids, model.token_embedding, model.position_embedding) + model.type_embedding.weight[0]  # (B, T, C)
    x = encode(model.blocks, apply_norm(model.embedding_norm, x))  # (B, T, C)
    x = apply_norm(head.norm, F.gelu(x @ head.dense.weight.T + head.dense.bias))  # (B, T, C)
    return x @ model.token_embedding.weight.T + head.bias  # (B, T, V)


def encoder_decoder_logits(model: EncoderDecoder, source_ids: Tensor, target_ids: Tensor) -> Tensor:
    """A whole encoder–decoder from its parameters: one stack reads the source, the other writes the target.

    Args:
        model: of any family. source_ids: (B, S), without padding. target_ids: (B, T), what is written so far.

    Returns:
        (B, T, V); equal to `model(source_ids, target_ids)` in eval mode.
    """
    encoded = encode(model.encoder, _placed(model, model.source_placement, source_ids))  # (B, S, C)
    x = decode(model.decoder, _placed(model, model.target_placement, target_ids), encoded)  # (B, T, C)
    return x @ model.token_embedding.weight.T + model.output_bias  # (B, T, V)


def _placed(model: EncoderDecoder, placement: Placement, ids: Tensor) -> Tensor:
    """Embeddings with positions, learned or sinusoidal, (B, T) -> (B, T, C)."""
    learned = placement.position_embedding
    table = placement.positions if learned is None else learned.weight
    assert table is not None
    x = embed(ids, model.token_embedding) * model.scale + table[: ids.shape[1]]  # (B, T, C)
    return apply_norm(placement.norm, x)


# --- who looks at whom ------------------------------------------------------------------------------------------------


def gpt_mask(t: int) -> Tensor:
    """(T, T), bool: each position looks at itself and at those before it."""
    return causal_mask(t, t)


def bert_mask(t: int) -> Tensor:
    """(T, T), bool: each position looks at all."""
    return torch.ones(t, t, dtype=torch.bool)


def encoder_decoder_mask(s: int, t: int) -> Tensor:
    """The three attentions of an encoder–decoder in one square, the S source positions before the T target positions.

    Top left the encoder, which sees the whole source and nothing of the target; bottom left cross-attention, which
    sees the whole source; bottom right the decoder's own, which is causal.

    Returns:
        (S+T, S+T), bool. It says who can learn from whom. The model computes the encoder's rows once, and takes cross
        keys and values from its last output.
    """
    source = torch.cat((bert_mask(s), torch.zeros(s, t, dtype=torch.bool)), dim=1)  # (S, S+T)
    target = torch.cat((torch.ones(t, s, dtype=torch.bool), gpt_mask(t)), dim=1)  # (T, S+T)
    return torch.cat((source, target))  # (S+T, S+T)


# --- what is to be predicted ------------------------------------------------------------------------------------------


def next_tokens(ids: Tensor) -> tuple[Tensor, Tensor]:
    """GPT's task: at each position, the token after it.

    Args:
        ids: (B, T+1).

    Returns:
        Inputs and targets, (B, T) each.
    """
    return ids[:, :-1], ids[:, 1:]


def masked_tokens(ids: Tensor, places: Sequence[int], mask_id: int) -> tuple[Tensor, Tensor]:
    """BERT's task: tokens that are hidden, from those on both sides.

    The paper hides 15 % of the tokens, drawn anew each time; of these it replaces only 80 % by the mask token, 10 % by
    some other token, and leaves 10 % as they are, since no mask token will occur when the model is used.

    Args:
        ids: (B, T). places: positions to hide, the same in each sequence. mask_id: what stands there instead.

    Returns:
        Inputs and targets, (B, T) each; the target is NO_TARGET wherever nothing is hidden.
    """
    inputs, targets = ids.clone(), torch.full_like(ids, NO_TARGET)
    for place in places:
        inputs[:, place] = mask_id
        targets[:, place] = ids[:, place]
    return inputs, targets


def shifted_target(target: Tensor, start_id: int, end_id: int) -> tuple[Tensor, Tensor]:
    """The decoder's task: GPT's, on a target that has a sign before it and one after it.

    Args:
        target: (B, T). start_id: what the first token is predicted from. end_id: what says that the text is over.

    Returns:
        Inputs and targets of the decoder, (B, T+1) each.
    """
    column = torch.ones_like(target[:, :1])  # (B, 1)
    return next_tokens(torch.cat((start_id * column, target, end_id * column), dim=1))


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """How surprised a model is: -ln of the probability it gave to the right token, averaged over those that count.

    Args:
        logits: (B, T, V). targets: (B, T), NO_TARGET where nothing counts.

    Returns:
        A number in nats; equal to `torch.nn.functional.cross_entropy`. NaN if nothing counts.
    """
    counted = targets != NO_TARGET  # (B, T)
    right = targets[counted]  # (N,)
    chosen = logits[counted]  # (N, V)
    surprise = chosen.logsumexp(dim=-1) - chosen[torch.arange(len(right)), right]  # (N,)
    return surprise.mean()


# --- how many numbers -------------------------------------------------------------------------------------------------


def parameter_table(config: GPTConfig) -> dict[str, int]:
    """The trained numbers of a GPT by formula, part by part; their sum is `GPT(config).parameter_count()`."""
    block = config.block()
    c, hidden = config.n_embd, config.mlp_width
    heads, kv_heads = config.n_head * config.head_dim, config.n_kv_head * config.head_dim
    attention = 2 * c * heads + 2 * c * kv_heads  # q and o, k and v
    mlp = (3 if block.gated else 2) * c * hidden
    norm = 2 * c if block.norm == "layer" else c  # weight and bias, or weight alone
    norms = 2 * norm
    if block.bias:
        attention += heads + 2 * kv_heads + c
        mlp += hidden + c
    if block.qk_norm:
        norms += 2 * config.head_dim
    return {
        "token embedding": config.vocab_size * c,
        "position embedding": config.context_length * c if config.family == "classic" else 0,
        "attention": config.n_layer * attention,
        "mlp": config.n_layer * mlp,
        "norms": config.n_layer * norms + norm,
        "head": 0 if config.tie_embeddings else config.vocab_size * c,
    }
