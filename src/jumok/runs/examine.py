"""What is whole in a run folder and what is not, file by file, for `jumok doctor RUN`.

Nothing is written, and no file is trusted: each is read as when the run is loaded or resumed. `jumok.runs.repair`
restores what can be restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError

from jumok.config import ModelConfig
from jumok.data.id_files import map_ids
from jumok.errors import JumokError, RunError
from jumok.files import is_locked, parse_json, sha256_of
from jumok.messages import shell, tr
from jumok.models import build_blank
from jumok.models.tensors import load_tensors, misfits
from jumok.runs.checkpoints import BEST_PARAMETERS, MANIFEST, UNREADABLE, read_state, states_in
from jumok.runs.config import training_of
from jumok.runs.folder import RunFolder, no_run
from jumok.runs.integrity import has_accepted_sum, sums_in
from jumok.runs.parameters import holds, parameters_of
from jumok.tokenizers import Tokenizer

Condition = Literal["ok", "note", "damaged"]
UNREADABLE_IDS = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found about one file of a run.

    Attributes:
        file: its path in the run folder. condition: "ok", "note" (nothing is lost) or "damaged".
        text: what was found. remedy: what to do; "" if nothing.
    """

    file: str
    condition: Condition
    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The findings about a run folder.

    Attributes:
        usable: the model can be loaded. resumable: step from which the training can go on; None: it cannot.
    """

    findings: tuple[Finding, ...]
    usable: bool
    resumable: int | None

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return all(one.condition != "damaged" for one in self.findings)


def examine(path: Path) -> Examination:
    """Examine the files of a run folder.

    Raises:
        RunError: there is no folder, or it has none of the files of a run.
    """
    if not path.is_dir():
        raise no_run(path)
    run = RunFolder(path)
    if not any((path / name).exists() for name in ("config.json", "model.safetensors", "state")):
        raise RunError("{path} is no run folder; name the folder that {--out} named.", path=path)
    config, about_config = _config(run)
    shape = _shape(run, config)
    model = [*about_config, _tokenizer(run, config), _parameters(run, config, shape)]
    states = [_state(run, state) for state in states_in(run.state)]
    whole = [state for state, found in zip(states_in(run.state), states, strict=True) if found.condition != "damaged"]
    logs = [*_metrics(run), *_samples(run)]
    ids = list(_ids(run, config))
    findings = [*model, *states, *_adapter(run, config), *ids, *logs, *_others(run)]
    if config is not None and "train" in config and not whole:
        findings.append(_without_states(run, config, damaged=bool(states)))
    can_resume = whole and config is not None and all(one.condition == "ok" for one in (*ids, *about_config))
    return Examination(
        findings=tuple(findings),
        usable=all(one.condition != "damaged" for one in model) and run.model_file.is_file(),
        resumable=int(whole[0].name.removeprefix("step-").partition(".")[0]) if can_resume else None,
    )


# --- the model --------------------------------------------------------------------------------------------------------


def _config(run: RunFolder) -> tuple[dict[str, Any] | None, list[Finding]]:
    try:
        config = run.read_config()
        run.model_config()
        if "train" in config:
            training_of(config["train"])
    except (JumokError, TypeError, KeyError, ValueError, AttributeError) as error:
        remedy = tr("Restore it from a copy; no other file has what is in it.")
        return None, [Finding(file="config.json", condition="damaged", text=f"{error}", remedy=remedy)]
    written = tr("format {number}, model {kind}", number=config["format"], kind=config["model"]["type"])
    return config, [Finding(file="config.json", condition="ok", text=written)]


def _shape(run: RunFolder, config: Mapping[str, Any] | None) -> ModelConfig | None:
    return None if config is None else run.model_config()


def _tokenizer(run: RunFolder, config: Mapping[str, Any] | None) -> Finding:
    name = "tokenizer.json"
    try:
        tokenizer = Tokenizer.load(run.path / name) if config is None else run.read_tokenizer()
    except JumokError as error:
        remedy = tr("Restore it from a copy; no other file has what is in it.")
        return Finding(file=name, condition="damaged", text=f"{error}", remedy=remedy)
    text = tr("{count:,} ids, fingerprint {sum}", count=tokenizer.vocab_size, sum=tokenizer.fingerprint[:12])
    return Finding(file=name, condition="ok", text=text)


def _parameters(run: RunFolder, config: Mapping[str, Any] | None, shape: ModelConfig | None) -> Finding:
    name = run.model_file.name
    repair = tr("`{command}` restores what the training states hold.", command=_repair(run))

    def damaged(text: str) -> Finding:
        return Finding(file=name, condition="damaged", text=text, remedy=repair)

    if not run.model_file.is_file():
        if config is not None and "train" in config and not config.get("metrics"):
            return Finding(file=name, condition="note", text=tr("not there yet: nothing was validated so far"))
        return damaged(tr("missing"))
    try:
        known = sums_in(config) if config is not None else ()
        if known and not has_accepted_sum(run):
            return damaged(tr("its SHA-256 is not the one in config.json: it changed after it was written"))
        tensors = load_tensors(run.model_file)
    except (OSError, SafetensorError) as error:
        return damaged(tr("cannot be read: {error}", error=error))
    if shape is not None:
        shapes = {each: tensor.shape for each, tensor in parameters_of(build_blank(shape)).items()}
        if faults := misfits({each: tensor.shape for each, tensor in tensors.items()}, shapes):
            return damaged(tr("does not fit the model: {faults}", faults="; ".join(faults[:3])))
    if infinite := [each for each, tensor in tensors.items() if not torch.isfinite(tensor).all()]:
        return damaged(tr("numbers that are not finite in {names}", names=", ".join(infinite[:3])))
    count = sum(tensor.numel() for tensor in tensors.values())
    if not known:
        return Finding(
            file=name,
            condition="ok",
            text=tr("{count:,} numbers, all finite; no SHA-256 is recorded, so not every change shows", count=count),
        )
    return Finding(
        file=name, condition="ok", text=tr("{count:,} numbers, all finite; SHA-256 as recorded", count=count)
    )


def _adapter(run: RunFolder, config: Mapping[str, Any] | None) -> Iterator[Finding]:
    recorded = (config or {}).get("adapter")
    if not isinstance(recorded, dict):
        return
    if run.state.is_dir():
        yield _needed(run.base_file, recorded.get("sha256"))
    file, name = run.path / "adapter" / "adapter_model.safetensors", "adapter/adapter_model.safetensors"
    if file.is_file():
        try:
            load_tensors(file)
            yield Finding(file=name, condition="ok", text=tr("whole"))
        except (OSError, SafetensorError) as error:
            again = tr("Training further writes it again. model.safetensors has the adapters merged.")
            yield Finding(file=name, condition="damaged", text=tr("cannot be read: {error}", error=error), remedy=again)


# --- for resuming -----------------------------------------------------------------------------------------------------


def _state(run: RunFolder, state: Path) -> Finding:
    name = f"state/{state.name}"
    try:
        saved = read_state(state)
    except UNREADABLE as error:
        remedy = tr("`{command}` skips it and goes on from the newest whole state.", command=_resume(run))
        return Finding(file=name, condition="damaged", text=tr("damaged: {error}", error=error), remedy=remedy)
    if saved.best is not None:
        copy, recorded = saved.best
        if not copy.is_file() or sha256_of(copy) != recorded:
            return Finding(
                file=f"{name}/{BEST_PARAMETERS}",
                condition="damaged",
                text=tr("the copy of the best parameters is missing or changed; the rest of the state is whole"),
                remedy=tr("`{command}` restores what the training states hold.", command=_repair(run)),
            )
    files = len(parse_json((state / MANIFEST).read_text(encoding="utf-8")))
    return Finding(file=name, condition="ok", text=tr("{count} files, all as in their manifest", count=files))


def _without_states(run: RunFolder, config: Mapping[str, Any], *, damaged: bool) -> Finding:
    if damaged:
        text = tr("no training state is whole, so the training would begin anew")
        return Finding(file="state/", condition="damaged", text=text, remedy=tr("Restore the folder from a copy."))
    if config.get("finished"):
        return Finding(file="state/", condition="note", text=tr("no training state: the run cannot be trained further"))
    return Finding(file="state/", condition="note", text=tr("no training state yet: resuming begins anew"))


def _ids(run: RunFolder, config: Mapping[str, Any] | None) -> Iterator[Finding]:
    """About the ids of the text: readable, as many as recorded, none that the model does not have."""
    data, most = (config or {}).get("data", {}), (config or {}).get("model", {}).get("vocab_size")
    if config is None or "train" not in config or not run.state.is_dir():
        return
    remedy = tr("Restore it from a copy, or start a new run; the model itself can still be used.")
    expected = {"train.npy": data.get("train_tokens"), "val.npy": data.get("val_tokens")}
    indexes = {path.name.removesuffix(".index.json"): path for path in sorted(run.state.glob("*.index.json"))}
    for file in sorted(run.state.glob("*.npy")):
        if file.name.split(".")[0] in indexes and file.name.count(".") == 2:
            continue  # a shard
        of_rows = run.state.joinpath(f"{file.stem}.ends.npy").is_file()
        plain = file.name.count(".") == 1
        try:
            ids = map_ids(file, None if of_rows else expected.get(file.name))
            if plain and len(ids) and isinstance(most, int) and int(ids.max()) >= most:
                raise ValueError(tr("it has ids above {most:,}, the last one of the model", most=most - 1))
            yield Finding(file=f"state/{file.name}", condition="ok", text=tr("{count:,} numbers", count=len(ids)))
        except (RunError, *UNREADABLE_IDS) as error:
            yield Finding(file=f"state/{file.name}", condition="damaged", text=f"{error}", remedy=remedy)
    for name, index in indexes.items():
        yield from _shards(run, name, index, remedy)
    task = config["train"].get("task", "lm")
    needed = {"lm": ("train", "val"), "mlm": ("train", "val"), "classify": ("train",), "seq2seq": ("train-source",)}
    for name in needed.get(task, ()):
        if name not in indexes and not (run.state / f"{name}.npy").is_file():
            yield Finding(file=f"state/{name}.npy", condition="damaged", text=tr("missing"), remedy=remedy)


def _needed(file: Path, sha256: str | None) -> Finding:
    """About a file in state/ that the training needs. sha256: recorded."""
    name = f"state/{file.name}"
    if sha256 and holds(file, sha256):
        return Finding(file=name, condition="ok", text=tr("SHA-256 as recorded"))
    return Finding(
        file=name,
        condition="damaged",
        text=tr("missing or changed; the training cannot go on without it"),
        remedy=tr("Restore it from a copy. The model itself can still be used."),
    )


def _shards(run: RunFolder, name: str, index: Path, remedy: str) -> Iterator[Finding]:
    try:
        shards = parse_json(index.read_text(encoding="utf-8"))["shards"]
        files = [run.state / f"{name}.{number:05}.npy" for number in range(len(shards))]
        wrong = [
            file.name
            for file, shard in zip(files, shards, strict=True)
            if not file.is_file() or sha256_of(file) != shard["sha256"]
        ]
    except UNREADABLE_IDS as error:
        yield Finding(file=f"state/{index.name}", condition="damaged", text=f"{error}", remedy=remedy)
        return
    if wrong:
        text = tr("missing or changed: {names}", names=", ".join(wrong[:5]))
        yield Finding(file=f"state/{index.name}", condition="damaged", text=text, remedy=remedy)
    else:
        text = tr("{count:,} shards, SHA-256 as recorded", count=len(files))
        yield Finding(file=f"state/{index.name}", condition="ok", text=text)


# --- logs and the rest ------------------------------------------------------------------------------------------------


def _metrics(run: RunFolder) -> Iterator[Finding]:
    path = run.path / "metrics.jsonl"
    if not path.is_file():
        return
    content = path.read_bytes()
    events, lines = run.logs.metrics(), content.count(b"\n")
    if len(events) < lines:
        text = tr("{bad:,} of {all:,} lines cannot be read; they are skipped", bad=lines - len(events), all=lines)
        remedy = tr("Neither the model nor the training needs them; restore the file from a copy, or leave it.")
        yield Finding(file=path.name, condition="damaged", text=text, remedy=remedy)
    elif not content.endswith(b"\n") and content and not is_locked(run.state / "lock"):
        text = tr("{count:,} lines, and a last one that was cut, as by a kill", count=lines)
        remedy = tr("Resuming removes it, and so does `{command}`.", command=_repair(run))
        yield Finding(file=path.name, condition="note", text=text, remedy=remedy)
    else:
        yield Finding(file=path.name, condition="ok", text=tr("{count:,} lines", count=lines))


def _samples(run: RunFolder) -> Iterator[Finding]:
    path = run.path / "samples.txt"
    if path.is_file():
        try:
            chars = len(path.read_bytes().decode("utf-8"))
            yield Finding(file=path.name, condition="ok", text=tr("{count:,} characters", count=chars))
        except UnicodeDecodeError as error:
            remedy = tr("Neither the model nor the training needs it; restore the file from a copy, or leave it.")
            yield Finding(file=path.name, condition="damaged", text=f"{error}", remedy=remedy)


def _others(run: RunFolder) -> Iterator[Finding]:
    if is_locked(run.state / "lock"):
        text = tr("a process is training this run or writing to it; files may change while they are examined")
        yield Finding(file="state/lock", condition="note", text=text)
        return
    for path in sorted((*run.path.glob(".*.tmp"), *run.state.glob(".*.tmp"))):
        text = tr("left behind by a process that was killed; the next one removes it")
        yield Finding(file=path.relative_to(run.path).as_posix(), condition="note", text=text)
    for path in sorted((*run.path.glob("*.damaged*"), *run.path.glob("model-kept-*.safetensors"))):
        yield Finding(file=path.name, condition="note", text=tr("set aside; you may delete it"))


def _repair(run: RunFolder) -> str:
    return shell("jumok", "doctor", run.path, "--repair")


def _resume(run: RunFolder) -> str:
    return shell("jumok", "train", "--resume", "--out", run.path)
