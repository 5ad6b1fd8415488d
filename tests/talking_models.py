"""Tiny GPTs with a chat template, for tests: random ones, and one that has learned a few conversations by heart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from jumok.config import GPTConfig
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

TEXT = "나는 학교에 갔다. 그리고 친구와 집에 왔다! 하나 둘 셋 넷, 다섯 여섯? <think>|1234567890\n" * 4
TOKENS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>"]
TEMPLATE = """\
{% for message in messages %}<|{{ message.role }}|>
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""


def byte_level() -> HFTokenizer:
    """As of Llama 3: its tokens are bytes."""
    pipeline = HFTokenizer(
        models.BPE(vocab={one: i for i, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return pipeline


def metaspace() -> HFTokenizer:
    """As of Llama 2: it puts a space before a text, and after each special token in it."""
    letters = dict.fromkeys(["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁<|>im_endINST[]"])
    vocab = {letter: i for i, letter in enumerate(letters)}
    pipeline = HFTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pipeline.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return pipeline


def random(tokenizer: Tokenizer, **config: Any) -> GPT:
    """A random GPT with a tokenizer."""
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "context_length": 128, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**{**sizes, **config})).eval()
    model.tokenizer = tokenizer
    return model


def talking(special: Sequence[str] = TOKENS, template: str | None = TEMPLATE, seed: int = 0, **config: Any) -> GPT:
    """A random GPT with a chat template."""
    content = json.loads(train_tokenizer(TEXT, "char").to_json())
    vocab = content["model"]["vocab"]
    vocab |= {token: len(vocab) + i for i, token in enumerate(special)}
    pipeline = HFTokenizer.from_str(json.dumps(content))
    pipeline.add_tokens([AddedToken(one, special="think" not in one, normalized=False) for one in special])
    tokenizer = Tokenizer(pipeline)
    if template is not None:
        tokenizer.chat_templates = {"default": template}
        tokenizer.roles = {"eos_token": "<|end|>"}
    torch.manual_seed(seed)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 128, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**{**sizes, **config})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


LEARNED: list[list[dict[str, str]]] = [
    [
        {"role": "user", "content": "나는 학교에 갔다."},
        {"role": "assistant", "content": "그리고 집에 왔다!"},
        {"role": "user", "content": "하나 둘?"},
        {"role": "assistant", "content": "셋 넷", "reasoning_content": "하나 둘 셋 넷, 다섯"},
    ],
    [
        {"role": "system", "content": "친구"},
        {"role": "user", "content": "하나 둘?"},
        {"role": "assistant", "content": "다섯 여섯?"},
    ],
]


def taught(kind: str = "char", steps: int = 60) -> GPT:
    """A GPT with the template of jumok that has learned the answers of LEARNED, ends and reasoning included."""
    tokenizer = with_chat(train_tokenizer(TEXT, kind, **({"vocab_size": 400} if kind == "bpe" else {})))  # type: ignore[arg-type]
    assert tokenizer.chat is not None
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 128, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**sizes, eos_ids=tuple(tokenizer.chat.ends.values())))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)
    rows = [tokenizer.chat.encode_whole(one) for one in LEARNED]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        for ids, mask in rows:
            logits = model.head(model.hidden(torch.tensor([ids[:-1]])))[0]  # (T, V)
            learned = torch.tensor(mask[1:])
            nn.functional.cross_entropy(logits[learned], torch.tensor(ids[1:])[learned]).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.tokenizer = tokenizer
    return model.eval()


def looping(cycle: str = "나는 학교에", kind: str = "char", **config: Any) -> GPT:
    """A GPT that answers with the tokens of a text, all different, again and again: its last token alone decides."""
    tokenizer = with_chat(train_tokenizer(TEXT, kind, **({"vocab_size": 400} if kind == "bpe" else {})))  # type: ignore[arg-type]
    vocab = tokenizer.vocab_size
    sizes = {"n_layer": 1, "n_head": 1, "n_embd": vocab + vocab % 2, "context_length": 512, "vocab_size": vocab}
    model = build(GPTConfig(**{**sizes, "tie_embeddings": False, **config})).eval()
    ids = tokenizer.encode(cycle).tolist()
    assert len(set(ids)) == len(ids)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
        model.token_embedding.weight.copy_(torch.eye(*model.token_embedding.weight.shape))
        follows = torch.full((vocab,), ids[0])
        follows[ids] = torch.tensor([*ids[1:], ids[0]])
        model.head.weight.zero_()
        model.head.weight[follows, torch.arange(vocab)] = 1.0
    model.tokenizer = tokenizer
    return model
