"""The routes of the playground's engine: `POST /v1/jumok/engine/...`, one for each method of `engine_types.js`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response

from jumok.models.checks import require_tokenizer
from jumok.serve.bodies import JSONRoute
from jumok.serve.errors import APIError
from jumok.serve.models import Models, Served
from jumok.serve.own import require_few_masks
from jumok.serve.playground import language_model, recordings, tasks
from jumok.serve.playground.bodies import (
    MOST_LISTED,
    AnswerBody,
    ClassifyBody,
    FillBody,
    IdsBody,
    NextBody,
    RecordBody,
    SamplingBody,
    StepBody,
    TextBody,
    WriteBody,
)
from jumok.serve.playground.language_model import JSON
from jumok.serve.playground.step import step
from jumok.serve.schemas import Body
from jumok.serve.settings import ServeSettings
from jumok.serve.streaming import Reply, WhileConnected, data, to_json
from jumok.serve.threads import Threads
from jumok.serve.writing import require_short, require_tokens
from jumok.view.model_page import describe

AT_ONCE = 4  # calls; those for one model wait for each other
B = TypeVar("B", bound=Body)
Make = Callable[[Reply, Served], Coroutine[Any, Any, None]]


def engine_routes(models: Models, settings: ServeSettings) -> APIRouter:
    """The routes of the engine, for the models of a server."""
    router = APIRouter(route_class=JSONRoute, prefix="/v1/jumok/engine")
    engine = EngineEndpoints(models, settings)
    for endpoint in (
        engine.about, engine.encode, engine.spell, engine.decode, engine.next, engine.score, engine.write,
        engine.record, engine.record_next, engine.step, engine.classify, engine.answer, engine.fill,
    ):  # fmt: skip
        path = "/" + endpoint.__name__.replace("_", "-")
        router.add_api_route(path, endpoint, methods=["POST"], response_model=None)
    return router


class EngineEndpoints:
    """The endpoints of the engine. Each call names its model."""

    def __init__(self, models: Models, settings: ServeSettings) -> None:
        self._models, self._settings = models, settings
        self._threads = Threads(AT_ONCE, max(1, settings.waiting))

    async def about(self, body: Body) -> Response:
        """What a page says about the model."""
        return self._whole(body, about)

    async def encode(self, body: TextBody) -> Response:
        """The tokens of a text."""
        self._require_short(body)
        return self._whole(body, lambda served: language_model.encode(served.reading, body.text))

    async def spell(self, body: IdsBody) -> Response:
        """The same of ids."""
        return self._of_ids(body, lambda served: language_model.spell(served.reading, body.ids))

    async def decode(self, body: IdsBody) -> Response:
        """The text of some ids."""
        return self._of_ids(body, lambda served: {"text": language_model.decode(served.reading, body.ids)})

    async def next(self, body: NextBody) -> Response:
        """The distribution of the next token."""

        def call(served: Served) -> JSON:
            sampling = body.sampling.settings()
            return language_model.next_token(served.reading, body.ids, sampling, body.heads, body.top)

        return self._of_ids(body, call)

    async def score(self, body: IdsBody) -> Response:
        """How well each token was predicted."""
        if len(body.ids) * body.top > MOST_LISTED:
            raise APIError(f"ids times top is more than {MOST_LISTED:,}; ask for fewer likely tokens.", param="top")
        return self._of_ids(
            body, lambda served: {"tokens": language_model.score(served.reading, body.ids, body.heads, body.top)}
        )

    async def write(self, body: WriteBody) -> Response:
        """A continuation, as a stream of tokens."""
        require_tokens("tokens", body.tokens, self._settings)

        def tokens(served: Served) -> Iterator[JSON]:
            _require_ids(served, body.ids)
            sampling, seed = body.sampling.settings(), _seed(body.sampling)
            return language_model.write(served.reading, body.ids, body.tokens, sampling, seed, body.heads, body.top)

        return self._stream(body, tokens)

    async def record(self, body: RecordBody) -> Response:
        """The attention of some ids, as a trace."""
        return self._of_ids(
            body,
            lambda served: recordings.record(served.reading, body.ids, body.layers, body.heads, body.top, served.name),
        )

    async def record_next(self, body: IdsBody) -> Response:
        """The attention of the last of some ids, as an event by which a trace grows."""
        return self._of_ids(body, lambda served: recordings.record_next(served.reading, body.ids, body.heads, body.top))

    async def step(self, body: StepBody) -> Response:
        """Everything of one step."""
        return self._of_ids(body, lambda served: step(served.reading, body.ids, body.layer, body.heads, body.top))

    async def classify(self, body: ClassifyBody) -> Response:
        """The classes of a text."""
        self._require_short(body)
        return self._whole(body, lambda served: tasks.classify(served.reading, body.text, words=body.words))

    async def answer(self, body: AnswerBody) -> Response:
        """An answer, as a stream of tokens; the last event is the whole one."""
        self._require_short(body)

        def tokens(served: Served) -> Iterator[JSON]:
            if body.beams > 1:
                found = tasks.beams(served.reading, body.text, body.tokens, body.beams)
                last = {**found[0], "answers": found}
            else:
                sampling, last = body.sampling.settings(), {}
                for event in tasks.write_answer(served.reading, body.text, body.tokens, sampling, _seed(body.sampling)):
                    last = event
                    if "finish" not in event:
                        yield event
                last = {**last, "answers": [last]}
            traced = tasks.cross(served.reading, body.text, last["text"], served.name) if body.trace else None
            yield {**last, "cross": traced}

        return self._stream(body, tokens)

    async def fill(self, body: FillBody) -> Response:
        """The masks of a text."""
        self._require_short(body)

        def call(served: Served) -> JSON:
            require_few_masks(served.model, body.text, "text")
            return tasks.fill(served.reading, body.text, body.top)

        return self._whole(body, call)

    # --- how they answer ----------------------------------------------------------------------------------------------

    def _whole(self, body: Body, call: Callable[[Served], JSON]) -> Response:
        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                await reply.whole(await self._threads.run(lambda: to_json(call(served))))

        return WhileConnected(make, self._settings.timeout)

    def _of_ids(self, body: IdsBody, call: Callable[[Served], JSON]) -> Response:
        def checked(served: Served) -> JSON:
            _require_ids(served, body.ids)
            return call(served)

        return self._whole(body, checked)

    def _stream(self, body: Body, start: Callable[[Served], Iterator[JSON]]) -> Response:
        """A stream of the events of an iterator, each computed in a thread. It ends when the client goes away."""

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                events = await self._threads.run(lambda: start(served))
                count = 0
                while (event := await self._threads.run(lambda: next(events, None))) is not None:
                    if not count:  # an error before the first event has its own status
                        await reply.begin()
                    count += 1
                    reply.count(count)
                    await reply.piece(data(to_json(event)))
                await reply.piece(data('{"ended":"length"}'))
                await reply.end()

        return WhileConnected(make, self._settings.timeout)

    def _require_short(self, body: TextBody) -> None:
        require_short("text", len(body.text), self._settings)


def _seed(sampling: SamplingBody) -> int:
    return secrets.randbits(63) if sampling.seed is None else sampling.seed % 2**64


def _require_ids(served: Served, ids: list[int]) -> None:
    """Raise APIError for an id that the tokenizer does not have."""
    known = require_tokenizer(served.model).vocab_size
    wrong = next((one for one in ids if not 0 <= one < known), None)
    if wrong is not None:
        raise APIError(f"ids are 0 to {known - 1:,} for this model, and one is {wrong}.", param="ids")


def about(served: Served) -> JSON:
    """What a page says about a model."""
    return {"name": served.name, **describe(served.model)}
