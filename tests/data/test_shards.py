"""A large text is encoded by several threads into shards, with the ids of one encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jumok import text as reader
from jumok.data import ids, shards
from jumok.data.batches import Batches
from jumok.data.ids import load_ids, tokenize
from jumok.data.shards import ShardedIds, index_of, write_shards
from jumok.errors import RunError, TokenizerError
from jumok.text import Text
from jumok.tokenizers import Tokenizer, train_tokenizer

KINDS = ("char", "jamo", "bpe")


@pytest.fixture(scope="session")
def novels(prose: str) -> str:
    """60,000 characters of Korean prose."""
    return (prose * (60_000 // len(prose) + 1))[:60_000]


@pytest.fixture(scope="session")
def tokenizers(novels: str) -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(novels[:20_000], kind) for kind in KINDS}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 997 characters in shards of 10,000."""
    monkeypatch.setattr(shards, "SHARD", 10_000)
    chunks = Text.chunks
    monkeypatch.setattr(Text, "chunks", lambda text, start=0, stop=None, size=997: chunks(text, start, stop, size))


# --- the same ids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [100, 997, 3_331])
def test_shards_have_the_ids_of_one_encoding(
    tmp_path: Path, novels: str, tokenizers: dict[str, Tokenizer], kind: str, length: int, monkeypatch: Any
) -> None:
    """At several hundred places where the text is cut."""
    chunks = Text.chunks
    monkeypatch.setattr(Text, "chunks", lambda text, start=0, stop=None, size=length: chunks(text, start, stop, size))
    monkeypatch.setattr(shards, "SHARD", 4_999)
    tokenizer, text = tokenizers[kind], reader.from_string(novels)
    found = write_shards(text, tokenizer, tmp_path / "train.npy", 17, 50_000)
    expected = tokenizer.encode(text.read(17, 50_000))
    assert found[:].tolist() == expected.tolist()
    assert found.dtype == tokenizer.dtype
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) > 6
    assert files == [*(f"train.{number:05}.npy" for number in range(len(files) - 1)), "train.index.json"]


def test_a_text_that_cannot_be_encoded_raises_the_same_error(tmp_path: Path, small_pieces: None) -> None:
    unigram = {"type": "Unigram", "unk_id": None, "vocab": [["가", -1.0]], "byte_fallback": False}
    tokenizer = Tokenizer.from_json(json.dumps({"version": "1.0", "added_tokens": [], "model": unigram}))
    assert tokenizer.kind == "other"
    text = reader.from_string("가\n" * 9_000 + "나\n" + "가\n" * 900)
    with pytest.raises(TokenizerError, match="cannot encode this text"):
        write_shards(text, tokenizer, tmp_path / "train.npy", 0, text.chars)


