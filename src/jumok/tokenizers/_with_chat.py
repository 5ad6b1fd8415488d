"""`with_chat`: a tokenizer with the template of jumok and its special tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jumok.tokenizers._own_template import CHAT_TOKENS, END, TEMPLATE, TEMPLATE_AFTER_BOS
from jumok.tokenizers._pipeline import added_token
from jumok.tokenizers._tokenizer import Tokenizer
from tokenizers import Tokenizer as HFTokenizer


def with_chat(tokenizer: Tokenizer, before: Sequence[int] = ()) -> Tokenizer:
    """Return a tokenizer with a chat template: itself if it has one, or a copy with the template of jumok.

    The copy has the tokens of the template as its last ids, and `<|end|>` as its eos_token. It encodes texts as before.

    Args:
        before: the ids that the model reads before each text. One special token there also begins each conversation,
            because llama.cpp puts it before all texts or before none.
    """
    if tokenizer.chat_templates:
        return tokenizer
    content = json.loads(tokenizer.to_json())
    if tokenizer.kind != "other":  # its special tokens are in the vocabulary
        vocab = content["model"]["vocab"]
        vocab |= {token: len(vocab) + i for i, token in enumerate(one for one in CHAT_TOKENS if one not in vocab)}
    pipeline = HFTokenizer.from_str(json.dumps(content))
    pipeline.add_tokens([added_token(token) for token in CHAT_TOKENS])
    new = Tokenizer(pipeline)
    new.roles = {**tokenizer.roles, "eos_token": END}
    new.chat_templates = {"default": TEMPLATE}
    bos = next((token for token, i in tokenizer.special_tokens.items() if [i] == list(before)), None)
    if bos is not None:
        new.roles["bos_token"] = bos
        new.chat_templates = {"default": TEMPLATE_AFTER_BOS}
    return new
