"""How good are the answers of an encoder–decoder? Beside those of the nearest question, on pairs that neither has seen.

    python bench/answers.py runs/chat chatbot.tsv --source question --target answer --show 50

The held-out rows are the last ones, as many as the run held out. The baseline looks up the training question whose
character 1- to 3-grams are most alike (cosine of TF-IDF) and gives its answer.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np

import jumok
from jumok.answer import answer
from jumok.pairs import corpus_scores, whole_pairs
from jumok.text import read_table


def grams(text: str) -> Counter[str]:
    """Character 1- to 3-grams, with a blank at both ends."""
    padded = f" {text} "
    return Counter(padded[i : i + n] for n in (1, 2, 3) for i in range(len(padded) - n + 1))


class Nearest:
    """The answer to the most similar question."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("table")
    parser.add_argument("--source", default="source")
    parser.add_argument("--target", default="target")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--show", type=int, default=50, help="so many questions with their answers")
    options = parser.parse_args()

    share = json.loads((options.run / "config.json").read_text(encoding="utf-8"))["train"]["val"]
    rows = read_table(options.table, [options.source, options.target]).rows
    cut = len(rows) - round(len(rows) * share)
    train, held_out = ([(a, b) for a, b in whole_pairs(part)] for part in (rows[:cut], rows[cut:]))
    sources, targets = [source for source, _ in held_out], [target for _, target in held_out]
    model = jumok.load(options.run)
    said = {
        f"encoder-decoder, beam {options.beam}": [a[0].text for a in answer(model, sources, beam=options.beam)],
        "encoder-decoder, greedy": [a[0].text for a in answer(model, sources)],
        "nearest question": [nearest.answer(source) for nearest in [Nearest(train)] for source in sources],
    }
    print(f"{len(held_out):,} held-out pairs, {len(train):,} to learn from")
    for name, answers in said.items():
        chrf, bleu = corpus_scores(answers, targets)
        exact = sum(a == b for a, b in zip(answers, targets, strict=True)) / len(targets)
        print(f"{name:28} chrF {chrf:5.1f}   BLEU {bleu:5.1f}   exact {exact:6.1%}")
    step = max(1, len(held_out) // max(1, options.show))
    best = next(iter(said.values()))
    for place in list(range(0, len(held_out), step))[: options.show]:
        print(f"{sources[place]}  →  {best[place]}   ({targets[place]})")


if __name__ == "__main__":
    main()
