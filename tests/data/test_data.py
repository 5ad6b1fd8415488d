"""Ids and batches: each window occurs once per epoch, in an order that depends on the seed and the number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from jumok import text as reader
from jumok.data.batches import Batches, LengthBatches
from jumok.data.ids import load_ids, tokenize
from jumok.data.rows import load_rows, write_rows
from jumok.errors import RunError
from jumok.tokenizers import train_tokenizer


def starts(batches: Batches, count: int) -> list[int]:
    """Return the first ids of the first `count` windows; for the ids 0, 1, 2 ... these are their positions."""
    found: list[int] = []
    number = 0
    while len(found) < count:
        found += batches.batch(number)[0][:, 0].tolist()
        number += 1
    return found[:count]


# --- batches ---


def test_targets_are_the_next_ids() -> None:
    x, y = Batches(np.arange(1000, dtype=np.uint16), 16, 4, seed=0).batch(3)
    assert x.shape == y.shape == (4, 16)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(y, x + 1)
    assert torch.equal(x, x[:, :1] + torch.arange(16))
    assert x.is_contiguous()
    assert y.is_contiguous()


def test_a_batch_depends_on_its_number_alone() -> None:
    """In any order and from any instance, so a run can be resumed without a state of the data."""
    ids = np.arange(500, dtype=np.uint16)
    forwards, backwards = Batches(ids, 8, 3, seed=7), Batches(ids, 8, 3, seed=7)
    first = [forwards.batch(n)[0] for n in range(100)]
    second = [backwards.batch(n)[0] for n in reversed(range(100))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(Batches(ids, 8, 3, seed=7).batch(61)[0], first[61])
    assert not torch.equal(Batches(ids, 8, 3, seed=8).batch(0)[0], first[0])


@pytest.mark.parametrize("length", [17, 32, 33, 49, 1000])
@pytest.mark.parametrize("batch_size", [3, 64])
def test_each_epoch_visits_each_window_once(length: int, batch_size: int) -> None:
    """The windows of an epoch are adjacent, inside the text, and each occurs once; the offset changes by epoch."""
    context = 16
    batches = Batches(np.arange(length, dtype=np.uint16), context, batch_size, seed=1)
    assert 1 <= batches.windows <= (length - 1) // context
    epochs = 6
    places = starts(batches, epochs * batches.windows)
    for epoch in range(epochs):
        visited = sorted(places[epoch * batches.windows : (epoch + 1) * batches.windows])
        assert np.all(np.diff(visited) == context)
        assert visited[0] >= 0
        assert visited[-1] + context + 1 <= length


def test_orders_and_shifts_differ_from_epoch_to_epoch() -> None:
    batches = Batches(np.arange(1000, dtype=np.uint16), 16, 1, seed=0)
    epochs = [tuple(starts(batches, 5 * batches.windows)[n * batches.windows :][: batches.windows]) for n in range(5)]
    assert len(set(epochs)) == 5
    assert len({min(epoch) for epoch in epochs}) > 1
    assert all(list(epoch) != sorted(epoch) for epoch in epochs)


# --- ids on disk ---


@pytest.mark.parametrize(
    ("kind", "dtype"), [("char", np.uint16), ("jamo", np.uint16), ("bpe", np.uint16)], ids=["char", "jamo", "bpe"]
)
@pytest.mark.parametrize(("start", "stop"), [(0, None), (100, 2000), (3000, None), (50, 50)])
def test_chunks_give_the_same_ids_as_the_whole_text(
    tmp_path: Path, tales: str, kind: str, dtype: type, start: int, stop: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 97 characters give the same ids as the whole text."""
    text = reader.from_string(tales)
    whole = text.chunks

    def in_small_chunks(first: int = 0, last: int | None = None) -> object:
        return whole(first, last, 97)

    monkeypatch.setattr(text, "chunks", in_small_chunks)
    tokenizer = train_tokenizer(tales, kind)
    ids = tokenize(text, tokenizer, tmp_path / "ids.npy", start, stop)
    assert ids.tolist() == tokenizer.encode(tales[start:stop]).tolist()
    assert ids.dtype == tokenizer.dtype == dtype
    assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"]


def test_the_share_of_a_large_text_is_reported(tmp_path: Path, tales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, tokenizer, shares = reader.from_string(tales), train_tokenizer(tales), list[float]()
    chunks = text.chunks
    monkeypatch.setattr(text, "chunks", lambda start=0, stop=None: chunks(start, stop, 97))
    tokenize(text, tokenizer, tmp_path / "ids.npy", report=shares.append)
    assert shares == []
    monkeypatch.setattr("jumok.data.ids.LARGE", 0)
    tokenize(text, tokenizer, tmp_path / "ids.npy", report=shares.append)
    assert shares[0] == 0
    assert shares[-1] >= 0.98
    assert shares == sorted(set(shares))


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", b"garbage" * 50], ids=str)
def test_damaged_ids_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "train.npy"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"train\.npy, the ids of the text, cannot be read"):
        load_ids(path)


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "train.npy"
    np.save(path, np.array([{"a": 1}] * 100, dtype=object), allow_pickle=True)
    with pytest.raises(RunError, match="cannot be read"):
        load_ids(path)


def test_a_wrong_number_of_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", np.arange(100, dtype=np.uint16))
    with pytest.raises(RunError, match="contains 100 ids instead of 1,000"):
        load_ids(tmp_path / "train.npy", 1000)


