"""The rungs of the ladder: models that each have one more part than the one before, and their common settings.

Two are complete production GPTs: the classic one with dropout, and the last one, which is jumok's default. Up to the
classic one, models have parts left out (`jumok.models.rung.Rung`); after it, parts of GPT-2 are replaced one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from jumok.config import GPTConfig, Precision, RungConfig, TrainConfig, require_choice, require_count, require_type
from jumok.course.words import Language, Words, words_in
from jumok.errors import ConfigError

TEXTS = Path(__file__).parent / "texts.toml"
MINUTES = 1.0  # for each rung, unless steps are given
VALIDATIONS = 20  # of each rung, where the length is given in steps
HELD_OUT = 0.1  # share of the text, taken from its end
PARTS = tuple({f.name for f in dataclasses.fields(RungConfig)} - {f.name for f in dataclasses.fields(GPTConfig)})


@dataclass(frozen=True)
class LadderRung:
    """One rung.

    slug: the name in its folder, and of its texts.
    changes: settings that change on this rung and stay changed on all later ones.
    grows: settings that have the value of `LadderConfig` on this rung and all later ones.
    whole: whether it is the production GPT, with nothing left out.
    """

    slug: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    grows: tuple[str, ...] = ()
    whole: bool = False

    @property
    def title(self) -> Words:
        """A few words."""
        return words_in(TEXTS, "rung", self.slug)["title"]

    @property
    def adds(self) -> Words:
        """One or two sentences about the new part."""
        return words_in(TEXTS, "rung", self.slug)["adds"]

    def reason(self, gain: float) -> Words:
        """Return why the new part helps, if the gain is positive, or hurts."""
        return words_in(TEXTS, "rung", self.slug)["helps" if gain > 0 else "hurts"]


RUNGS = (
    LadderRung(
        "bigram",
        {
            "family": "classic", "mixing": "none", "n_layer": 1, "n_head": 1, "feed_forward": False,
            "residual": False, "norm": False, "dropout": 0.0, "tie_embeddings": False, "optimizer": "adamw",
        },
    ),
    LadderRung("average", {"mixing": "average"}),
    LadderRung("one-head", {"mixing": "attention"}),
    LadderRung("many-heads", grows=("n_head",)),
    LadderRung("feed-forward", {"feed_forward": True}),
    LadderRung("stacked", grows=("n_layer",)),
    LadderRung("residual", {"residual": True}),
    LadderRung("normalisation", {"norm": True}),
    LadderRung("dropout", grows=("dropout",), whole=True),
    LadderRung(
        "tied",
        {
            "family": "modern", "dropout": 0.0, "tie_embeddings": True, "rotary": False, "rms": False, "gated": False,
            "start": "gpt2",
        },
    ),
    LadderRung("rotary", {"rotary": True}),
    LadderRung("rms-norm", {"rms": True}),
    LadderRung("swiglu", {"gated": True}),
    LadderRung("identity", {"start": "identity"}),
    LadderRung("muon", {"optimizer": "muon"}),
    LadderRung("look-back", {"start": "look_back"}, whole=True),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LadderConfig:
    """The common settings of all rungs.

    minutes_per_rung, steps_per_rung: the budget of each rung; by default one minute.
    n_layer, n_head, dropout: from the rung on that adds them. n_embd, context_length, batch_size: of all rungs.
    learning_rate: of AdamW, on all rungs but those with Muon, which use jumok's defaults.
    eval_tokens: held-out tokens evaluated for each point of a curve.
    sample_tokens: length of the sample that each rung generates before and after training.
    precision: of all rungs. "auto" is float32 with steps_per_rung, so that the same ladder gives the same figures;
        with minutes_per_rung it is measured once, on the first rung.

    Raises:
        ConfigError: a value is out of range, or both budgets were given.
    """

    minutes_per_rung: float | None = None
    steps_per_rung: int | None = None
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    context_length: int = 128
    batch_size: int = 16
    dropout: float = 0.1
    learning_rate: float = 2e-3  # a compromise: higher is better without norms, lower with GPT-2's initialisation
    eval_tokens: int = 8192
    sample_tokens: int = 80
    save_every: float = 10.0
    seed: int = 0
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        if self.minutes_per_rung is not None and self.steps_per_rung is not None:
            raise ConfigError(
                "minutes_per_rung={minutes_per_rung:g} and steps_per_rung={steps_per_rung} were both "
                "given; give one of them.",
                minutes_per_rung=self.minutes_per_rung,
                steps_per_rung=self.steps_per_rung,
            )
        if self.minutes_per_rung is None and self.steps_per_rung is None:
            object.__setattr__(self, "minutes_per_rung", MINUTES)
        if self.minutes_per_rung is not None:
            require_type("minutes_per_rung", self.minutes_per_rung, float)
            if not 0 < self.minutes_per_rung < float("inf"):
                raise ConfigError(
                    "minutes_per_rung={minutes_per_rung:g} is out of range: it must be more than 0 and finite.",
                    minutes_per_rung=self.minutes_per_rung,
                )
        if self.steps_per_rung is not None:
            require_type("steps_per_rung", self.steps_per_rung, int)
            require_count("steps_per_rung", self.steps_per_rung, 1)
        require_count("sample_tokens", self.sample_tokens, 1)
        require_choice("precision", self.precision, get_args(Precision))
        for rung in RUNGS:  # the configurations check the other settings
            shape = {f.name for f in dataclasses.fields(self.model(rung, vocab_size=1))}
            TrainConfig(**{name: value for name, value in self.settings(rung)[1].items() if name not in shape})

    def model(self, rung: LadderRung, vocab_size: int) -> GPTConfig:
        """Return the configuration of a rung's model."""
        kind, settings = self.settings(rung)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(vocab_size=vocab_size, **{name: value for name, value in settings.items() if name in names})

    def settings(self, rung: LadderRung) -> tuple[type[GPTConfig], dict[str, Any]]:
        """Return the configuration class of a rung's model, and its settings."""
        shape: dict[str, Any] = {}
        for below in RUNGS[: RUNGS.index(rung) + 1]:
            shape |= {**below.changes, **{name: getattr(self, name) for name in below.grows}}
        if rung.whole:
            shape = {name: value for name, value in shape.items() if name not in PARTS}
        if shape["optimizer"] == "adamw":
            shape["learning_rate"] = self.learning_rate
        common = ("n_embd", "context_length", "batch_size", "eval_tokens", "save_every", "seed")
        pinned = self.precision == "auto" and self.steps_per_rung is not None
        return GPTConfig if rung.whole else RungConfig, {
            **shape,
            **{name: getattr(self, name) for name in common},
            "precision": "float32" if pinned else self.precision,
            "steps": self.steps_per_rung,
            "minutes": self.minutes_per_rung,
            "passes": 0.0,
            "val": HELD_OUT,
            "eval_every": 0 if self.steps_per_rung is None else max(1, self.steps_per_rung // VALIDATIONS),
            "patience": 0,  # each rung uses its whole budget
            "compile": "off",  # compiling would take most of a minute, and a different time on each rung
            "sample_tokens": 0,  # the ladder generates its samples outside the budget
        }


def say(key: str, language: Language, **values: object) -> str:
    """Return a text of the ladder with its braces filled in."""
    return words_in(TEXTS, "say")[key].said(language, **values)
