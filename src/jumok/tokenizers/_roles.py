"""The roles of special tokens, by the names that transformers uses."""

from __future__ import annotations

# What transformers calls the roles of special tokens, and the usual names of the tokens.
ROLES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("[BOS]", "<s>"),
    "eos_token": ("[EOS]", "</s>"),
}
