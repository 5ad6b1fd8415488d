"""The rungs of the ladder: ten models, each with one part more than the one before, and what they have in common.

The last two are the production GPT, whole: the classic one, then the modern one with Muon. The others are the same
blocks with parts left out (`jumok.models.rung.Rung`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from jumok.config import GPTConfig, Precision, RungConfig, TrainConfig, require_choice, require_range, require_type
from jumok.errors import ConfigError
from jumok.lessons.chapters import Language

Words = Mapping[Language, str]

MINUTES = 1.0  # for each rung, unless steps are given
HELD_OUT = 0.1  # share of the text, its last part
PARTS = tuple({f.name for f in dataclasses.fields(RungConfig)} - {f.name for f in dataclasses.fields(GPTConfig)})


@dataclass(frozen=True, kw_only=True)
class LadderRung:
    """One rung.

    slug: its folder's name. title: of a few words. adds: a sentence on what is new.
    changes: settings that differ from here on. grows: settings that are what `LadderConfig` says from here on.
    whole: nothing is left out any more, so that it is the production GPT.
    """

    slug: str
    title: Words
    adds: Words
    changes: Mapping[str, Any] = field(default_factory=dict)
    grows: tuple[str, ...] = ()
    whole: bool = False


RUNGS = (
    LadderRung(
        slug="bigram",
        title={"ko": "바이그램", "en": "bigram"},
        adds={
            "ko": "방금 나온 글자 하나만 보고 다음 글자를 맞혀요.",
            "en": "It predicts the next character from the last one alone.",
        },
        changes={
            "family": "classic", "mixing": "none", "n_layer": 1, "n_head": 1, "feed_forward": False,
            "residual": False, "norm": False, "dropout": 0.0, "tie_embeddings": False,
        },
    ),
    LadderRung(
        slug="average",
        title={"ko": "지난 글자의 평균", "en": "average of the past"},
        adds={
            "ko": "지금까지 나온 글자를 모두 같은 비중으로 평균해서 그것만 보고 맞혀요.",
            "en": "It takes the plain mean of all characters so far and predicts from that.",
        },
        changes={"mixing": "average"},
    ),
    LadderRung(
        slug="one-head",
        title={"ko": "헤드 하나", "en": "one head"},
        adds={
            "ko": "무엇을 얼마나 볼지 쿼리와 키로 골라요. 고를 실마리로 위치가 들어오고, 값과 출력 투영도 배워요.",
            "en": "Queries and keys choose how much to take from where. There are positions, and values learn now.",
        },
        changes={"mixing": "attention"},
    ),
    LadderRung(
        slug="many-heads",
        title={"ko": "여러 헤드", "en": "many heads"},
        adds={
            "ko": "같은 폭을 여러 헤드로 나누어 여러 곳을 한꺼번에 봐요. 파라미터 수는 그대로예요.",
            "en": "The same width is split into heads that look at several places at once, for no more parameters.",
        },
        grows=("n_head",),
    ),
    LadderRung(
        slug="feed-forward",
        title={"ko": "피드포워드", "en": "feed-forward"},
        adds={
            "ko": "섞은 결과를 자리마다 비선형 신경망으로 한 번 더 가공해요.",
            "en": "What was mixed is worked on by a non-linear network, position by position.",
        },
        changes={"feed_forward": True},
    ),
    LadderRung(
        slug="stacked",
        title={"ko": "잔차 없이 쌓기", "en": "stack, no residuals"},
        adds={
            "ko": "이 블록을 그대로 여러 겹 쌓아요. 블록마다 입력을 새 값으로 갈아 치워요.",
            "en": "Several of these blocks are stacked as they are: each replaces what came in.",
        },
        grows=("n_layer",),
    ),
    LadderRung(
        slug="residual",
        title={"ko": "잔차 연결", "en": "residuals"},
        adds={
            "ko": "갈아 치우지 않고 더해요: x + f(x).",
            "en": "A block adds to what came in, x + f(x), and no longer replaces it.",
        },
        changes={"residual": True},
    ),
    LadderRung(
        slug="normalisation",
        title={"ko": "정규화", "en": "normalisation"},
        adds={
            "ko": "어텐션과 피드포워드의 앞, 그리고 맨 끝에 LayerNorm을 놓아요. 첫 가중치는 GPT-2처럼 작아져요.",
            "en": "LayerNorm before each attention and feed-forward, and at the end; first weights small as GPT-2's.",
        },
        changes={"norm": True},
    ),
    LadderRung(
        slug="dropout",
        title={"ko": "드롭아웃", "en": "dropout"},
        adds={
            "ko": "배우는 동안 값을 무작위로 지워요. 이제 빠진 것이 없는 classic GPT예요.",
            "en": "In training, values are dropped at random. Nothing is left out now: this is the classic GPT.",
        },
        grows=("dropout",),
        whole=True,
    ),
    LadderRung(
        slug="modern",
        title={"ko": "modern과 Muon", "en": "modern with Muon"},
        adds={
            "ko": "jumok의 기본 모델이에요: 회전 위치, 처음부터 바로 앞을 보는 헤드, RMSNorm, SwiGLU, 임베딩 공유, "
            "드롭아웃 없음, 그리고 Muon.",
            "en": "jumok's default: rotary positions, heads that begin by looking back, RMSNorm, SwiGLU, shared "
            "embeddings, no dropout, and Muon.",
        },
        changes={"family": "modern", "dropout": 0.0, "tie_embeddings": True},
        whole=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LadderConfig:
    """What all rungs have in common.

    minutes_per_rung, steps_per_rung: the budget of each; with neither it is a minute.
    n_layer, n_head, dropout: of the rungs that have reached them. n_embd, context_length, batch_size: of all.
    learning_rate: of AdamW, up to the last rung, which has jumok's defaults.
    eval_tokens: held-out tokens read at each of the validations that make up a curve.
    sample_tokens: length of what each rung writes before and after training.
    precision: "auto" measures once, at the first rung, and keeps to the outcome.

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
    learning_rate: float = 2e-3  # more suits rungs without norms, less those with GPT-2's small first weights
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
            require_range("steps_per_rung", self.steps_per_rung, 1)
        require_range("sample_tokens", self.sample_tokens, 1)
        require_choice("precision", self.precision, get_args(Precision))
        for rung in RUNGS:  # the rest is checked where it belongs
            shape = {f.name for f in dataclasses.fields(self.model(rung, vocab_size=1))}
            TrainConfig(**{name: value for name, value in self.settings(rung)[1].items() if name not in shape})

    def model(self, rung: LadderRung, vocab_size: int) -> GPTConfig:
        """The configuration of a rung's model."""
        kind, settings = self.settings(rung)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(vocab_size=vocab_size, **{name: value for name, value in settings.items() if name in names})

    def settings(self, rung: LadderRung) -> tuple[type[GPTConfig], dict[str, Any]]:
        """The kind of model of a rung, and its settings."""
        shape: dict[str, Any] = {}
        for below in RUNGS[: RUNGS.index(rung) + 1]:
            shape |= {**below.changes, **{name: getattr(self, name) for name in below.grows}}
        if rung.whole:
            shape = {name: value for name, value in shape.items() if name not in PARTS}
        if shape["family"] == "classic":
            shape["learning_rate"] = self.learning_rate
        common = ("n_embd", "context_length", "batch_size", "eval_tokens", "save_every", "seed", "precision")
        return GPTConfig if rung.whole else RungConfig, {
            **shape,
            **{name: getattr(self, name) for name in common},
            "steps": self.steps_per_rung,
            "minutes": self.minutes_per_rung,
            "val": HELD_OUT,
            "patience": 0,  # each rung uses its whole budget
            "compile": "off",  # it would take most of a minute, and more from some rungs than from others
            "sample_tokens": 0,  # the ladder writes its samples outside the budget
        }
