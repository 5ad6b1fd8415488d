"""Train a model in one call, for a script or a notebook."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from jumok.evaluation.evaluate import columns_of
from jumok.runs.load import load
from jumok.text import Given, with_columns
from jumok.tokenizers import Tokenizer
from jumok.training.subscribers.progress import TrainingView
from jumok.training.trainer import Trainer


def train(
    text: Given,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    val_text: Given | None = None,
    size: str | None = None,
    tokenizer: Tokenizer | str | None = None,
    init: str | os.PathLike[str] | None = None,
    device: str = "auto",
    quiet: bool = False,
    **settings: Any,
) -> Any:
    """Train a model, with a progress bar in a terminal and in a notebook, and return it with its best parameters.

    >>> model = jumok.train(Path("novel.txt"), out="runs/novel", minutes=5)

    A run that was interrupted is continued with `jumok.Trainer.resume(out)`, whose `run()` yields what happens.

    Args:
        text: what to learn from. A string is the text itself, a `Path` a file; or what `jumok.text` has read.
        out: the run folder to make.
        columns: of a table at a path, the two that the task reads, by their names there.
        val_text: hold this out instead of a part of `text`.
        size: a name in `jumok.config.SIZES`. tokenizer, init, device: see `jumok.Trainer.start`.
        quiet: no bar, no lines.
        settings: fields of `TrainConfig`, of the task and of the model: minutes=5, task="classify", n_layer=6.

    Returns:
        The model, as `jumok.load(out)` returns it.

    Raises:
        JumokError: a setting, the text or the folder does not do, or the training failed; see `jumok.Trainer`.
    """
    began = time.monotonic()
    names = columns_of(settings.get("task") or "lm") if columns is not None else ()
    trainer = Trainer.start(
        out,
        with_columns(text, columns, names),
        size=size,
        tokenizer=tokenizer,
        val_text=None if val_text is None else with_columns(val_text, columns, names),
        init=init,
        device=device,
        began=began,
        **settings,
    )
    with TrainingView(trainer.folder.path, quiet=quiet) as view:
        for event in trainer.run():
            view.show(event)
    return load(out, str(trainer.device))
