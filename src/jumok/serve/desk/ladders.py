"""A ladder as a race of ten curves, while it runs and afterwards."""

from __future__ import annotations

from pathlib import Path

from jumok.course.ladder.results import LadderRecord
from jumok.course.ladder.rungs import RUNGS
from jumok.serve.desk.curves import JSON, thinned
from jumok.serve.desk.folders import RunFolders, ladder_is_running

MOST_POINTS = 120  # of a rung


def race(folders: RunFolders, name: str) -> JSON:
    """The rungs of a ladder with their validations so far.

    Raises:
        Refused: there is no such ladder. RunError: its record is damaged.
    """
    folder = folders.ladder(name)
    record = LadderRecord.read(folder)
    per_step = record.config.batch_size * record.config.context_length
    running, rungs = ladder_is_running(folder), []
    for number, rung in enumerate(RUNGS, 1):
        result = record.result(rung)
        inside = f"{number:02d}-{rung.slug}"
        rungs.append(
            {
                "number": number,
                "slug": rung.slug,
                "title": vars(rung.title),
                "adds": vars(rung.adds),
                "run": f"{name}/{inside}",
                "state": "finished" if result else _state(folder / inside, running),
                "nats_per_char": None if result is None else result.nats_per_char,
                "parameters": None if result is None else result.parameters,
                "tokens_per_second": None if result is None else result.tokens_per_second,
                "before": record.before.get(rung.slug, ""),
                "after": "" if result is None else result.after,
                "curve": _curve(folders, folder / inside, per_step),
            }
        )
    return {
        "name": name,
        "state": "running" if running else "finished" if record.finished else "stopped",
        "text": record.text.name,
        "floor": record.floor,
        "minutes": record.config.minutes_per_rung,
        "steps": record.config.steps_per_rung,
        "rungs": rungs,
    }


def _state(folder: Path, running: bool) -> str:
    """Of a rung without a result: a ladder trains one after the other."""
    if not folder.is_dir():
        return "waiting"
    return "running" if running else "stopped"


def _curve(folders: RunFolders, folder: Path, per_step: int) -> list[list[float | None]]:
    """[tokens, seconds, nats per character] of each validation."""
    points = [
        [one["step"] * per_step, one["seconds"], one["figures"]["nats_per_char"]]
        for one in folders.curve(folder).validations
        if "nats_per_char" in one["figures"]
    ]
    return thinned(points, MOST_POINTS)
