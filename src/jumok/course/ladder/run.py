"""The ladder: models trained one after another on the same text, in the same order, with the same budget.

Each rung is a run of `jumok.training.trainer` in its own folder, OUT/01-bigram and so on, which can be used like any
other run folder. Nothing is printed here; progress is yielded as events. A ladder that was interrupted or killed
continues where it stopped: finished rungs are kept, and the unfinished rung continues from its last saved state.

    OUT/ladder.json     the record: settings, text, and the result of each rung
    OUT/ladder.md       the report: table, curves and explanations
    OUT/ladder.png      the curves
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jumok import Trainer
from jumok.config import require_choice
from jumok.config.features import kind_name
from jumok.course.ladder import report, results
from jumok.course.ladder.results import LadderRecord, Point, RungResult, TextFacts
from jumok.course.ladder.rungs import HELD_OUT, RUNGS, LadderConfig, LadderRung
from jumok.course.ladder.verdicts import verdict
from jumok.course.words import LANGUAGES, Language
from jumok.device import choose_device
from jumok.errors import RunError, TextError
from jumok.files import LockHeld, locked
from jumok.runs.events import Event, Finish
from jumok.text import Text
from jumok.tokenizers import Tokenizer, train_tokenizer

LOCK_FILE = ".lock"
LEFTOVER = re.compile(r"\.lock|\..+\.tmp")  # files of a process that was killed
# Evaluated for the final figures, the same on every rung; every fourth is predicted. With less than a minute for each
# rung there are fewer of them, in proportion.
HELD_OUT_TOKENS = 262_144


@dataclass(frozen=True, kw_only=True)
class RungStarted:
    """A rung starts, or continues after `step` steps. number: from 1. before: the sample before training."""

    number: int
    rung: LadderRung
    folder: Path
    parameters: int
    step: int
    before: str


@dataclass(frozen=True, kw_only=True)
class RungFinished:
    """A rung is finished. meaning: its figure, explained. earlier: whether an earlier run finished it."""

    number: int
    rung: LadderRung
    folder: Path
    result: RungResult
    meaning: str
    earlier: bool


@dataclass(frozen=True, kw_only=True)
class LadderFinished:
    """The run of the ladder has ended. reason: "done" or "interrupted". outputs: the files, ladder.json first."""

    reason: str
    record: LadderRecord
    out: Path
    outputs: tuple[Path, ...]


LadderEvent = RungStarted | RungFinished | LadderFinished | Event


class Ladder:
    """One ladder in its folder. Create it, then iterate over `run()`. The same call continues an unfinished ladder.

    Args:
        text: the training text of all rungs; its last tenth is held out.
        out: folder, created if it does not exist.
        config: the common settings of the rungs.
        language: of the table, the picture, the report and `RungFinished`; it may differ when a ladder continues.
        device: "auto", "cpu", "cuda" or "mps".
        asked: the texts as given on the command line, for the command in the report.
        encoding, column: with which the texts were read, for the same command.

    Raises:
        TextError: the text is too short.
        ResumeError: the folder contains a ladder with another text or other settings; the message names them.
        RunError: the folder contains other files, or cannot be written.
        ConfigError: the device does not exist.
    """

    def __init__(
        self,
        text: Text,
        out: Path,
        config: LadderConfig | None = None,
        *,
        language: Language = "ko",
        device: str = "auto",
        asked: Sequence[str] | None = None,
        encoding: str | None = None,
        column: str | None = None,
    ) -> None:
        require_choice("language", language, LANGUAGES)
        choose_device(device)
        self.text, self.out, self.language, self.device = text, out, language, device
        config = config or LadderConfig()
        _require_enough(text, config)
        names = None if asked is None else tuple(Path(name).name if name != "-" else name for name in asked)
        self.record = _open(
            out, LadderRecord(config=config, text=TextFacts.of(text), asked=names, encoding=encoding, column=column)
        )
        self._stop = False
        self._trainer: Trainer | None = None
        self._tokenizer: Tokenizer | None = None
        self._beyond = 0.0  # seconds that the last rung took beside those that its trainer was given

    def request_stop(self) -> None:
        """Stop after the current step and save the state. Safe in a signal handler."""
        self._stop = True
        if self._trainer is not None:
            self._trainer.request_stop()

    def run(self) -> Iterator[LadderEvent]:
        """Train the rungs that are not finished, until the end or `request_stop`.

        Raises:
            RunError: another process runs this ladder, the disk is full, or the folder of a rung is damaged.
            TrainingError: see `Trainer.run`.
        """
        with _lock(self.out):
            for number, rung in enumerate(RUNGS, 1):
                if self._is_finished(number, rung):
                    yield self._finished(number, rung, earlier=True)
                elif not self._stop:
                    yield from self._train_rung(number, rung)
            reason = "done" if self.record.finished else "interrupted"
            yield LadderFinished(reason=reason, record=self.record, out=self.out, outputs=self._write_outputs())

    # --- one rung ---------------------------------------------------------------------------------------------------

    def _folder(self, number: int, rung: LadderRung) -> Path:
        return self.out / f"{number:02d}-{rung.slug}"

    def _is_finished(self, number: int, rung: LadderRung) -> bool:
        """Return whether there is both a result and a model. A rung whose folder was deleted is trained again."""
        if self.record.result(rung) is None:
            return False
        if (self._folder(number, rung) / "model.safetensors").is_file():
            return True
        self.record = self.record.without_result(rung)
        return False

    def _train_rung(self, number: int, rung: LadderRung) -> Iterator[LadderEvent]:
        folder, began = self._folder(number, rung), time.monotonic()
        with self._make_trainer(rung, folder, began) as trainer:
            self._trainer = trainer
            self._note_start(rung, trainer)
            if self._stop:  # `request_stop` was called before there was a trainer
                trainer.request_stop()
            yield RungStarted(
                number=number,
                rung=rung,
                folder=folder,
                parameters=trainer.model.parameter_count(),
                step=trainer.step,
                before=self.record.before.get(rung.slug, ""),
            )
            interrupted = False
            for event in trainer.run():
                yield event
                interrupted = isinstance(event, Finish) and event.reason == "interrupted"
            if not interrupted:
                result = self._measure(rung, trainer)
                self.record = self.record.with_result(result)
                self.record.write(self.out)
                self._beyond = time.monotonic() - began - 60 * (trainer.config.minutes or 0.0)
                yield self._finished(number, rung, earlier=False)
            self._trainer = None

    def _make_trainer(self, rung: LadderRung, folder: Path, began: float) -> Trainer:
        kind, settings = self.record.config.settings(rung)
        if settings["minutes"] is not None:  # of which the figures and samples of the ladder take a part
            beyond = min(max(0.0, self._beyond / 60), 0.5 * settings["minutes"])
            settings["minutes"] -= beyond
        if self.record.precision is not None:  # that of the first rung
            settings["precision"] = self.record.precision
        if (folder / "config.json").is_file():
            settings = {name: value for name, value in settings.items() if name not in ("steps", "minutes")}
            return Trainer.resume(folder, self.text, device=self.device, **settings)  # a length would start a stage
        if self._tokenizer is None:
            training_part = self.text.chars - round(self.text.chars * HELD_OUT)
            self._tokenizer = train_tokenizer(self.text.chunks(0, training_part), "char")
        if choose_device(self.device).type == "cpu":
            settings["attention"] = "chunked"  # a measured choice could differ between rungs
        trainer = Trainer.start(
            folder,
            self.text,
            kind_name(kind),
            tokenizer=self._tokenizer,
            device=self.device,
            began=began,
            **settings,
        )
        trainer.notices.clear()  # advice on the size of the model and the length of the run, which are fixed here
        return trainer

    def _note_start(self, rung: LadderRung, trainer: Trainer) -> None:
        """Record the values that are known when a rung starts."""
        data = trainer.folder.read_config()["data"]
        before = dict(self.record.before)
        if trainer.step == 0 and rung.slug not in before:
            before[rung.slug] = self._sample(trainer)
        self.record = dataclasses.replace(
            self.record,
            precision=trainer.config.precision,
            train_tokens=data["train_tokens"],
            vocab_size=trainer.model.config.vocab_size,
            floor=data["floor"],
            before=before,
        )
        self.record.write(self.out)

    def _measure(self, rung: LadderRung, trainer: Trainer) -> RungResult:
        """Return the result of a rung. The trainer has restored the best parameters."""
        config = self.record.config
        tokens_per_step = config.batch_size * config.context_length
        metrics = trainer.folder.logs.metrics()
        evals = [event for event in metrics if event["event"] == "eval"]
        speeds = [event["tokens_per_second"] for event in metrics if event["event"] == "step"]
        share = min(1.0, config.minutes_per_rung or 1.0)
        figures = trainer.task.final(trainer.model, int(share * HELD_OUT_TOKENS))
        return RungResult(
            slug=rung.slug,
            parameters=trainer.model.parameter_count(),
            steps=trainer.step,
            tokens=trainer.step * tokens_per_step,
            seconds=round(trainer.seconds, 3),
            tokens_per_second=round(statistics.median(speeds or [trainer.step * tokens_per_step / trainer.seconds]), 1),
            nats_per_char=figures["nats_per_char"],
            curve=tuple(
                Point(
                    tokens=event["step"] * tokens_per_step,
                    seconds=round(event["seconds"], 3),
                    nats_per_char=event["figures"]["nats_per_char"],
                )
                for event in evals
            ),
            before=self.record.before.get(rung.slug, ""),
            after=self._sample(trainer),
        )

    def _sample(self, trainer: Trainer) -> str:
        config = self.record.config
        return trainer.task.sample(trainer.model, config.sample_tokens, seed=config.seed)

    def _finished(self, number: int, rung: LadderRung, *, earlier: bool) -> RungFinished:
        result = self.record.result(rung)
        assert result is not None
        return RungFinished(
            number=number,
            rung=rung,
            folder=self._folder(number, rung),
            result=result,
            meaning=verdict(self.record, rung, self.language),
            earlier=earlier,
        )

    # --- outputs ----------------------------------------------------------------------------------------------------

    def _write_outputs(self) -> tuple[Path, ...]:
        """Write table, picture and report, if there are finished rungs; returns the paths of all outputs."""
        written = [self.out / results.FILE]
        if self.record.results:
            written += report.write(self.record, self.out, self.language)
        return tuple(written)


def default_folder(text: Text, config: LadderConfig, runs: Path = Path("runs")) -> Path:
    """RUNS/ladder, RUNS/ladder-2 and so on: the first that does not exist or contains this ladder, to continue it."""
    facts = TextFacts.of(text)
    for number in range(1, 10_000):
        folder = runs / ("ladder" if number == 1 else f"ladder-{number}")
        if not folder.exists():
            return folder
        try:
            record = LadderRecord.read(folder)
        except RunError:
            continue
        if record.config == config and record.text.sha256 == facts.sha256:
            return folder
    raise RunError("{runs} holds 9,999 ladders; name a folder with {--out}.", runs=runs)


def _require_enough(text: Text, config: LadderConfig) -> None:
    """Raise TextError unless the training part fills a batch, and the held-out part a window."""
    batch, window = config.batch_size * config.context_length + 1, config.context_length
    enough = 1 + math.ceil(max(batch / (1 - HELD_OUT), window / HELD_OUT))  # each character is at least one token
    if text.chars < enough:
        raise TextError(
            "the text has {chars:,} characters, too short for the ladder: it takes at least "
            "{enough:,}, so that the training part fills a batch of {batch_size} x {context_length} "
            "and the held-out tenth fills a window. Give more text.",
            chars=text.chars,
            enough=enough,
            batch_size=config.batch_size,
            context_length=config.context_length,
        )


def _open(out: Path, new: LadderRecord) -> LadderRecord:
    """Return the record in `out`, or the new one in a new folder."""
    if (out / results.FILE).exists():
        record = LadderRecord.read(out)
        record.refuse_another(new.text, new.config, out)
        if not new.asked:
            return record
        return dataclasses.replace(record, asked=new.asked, encoding=new.encoding, column=new.column)
    try:
        if out.exists() and not out.is_dir():
            raise RunError("{out} is a file; give a folder for the ladder, for example {--out {out}-ladder}.", out=out)
        if out.is_dir() and any(not LEFTOVER.fullmatch(entry.name) for entry in out.iterdir()):
            raise RunError(
                "{out} holds other files and no ladder; choose a new folder with {--out}, or an empty one.", out=out
            )
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            "cannot use {out} for the ladder: {reason}. Choose another {--out}.",
            out=out,
            reason=error,
        ) from None
    new.write(out)
    return new


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """Lock the folder of a ladder against other processes.

    Raises:
        RunError: another process has the lock, or the folder cannot be written.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(out / LOCK_FILE))
        except LockHeld:
            raise RunError(
                "another process is training the ladder in {out}; wait for it, or choose another {--out}.", out=out
            ) from None
        except OSError as error:
            raise RunError("cannot write in {out}: {reason}. Choose another {--out}.", out=out, reason=error) from None
        yield
