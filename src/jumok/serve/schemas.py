"""The bodies of requests, checked: each field has a range, and what this server does not do is refused.

`null` is the same as an absent parameter. Parameters that change nothing about an answer, such as `user`, are accepted
and ignored. Any other unknown parameter is an error, because a client that sends it expects something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import Response

from jumok.config import SIZES
from jumok.serve.errors import APIError, not_an_object, validation_error

MOST_CHOICES = 128
MOST_STOPS = 16
LONGEST_STOP = 1_000  # characters
MOST_TOP = 20
MOST_INPUTS = 2_048
MOST_TOKENS = 2**31 - 1
IGNORED = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "parallel_tool_calls",
    }
)  # fmt: skip


def _several(value: object) -> object:
    """Return a single text, or the ids of one, in a list."""
    is_ids = isinstance(value, list) and bool(value) and all(type(one) is int for one in value)
    return [value] if is_ids or isinstance(value, str) else value


Texts = Annotated[
    list[str] | list[list[int]],
    Field(min_length=1),
    BeforeValidator(_several, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]
Strings = Annotated[list[str], BeforeValidator(_several, json_schema_input_type=str | list[str])]
Stop = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]
Stops = Annotated[
    list[Stop], Field(max_length=MOST_STOPS), BeforeValidator(_several, json_schema_input_type=Stop | list[Stop])
]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class BodyPart(BaseModel):
    """An object in the body of a request. `null` is the same as leaving a parameter out, at every depth."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class ModelBody(BodyPart):
    """A request to a model."""

    model: str

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_nothing(cls, data: Any) -> Any:
        """Leave out parameters that change nothing here, and unknown ones with a value that asks for nothing."""
        if not isinstance(data, dict):
            return data
        nothing: tuple[object, ...] = ([], {}, "", False, "none")  # such as tool_choice="none"
        unknown = data.keys() - cls.model_fields
        left_out = {name for name in unknown if name in IGNORED or data[name] in nothing}
        return {name: value for name, value in data.items() if name not in left_out}


class StreamOptions(BodyPart):
    """`stream_options`. include_obfuscation: is accepted; nothing is added to hide the lengths of the pieces."""

    include_usage: bool = False
    include_obfuscation: bool = False


class TextBody(ModelBody):
    """The parameters of completions and of chats. Defaults are those of OpenAI: temperature 1, all tokens possible.

    `top_k`, `min_p` and `repetition_penalty` are extensions, as in `jumok.generate`. A seed gives the same texts each
    time. n: texts for each prompt.
    """

    n: int = Field(1, ge=1, le=MOST_CHOICES)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)  # an instance would be built at import
    stop: Stops = []
    seed: Seed | None = None
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0, le=MOST_TOKENS)
    min_p: float = Field(0.0, ge=0, le=1)
    repetition_penalty: float = Field(1.0, ge=0.01, le=100)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> TextBody:
        if "stream_options" in self.model_fields_set and not self.stream:
            raise APIError("stream_options is for stream=true alone.", param="stream_options")
        return self


