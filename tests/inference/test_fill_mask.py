"""Blanks are filled in the right order, from the right window, readably; and what cannot be filled says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM

import jumok
from foreign_tokenizers import roberta, unigram
from jumok.cli.generate import fill_in
from jumok.config import BERTConfig, GPTConfig
from jumok.errors import ConfigError, JumokError, TokenizerError
from jumok.inference.fill_mask import FilledText, fill_mask
from jumok.models import build
from jumok.models.bert import BERT
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import Tokenizer, train_tokenizer
from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다. 나는 책을 읽었다.\n"
MASKED = "나는 책을 [MASK]었다."
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "나", "##는", "책", "##을", "읽", "##었", "##다", "."]


def tokenizer(kind: str = "char") -> Tokenizer:
    options = {"vocab_size": 330} if kind == "bpe" else {}
    return train_tokenizer(TEXT * 8, kind, **options, special_tokens=SPECIAL_TOKENS)


def scrambled(model: Any) -> Any:
    """With weights large enough that every token and every place matters."""
    torch.manual_seed(5)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.double().eval()


def tiny(kind: str = "char", *, context_length: int = 24, extra: int = 0, **fields: Any) -> BERT:
    """A random BERT; `extra` ids more than its tokenizer has."""
    words = tokenizer(kind)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": context_length, **fields}
    model = scrambled(build(BERTConfig(vocab_size=words.vocab_size + extra, pad_id=0, **sizes)))
    model.tokenizer = words
    return model


class Backwards(BERT):
    """Knows 가나다라 from behind: surely what stands before a token, and nothing of what stands before [MASK]."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        return F.one_hot(ids.roll(-1, dims=1), self.config.vocab_size).float()  # (B, T, V): the id that follows

    def mlm_logits(self, hidden: Tensor) -> Tensor:
        assert self.tokenizer is not None
        table = torch.zeros(self.config.vocab_size, self.config.vocab_size)
        for before, after in ("가나", "나다", "다라"):
            table[self.tokenizer.encode(after)[0], self.tokenizer.encode(before)[0]] = 9.0
        return hidden @ table


def backwards() -> Backwards:
    words = train_tokenizer("가나다라" * 3, special_tokens=SPECIAL_TOKENS)
    model = Backwards(BERTConfig(vocab_size=words.vocab_size, n_layer=1, n_head=1, n_embd=4, context_length=12))
    model.tokenizer = words
    return model


# --- which blank, which token ---


def test_the_surest_blank_comes_first() -> None:
    """From left to right, or all at once, the first two would be guesses."""
    filled = fill_mask(backwards(), "[MASK][MASK][MASK]라")
    assert filled.text == "가나다라"
    assert [blank.candidates[0].token for blank in filled.masks] == ["가", "나", "다"]
    assert [blank.position for blank in filled.masks] == [0, 6, 12]
    assert all(blank.candidates[0].probability > 0.9 for blank in filled.masks)


def test_candidates_are_the_softmax_of_the_model() -> None:
    model = tiny()
    words = model.tokenizer
    assert words is not None
    mask = words.special_tokens["[MASK]"]
    ids = [*words.encode("나는 책을 ").tolist(), mask, *words.encode("었다.").tolist()]
    framed = [words.special_tokens["[CLS]"], *ids, words.special_tokens["[SEP]"]]
    shares = model.mlm_logits(model(torch.tensor([framed])))[0, 7].softmax(0)
    shares[list(words.special_tokens.values())] = -1
    filled = fill_mask(model, MASKED, top=7)
    (blank,) = filled.masks
    assert blank.position == 6
    assert [share for _, _, share in blank.candidates] == pytest.approx(shares.topk(7).values.tolist())
    assert [token for _, token, _ in blank.candidates] == words.pieces(shares.topk(7).indices.tolist())
    best = int(shares.argmax())
    assert filled.text == words.decode([best if i == mask else i for i in ids])


def test_no_special_token_and_no_unknown_id_is_a_candidate() -> None:
    """Published models have more ids than their tokenizers; what those would read as, nobody knows."""
    model = tiny(extra=3)
    words = model.tokenizer
    assert words is not None
    assert model.mlm_head is not None
    model.mlm_head.bias.data[-3:] = 1e4
    model.mlm_head.bias.data[list(words.special_tokens.values())] = 1e3
    (blank,) = fill_mask(model, MASKED, top=10_000).masks
    assert len(blank.candidates) == words.vocab_size - len(words.special_tokens)
    assert {token for _, token, _ in blank.candidates}.isdisjoint(SPECIAL_TOKENS)


