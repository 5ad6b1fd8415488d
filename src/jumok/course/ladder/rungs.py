"""The rungs of the ladder: ten models, each with one more part than the one before, and their common settings.

The last two are the complete production GPT: the classic one, then the modern one with Muon. The others are the same
model with parts left out (`jumok.models.rung.Rung`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from jumok.config import GPTConfig, Precision, RungConfig, TrainConfig, require_choice, require_range, require_type
from jumok.course.words import Language
from jumok.errors import ConfigError

Words = Mapping[Language, str]

MINUTES = 1.0  # for each rung, unless steps are given
HELD_OUT = 0.1  # share of the text, taken from its end
PARTS = tuple({f.name for f in dataclasses.fields(RungConfig)} - {f.name for f in dataclasses.fields(GPTConfig)})


@dataclass(frozen=True, kw_only=True)
class LadderRung:
    """One rung.

    slug: the name in its folder. title: a few words. adds: one or two sentences about the new part.
    changes: settings that change on this rung and stay changed on all later ones.
    grows: settings that have the value of `LadderConfig` on this rung and all later ones.
    whole: whether it is the production GPT, with nothing left out.
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
            "ko": "바로 앞 글자 하나로 다음 글자를 예측합니다.",
            "en": "It predicts the next character from the last one alone.",
        },
        changes={
            "family": "classic", "mixing": "none", "n_layer": 1, "n_head": 1, "feed_forward": False,
            "residual": False, "norm": False, "dropout": 0.0, "tie_embeddings": False,
        },
    ),
    LadderRung(
        slug="average",
        title={"ko": "이전 글자의 평균", "en": "average of the past"},
        adds={
            "ko": "지금까지 나온 글자의 임베딩을 평균하여 다음 글자를 예측합니다.",
            "en": "It predicts from the plain mean of all characters so far.",
        },
        changes={"mixing": "average"},
    ),
    LadderRung(
        slug="one-head",
        title={"ko": "헤드 하나", "en": "one head"},
        adds={
            "ko": "쿼리와 키로 가중치를 계산합니다. 위치 임베딩을 더하고, 값과 출력 투영도 학습합니다.",
            "en": "Weights come from queries and keys. Positions are added; values and output projection are learned.",
        },
        changes={"mixing": "attention"},
    ),
    LadderRung(
        slug="many-heads",
        title={"ko": "여러 헤드", "en": "many heads"},
        adds={
            "ko": "같은 폭을 여러 헤드로 나누어 여러 위치를 동시에 참조합니다. 파라미터 수는 같습니다.",
            "en": "The width is split into heads, each with its own weights. The number of parameters is the same.",
        },
        grows=("n_head",),
    ),
    LadderRung(
        slug="feed-forward",
        title={"ko": "피드포워드", "en": "feed-forward"},
        adds={
            "ko": "어텐션의 출력을 위치마다 비선형 신경망으로 변환합니다.",
            "en": "A nonlinear network transforms the output of attention at each position.",
        },
        changes={"feed_forward": True},
    ),
    LadderRung(
        slug="stacked",
        title={"ko": "잔차 없이 쌓기", "en": "stack, no residuals"},
        adds={
            "ko": "이 블록을 여러 층 쌓습니다. 블록마다 입력을 새 값으로 바꿉니다.",
            "en": "Several of these blocks are stacked without changes. Each block replaces its input.",
        },
        grows=("n_layer",),
    ),
    LadderRung(
        slug="residual",
        title={"ko": "잔차 연결", "en": "residuals"},
        adds={
            "ko": "입력을 바꾸지 않고 블록의 출력을 입력에 더합니다: x + f(x).",
            "en": "A block adds to its input, x + f(x), instead of replacing it.",
        },
        changes={"residual": True},
    ),
    LadderRung(
        slug="normalisation",
        title={"ko": "정규화", "en": "normalisation"},
        adds={
            "ko": "어텐션과 피드포워드의 앞, 그리고 마지막에 LayerNorm을 적용합니다. 초깃값은 GPT-2처럼 작습니다.",
            "en": "LayerNorm before each attention and feed-forward, and at the end. GPT-2's small initial parameters.",
        },
        changes={"norm": True},
    ),
    LadderRung(
        slug="dropout",
        title={"ko": "드롭아웃", "en": "dropout"},
        adds={
            "ko": "학습하는 동안 값을 무작위로 0으로 만듭니다. 부품을 모두 갖춘 classic GPT입니다.",
            "en": "Random values are set to zero in training. This is the complete classic GPT.",
        },
        grows=("dropout",),
        whole=True,
    ),
    LadderRung(
        slug="modern",
        title={"ko": "modern과 Muon", "en": "modern with Muon"},
        adds={
            "ko": "jumok의 기본 모델입니다: 회전 위치 임베딩, 이전 토큰을 참조하도록 초기화한 헤드, RMSNorm, SwiGLU, "
            "임베딩 공유, 드롭아웃 없음, 그리고 Muon.",
            "en": "jumok's default model: rotary positions, heads initialised to attend to preceding tokens, RMSNorm, "
            "SwiGLU, tied embeddings, no dropout, and Muon.",
        },
        changes={"family": "modern", "dropout": 0.0, "tie_embeddings": True},
        whole=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LadderConfig:
    """The common settings of all rungs.

    minutes_per_rung, steps_per_rung: the budget of each rung; by default one minute.
    n_layer, n_head, dropout: from the rung on that adds them. n_embd, context_length, batch_size: of all rungs.
    learning_rate: of AdamW, on all rungs but the last, which uses jumok's defaults.
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
            require_range("steps_per_rung", self.steps_per_rung, 1)
        require_range("sample_tokens", self.sample_tokens, 1)
        require_choice("precision", self.precision, get_args(Precision))
        for rung in RUNGS:  # the configurations check the other settings
            shape = {f.name for f in dataclasses.fields(self.model(rung, vocab_size=1))}
            TrainConfig(**{name: value for name, value in self.settings(rung)[1].items() if name not in shape})

    def model(self, rung: LadderRung, vocab_size: int) -> GPTConfig:
        """The configuration of a rung's model."""
        kind, settings = self.settings(rung)
        names = {f.name for f in dataclasses.fields(kind)}
        return kind(vocab_size=vocab_size, **{name: value for name, value in settings.items() if name in names})

    def settings(self, rung: LadderRung) -> tuple[type[GPTConfig], dict[str, Any]]:
        """The configuration class of a rung's model, and its settings."""
        shape: dict[str, Any] = {}
        for below in RUNGS[: RUNGS.index(rung) + 1]:
            shape |= {**below.changes, **{name: getattr(self, name) for name in below.grows}}
        if rung.whole:
            shape = {name: value for name, value in shape.items() if name not in PARTS}
        if shape["family"] == "classic":
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
            "patience": 0,  # each rung uses its whole budget
            "compile": "off",  # compiling would take most of a minute, and a different time on each rung
            "sample_tokens": 0,  # the ladder generates its samples outside the budget
        }
