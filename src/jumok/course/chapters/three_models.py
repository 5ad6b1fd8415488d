"""Chapter 9, three models from one block: GPT, BERT, and the encoder–decoder.

The block is the same. The models differ in which positions attend to which, where keys and values come from, and what
is predicted. The functions compute whole models from their parameters, with the functions of earlier chapters:
embeddings and rotary positions of chapter 8, the block of chapter 7, heads of chapter 6.

Shapes use the legend of `jumok.nn.attention`.

Sources: GPT-2, https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf;
BERT, https://arxiv.org/abs/1810.04805; the encoder–decoder, https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import BERT, GPT, EncoderDecoder
from jumok.config import GPTConfig
from jumok.course.chapters.block_parts import apply_norm, run_block
from jumok.course.chapters.cross_attention import decoder_block, encoder_block
from jumok.course.chapters.positions import attend_with_rotary, embed
from jumok.models.encoder_decoder import Placement
from jumok.nn import Block, causal_mask

NO_TARGET = -100  # PyTorch's default index for targets that are ignored

# --- the models -------------------------------------------------------------------------------------------------------


def gpt_logits(model: GPT, ids: Tensor) -> Tensor:
    """A whole GPT from its parameters: embeddings, blocks, the final norm, and the output layer.

    Args:
        model: of any family. ids: (B, T).

    Returns:
        (B, T, V); equal to `model(ids)` in eval mode.

    Raises:
        ValueError: a layer has a sliding window that is shorter than the text.
    """
    if any((model.config.window(i) or ids.shape[1]) < ids.shape[1] for i in range(model.config.n_layer)):
        raise ValueError("this lesson has no sliding windows; give a text that fits into the window")
    angles = model.angles(0, ids.shape[1])
    x = embed(ids, model.token_embedding, model.position_embedding)  # (B, T, C)
    for block in model.blocks:
        assert isinstance(block, Block)
        attend = None  # the causal attention of the block
        if angles is not None:
            attend = partial(attend_with_rotary, block.attention, cos=angles[0], sin=angles[1], causal=True)
        x = run_block(block, x, attend)  # (B, T, C)
    x = apply_norm(model.norm, x)  # (B, T, C)
    return x @ model.head.weight.T  # (B, T, V)


def encode(blocks: Iterable[nn.Module], x: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """A stack of encoder blocks, in which every position attends to all positions.

    Args:
        blocks: made with causal=False. x: (B, S, C), embeddings with positions. mask: broadcastable to (B, H, S, S),
            for padding.

    Returns:
        (B, S, C); equal to the production blocks one after the other, `block(x, mask=mask)`, in eval mode.

    Raises:
        ValueError: a block is causal or has cross-attention.
    """
    for block in blocks:
        assert isinstance(block, Block)
        x = encoder_block(block, x, mask=mask)  # (B, S, C)
    return x


def decode(blocks: Iterable[nn.Module], x: Tensor, encoded: Tensor, *, encoded_mask: Tensor | None = None) -> Tensor:
    """A stack of decoder blocks: each has causal self-attention over the target and cross-attention over the source.

    Args:
        blocks: made with causal=True, cross=True. x: (B, T, C), embeddings with positions of the target so far.
        encoded: (B, S, C), the last output of the encoder, from which every block computes its cross keys and values.
        encoded_mask: broadcastable to (B, H, T, S), for padding.

    Returns:
        (B, T, C); equal to the production blocks one after the other, `block(x, context=encoded,
        context_mask=encoded_mask)`, in eval mode.

    Raises:
        ValueError: a block is not causal or has no cross-attention.
    """
    for block in blocks:
        assert isinstance(block, Block)
        x = decoder_block(block, x, encoded, context_mask=encoded_mask)  # (B, T, C)
    return x


def bert_logits(model: BERT, ids: Tensor) -> Tensor:
    """A whole BERT with its MLM head from its parameters: embeddings, encoder, a dense layer, and the output layer.

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
    """A whole encoder–decoder from its parameters: one stack processes the source, the other the target.

    Args:
        model: of any family. source_ids: (B, S), without padding. target_ids: (B, T), the target so far.

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


# --- masks ------------------------------------------------------------------------------------------------------------


def gpt_mask(t: int) -> Tensor:
    """(T, T), bool: each position attends to itself and to those before it."""
    return causal_mask(t, t)


def bert_mask(t: int) -> Tensor:
    """(T, T), bool: each position attends to all."""
    return torch.ones(t, t, dtype=torch.bool)


def encoder_decoder_mask(s: int, t: int) -> Tensor:
    """The masks of the three attentions of an encoder–decoder in one matrix: S source, then T target positions.

    Upper left: encoder self-attention over the whole source. Lower left: cross-attention over the whole source. Lower
    right: causal decoder self-attention.

    Returns:
        (S+T, S+T), bool: which positions depend on which. The model computes the encoder once and takes cross keys and
        values from its last output.
    """
    source = torch.cat((bert_mask(s), torch.zeros(s, t, dtype=torch.bool)), dim=1)  # (S, S+T)
    target = torch.cat((torch.ones(t, s, dtype=torch.bool), gpt_mask(t)), dim=1)  # (T, S+T)
    return torch.cat((source, target))  # (S+T, S+T)


# --- targets ----------------------------------------------------------------------------------------------------------


def next_tokens(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The task of GPT: predict the next token at each position.

    Args:
        ids: (B, T+1).

    Returns:
        Inputs and targets, (B, T) each.
    """
    return ids[:, :-1], ids[:, 1:]


