"""`jumok train --find-rate`: a learning rate range test, which trains nothing and leaves no run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from jumok.cli.console.output import plain_floats, print_json, say
from jumok.errors import ConfigError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.training.trainer import Trainer


def find_rate(
    start: Callable[[Path, Callable[[str], None]], tuple[Trainer, str]],
    picture: Path | None,
    processes: int,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Do the test in a temporary folder and print the curve and the rates.

    Args:
        start: makes a trainer, as `TrainRequest.start`. picture: a file for the curve, or None. processes: of this run.
    """
    from jumok.cli.console.rates import show_rates
    from jumok.training.range_test import range_test
    from jumok.training.subscribers.progress import TrainingView
    from jumok.view.canvas import require_drawable
    from jumok.view.rate_picture import draw_rates

    if processes > 1:
        raise ConfigError("{--find-rate} runs in one process; leave {--processes} out.")
    if picture is not None:
        require_drawable(picture)
    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        with TrainingView(Path(folder), quiet=quiet) as view:
            trainer, text_note = start(Path(folder) / "run", view.doing)
            with trainer:
                found = range_test(
                    trainer.begun, lambda share: view.doing(tr("trying learning rates: {share:.0%}", share=share))
                )
        del trainer  # see `_explain` in `jumok.cli.train`
    if picture is not None:
        rates, losses, means = zip(*((p.learning_rate, p.loss, p.smoothed) for p in found.points), strict=True)
        draw_rates(rates, losses, means, found.learning_rate, picture)
    if as_json:
        values = {
            "learning_rate": found.learning_rate,
            "matrix_learning_rate": found.matrix_learning_rate,
            "optimizer": found.optimizer,
            "diverged": found.diverged,
            "points": [dataclasses.asdict(point) for point in found.points],
            "picture": None if picture is None else str(picture),
        }
        print_json(plain_floats(values, digits=12))
        return
    say(text_note, quiet=quiet)
    show_rates(found)
    if picture is not None:
        say(tr("Picture: {path}", path=picture), quiet=quiet)
