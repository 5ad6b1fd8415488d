"""How good are the answers of an encoder–decoder? Beside those of the nearest question, on pairs that neither has seen.

    python bench/answers.py runs/chat chatbot.tsv --show 50
    python bench/answers.py runs/chat chatbot.tsv --rows 20 --show 5   # a look, to see that it runs

The table must be the one that the run learned from (its checksum is compared); the held-out rows are the last ones, as
many as the run held out. The baseline looks up the training question whose character 1- to 3-grams are most alike
(cosine of TF-IDF) and gives its answer. Some held-out questions stand word for word in the training part too: figures
are given with and without them, and none of them is shown. Which pairs are shown depends on the table alone, evenly
spread over what is held out; nothing is drawn at random.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from jumok.device import choose_device
from jumok.errors import JumokError
from jumok.evaluation.seq2seq import Pair, best, corpus_scores, whole_pairs
from jumok.inference.answer import answer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.text import read_table
from jumok.text.hangul import nfc
from speed import describe

T = TypeVar("T")


def grams(text: str) -> Counter[str]:
    """Character 1- to 3-grams, with a blank at both ends."""
    padded = f" {text} "
    return Counter(padded[i : i + n] for n in (1, 2, 3) for i in range(len(padded) - n + 1))


class Nearest:
    """The answer to the most similar question."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.answers = [target for _, target in pairs]
        counted = [grams(source) for source, _ in pairs]
        seen = Counter(gram for one in counted for gram in one)
        self.weight = {gram: math.log(len(pairs) / n) + 1 for gram, n in seen.items()}
        self.index: dict[str, list[tuple[int, float]]] = {}
        for place, one in enumerate(counted):
            vector = self.vector(one)
            for gram, value in vector.items():
                self.index.setdefault(gram, []).append((place, value))

    def vector(self, counts: Counter[str]) -> dict[str, float]:
        raw = {gram: n * self.weight[gram] for gram, n in counts.items() if gram in self.weight}
        length = math.sqrt(sum(value * value for value in raw.values())) or 1.0
        return {gram: value / length for gram, value in raw.items()}

    def answer(self, source: str) -> str:
        score = np.zeros(len(self.answers))
        for gram, value in self.vector(grams(source)).items():
            for place, other in self.index[gram]:
                score[place] += value * other
        return self.answers[int(score.argmax())]


def parts(run: Path, table: str, columns: tuple[str | None, str | None]) -> tuple[list[Pair], list[Pair]]:
    """The pairs that a run learned from, and those that it held out.

    Args:
        columns: of the table; None: as in training.

    Raises:
        JumokError: it is no run of pairs, or not of this table, or it held out another.
    """
    recorded = RunFolder.open(run).read_config()
    data = recorded.get("data", {})
    if "columns" not in data or "train" not in recorded or recorded["train"]["task"] != "seq2seq":
        raise JumokError(f"{run} is no run of --task seq2seq; give one.")
    if data["val_sha256"] is not None:
        raise JumokError(f"{run} held out another table than the end of its own; jumok evaluate measures that.")
    names = [asked or learned for asked, learned in zip(columns, data["columns"], strict=True)]
    given = read_table(table, names).renamed(("source", "target"))
    if given.sha256 != data["sha256"]:
        raise JumokError(f"{table} is not the table that {run} learned from ({', '.join(data['sources'])}); give that.")
    cut = len(given) - round(len(given) * recorded["train"]["val"])
    learned, held_out = (
        [(nfc(source), nfc(target)) for source, target in whole_pairs([(row[0], row[1]) for row in part.rows])]
        for part in given.split(cut)
    )
    if not held_out:
        raise JumokError(f"{run} held out no rows; there is nothing that it has not seen.")
    return learned, held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="of --task seq2seq")
    parser.add_argument("table", help="that it learned from")
    parser.add_argument("--source", help="column of the questions [as in training]")
    parser.add_argument("--target", help="column of the answers [as in training]")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rows", type=int, help="of what is held out, evenly spread [all]")
    parser.add_argument("--show", type=int, default=50, help="so many questions with their answers")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    try:
        learned, held_out = parts(options.run, options.table, (options.source, options.target))
        model = load(options.run, str(choose_device(options.device)), kind=EncoderDecoder)
    except JumokError as error:
        raise SystemExit(str(error)) from None
    print(f"python {' '.join(sys.argv)}")
    print(describe(choose_device(options.device)), flush=True)

    held_out = spread_out(held_out, options.rows or len(held_out))
    seen = {source for source, _ in learned}
    new = [place for place, (source, _) in enumerate(held_out) if source not in seen]
    sources, targets = [source for source, _ in held_out], [target for _, target in held_out]
    nearest = Nearest(learned)
    said = {
        f"encoder-decoder, beam {options.beam}": [nfc(best(a)) for a in answer(model, sources, beam=options.beam)],
        "encoder-decoder, greedy": [nfc(best(a)) for a in answer(model, sources)],
        "nearest question": [nearest.answer(source) for source in sources],
    }
    print(f"\n{len(held_out):,} held-out pairs, {len(learned):,} to learn from")
    show_scores(said, targets, range(len(held_out)))
    print(f"\nthe {len(new):,} of them whose question is not among those to learn from")
    show_scores(said, targets, new)
    print(f"\n{min(options.show, len(new))} of these: what was asked, said (beam {options.beam}), and expected")
    ours, *_ = said.values()
    for place in spread_out(new, options.show):
        print(f"\n  {sources[place]}\n  → {ours[place].strip() or '(nothing)'}\n    {targets[place]}")


def spread_out(things: list[T], most: int) -> list[T]:
    """All of them, or so many at even distances."""
    count = min(most, len(things))
    return [things[(2 * number + 1) * len(things) // (2 * count)] for number in range(count)]


def show_scores(said: Mapping[str, list[str]], targets: Sequence[str], places: Sequence[int]) -> None:
    for name, answers in said.items():
        ours, right = [answers[place] for place in places], [targets[place] for place in places]
        if not ours:
            continue
        chrf, bleu = corpus_scores(ours, right)
        exact = sum(a == b for a, b in zip(ours, right, strict=True)) / len(ours)
        print(f"{name:28} chrF {chrf:5.1f}   BLEU {bleu:5.1f}   exact {exact:6.1%}")


if __name__ == "__main__":
    main()