class CompletionBody(TextBody):
    """`POST /v1/completions`.

    Fields:
        prompt: text, or ids of the model's tokenizer; "" begins a new text.
        max_tokens: may be more than the context; the model then sees the last tokens. 0 with `echo` writes nothing.
        echo: put the prompt before the text; with `logprobs` its tokens get their log-probabilities.
        logprobs: how many of the likeliest tokens to return with each token.
    """

    prompt: Texts = [""]
    max_tokens: int = Field(16, ge=0, le=MOST_TOKENS)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=MOST_TOP)

    @model_validator(mode="after")
    def _fits(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise APIError("max_tokens=0 writes nothing; it is allowed with echo=true alone.", param="max_tokens")
        return self


class TextPart(BodyPart):
    """A part of a message. Only text is read."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class Message(BodyPart):
    """A message of a chat. Other fields, such as `name`, are ignored.

    reasoning_content: what an assistant thought before it answered, as responses have it.
    """

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] = ""
    reasoning_content: str = ""

    @property
    def text(self) -> str:
        """Return all of its text."""
        return self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)


class ResponseFormat(BodyPart):
    """`response_format`: text is the only one."""

    type: Literal["text"]


class ChatBody(TextBody):
    """`POST /v1/chat/completions`.

    Fields:
        messages: see `jumok.serve.chat` for what becomes of them.
        max_tokens, max_completion_tokens: the same; by default as many as the model's context has.
        logprobs, top_logprobs: whether to return log-probabilities, and of how many of the likeliest tokens.
    """

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_INPUTS)]
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=MOST_TOP)
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] = ["text"]

    @model_validator(mode="after")
    def _fits(self) -> ChatBody:
        if self.top_logprobs is not None and not self.logprobs:
            raise APIError("top_logprobs needs logprobs=true.", param="top_logprobs")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise APIError("max_tokens and max_completion_tokens differ; give one of them.", param="max_tokens")
        return self


class EmbeddingBody(ModelBody):
    """`POST /v1/embeddings`: one vector for each text, of length 1. encoding_format: base64 is of float32."""

    input: Annotated[Texts, Field(max_length=MOST_INPUTS)]
    encoding_format: Literal["float", "base64"] = "float"


class ClassifyBody(ModelBody):
    """`POST /v1/classify`: the class of each text."""

    input: Annotated[Strings, Field(min_length=1, max_length=MOST_INPUTS)]


class FillMaskBody(ModelBody):
    """`POST /v1/fill-mask`: what stands at each [MASK] of a text. top: candidates for each."""

    input: str
    top: int = Field(5, ge=1, le=1000)


class TokenizeBody(ModelBody):
    """`POST /v1/tokenize`: the ids of a text, and how they read."""

    input: str


# --- of the server's own page -----------------------------------------------------------------------------------------

LONGEST_MINUTES = 10_080.0  # a week
# The columns of a table that each task reads, by the names of the options of `jumok train`.
# Those of conversations are recognized.
COLUMNS = {
    "lm": ["column"],
    "classify": ["text", "label"],
    "seq2seq": ["source", "target"],
    "mlm": ["column"],
    "chat": [],
}


class PageBody(ModelBody):
    """A text to look at in a page of the viewer. target: the answer of an encoder–decoder; None: its own."""

    text: str
    target: str | None = None


class NameBody(BodyPart):
    """A run."""

    name: str = Field(max_length=300)


class StartBody(NameBody):
    """A run to start.

    Fields:
        text: the name of an upload; None: the built-in corpus of the task. columns: of a table, see COLUMNS.
        size, tokenizer: None: as the task has them.
    """

    text: str | None = Field(None, max_length=300)
    task: Literal[*COLUMNS] = "lm"  # type: ignore[valid-type]
    columns: dict[str, str] = Field(default_factory=dict, max_length=2)
    size: Literal[*SIZES] | None = None  # type: ignore[valid-type]
    tokenizer: Literal["char", "jamo", "bpe"] | None = None
    minutes: float = Field(10.0, gt=0, le=LONGEST_MINUTES)

    @model_validator(mode="after")
    def _columns_of_the_task(self) -> StartBody:
        if unknown := set(self.columns) - set(COLUMNS[self.task]):
            known = ", ".join(COLUMNS[self.task]) or "none"
            wrong = f"columns to choose for the task {self.task}: {known}, not {min(unknown)[:50]!r}."
            raise APIError(wrong, param="columns")
        return self


# --- how they are read ------------------------------------------------------------------------------------------------

JSON_TYPE = re.compile(r"application/([\w.+-]+\+)?json\s*(;|$)", re.IGNORECASE)
P = TypeVar("P", bound=BodyPart)


def endpoint_of(answer: Callable[[P], Awaitable[Response]], kind: type[P]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that reads the body of a request and lets `answer` answer it.

    It raises APIError if the body is not called JSON, which no form of another site can do, or is no such object.
    """

    async def endpoint(request: Request) -> Response:
        content = await request.body()
        if not content or not JSON_TYPE.match(request.headers.get("content-type", "")):
            raise not_an_object()
        try:
            body = kind.model_validate(json.loads(content))
        except ValidationError as error:
            raise validation_error(error) from error
        except json.JSONDecodeError as error:
            raise APIError(f"the body is not valid JSON: {error.msg} at character {error.pos}.") from error
        except (ValueError, RecursionError) as error:
            reason = "the body is not UTF-8, is nested too deeply for parsing, or has a number of too many digits."
            raise APIError(reason) from error
        return await answer(body)

    return endpoint
