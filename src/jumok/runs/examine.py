"""What loading and resuming a run check, file by file, for `jumok doctor RUN`. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jumok.corpora.hub import folder_of, is_hf
from jumok.errors import JumokError
from jumok.interop.huggingface import from_hf
from jumok.messages import reason_and_file, shell, tr
from jumok.models import build_blank
from jumok.runs.checkpoints import UNREADABLE, read_state, states_in
from jumok.runs.folder import RunFolder, is_run_like, is_training, no_run


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found about one file of a run.

    Attributes:
        file: its path in the run folder. condition: "ok", "note" (nothing is lost) or "damaged".
        text: what was found. remedy: what to do; "" if nothing, or if the text says it.
    """

    file: str
    condition: Literal["ok", "note", "damaged"]
    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The findings about a run folder.

    Attributes:
        usable: the model can be loaded. resumable: step of the newest whole training state, or None.
    """

    findings: tuple[Finding, ...]
    usable: bool
    resumable: int | None

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return all(one.condition != "damaged" for one in self.findings)


def examine(path: Path) -> Examination:
    """Examine the model and the training states of a run folder, or the model of a transformers folder.

    Raises:
        RunError: there is no folder, or it has none of the files of a run.
    """
    path = folder_of(path)
    if not path.is_dir():
        raise no_run(path)
    if is_hf(path):
        found = tuple(_stock_model(path))
        return Examination(findings=found, usable=all(one.condition == "ok" for one in found), resumable=None)
    run = RunFolder(path)
    if not is_run_like(path):
        raise no_run(path)
    model, steps = list(_model(run)), []
    states = []
    for folder in states_in(run.state):
        step, finding = _state(run, folder)
        states.append(finding)
        steps += [] if step is None else [step]
    if is_training(path):
        text = tr("a process is training this run or writing to it; files may change while they are examined")
        states.append(Finding(file="state/lock", condition="note", text=text))
    return Examination(
        findings=(*model, *states),
        usable=all(one.condition == "ok" for one in model),
        resumable=steps[0] if steps else None,
    )


def _stock_model(path: Path) -> Iterator[Finding]:
    """Read a model of transformers as `jumok.load` does."""
    try:
        model = from_hf(path)
    except JumokError as error:
        yield Finding(file="config.json", condition="damaged", text=f"{error}")
        return
    text = tr("a model of transformers with {count:,} parameters", count=sum(one.numel() for one in model.parameters()))
    yield Finding(file="config.json", condition="ok", text=text)
    if model.tokenizer is None:
        yield Finding(file="tokenizer.json", condition="damaged", text=tr("missing"))
    else:
        yield Finding(file="tokenizer.json", condition="ok", text=tr("{count:,} ids", count=model.tokenizer.vocab_size))


def _model(run: RunFolder) -> Iterator[Finding]:
    """Read the three files of the model as `jumok.load` does."""
    try:
        config, shape = run.read_config(), run.model_config()
    except JumokError as error:
        yield Finding(file="config.json", condition="damaged", text=f"{error}")
        return
    text = tr("format {number}, model {kind}", number=config["format"], kind=config["model"]["type"])
    yield Finding(file="config.json", condition="ok", text=text)
    try:
        count = run.read_tokenizer().vocab_size
        yield Finding(file="tokenizer.json", condition="ok", text=tr("{count:,} ids", count=count))
    except JumokError as error:
        yield Finding(file="tokenizer.json", condition="damaged", text=f"{error}")
    file = run.model_file.name
    if "train" in config and not config.get("metrics") and not run.model_file.is_file():
        yield Finding(file=file, condition="note", text=tr("not there yet: nothing was validated so far"))
        return
    try:
        run.read_parameters(model := build_blank(shape))
        count = sum(parameter.numel() for parameter in model.parameters())
        recorded = tr("SHA-256 as recorded") if "parameters" in config else tr("no SHA-256 is recorded")
        text = tr("{count:,} parameters; {recorded}", count=count, recorded=recorded)
        yield Finding(file=file, condition="ok", text=text)
    except JumokError as error:
        yield Finding(file=file, condition="damaged", text=f"{error}")


def _state(run: RunFolder, folder: Path) -> tuple[int | None, Finding]:
    """Compare the files of a training state with its manifest, as resuming does; return its step if it is whole."""
    name = f"state/{folder.name}"
    try:
        step = read_state(folder).step
    except UNREADABLE as error:
        text = tr("damaged: {error}", error=reason_and_file(error))
        resume = shell("jumok", "train", "--resume", "--out", run.path)
        remedy = tr("`{command}` skips it and goes on from the newest whole state.", command=resume)
        return None, Finding(file=name, condition="damaged", text=text, remedy=remedy)
    return step, Finding(file=name, condition="ok", text=tr("all files as in their manifest"))