def masked_tokens(ids: Tensor, places: Sequence[int], mask_id: int) -> tuple[Tensor, Tensor]:
    """The task of BERT: predict masked tokens from both sides.

    The paper hides 15 % of the tokens, chosen at random each time. It replaces 80 % of them by the mask token and 10 %
    by a random token, and leaves 10 % unchanged, because there are no mask tokens when the model is used.

    Args:
        ids: (B, T). places: positions to hide, the same in each sequence. mask_id: the id that replaces them.

    Returns:
        Inputs and targets, (B, T) each; the target is NO_TARGET where nothing is hidden.
    """
    inputs, targets = ids.clone(), torch.full_like(ids, NO_TARGET)
    for place in places:
        inputs[:, place] = mask_id
        targets[:, place] = ids[:, place]
    return inputs, targets


def shifted_target(target: Tensor, start_id: int, end_id: int) -> tuple[Tensor, Tensor]:
    """The task of a decoder: predict the next token of a target that begins and ends with a special token.

    Args:
        target: (B, T). start_id: the start token, from which the first token is predicted. end_id: the end token.

    Returns:
        Inputs and targets of the decoder, (B, T+1) each.
    """
    column = torch.ones_like(target[:, :1])  # (B, 1)
    return next_tokens(torch.cat((start_id * column, target, end_id * column), dim=1))


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy: the mean of -ln of the probability of the right token.

    Args:
        logits: (B, T, V). targets: (B, T), NO_TARGET at positions to ignore.

    Returns:
        A scalar in nats; equal to `torch.nn.functional.cross_entropy`. NaN if all positions are ignored.
    """
    counted = targets != NO_TARGET  # (B, T)
    right = targets[counted]  # (N,)
    chosen = logits[counted]  # (N, V)
    surprise = chosen.logsumexp(dim=-1) - chosen[torch.arange(len(right)), right]  # (N,)
    return surprise.mean()


# --- number of parameters ---------------------------------------------------------------------------------------------


def parameter_table(config: GPTConfig) -> dict[str, int]:
    """The number of parameters of each part of a GPT, by formula; the sum is `GPT(config).parameter_count()`."""
    block = config.block()
    c, hidden = config.n_embd, config.mlp_width
    heads, kv_heads = config.n_head * config.head_dim, config.n_kv_head * config.head_dim
    attention = 2 * c * heads + 2 * c * kv_heads  # q and o, k and v
    mlp = (3 if block.gated else 2) * c * hidden
    norm = 2 * c if block.norm == "layer" else c  # weight and bias, or weight alone
    norms = 2 * norm
    if block.qkv_bias:
        attention += heads + 2 * kv_heads
    if block.out_bias:
        attention += c
    if block.mlp_bias:
        mlp += (2 if block.gated else 1) * hidden + c
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
