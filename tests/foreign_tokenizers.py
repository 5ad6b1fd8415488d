"""Small tokenizers of the kinds that published models have, trained on a few sentences."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as HFTokenizer

TEXT = [
    "나는 학교에 갔다.", "너는 밥을 먹었다!", "우리는 집에 갔다, 그리고 쉬었다.", "Hello World, HELLO world",
    "it's 3.14%", "漢字 東京 學校", "Café café naïve",
] * 8  # fmt: skip
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def word_piece() -> HFTokenizer:
    pipeline = HFTokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=False)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    both = [*TEXT, *map(str.lower, TEXT), "cafe naive"]
    pipeline.train_from_iterator(
        both, trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    )
    pipeline.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    return pipeline


def byte_level(prefix: bool, *, split: bool = False, special: tuple[str, ...] = ("<|endoftext|>",)) -> HFTokenizer:
    pipeline = HFTokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if split:
        pieces = pre_tokenizers.Split(Regex(PIECES), "isolated")
        pipeline.pre_tokenizer = pre_tokenizers.Sequence(
            [pieces, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)]
        )
        pipeline.normalizer = normalizers.NFC()
    pipeline.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    pipeline.train_from_iterator(TEXT, trainer)
    return pipeline


def neox(prefix: bool) -> HFTokenizer:
    pipeline = byte_level(prefix)
    pipeline.normalizer = normalizers.NFC()
    return pipeline


def roberta(prefix: bool) -> HFTokenizer:
    pipeline = byte_level(prefix, special=("<s>", "<pad>", "</s>", "<unk>"))
    pipeline.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    pipeline.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=prefix)
    return pipeline


def unigram() -> HFTokenizer:
    """As of XLM-RoBERTa."""
    pieces = HFTokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=220, special_tokens=special, unk_token="<unk>", show_progress=False)
    pieces.train_from_iterator(TEXT, trainer)
    pieces.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    pieces.decoder = decoders.Metaspace()
    pieces.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    pieces.post_processor = processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 0), ("</s>", 2)])
    return pieces


def llama() -> HFTokenizer:
    pipeline = HFTokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>"]
    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    pipeline.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=400, special_tokens=[*special, *letters], show_progress=False)
    )
    content = json.loads(pipeline.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    return HFTokenizer.from_str(json.dumps(content))
