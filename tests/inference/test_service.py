"""The service: many threads, one model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest
from test_engine import some_requests, tiny
from torch import Tensor

from jumok.errors import JumokError
from jumok.inference.engine import Engine
from jumok.inference.generate import write_all
from jumok.inference.requests import Event, Overloaded, Request, joined
from jumok.inference.sampling import Sampling
from jumok.inference.service import Service
from jumok.models.gpt import GPT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("backend")]

LONG = Request(prompt=[1], sampling=Sampling(temperature=1), tokens=10**6)


class Stream(Iterator[Event]):
    """The events of one text, for any thread."""

    def __init__(self, service: Service, request: Request) -> None:
        self._news: SimpleQueue[Event | JumokError] = SimpleQueue()
        self._over = False
        self.text = service.submit(request, self._news.put)

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        found = self._news.get(timeout=120)
        if isinstance(found, JumokError):
            raise found
        self._over = found.finish is not None
        return found


@pytest.fixture
def model(backend: str) -> GPT:
    return tiny()


@pytest.fixture
def service(model: GPT) -> Iterator[Service]:
    service = Service(model, slots=3, waiting=4)
    yield service
    service.close(finish=False, timeout=60)


def whole(stream: Stream) -> Event:
    """All events of a text as one."""
    return joined(list(stream))


def test_callers_in_many_threads_get_what_each_would_get_alone(model: GPT):
    requests = some_requests(model, 24, seed=4)
    wanted = [write_all(Engine(model, 1), [request])[0] for request in requests]
    service = Service(model, slots=5, waiting=100)
    found: dict[int, Event] = {}

    def call(number: int) -> None:
        found[number] = whole(Stream(service, requests[number]))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    service.close(timeout=60)
    for number, text in enumerate(wanted):
        event = found[number]
        assert ([new.id for new in event.drawn], event.text, event.finish) == (text.drawn, text.text, text.finish)
    counts = service.counts()
    assert (counts.running, counts.waiting, counts.finished) == (0, 0, 24)


def test_texts_that_a_free_slot_is_for_do_not_fill_the_queue(model: GPT):
    """Two requests that came before the thread looked were refused as if no slot was free."""
    service = Service(model, slots=3, waiting=4)
    with service._changed:  # the thread cannot let any of them in
        for _ in range(7):
            Stream(service, LONG)
        with pytest.raises(Overloaded, match="7 texts are waiting"):
            Stream(service, LONG)
    service.close(finish=False, timeout=60)


def test_cancelling_frees_the_slot(service: Service):
    running = [Stream(service, LONG) for _ in range(3)]
    for stream in running:
        assert next(stream).drawn
    waiting = Stream(service, Request(prompt=[2], tokens=2))
    service.cancel(running[1].text)
    assert whole(running[1]).finish == "cancelled"
    assert whole(waiting).finish == "length"
    assert service.counts().running == 2


def test_a_text_that_waits_can_be_cancelled(service: Service):
    running = [Stream(service, LONG) for _ in range(3)]
    next(running[2])
    waiting = Stream(service, LONG)
    service.cancel(waiting.text)
    assert list(waiting) == [Event((), "", "cancelled")]
    service.cancel(waiting.text)  # again: nothing happens
    assert service.counts().running == 3


def test_a_full_queue_refuses(service: Service):
    running = [Stream(service, LONG) for _ in range(3)]
    for stream in running:
        next(stream)
    waiting = [Stream(service, LONG) for _ in range(4)]
    with pytest.raises(Overloaded, match="4 texts are waiting"):
        Stream(service, LONG)
    service.cancel(waiting[0].text)
    assert whole(waiting[0]).finish == "cancelled"
    Stream(service, LONG)


def test_closing_finishes_what_was_begun(model: GPT):
    service = Service(model, slots=2)
    streams = [Stream(service, Request(prompt=[number], tokens=20)) for number in range(5)]
    service.close(timeout=60)
    assert [whole(stream).finish for stream in streams] == ["length"] * 5
    with pytest.raises(RuntimeError, match="closed"):
        Stream(service, LONG)
    service.close()


def test_closing_at_once_cancels(model: GPT):
    service = Service(model, slots=2)
    streams = [Stream(service, LONG) for _ in range(4)]
    next(streams[0])
    service.close(finish=False, timeout=60)
    assert [whole(stream).finish for stream in streams] == ["cancelled"] * 4


def test_a_step_that_fails_ends_its_texts_and_not_the_service(model: GPT, monkeypatch: pytest.MonkeyPatch):
    service = Service(model, slots=2)
    read = service._engine._slots.read

    def failing(*_: Any) -> Tensor:
        raise RuntimeError("not enough memory")

    monkeypatch.setattr(service._engine._slots, "read", failing)
    streams = [Stream(service, Request(prompt=[1, 2], tokens=3)) for _ in range(3)]
    for stream in streams:
        with pytest.raises(JumokError, match="the model failed while it generated: RuntimeError: not enough memory"):
            list(stream)
    monkeypatch.setattr(service._engine._slots, "read", read)
    assert whole(Stream(service, Request(prompt=[1, 2], tokens=3))).finish == "length"
    service.close(timeout=60)
    assert service.counts().finished == 4


def test_a_request_that_does_not_fit_fails_alone(service: Service):
    with pytest.raises(JumokError, match="one is 999999"):
        list(Stream(service, Request(prompt=[999_999])))
    assert whole(Stream(service, Request(prompt=[1], tokens=2))).finish == "length"


def test_a_caller_that_fails_ends_no_text(service: Service, caplog: pytest.LogCaptureFixture):
    """It ended the thread of the service, and everybody waited for ever."""

    def failing(found: object) -> None:
        raise ZeroDivisionError

    service.submit(Request(prompt=[1], tokens=20), failing)
    assert whole(Stream(service, Request(prompt=[2], tokens=30))).finish == "length"
    assert "an event of a text could not be delivered" in caplog.text


def test_slots_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch):
    """Nobody asked, so 64 long texts of a large model could take more than the machine has."""
    model = tiny()
    one = 2 * 2 * 2 * 8 * 48 * 4  # keys and values, layers, heads, their width, positions, bytes
    for free, slots in ((None, 9), (10**12, 9), (3 * one + 1, 3), (0, 1)):
        monkeypatch.setattr("jumok.models.size_checks.free_memory", lambda _, free=free: free)
        service = Service(model, slots=9)
        assert service._engine.free == slots
        service.close()
