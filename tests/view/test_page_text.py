"""The JavaScript of a page reads tokens as Python does.

Both suites read tests/fixtures/token_text.json; what is drawn at random is written for tests/js/tokenizer.test.mjs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from jumok.corpora import stories
from jumok.errors import ViewError
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.page_tokenizer import require_readable, unreadable_part
from jumok.view.token_text import TokenNames
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HFTokenizer

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "fixtures" / "token_text.json"
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
# Characters that are joined, reordered, decomposed, invisible, white, or several UTF-16 units.
ODD = [
    *"가힣ㅎㅏ한글이라는 것은 A1 <=>~é\u0301\u0327ﬁ①Å㍿ﾊﾟ𝔸",
    *"\u1112\u1161\u11ab\u119e\u115f\u1160\ua960\ud7b0\u11f0\ud7cb\u302e",
    *" \u3000\xa0\u2003\u200b\ufeff\u200d\x85\x1c\x1f\t\n\r\x0b\x0c\u2028\x00\x7f",
    *"😀👨\u200d👩\u200d👧🇰🇷\U0001f1f0\u202e\U000e0041\uffff\U0010ffff",
    *"[MASK]</s><0xEA>'s\"`$",
]


def hostile(count: int) -> list[str]:
    """Strings of characters that tokenizers get wrong; the same each time."""
    draw = random.Random(18)
    whole = [
        "",
        "[MASK] 나는 [MASK]",
        "don't we'll",
        "가" * 300,
        "\u1100\u1161" * 40 + "\u11a8",
        "\ufeff가\ufeff",
        "<0xEA>",
    ]
    return whole + ["".join(draw.choices(ODD, k=draw.randint(1, 24))) for _ in range(count - len(whole))]


def run_node(name: str, **files: Path) -> None:
    """Run one file of tests/js; files are given as environment variables."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on this machine")
    done = subprocess.run(
        [node, "--test", str(ROOT / "tests" / "js" / name)],
        env={**os.environ, **{key: str(path) for key, path in files.items()}},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def expected(name: str, tokenizer: Tokenizer, texts: list[str], streams: list[list[int]]) -> dict[str, Any]:
    """What Python makes of some texts, and of some ids, as tests/fixtures/token_text.json has it."""
    return {
        "name": name,
        "kind": tokenizer.kind,
        "json": json.loads(tokenizer.to_json()),
        "texts": [{"text": text, "ids": tokenizer.encode(text).tolist()} for text in texts],
        "streams": [streamed(tokenizer, ids) for ids in streams],
    }


def streamed(tokenizer: Tokenizer, ids: list[int]) -> dict[str, Any]:
    stream, read = tokenizer.stream(), TokenNames(tokenizer).read(ids)
    return {
        "ids": ids,
        "parts": [stream.push(token) for token in ids],
        "rest": stream.flush().rstrip("\ufffd"),
        "decoded": tokenizer.decode(ids),
        "text": read["text"],
        "tokens": [list(token.values()) for token in read["tokens"]],
    }


def drawn(tokenizer: Tokenizer, texts: list[str], count: int) -> list[list[int]]:
    """Ids drawn at random, and those of texts with some left out."""
    draw = random.Random(7)
    found = [draw.choices(range(tokenizer.vocab_size), k=draw.randint(1, 30)) for _ in range(count)]
    known = [tokenizer.encode(text).tolist() for text in texts[:300]]
    found += [draw.sample(ids, k=5) for ids in known[::3] if len(ids) > 5]
    found += [ids[:-1] for ids, text in list(zip(known, texts, strict=False))[:100:2] if len(text) < 1000]
    # Node may know a newer Unicode.
    return [ids for ids in found if all(unicodedata.category(one) != "Cn" for one in tokenizer.decode(ids))]


def test_the_vectors_that_javascript_reads_too_are_those_of_python() -> None:
    for one in json.loads(VECTORS.read_text(encoding="utf-8"))["tokenizers"]:
        tokenizer = Tokenizer.from_json(json.dumps(one["json"]))
        texts, streams = ([each[key] for each in one[part]] for part, key in (("texts", "text"), ("streams", "ids")))
        for stream in one["streams"]:  # groups are made by the viewer alone
            del stream["groups"], stream["group_texts"]
        assert expected(one["name"], tokenizer, texts, streams) == one


def check_tokenizers(folder: Path, found: list[dict[str, Any]]) -> None:
    path = folder / "tokenizers.json"
    path.write_text(json.dumps({"tokenizers": found}), encoding="utf-8")
    run_node("tokenizer.test.mjs", JUMOK_TOKENIZERS=path)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    """A tokenizer of each kind, with and without special tokens."""
    text = "".join(stories.write(6_000, seed=1))
    return {
        "char": train_tokenizer(text, "char"),
        "char, special": train_tokenizer(text + "é\u0301", "char", special_tokens=SPECIAL),
        "jamo": train_tokenizer(text, "jamo", special_tokens=SPECIAL),
        "bpe": train_tokenizer(text + "don't we'll 1234 ", "bpe", vocab_size=600),
        "bpe, special": train_tokenizer(text, "bpe", vocab_size=500, special_tokens=SPECIAL),
    }


@pytest.mark.long
def test_hostile_strings_have_the_ids_of_python(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    texts = hostile(300)
    check_tokenizers(tmp_path, [expected(name, one, texts, drawn(one, texts, 60)) for name, one in tokenizers.items()])


@pytest.mark.long
def test_real_korean_has_the_ids_of_python(tokenizers: dict[str, Tokenizer], corpora: Path, tmp_path: Path) -> None:
    novels = (corpora / "novels.txt").read_text(encoding="utf-8")
    reviews = (corpora / "nsmc_reviews.txt").read_text(encoding="utf-8")
    texts = [novels[i : i + 4000] for i in range(0, len(novels), len(novels) // 8)] + reviews.splitlines()[:300]
    trained = train_tokenizer(novels[:200_000], "bpe", vocab_size=2000)
    every = {**tokenizers, "bpe of novels": trained}
    found = {name: one for name, one in every.items() if "special" not in name}
    check_tokenizers(tmp_path, [expected(name, one, texts, drawn(one, texts, 5)) for name, one in found.items()])


LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(cut: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """A tokenizer of another program: byte pairs, trained on a little text, with two added tokens."""
    pipeline = HFTokenizer(models.BPE())
    pipeline.pre_tokenizer, pipeline.decoder = cut, decoders.ByteLevel()
    if normalizer is not None:
        pipeline.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=sorted(alphabet))
    pipeline.train_from_iterator(["".join(stories.write(4_000, seed=2)), "don't we'll DON'T 12345 "], trainer)
    pipeline.add_special_tokens([AddedToken("<|end|>", normalized=False), AddedToken("<|end|>>", normalized=False)])
    return Tokenizer.from_json(pipeline.to_str())


@pytest.mark.slow
def test_byte_level_tokenizers_of_others_have_the_ids_of_python(tmp_path: Path) -> None:
    split = pre_tokenizers.Split(Regex(LLAMA), "isolated")
    found = {
        "as GPT-2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "with a space": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), normalizers.NFKC()),
        "as Llama 3": byte_level(
            pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        ),
    }
    texts = [*hostile(150), "a<|end|>b<|end|>>\n", "DON'T don't'\u017f", "  두  칸"]
    written = []
    for name, one in found.items():
        assert one.kind == "other"
        require_readable(one)
        written.append(expected(name, one, texts, []))
    check_tokenizers(tmp_path, written)


def test_tokenizers_that_a_page_cannot_read_are_named(tokenizers: dict[str, Tokenizer]) -> None:
    assert all(unreadable_part(one) is None for one in tokenizers.values())
    pieces = HFTokenizer(models.WordPiece({"[UNK]": 0, "가": 1}, unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece = Tokenizer.from_json(pieces.to_str())
    with pytest.raises(ViewError, match="WordPiece"):
        require_readable(wordpiece)
    for pattern in (r"\p{L}++", r"(?i)a", r"\h", r"(?<=a)b", r"[a[b]]", r"a{"):
        cut = [pre_tokenizers.Split(Regex(r"a"), "isolated"), pre_tokenizers.ByteLevel(use_regex=False)]
        content = json.loads(byte_level(pre_tokenizers.Sequence(cut)).to_json())
        content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
        try:
            strange = Tokenizer.from_json(json.dumps(content))
        except Exception:  # the library does not read it either
            continue
        assert unreadable_part(strange) == "Split", pattern
    assert unreadable_part(byte_level(pre_tokenizers.ByteLevel(), normalizers.Lowercase())) == "Lowercase"
