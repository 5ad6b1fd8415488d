"""Restoring the files of a run folder from its training states, for `jumok doctor RUN --repair`.

model.safetensors is restored, in this order, from

    1. a copy of it in a state, `best.safetensors`, with a SHA-256 that config.json accepts;
    2. the tensors of a state whose own parameters were the best, if a file made of them has such a SHA-256;
    3. the newest whole copy of earlier best parameters. Their figures go into config.json.

Copies are hard links to model.safetensors where the file system has them, so 1 helps if the file was replaced or
deleted, and 2 also if its bytes changed in place. Each file is replaced atomically, and the damaged one is kept beside
it as model.safetensors.damaged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors.torch import save_file

from jumok.files import atomic_path, copy_or_link, parse_json, sha256_of
from jumok.messages import tr
from jumok.runs.checkpoints import (
    BEST_PARAMETERS,
    MANIFEST,
    NUMBERS,
    UNREADABLE,
    best_copies,
    states_in,
    states_of_best,
)
from jumok.runs.examine import examine
from jumok.runs.folder import RunFolder
from jumok.runs.integrity import replaced_parameters, settle, sums_in
from jumok.runs.parameters import holds

MODEL = "model."  # begins the names of parameters in a state


def repair(path: Path) -> list[str]:
    """Restore what can be restored; return a sentence for each thing that was done.

    Raises:
        RunError: config.json cannot be read, another process writes to the run, or a file cannot be written.
    """
    run = RunFolder.open(path)
    with run.lock():
        settle(run)
        done: list[str] = []
        if any(one.file == run.model_file.name and one.condition == "damaged" for one in examine(path).findings):
            done += _restore_parameters(run)
        done += _restore_copies(run)
        log = run.path / "metrics.jsonl"
        if log.is_file() and (content := log.read_bytes()) and not content.endswith(b"\n"):
            run.truncate(log.name, len(content))
            done.append(tr("Removed the cut last line of metrics.jsonl."))
        return done


def _restore_parameters(run: RunFolder) -> Iterator[str]:
    accepted, copies = sums_in(run.read_config()), list(best_copies(run.state))
    exact = next((copy for copy, recorded in copies if recorded in accepted), None)
    if exact is not None:
        yield from _put(run, exact)
        yield tr("Restored model.safetensors from {path}.", path=exact)
        return
    with TemporaryDirectory(prefix=".rebuilt-", suffix=".tmp", dir=run.state) as folder:
        for state, saved in states_of_best(run.state):
            rebuilt = Path(folder) / "model.safetensors"
            save_file(
                {name[len(MODEL) :]: saved.tensors[name] for name in saved.tensors if name.startswith(MODEL)}, rebuilt
            )
            if sha256_of(rebuilt) in accepted:
                yield from _put(run, rebuilt)
                yield tr("Restored model.safetensors from the parameters in {path}.", path=state)
                return
    if not copies:
        yield tr("No training state holds parameters for model.safetensors; restore it from a copy.")
        return
    copy, _ = copies[0]
    numbers = parse_json((copy.parent / NUMBERS).read_text(encoding="utf-8"))
    run.write_config({**run.read_config(), "metrics": numbers["best_metrics"]})  # first: the file has these or none
    yield from _put(run, copy)
    yield tr(
        "Restored model.safetensors with earlier parameters, the best ones up to step {step:,}, from {path}.",
        step=numbers["step"],
        path=copy,
    )


def _put(run: RunFolder, source: Path) -> Iterator[str]:
    """Replace model.safetensors by a copy of a file; keep the damaged one."""
    if run.model_file.is_file():
        kept = _free_name(run.model_file)
        with run.writing(kept.name, needed=run.model_file.stat().st_size):
            copy_or_link(run.model_file, kept)
        yield tr("The damaged file is kept as {path}.", path=kept)
    with run.writing(run.model_file.name, needed=source.stat().st_size), replaced_parameters(run) as temporary:
        shutil.copyfile(source, temporary)


def _restore_copies(run: RunFolder) -> Iterator[str]:
    """Replace damaged copies of model.safetensors in the states, if they were made of the file that is there now."""
    if not run.model_file.is_file():
        return
    there = sha256_of(run.model_file)
    for state in states_in(run.state):
        try:
            recorded = parse_json((state / MANIFEST).read_text(encoding="utf-8")).get(BEST_PARAMETERS)
        except UNREADABLE:
            continue
        copy = state / BEST_PARAMETERS
        if recorded == there and not holds(copy, recorded):
            with run.writing(BEST_PARAMETERS, needed=run.model_file.stat().st_size), atomic_path(copy) as temporary:
                shutil.copyfile(run.model_file, temporary)
            yield tr("Restored {path}.", path=copy)


def _free_name(path: Path) -> Path:
    """model.safetensors.damaged, or the next such name that is free."""
    names = (path.with_name(f"{path.name}.damaged{f'-{number}' if number > 1 else ''}") for number in count(1))
    return next(name for name in names if not name.exists())
