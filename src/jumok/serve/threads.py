"""`Threads`: functions that would hold up the event loop, called in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from jumok.inference.requests import overloaded

T = TypeVar("T")


class Threads:
    """Calls functions in threads, in the order in which they come.

    A thread cannot be interrupted. A call counts until it has ended, also if the client has gone meanwhile: otherwise
    clients that come and go would start any number of threads.

    Args:
        most: calls that run at a time. waiting: calls that may wait for them; None: any number.
    """

    def __init__(self, most: int, waiting: int | None = None) -> None:
        self._free, self._most_waiting = asyncio.Semaphore(most), waiting
        self._waiting = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function and return what it returns.

        Raises:
            Overloaded: too many calls are waiting.
        """
        if self._free.locked() and self._most_waiting is not None and self._waiting >= self._most_waiting:
            raise overloaded(self._waiting)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        call = asyncio.ensure_future(to_thread.run_sync(function, limiter=CapacityLimiter(1)))
        call.add_done_callback(lambda done: self._free.release())
        return await asyncio.shield(call)
