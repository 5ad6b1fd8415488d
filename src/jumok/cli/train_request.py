"""Make the trainer that a call of `jumok train` asks for: of a new run, or of one to continue."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.cli.material import COLUMN_NAMES, COLUMNS, READING, built_in_material, read_material, recorded_columns
from jumok.config import TASK_CONFIGS, other_task, require_choice, task_fields
from jumok.errors import ConfigError
from jumok.files import on_disk
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.text import Table, Text
    from jumok.training.parallel import ProcessGroup
    from jumok.training.trainer import Trainer

MODELS = ("gpt", "bert", "encoder_decoder")  # values of --model
TOKENIZER_OPTIONS = ("vocab_size", "min_count")
# Settings that apply to some tasks only.
OPTIONS_OF = {name: {*COLUMNS.get(name, ()), *task_fields(task)} for name, task in TASK_CONFIGS.items()}
TASKS_OF = {
    "column": [name for name, task in TASK_CONFIGS.items() if not task.columns],
    **{one: [n for n, known in OPTIONS_OF.items() if one in known] for one in set().union(*OPTIONS_OF.values())},
}


class TrainRequest:
    """The arguments of one call of `jumok train`.

    Args:
        texts: files, folders, or - for stdin; none: a built-in corpus, or the text that a run began with.
        settings: those that were given on the command line or in a run.toml, by the names of the options.
        init: a run folder or a transformers model folder to start from, or None.
        device: as for `jumok.device.choose_device`. began: when the process began, as of `time.monotonic`.
        group: the processes that train together; None: this one alone.
    """

    def __init__(
        self,
        texts: tuple[str, ...],
        settings: Mapping[str, Any],
        *,
        init: Path | None,
        device: str,
        began: float,
        group: ProcessGroup | None = None,
    ) -> None:
        self.texts, self.init, self.device, self.began, self.group = texts, init, device, began, group
        self.reading = {name: settings.get(name) for name in (*READING, *COLUMN_NAMES)}
        self.tokenizer_options = {name: settings[name] for name in TOKENIZER_OPTIONS if settings.get(name) is not None}
        self.size, self.tokenizer, self.model = (settings.get(name) for name in ("size", "tokenizer", "model"))
        others = {*self.reading, *TOKENIZER_OPTIONS, "size", "tokenizer", "model"}
        self.settings = {name: value for name, value in settings.items() if name not in others}

    def start(self, out: Path, report: Callable[[str], None]) -> tuple[Trainer, str]:
        """Make the trainer of a new run in `out`, and a sentence on its text. report: as in `Trainer.start`."""
        from jumok.runs.folder import RunFolder
        from jumok.text.conversations import are_conversations
        from jumok.training.trainer import Trainer

        if self.init is not None and (self.tokenizer is not None or self.tokenizer_options):
            raise ConfigError("{init} has its own tokenizer: leave {--tokenizer} and its options out.", init=self.init)
        task = self.settings.get("task") or "lm"
        require_choice("task", task, TASK_CONFIGS)
        if self.model is not None:
            require_choice("model", self.model, MODELS)
        self._require_settings_of(task)
        RunFolder(out).require_free()  # before anything that takes long
        if self.settings.get("val") == "-" and "-" in self.texts:
            raise ConfigError(
                "- was given as a text and as {--val -}, but standard input can be read only once; hold out a file."
            )
        if self.texts:
            report(tr("reading {texts}", texts=", ".join(self.texts[:3]) + (" ..." if len(self.texts) > 3 else "")))
        held_out = self._held_out_file(task)
        if not TASK_CONFIGS[task].columns and not self.reading["column"] and are_conversations(self.texts):
            raise ConfigError(
                "{file} holds conversations; learn to answer with {--task chat}, or name the column to read as text "
                "with {--column}.",
                file=self.texts[0],
            )
        text = read_material(task, self.texts, self.reading) if self.texts else built_in_material(task)
        trainer = Trainer.start(
            out,
            text,
            self.model,
            size=self.size,
            tokenizer=self._tokenizer(),
            tokenizer_options=self.tokenizer_options,
            val_text=held_out,
            init=self.init,
            device=self.device,
            began=self.began,
            report=report,
            group=self.group,
            **self.settings,
        )
        return trainer, text.describe()

    def resume(self, out: Path, report: Callable[[str], None]) -> tuple[Trainer, str]:
        """Make the trainer that continues the run in `out`, and a sentence on where it is."""
        from jumok.runs.folder import RunFolder
        from jumok.training.trainer import Trainer

        if self.init is not None or self.model is not None or self.tokenizer is not None or self.tokenizer_options:
            raise ConfigError(
                "a run continues with its own model and tokenizer: leave {--init}, {--model}, "
                "{--tokenizer} and its options out."
            )
        task = RunFolder.open(out).read_config().get("train", {}).get("task", "lm")
        self._require_settings_of(task)
        recorded = recorded_columns(out)
        held_out = self._held_out_file(task, recorded)
        text = read_material(task, self.texts, self.reading, recorded) if self.texts else None
        trainer = Trainer.resume(
            out,
            text,
            val_text=held_out,
            size=self.size,
            device=self.device,
            began=self.began,
            report=report,
            group=self.group,
            **self.settings,
        )
        if trainer.result is not None:
            return trainer, tr("{out} is finished; there is nothing to continue.", out=out)
        return trainer, tr("Continuing {out} after step {step:,}.", out=out, step=trainer.step)

    def _require_settings_of(self, task: str) -> None:
        """Raise ConfigError for a setting that does not apply to the task."""
        given = self.settings | self.reading
        for name, tasks in TASKS_OF.items():
            if given.get(name) is not None and task not in tasks:
                instead = ""
                if name == "column" and task in COLUMNS:
                    text, label = COLUMNS[task]
                    instead = tr("; its columns are named with --{text} and --{label}", text=text, label=label)
                raise other_task("--" + name.replace("_", "-"), tasks, task, instead)

    def _held_out_file(self, task: str, recorded: tuple[str, ...] = ()) -> Text | Table | None:
        """Read what --val names, if it is a file. A share is left in the settings, as a number."""
        given = self.settings.get("val")
        if given is None:
            return None
        try:
            self.settings["val"] = float(given)
            return None
        except ValueError:
            del self.settings["val"]
            return read_material(task, (given,), self.reading, recorded)

    def _tokenizer(self) -> Any:
        """Return the kind of tokenizer to train, the tokenizer of a file, or None."""
        name = self.tokenizer
        if name is None or not (name.endswith(".json") or os.sep in name or on_disk(name).is_file()):
            return name
        if self.tokenizer_options:
            raise ConfigError(
                "{options} cannot be set for a tokenizer that is already trained ({path}).",
                options=", ".join(self.tokenizer_options),
                path=name,
            )
        from jumok.tokenizers import Tokenizer

        return Tokenizer.load(name)
