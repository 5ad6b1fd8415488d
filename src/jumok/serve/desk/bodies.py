"""The bodies of requests of the desk, checked."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from jumok.config import SIZES
from jumok.serve.errors import APIError
from jumok.serve.schemas import Part

LONGEST_MINUTES = 10_080.0  # a week


class DeskBody(Part):
    """What all have in common."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class NameBody(DeskBody):
    """A run or a ladder."""

    name: str = Field(max_length=300)


class UploadBody(DeskBody):
    """An uploaded text. column: of a table."""

    upload: str = Field(max_length=300)
    column: str | None = Field(None, max_length=200)


class ResumeBody(NameBody):
    """A run to continue. minutes, steps: how much further to train a finished one."""

    minutes: float | None = Field(None, gt=0, le=LONGEST_MINUTES)
    steps: int | None = Field(None, ge=1, lt=2**31)


class PlanBody(DeskBody):
    """The settings of a run. text: the name of an upload; None: the built-in stories."""

    text: str | None = Field(None, max_length=300)
    column: str | None = Field(None, max_length=200)
    size: str = "micro"
    family: Literal["modern", "classic"] = "modern"
    tokenizer: Literal["char", "jamo", "bpe"] = "char"
    minutes: float | None = Field(None, gt=0, le=LONGEST_MINUTES)
    steps: int | None = Field(None, ge=1, lt=2**31)

    @model_validator(mode="after")
    def _possible(self) -> PlanBody:
        if self.size not in SIZES:
            raise APIError(f"size should be one of {', '.join(SIZES)}, and it is {self.size[:50]!r}.", param="size")
        if self.minutes is not None and self.steps is not None:
            raise APIError("minutes and steps were both given; give one of them.", param="steps")
        return self


class StartBody(PlanBody):
    """A run to start. name: of its folder."""

    name: str = Field(max_length=300)


class LadderBody(DeskBody):
    """A ladder to start. minutes: for each rung."""

    name: str = Field(max_length=300)
    text: str | None = Field(None, max_length=300)
    column: str | None = Field(None, max_length=200)
    minutes: float = Field(1.0, gt=0, le=LONGEST_MINUTES)


class TokenizeRunBody(DeskBody):
    """A text for the tokenizer of a run, whose model need not be loaded."""

    name: str = Field(max_length=300)
    text: str
