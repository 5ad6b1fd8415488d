"""jumok (주목, "attention!"): from a Korean text file to a Transformer you trained, can talk to, and can look inside.

>>> import jumok
>>> model = jumok.train(Path("novel.txt"), out="runs/novel", minutes=5)  # later: jumok.load("runs/novel")
>>> print(jumok.generate(model, "그날 밤")[0].text)

Importing is cheap: each public name is loaded, with torch if need be, when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jumok.version import __version__ as __version__

if TYPE_CHECKING:
    from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, TrainConfig
    from jumok.errors import JumokError
    from jumok.evaluation.evaluate import evaluate
    from jumok.inference.classify import predict
    from jumok.inference.generate import generate, stream
    from jumok.interpret.record import record
    from jumok.messages import language
    from jumok.models.bert import BERT
    from jumok.models.encoder_decoder import EncoderDecoder
    from jumok.models.gpt import GPT
    from jumok.runs.load import load, save
    from jumok.tokenizers import train_tokenizer
    from jumok.training.train import train
    from jumok.training.trainer import Trainer
    from jumok.view import view

__all__ = [
    "BERT",
    "GPT",
    "BERTConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "GPTConfig",
    "JumokError",
    "TrainConfig",
    "Trainer",
    "evaluate",
    "generate",
    "language",
    "load",
    "predict",
    "record",
    "save",
    "stream",
    "train",
    "train_tokenizer",
    "view",
]

_HOME = {
    "BERT": "jumok.models.bert",
    "BERTConfig": "jumok.config",
    "EncoderDecoder": "jumok.models.encoder_decoder",
    "EncoderDecoderConfig": "jumok.config",
    "GPT": "jumok.models.gpt",
    "GPTConfig": "jumok.config",
    "JumokError": "jumok.errors",
    "TrainConfig": "jumok.config",
    "Trainer": "jumok.training.trainer",
    "evaluate": "jumok.evaluation.evaluate",
    "generate": "jumok.inference.generate",
    "language": "jumok.messages",
    "load": "jumok.runs.load",
    "predict": "jumok.inference.classify",
    "record": "jumok.interpret.record",
    "save": "jumok.runs.load",
    "stream": "jumok.inference.generate",
    "train": "jumok.training.train",
    "train_tokenizer": "jumok.tokenizers",
    "view": "jumok.view",
}


class _Package(ModuleType):
    """This package: loads public names on first use, and keeps a room from hiding the function it is named after.

    Importing `jumok.view` would set the attribute `view` to that package; the name belongs to the function.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Package
