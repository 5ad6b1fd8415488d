"""The load of bench/serving.py counts what a server does wrong. No time is asserted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from serving import Job, Load, Reply, parsed

Answer = Callable[[asyncio.StreamWriter, dict[str, object]], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str, finish: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish}]}).encode() + b"\n\n"


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


END = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'


def test_a_response_is_read_across_its_chunks() -> None:
    """Where one chunk ends and the next begins has nothing to do with the events."""
    content = event("가") + event("나", "length") + END
    parts = [content[i : i + 7] for i in range(0, len(content), 7)]
    assert parsed(HEAD + b"".join(map(chunk, parts)) + chunk(b"")) == Reply(200, "가나", 2)
    assert parsed(HEAD + chunk(event("가")) + chunk(END)).text is None  # half a response has no text


def loaded(answer: Answer, wanted: list[Job], texts: list[str]) -> Load:
    """What becomes of some requests to a server that answers like this."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        writer.write(HEAD)
        await answer(writer, json.loads(await reader.readexactly(length)))
        writer.close()

    async def run() -> Load:
        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()[:2]
            load = Load(f"http://{host}:{port}", "novel", {}, texts)
            await asyncio.gather(*map(load.request, wanted))
        return load

    return asyncio.run(run())


def test_a_text_of_another_request_is_noticed() -> None:
    async def mixed_up(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
        writer.write(chunk(event("가") + event("나", "length") + END))

    wanted = [Job(prompt=[1], tokens=2, reference=0), Job(prompt=[2], tokens=2, reference=1), Job(prompt=[3], tokens=2)]
    load = loaded(mixed_up, wanted, ["가나", "다라"])
    assert load.counts == {"finished": 3, "greedy": 2, "greedy, not as alone": 1}
    assert (load.tokens, load.asked(), len(load.first)) == (6, 3, 3)
