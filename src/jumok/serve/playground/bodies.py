"""The bodies of requests of the playground, checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from jumok.inference.sampling import Sampling
from jumok.serve.schemas import Body, Part, Seed

MOST_TOP = 1_000
MOST_LISTED = 1_000_000  # likely tokens in an answer
MOST_OFF = 4_096
MOST_IDS = 100_000
MOST_BEAMS = 16

Ids = Annotated[list[int], Field(min_length=1, max_length=MOST_IDS)]
Heads = Annotated[list[Annotated[list[int], Field(min_length=2, max_length=2)]], Field(max_length=MOST_OFF)]
Top = Annotated[int, Field(ge=1, le=MOST_TOP)]


class SamplingBody(Part):
    """How the next token is drawn; top_k 0: all. seed: None: a new one each time."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0, le=100)] = 0.8
    top_k: Annotated[int, Field(ge=0, lt=2**31)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    seed: Seed | None = None

    def settings(self) -> Sampling:
        """As the engine has them."""
        return Sampling(**(self.model_dump(exclude={"seed", "top_k"}) | {"top_k": self.top_k or None}))


class TextBody(Body):
    """A text."""

    text: str


class IdsBody(Body):
    """Ids of the model's tokenizer, and heads that are switched off: [layer, head] each, from 0."""

    ids: Ids
    off: Heads = Field(default_factory=list)
    top: Top = 12

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """The heads that are off, each once."""
        return tuple(sorted({(layer, head) for layer, head in self.off}))


class NextBody(IdsBody):
    """The token after some ids."""

    sampling: SamplingBody = SamplingBody()


class WriteBody(NextBody):
    """A continuation of some ids."""

    tokens: int = Field(200, ge=1, le=MOST_IDS)


class RecordBody(IdsBody):
    """The attention of some layers; all by default."""

    layers: list[int] | None = None


class StepBody(IdsBody):
    """One step, in one layer."""

    layer: int = Field(0, ge=0)


class ClassifyBody(TextBody):
    """The classes of a text; words: what each of its words does."""

    words: bool = False


class AnswerBody(TextBody):
    """An answer. trace: with the cross-attention of source and answer."""

    tokens: int | None = Field(None, ge=1, le=MOST_IDS)
    beams: int = Field(1, ge=1, le=MOST_BEAMS)
    sampling: SamplingBody = SamplingBody(temperature=0.0)
    trace: bool = False


class FillBody(TextBody):
    """The masks of a text."""

    top: Top = 12
