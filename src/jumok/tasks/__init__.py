"""What a model is trained for: which data, which batches, which loss, which figures; the loop is one."""

from __future__ import annotations

from typing import Any

from jumok.tasks.classify import Classification
from jumok.tasks.language_modelling import LanguageModelling
from jumok.tasks.masked import MaskedLanguageModelling
from jumok.tasks.seq2seq import Seq2Seq
from jumok.tasks.task import Material, Task

TASKS: dict[str, type[Task[Any]]] = {
    "lm": LanguageModelling,
    "mlm": MaskedLanguageModelling,
    "classify": Classification,
    "seq2seq": Seq2Seq,
}

__all__ = ["TASKS", "Classification", "LanguageModelling", "MaskedLanguageModelling", "Material", "Seq2Seq", "Task"]