# --- rows of different lengths ---


@pytest.fixture
def lengths() -> np.ndarray:
    return np.random.default_rng(0).integers(1, 40, (500, 2))


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = [np.array(ids, np.uint8) for ids in ([1, 2, 3], [], [4], [5] * 9)]
    rows = write_rows(tmp_path / "rows.npy", written, np.dtype(np.uint8))
    again = load_rows(tmp_path / "rows.npy", 4)
    assert len(rows) == len(again) == 4
    for row, ids in enumerate(written):
        assert again[row].tolist() == rows[row].tolist() == ids.tolist()


def test_padding_goes_to_the_right_and_to_a_multiple(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.npy", [np.array([1, 2, 3]), np.array([4] * 5)], np.dtype(np.int64))
    assert rows.padded([1, 0], pad=9, multiple=4).tolist() == [[4, 4, 4, 4, 4, 9, 9, 9], [1, 2, 3, 9, 9, 9, 9, 9]]


def test_a_lost_row_is_noticed(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.npy", [np.array([1, 2])] * 3, np.dtype(np.uint8))
    with pytest.raises(RunError, match="contains 3 ids instead of 4"):
        load_rows(tmp_path / "rows.npy", 4)


def test_an_epoch_of_length_batches_holds_each_row_once(lengths: np.ndarray) -> None:
    batches = LengthBatches(lengths, 800, seed=3)
    for epoch in range(3):
        seen = np.concatenate([batches.rows(epoch * batches.count + n) for n in range(batches.count)])
        assert sorted(seen.tolist()) == list(range(500))


def test_length_batches_keep_to_their_size_and_waste_little(lengths: np.ndarray) -> None:
    batches = LengthBatches(lengths, 800, seed=3, multiple=1)
    real = padded = 0
    for number in range(batches.count):
        rows = batches.rows(number)
        cost = len(rows) * int(lengths[rows].max(axis=0).sum())
        assert cost <= 800
        real, padded = real + int(lengths[rows].sum()), padded + cost
    assert padded < 1.35 * real  # in random order it is 1.9 times


def test_a_row_longer_than_a_batch_is_one_by_itself() -> None:
    batches = LengthBatches(np.array([[3], [900], [4]]), 100, seed=0)
    assert sorted(len(batches.rows(n)) for n in range(batches.count)) == [1, 2]


def test_batches_weigh_the_same_whatever_rows_they_hold() -> None:
    """Batches of equal size contained 16 short rows or 2 long ones, and the last batch the remaining rows."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, 60, (400, 1))
    for weights in (np.ones(400, np.int64), random.integers(1, 30, 400)):
        batches = LengthBatches(lengths, 240, seed=3, weights=weights)
        for epoch in range(3):
            found = [batches.rows(epoch * batches.count + n) for n in range(batches.count)]
            sums = [int(weights[rows].sum()) for rows in found]
            assert np.abs(np.array(sums) - weights.sum() / batches.count).max() < weights.max()  # a row at most
            assert sorted(np.concatenate(found).tolist()) == list(range(400))
    assert batches.rows(70).tolist() == LengthBatches(lengths, 240, seed=3, weights=weights).rows(70).tolist()


def test_a_row_that_outweighs_a_batch_leaves_none_empty() -> None:
    weights = np.array([1, 900, 1, 1, 900, 1])
    batches = LengthBatches(np.array([[8]] * 6), 8, seed=0, weights=weights)
    assert [len(batches.rows(n)) for n in range(batches.count)] == [1] * 6
    batches = LengthBatches(np.array([[8]] * 6), 16, seed=0, weights=weights)
    seen = [batches.rows(n) for n in range(batches.count)]
    assert len(seen) == 3
    assert all(len(rows) for rows in seen)
    assert sorted(np.concatenate(seen).tolist()) == list(range(6))


def test_parts_of_a_batch_keep_to_the_tokens(lengths: np.ndarray) -> None:
    batches = LengthBatches(lengths, 800, seed=3, multiple=1, weights=np.ones(500, np.int64))
    several = 0
    for number in range(batches.count):
        rows, parts = batches.rows(number), batches.parts(number)
        several += len(parts) > 1
        assert np.concatenate([rows[part] for part in parts]).tolist() == rows.tolist()
        assert all(len(rows[part]) * int(lengths[rows[part]].max(axis=0).sum()) <= 800 for part in parts)
    assert several > 0
    by_tokens = LengthBatches(lengths, 800, seed=3, multiple=1)
    assert all(len(by_tokens.parts(number)) == 1 for number in range(by_tokens.count))


@pytest.mark.parametrize(
    ("good", "bad"),
    [(b"'<u2'", b"'<f2'"), (b"(100,)", b"(50,2)"), (b"(100,)", b"(999,)"), (b"{'de", b"{{{{"), (b"'<u2'", b"'>u2'")],
)
def test_a_header_of_another_array_is_refused(tmp_path: Path, good: bytes, bad: bytes) -> None:
    """`numpy.load` raised errors of Python's tokenizer, and mapped arrays of any type and shape."""
    path = tmp_path / "train.npy"
    np.save(path, np.arange(100, dtype=np.uint16))
    assert load_ids(path)[99] == 99
    path.write_bytes(path.read_bytes().replace(good, bad))
    with pytest.raises(RunError, match=r"train\.npy, the ids of the text, cannot be read"):
        load_ids(path)
