"""`RunFolders`: the runs and ladders that a server shows, by name, and what their files say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from jumok.config import count_parameters
from jumok.course.ladder import results
from jumok.course.ladder.run import LOCK_FILE
from jumok.errors import JumokError, RunError
from jumok.files import is_locked
from jumok.messages import message
from jumok.runs.config import model_config_of, parse_config
from jumok.runs.stopping import is_training
from jumok.serve.desk.curves import JSON, Curve, Tail
from jumok.serve.refused import Refused
from jumok.text.hangul import nfc

MOST_RUNS = 1_000  # that are listed
SPARK = 60  # points of a small curve

State = Literal["starting", "running", "finished", "stopped", "model", "damaged"]


class RunFolders:
    """The run folders that were named, and those in a folder of runs.

    A run is asked for by its name in a listing that is made anew each time; what a client sends is never a path. In a
    ladder the name has two parts, "ladder/03-one-head". Links to folders are not followed, and hidden folders and names
    that cannot be shown are left out.

    Args:
        named: by their own names, also where the folder of runs has one of this name.
        root: the folder of runs, which need not exist; None: none.
    """

    def __init__(self, named: Sequence[Path], root: Path | None) -> None:
        self.root = root
        self._named = {nfc(folder.resolve().name): folder for folder in named}
        self._curves: dict[Path, Curve] = {}
        self._lock = threading.Lock()

    def runs(self) -> dict[str, Path]:
        """The run folders by name."""
        found = {}
        for folder in _folders(self.root):
            if _is_ladder(folder):
                inside = {f"{nfc(folder.name)}/{nfc(one.name)}": one for one in _folders(folder) if _is_run(one)}
                found.update(inside)
            elif _is_run(folder):
                found[nfc(folder.name)] = folder
        return dict(list((found | self._named).items())[:MOST_RUNS])

    def ladders(self) -> dict[str, Path]:
        """The folders of ladders by name."""
        return {nfc(folder.name): folder for folder in _folders(self.root) if _is_ladder(folder)}

    def run(self, name: str) -> Path:
        """The folder of a run.

        Raises:
            Refused: there is none.
        """
        found = self.runs().get(nfc(name))
        if found is None:
            raise Refused(message("there is no run {name!r}."), status=404, code="run_not_found", name=name[:100])
        return found

    def ladder(self, name: str) -> Path:
        """The folder of a ladder.

        Raises:
            Refused: there is none.
        """
        found = self.ladders().get(nfc(name))
        if found is None:
            raise Refused(message("there is no ladder {name!r}."), status=404, code="run_not_found", name=name[:100])
        return found

    def busy(self) -> list[str]:
        """The names of runs in the folder of runs that a process trains now."""
        return [name for name, folder in self.runs().items() if is_training(folder)]

    def curve(self, folder: Path) -> Curve:
        """The curve of a run, up to now."""
        with self._lock:
            curve = self._curves.pop(folder, None) or Curve(Tail(folder / "metrics.jsonl"))
            self._curves[folder] = curve  # the one that was asked for last is last
            if len(self._curves) > MOST_RUNS:
                del self._curves[next(iter(self._curves))]
            curve.update()
            return curve

    def summary(self, name: str, folder: Path) -> JSON:
        """What a list shows of a run."""
        config = _config(folder)
        curve = self.curve(folder)
        best = min(curve.validations, key=lambda one: one["figures"].get("loss", float("inf")), default=None)
        return {
            "name": name,
            "named": name in self._named,
            "state": state_of(folder, config),
            **_facts(config, folder),
            "last": curve.last,
            "best": best,
            "held_out": curve.held_out,
            "validation": curve.validations[-1] if curve.validations else None,
            "spark": [point[2] for point in curve.train(SPARK)],
            "servable": (folder / "model.safetensors").is_file() and config is not None,
            "changed": _changed(folder),
        }

    def details(self, name: str, folder: Path) -> JSON:
        """Everything that the page of a run shows; `place` is where its stream goes on."""
        config, curve = _config(folder) or {}, self.curve(folder)
        return {
            **self.summary(name, folder),
            "config": {part: config.get(part) for part in ("model", "tokenizer", "train", "machine", "stages")},
            "metrics": config.get("metrics"),
            "train_curve": curve.train(),
            "validations": curve.validations,
            "samples": curve.samples,
            "verdict": curve.verdict,
            "place": curve.tail.place,
        }


def state_of(folder: Path, config: JSON | None) -> State:
    """What is going on in a run folder."""
    if is_training(folder):
        return "starting" if config is None else "running"
    if config is None:
        return "damaged"
    if "train" not in config:
        return "model"
    return "finished" if config.get("finished") else "stopped"


def ladder_is_running(folder: Path) -> bool:
    """Whether a process trains a ladder now."""
    return is_locked(folder / LOCK_FILE)


def _folders(root: Path | None) -> Iterator[Path]:
    """The folders in a folder, by name; without links, hidden ones, and names that cannot be shown."""
    if root is None:
        return
    with suppress(OSError), os.scandir(root) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from (root / name for name in sorted(found) if name.isprintable() and not name.startswith("."))


def _is_ladder(folder: Path) -> bool:
    return (folder / results.FILE).is_file()


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() or (folder / "state").is_dir()


def _config(folder: Path) -> JSON | None:
    """The content of config.json, or None if there is no valid one yet."""
    with suppress(RunError):
        return parse_config(folder / "config.json")
    return None


def _facts(config: JSON | None, folder: Path) -> JSON:
    """Figures of config.json; some are None where it is not valid."""
    facts: dict[str, Any] = dict.fromkeys(
        ("kind", "family", "task", "tokenizer", "vocab_size", "parameters", "n_layer", "n_head", "n_embd",
         "context_length", "labels", "steps", "minutes", "floor", "sources", "reason")
    )  # fmt: skip
    if config is None:
        return facts
    # A stranger's file may have anything anywhere.
    model, train, data, ended = (
        part if isinstance(part := config.get(name), dict) else {} for name in ("model", "train", "data", "finished")
    )
    stages = config.get("stages")
    if isinstance(stages, list) and stages and isinstance(stages[-1], dict):
        train = stages[-1].get("train", train)
    with suppress(JumokError, ValueError, TypeError, KeyError, AttributeError):
        facts["parameters"] = count_parameters(model_config_of(config, folder))
    known = {"kind": model.get("type"), "reason": ended.get("reason"), "tokenizer": config["tokenizer"]["kind"]}
    for source in (model, train, data, known):
        facts |= {name: value for name, value in source.items() if name in facts and _plain(value)}
    if isinstance(facts["sources"], list):
        facts["sources"] = [Path(source).name for source in facts["sources"]]
    return facts


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float | None) or (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    )


def _changed(folder: Path) -> float | None:
    """When something was written last, in seconds since 1970."""
    times = []
    for name in ("metrics.jsonl", "model.safetensors", "config.json"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times, default=None)