def test_a_text_may_be_longer_than_the_context() -> None:
    """Each blank is seen in the middle of a window of its own."""
    model = tiny(context_length=12)  # 10 of the text
    assert model.tokenizer is not None
    assert model.mlm_head is not None
    model.mlm_head.bias.data[model.tokenizer.encode("책")] += 1e3  # bytes alone would not read as they are listed
    head, tail = "너는 밥을 먹었다. " * 40, " 나는 학교에 갔다." * 40
    filled = fill_mask(model, f"{head}[MASK]{tail}[MASK]")
    first, last = (blank.candidates for blank in filled.masks)
    near = fill_mask(model, f"{head[-5:]}[MASK]{tail[:4]}").masks[0].candidates
    end = fill_mask(model, f"{tail[-9:]}[MASK]").masks[0].candidates
    for found, wanted in ((first, near), (last, end)):
        assert found[0].token == "책"
        assert [token for _, token, _ in found] == [token for _, token, _ in wanted]
        assert [share for _, _, share in found] == pytest.approx([share for _, _, share in wanted])
    assert filled.text == f"{head}책{tail}책"


def test_more_blanks_than_a_batch_of_windows() -> None:
    model = tiny(context_length=6)
    filled = fill_mask(model, "[MASK]는 책을 " * 40)
    assert len(filled.masks) == 40
    assert "[MASK]" not in filled.text


# --- kinds of tokenizers ---


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_the_rest_of_the_text_stays(kind: str) -> None:
    filled = fill_mask(tiny(kind), f"{TEXT}[MASK]{TEXT}")
    assert filled.text.startswith(TEXT)
    assert filled.text.endswith(TEXT)
    assert len(filled.text) > 2 * len(TEXT)


def test_bpe_candidates_carry_the_blank_that_was_written() -> None:
    """The piece " 책을" holds the blank before the word. After "나는 " a model could say nothing but a second blank,
    and "나는[MASK]" could grow one that nobody wrote."""
    model = tiny("bpe")
    for text, carries in (("나는 [MASK] 읽었다", True), ("나는[MASK] 읽었다", False), ("[MASK] 읽었다", False)):
        filled = fill_mask(model, text, top=50)
        tokens = [token for _, token, _ in filled.masks[0].candidates]
        words = [token for token in tokens if token.strip()]
        assert words
        assert words == tokens or not carries
        assert all(token.startswith(" ") == carries for token in words)
        before, after = text.split("[MASK]")
        if "<" not in tokens[0]:  # whole characters
            assert filled.text == before.removesuffix(" ") + tokens[0] + after


