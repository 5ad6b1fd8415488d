"""Do the alarms of training ring where they should, and only there? Short runs, some healthy and some not.

    python bench/alarms.py --novels novels.txt --reviews nsmc_train.tsv --pairs chatbot.tsv
    python bench/alarms.py --novels novels.txt --only healthy --steps 240

Each run prints the alarms that rang, at which step, and what they measured; at its end the last figures, and the
largest ratios that the alarms about curves look at. A healthy run with an alarm, or a sick one without, is marked with
"!". Seed 0, float32, one thread, not compiled, so that a run on the same machine gives the same figures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from jumok.evaluation.evaluate import columns_of
from jumok.runs.events import Alarm, Finish, Step
from jumok.text import material_of, with_columns
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer
from speed import describe

SHORT = {"context_length": 64, "sample_tokens": 0, "compile": "off", "precision": "float32", "attention": "fused"}
COLUMNS = {"classify": ("document", "label"), "seq2seq": ("question", "answer")}

# Name, text, settings that differ from the defaults of the size nano, and whether an alarm is expected.
RUNS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("healthy modern", "novels", {}, False),
    ("too short for classic", "novels", {"family": "classic", "activation": "relu"}, True),
    ("too short for mlm", "novels", {"task": "mlm"}, True),
    ("healthy classify", "reviews", {"task": "classify"}, False),
    ("healthy seq2seq", "pairs", {"task": "seq2seq"}, False),
    ("rate x 30", "novels", {"learning_rate": 0.15, "matrix_learning_rate": 0.6}, True),
    ("rate x 1000", "novels", {"learning_rate": 5.0, "matrix_learning_rate": 20.0}, True),
    ("rate / 1000", "novels", {"learning_rate": 5e-6, "matrix_learning_rate": 2e-5}, True),
    ("classic, rate x 100", "novels", {"family": "classic", "activation": "relu", "learning_rate": 0.1}, True),
]


def train(text: Path, settings: dict[str, Any], steps: int) -> tuple[list[Alarm], str, str]:
    """The alarms of a run, its last figures, and the extremes of its curves."""
    columns = COLUMNS.get(settings.get("task", "lm"))
    source = material_of(text) if columns is None else with_columns(text, columns, columns_of(settings["task"]))
    with TemporaryDirectory(prefix="jumok-") as folder:
        every = {**SHORT, "steps": steps, **settings}
        trainer = Trainer.start(Path(folder) / "run", source, **configurations(every, size="nano"), device="cpu")
        events = list(trainer.run())
    norms = np.array([event.grad_norm for event in events if isinstance(event, Step)])
    ratio = max(
        (float(np.median(norms[at - 20 : at]) / np.median(norms[: at - 20])) for at in range(40, len(norms))), default=0
    )
    end = next(event.headline for event in events if isinstance(event, Finish))
    return (
        [event for event in events if isinstance(event, Alarm)],
        end,
        f"norms at most {ratio:.2f} x the median before",
    )


def main() -> None:
    """Train, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("novels", "reviews", "pairs"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--only", default="", help="runs whose names begin so")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(describe(torch.device("cpu")))
    wrong = 0
    for name, source, settings, sick in RUNS:
        text = getattr(given, source)
        if text is None or not name.startswith(given.only):
            continue
        rung, end, extremes = train(text, settings, given.steps)
        missed = any(alarm.step for alarm in rung) != sick  # those at step 0 are about the text
        wrong += missed
        print(f"{'! ' if missed else '  '}{name}: {end}; {extremes}", flush=True)
        for alarm in rung:
            numbers = ", ".join(f"{key} {value:.3g}" for key, value in alarm.numbers.items())
            print(f"      {alarm.kind} at step {alarm.step}: {numbers}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
