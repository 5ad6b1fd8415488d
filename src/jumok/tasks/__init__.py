"""What a model is trained for: which data, which batches, which loss, which figures; the loop is one."""

from __future__ import annotations

from jumok.tasks.language_modelling import LanguageModelling
from jumok.tasks.task import Material, Task

TASKS: dict[str, type[Task]] = {"lm": LanguageModelling}

__all__ = ["TASKS", "LanguageModelling", "Material", "Task"]