def stock_folder(folder: Path) -> Any:
    """A random BertForMaskedLM with WordPiece."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDPIECE) + "\n", encoding="utf-8")
    settings = {"do_lower_case": False, "tokenizer_class": "BertTokenizer", "model_max_length": 16}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 20}
    model = scrambled(BertForMaskedLM(BertConfig(vocab_size=len(WORDPIECE), max_position_embeddings=16, **sizes)))
    model.save_pretrained(folder)
    return model


def test_a_stock_model_with_wordpiece(tmp_path: Path) -> None:
    stock = stock_folder(tmp_path / "stock")
    model = jumok.load(tmp_path / "stock")
    ids = torch.tensor([[WORDPIECE.index(piece) for piece in ("[CLS]", "나", "##는", "[MASK]", "읽", ".", "[SEP]")]])
    shares = stock(ids).logits[0, 3].softmax(0)
    shares[:5] = -1  # its special tokens
    filled = fill_mask(model, "나는 [MASK] 읽.", top=3)
    found = filled.masks[0].candidates
    assert [token for _, token, _ in found] == [WORDPIECE[i] for i in shares.topk(3).indices.tolist()]
    assert [share for _, _, share in found] == pytest.approx(shares.topk(3).values.tolist())


@pytest.mark.parametrize(("token", "text"), [("##을", "나는을 읽."), ("책", "나는 책 읽.")])
def test_a_wordpiece_that_continues_a_word_stands_close_to_it(tmp_path: Path, token: str, text: str) -> None:
    stock_folder(tmp_path / "stock")
    model = jumok.load(tmp_path / "stock", kind=BERT)
    assert model.mlm_head is not None
    model.mlm_head.bias.data[WORDPIECE.index(token)] = 1e4
    filled = fill_mask(model, "나는 [MASK] 읽.")
    assert filled.masks[0].candidates[0].token == token
    assert filled.text == text


def published(folder: Path, made: HFTokenizer) -> tuple[BERT, Any]:
    """A random RoBERTa with a tokenizer of another program; the model, and fill-mask of transformers."""
    from transformers import AutoTokenizer, RobertaConfig, RobertaForMaskedLM, pipeline

    size = made.get_vocab_size()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    stock = scrambled(RobertaForMaskedLM(RobertaConfig(vocab_size=size, max_position_embeddings=34, **sizes)))
    stock.save_pretrained(folder)
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "<mask>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    words = AutoTokenizer.from_pretrained(folder)
    return jumok.load(folder, kind=BERT), pipeline("fill-mask", model=stock, tokenizer=words, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["나는 <mask> 갔다.", "<mask> 학교에 갔다.", "나는 학교에 <mask>", "나는<mask> 학교에 갔다."]
)
@pytest.mark.parametrize("made", [roberta, unigram])
def test_a_mask_with_the_space_before_it(tmp_path: Path, made: Any, text: str) -> None:
    """<mask> of RoBERTa includes that space. It came in as a lone Ġ or ▁, and the filled text had two spaces."""
    model, stock = published(tmp_path, made(False) if made is roberta else made())
    tokenizer = model.tokenizer
    assert tokenizer is not None
    special = tokenizer.special_tokens.values()
    theirs = [one for one in stock(text, top_k=tokenizer.vocab_size) if one["token"] not in special]
    ours = fill_mask(model, text, top=tokenizer.vocab_size).masks[0].candidates
    # transformers divides by the sum over all tokens, too
    assert [one.id for one in ours[:20]] == [one["token"] for one in theirs[:20]]
    assert [one.probability for one in ours] == pytest.approx([one["score"] for one in theirs], abs=1e-6)
    assert model.mlm_head is not None
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    word = next(i for i, piece in enumerate(pieces) if piece[0] in "Ġ▁" and len(piece) > 2)
    inside = next(i for i, piece in enumerate(pieces) if piece in ("나", "ëĬĶ"))  # the bytes of 는
    for chosen in (word, inside):
        with torch.no_grad():
            model.mlm_head.bias.zero_()
            model.mlm_head.bias[chosen] = 1e4
            stock.model.lm_head.decoder.bias.copy_(model.mlm_head.bias)
        answer = stock(text, top_k=1)[0]
        assert answer["token"] == chosen
        assert fill_mask(model, text).text == answer["sequence"]


@pytest.mark.slow
def test_a_mask_that_the_tokenizer_does_not_find(tmp_path: Path) -> None:
    """Its mask is a word of its own. The text before and after was encoded alone, and a mask put between."""
    made = roberta(False)
    made.add_special_tokens([AddedToken("<mask>", single_word=True, special=True)])
    model, _ = published(tmp_path, made)
    with pytest.raises(ConfigError, match="reads 1 of the 2 <mask> in the text as the token; write a space"):
        fill_mask(model, "나는 <mask> 학교에<mask>갔다")


# --- what cannot be filled ---


@pytest.mark.parametrize("text", ["", "나는 책을 읽었다", "나는 [mask] 읽었다", "나는 <mask> 읽었다"])
def test_a_text_without_a_blank(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the text has no \[MASK\].*write it where"):
        fill_mask(tiny(), text)


@pytest.mark.parametrize("top", [0, -3])
def test_too_few_candidates(top: int) -> None:
    with pytest.raises(ConfigError, match=f"top={top} is out of range: it must be at least 1"):
        fill_mask(tiny(), MASKED, top)


def test_a_tokenizer_without_the_token() -> None:
    model = tiny()
    model.tokenizer = train_tokenizer(TEXT, special_tokens=["[PAD]", "[CLS]"])
    with pytest.raises(TokenizerError, match=r"needs a tokenizer with \[MASK\] / <mask>.*this one has \[PAD\], \[CLS"):
        fill_mask(model, MASKED)
    model.tokenizer = train_tokenizer(TEXT)
    with pytest.raises(TokenizerError, match="this one has none at all"):
        fill_mask(model, MASKED)
    model.tokenizer = None
    with pytest.raises(TokenizerError, match="this model has no tokenizer"):
        fill_mask(model, MASKED)


def test_a_model_that_fills_nothing() -> None:
    with pytest.raises(
        JumokError, match='a BERT with head="pooler", and masked tokens are predicted by a BERT with head="mlm"'
    ):
        fill_mask(tiny(head="pooler"), MASKED)
    with pytest.raises(JumokError, match="this model is a GPT"):
        fill_mask(build(GPTConfig(vocab_size=300, n_layer=1, n_head=1, n_embd=4, context_length=4)), MASKED)


def test_damaged_weights() -> None:
    model = tiny()
    model.token_embedding.weight.data[:] = torch.nan
    with pytest.raises(JumokError, match="not finite"):
        fill_mask(model, MASKED)


# --- in a terminal ---


def test_it_prints_the_text_and_its_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    fill_in(backwards(), "가[MASK]다라", top=2, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "가나다라"
    assert lines[1].split() == ["blank", "probability", "token"]
    assert lines[2].split() == ["1", "96.9%", "나"]
    assert len(lines) == 4


def test_json_has_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    model = backwards()
    fill_in(model, "가[MASK]다라", top=2, as_json=True)
    told = json.loads(capsys.readouterr().out)
    wanted: FilledText = fill_mask(model, "가[MASK]다라", top=2)
    assert told == {
        "text": "가나다라",
        "prompt": "가[MASK]다라",
        "blanks": [
            {
                "position": 1,
                "candidates": [
                    {"token": token, "probability": pytest.approx(share, abs=1e-6)}
                    for _, token, share in wanted.masks[0].candidates
                ],
            }
        ],
    }