def test_a_small_text_is_one_file(tmp_path: Path, novels: str, tokenizers: dict[str, Tokenizer]) -> None:
    found = tokenize(reader.from_string(novels), tokenizers["char"], tmp_path / "train.npy")
    assert isinstance(found, np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["train.npy"]


def test_the_size_in_bytes_decides(
    tmp_path: Path, novels: str, tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = reader.from_string(novels)
    monkeypatch.setattr(ids, "LARGE", text.utf8_bytes - 1)
    path = tmp_path / "train.npy"
    assert isinstance(tokenize(text, tokenizers["char"], path), ShardedIds)
    assert isinstance(load_ids(path), ShardedIds)
    tokenize(text, tokenizers["char"], path, 0, text.chars // 2)
    assert [path.name for path in tmp_path.iterdir()] == ["train.npy"]
    assert isinstance(load_ids(path), np.memmap)
    tokenize(text, tokenizers["char"], path)
    assert not path.exists()


# --- as one sequence --------------------------------------------------------------------------------------------------


@pytest.fixture
def three() -> ShardedIds:
    return ShardedIds([np.arange(first, last, dtype=np.uint16) for first, last in ((0, 40), (40, 41), (41, 103))])


def test_slices_cross_the_ends_of_shards(three: ShardedIds) -> None:
    whole = np.arange(103, dtype=np.uint16)
    assert len(three) == 103
    for start in range(-110, 111, 7):
        for stop in (*range(-110, 111, 9), None):
            found = three[start:stop]
            assert found.dtype == np.uint16
            assert found.tolist() == whole[start:stop].tolist()
    assert three[:].tolist() == whole.tolist()
    with pytest.raises(ValueError, match="step=2"):
        three[::2]


def test_batches_of_shards_are_those_of_one_array(three: ShardedIds) -> None:
    sharded, whole = Batches(three, 8, 3, seed=1), Batches(np.arange(103, dtype=np.uint16), 8, 3, seed=1)
    for number in range(20):
        assert sharded.batch(number)[1].tolist() == whole.batch(number)[1].tolist()


# --- a start that was killed ------------------------------------------------------------------------------------------


class Counting(Tokenizer):
    """Counts the characters that it encodes."""

    seen = 0

    def encode(self, text: str) -> Any:
        self.seen += len(text)
        return super().encode(text)


@pytest.fixture
def counting(tokenizers: dict[str, Tokenizer]) -> Counting:
    return Counting.from_json(tokenizers["char"].to_json())  # type: ignore[return-value]


@pytest.fixture
def half(tmp_path: Path, novels: str, counting: Counting, small_pieces: None) -> Path:
    """The first three of six shards, as a kill leaves them."""
    text, path = reader.from_string(novels), tmp_path / "train.npy"

    def killed_after_three(share: float) -> None:
        if share > 0.45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(text, counting, path, 0, text.chars, killed_after_three)
    assert len(json.loads(index_of(path).read_text(encoding="utf-8"))["shards"]) == 3
    return path


def go_on(path: Path, novels: str, tokenizer: Counting, start: int = 0) -> int:
    """Write all shards, and return how many characters were encoded."""
    text, before = reader.from_string(novels), tokenizer.seen
    found = write_shards(text, tokenizer, path, start, text.chars)
    seen = tokenizer.seen - before
    assert found[:].tolist() == tokenizer.encode(text.read(start)).tolist()
    return seen


def test_whole_shards_are_used_again(half: Path, novels: str, counting: Counting) -> None:
    assert go_on(half, novels, counting) < 0.55 * len(novels)
    assert go_on(half, novels, counting) == 0


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\xff")])
def test_a_damaged_shard_and_those_after_it_are_written_again(
    half: Path, novels: str, counting: Counting, number: int, damage: Callable[[Path], object]
) -> None:
    damage(half.with_suffix(f".{number:05}.npy"))
    seen = go_on(half, novels, counting)
    assert len(novels) - (number + 1) * 10_997 < seen <= len(novels) - number * 10_000


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"shards": 3}', '{"shards": [{"stop": 1}]}', "\0"])
def test_a_damaged_index_begins_anew(half: Path, novels: str, counting: Counting, content: str) -> None:
    index_of(half).write_text(content, encoding="utf-8")
    assert go_on(half, novels, counting) == len(novels)


def test_another_text_tokenizer_or_range_begins_anew(
    half: Path, novels: str, counting: Counting, tokenizers: dict[str, Tokenizer]
) -> None:
    kept = {path: path.read_bytes() for path in half.parent.iterdir()}
    bpe: Any = Counting.from_json(tokenizers["bpe"].to_json())
    for text, tokenizer, start in ((novels[:-1] + "끝", counting, 0), (novels, bpe, 0), (novels, counting, 5)):
        for path, content in kept.items():
            path.write_bytes(content)
        assert go_on(half, text, tokenizer, start) == len(text) - start


# --- damaged files of a run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"shards": []}', '{"shards": [{"tokens": "x"}]}'])
def test_a_damaged_index_is_named(half: Path, content: str | None) -> None:
    index_of(half).unlink() if content is None else index_of(half).write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=r"train\.(index\.json|npy), the ids of the text, cannot be read"):
        load_ids(half)


def test_a_damaged_shard_is_named(half: Path) -> None:
    with pytest.raises(RunError, match=r"index\.json contains [\d,]+ ids instead of 1,000"):
        load_ids(half, 1_000)
    np.save(half.with_suffix(".00001.npy"), np.arange(5, dtype=np.uint16))
    with pytest.raises(RunError, match=r"train\.00001\.npy contains 5 ids instead of"):
        load_ids(half)
    half.with_suffix(".00001.npy").unlink()
    with pytest.raises(RunError, match=r"train\.00001\.npy, the ids of the text, cannot be read"):
        load_ids(half)
