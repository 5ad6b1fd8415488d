"""The roles of special tokens."""

from __future__ import annotations

# From the names of the roles in transformers to the usual tokens.
ROLES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("[BOS]", "<s>"),
    "eos_token": ("[EOS]", "</s>"),
}
