"""What the files of a run folder say: its state, its settings and its curve."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from jumok.config import count_parameters
from jumok.config._tasks import TASK_CONFIGS
from jumok.config.features import task_of
from jumok.corpora.hub import is_hf
from jumok.errors import JumokError, RunError
from jumok.runs.config import model_config_of, parse_config
from jumok.runs.folder import is_training
from jumok.serve.desk.curves import JSON, Curve, number, read_curve
from jumok.serve.run_folders import MOST_RUNS, has_parameters

SPARK = 60  # points of a small curve
FACTS = (
    *("kind", "family", "task", "tokenizer", "vocab_size", "parameters", "n_layer", "n_head", "n_embd"),
    *("context_length", "floor", "sources"),
)

State = Literal["starting", "running", "finished", "stopped", "model", "damaged"]


def summary(name: str, folder: Path) -> JSON:
    """Return what a list shows of a run."""
    config, curve = _config(folder), _curve(folder)
    points = [point[2] for point in curve.points]
    return {
        "name": name,
        "state": _state(folder, config),
        **_facts(config, folder),
        "last": curve.last,
        "best": min(curve.validations, key=lambda one: one["figures"].get("loss", float("inf")), default=None),
        "held_out": curve.held_out,
        "spark": points[:: max(1, len(points) // SPARK)],
        "usable": has_parameters(folder) and config is not None,
        "changed": _changed(folder),
    }


def details(name: str, folder: Path) -> JSON:
    """Return all that the page of a run shows."""
    config, curve = _config(folder) or {}, _curve(folder)
    return {
        **summary(name, folder),
        "config": {part: config.get(part) for part in ("model", "tokenizer", "train", "machine")},
        "curve": curve.points,
        "validations": curve.validations,
        "samples": curve.samples,
        "verdict": curve.verdict,
    }


def _curve(folder: Path) -> Curve:
    path = folder / "metrics.jsonl"
    with suppress(OSError):
        status = path.stat()
        return _curve_of_file(path, status.st_mtime_ns, status.st_size)
    return Curve()


@lru_cache(MOST_RUNS)
def _curve_of_file(path: Path, changed: int, size: int) -> Curve:
    return read_curve(path)


def _state(folder: Path, config: JSON | None) -> State:
    if is_training(folder):
        return "starting" if config is None else "running"
    if config is None:
        return "model" if is_hf(folder) else "damaged"
    if "train" not in config:
        return "model"
    return "finished" if config.get("finished") else "stopped"


def _config(folder: Path) -> JSON | None:
    """Return the content of config.json, or None if there is no valid one yet."""
    with suppress(RunError):
        return parse_config(folder / "config.json")
    return None


def _facts(config: JSON | None, folder: Path) -> JSON:
    """Return the FACTS of a config.json, in which a stranger may have written anything; None where one is unknown."""
    facts: dict[str, Any] = dict.fromkeys(FACTS)
    config = config or {}
    with suppress(JumokError, ValueError, TypeError, KeyError, AttributeError):
        shape = model_config_of(config, folder)
        facts |= {name: value for name, value in vars(shape).items() if name in facts}
        facts |= {"kind": config["model"]["type"], "task": task_of(shape), "parameters": count_parameters(shape)}
        facts["tokenizer"] = str(config["tokenizer"]["kind"])
        facts["floor"] = number(config["data"].get("floor"))
        facts["sources"] = [Path(source).name for source in config["data"].get("sources") or []]
        if (trained := str(config["train"]["task"])) in TASK_CONFIGS:  # a model that answers is a language model
            facts["task"] = trained
    return facts


def _changed(folder: Path) -> float | None:
    """Return when something was written last, in seconds since 1970."""
    times = []
    for name in ("metrics.jsonl", "model.safetensors", "config.json"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times, default=None)
