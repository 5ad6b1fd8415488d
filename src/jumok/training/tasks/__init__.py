"""Tasks: the data, batches, loss and figures for which a model is trained. The loop is the same for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jumok.corpora.hub import is_hf
from jumok.errors import JumokError
from jumok.runs.config import training_of
from jumok.runs.folder import RunFolder
from jumok.training.tasks.chat import Chat
from jumok.training.tasks.classify import Classification
from jumok.training.tasks.language_modelling import LanguageModelling
from jumok.training.tasks.masked import MaskedLanguageModelling
from jumok.training.tasks.material import Material
from jumok.training.tasks.preference import Preference
from jumok.training.tasks.reward import Reward
from jumok.training.tasks.seq2seq import Seq2Seq
from jumok.training.tasks.task import Task

TASKS: dict[str, type[Task[Any]]] = {
    "lm": LanguageModelling,
    "mlm": MaskedLanguageModelling,
    "classify": Classification,
    "seq2seq": Seq2Seq,
    "chat": Chat,
    "preference": Preference,
    "reward": Reward,
}


def task_of_run(path: Path) -> Task[Any] | None:
    """The task of a run folder, with the material that it was trained on.

    None for the folder of a stock model, for a model that was saved without a run, and where `state/` is gone.
    """
    if is_hf(path):
        return None
    folder = RunFolder.open(path)
    recorded = folder.read_config()
    if "train" not in recorded or "data" not in recorded:
        return None
    try:
        config = training_of(recorded["train"])
        return TASKS[config.task.name](folder, recorded["data"], folder.read_tokenizer(), folder.model_config(), config)
    except (JumokError, KeyError):
        return None


__all__ = [
    "TASKS",
    "Classification",
    "LanguageModelling",
    "MaskedLanguageModelling",
    "Material",
    "Seq2Seq",
    "Task",
    "task_of_run",
]
