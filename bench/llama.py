"""llama.cpp in a process of its own, with the weights of a GPT: python bench/llama.py MODEL.gguf --slots 16

`xllamacpp` has llama.cpp's server inside the process, with no bindings below it. A request goes from a pipe straight to
that server's queue: nothing passes HTTP, the prompts are ids, and all texts of a request come back as one answer. What
is timed is the whole request. The server's own `timings` leave out the prompt and the way to it; `Written` has both.
Attention is computed in float16 there, the default; `exact` makes it float32.

It has a process of its own because several servers in one process, or one beside torch, were many times as slow. Why
was not examined; both use OpenMP.

The wheels on PyPI are built for any x86-64 processor with AVX2. A build for the processor at hand may be faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

INSTALLED = find_spec("xllamacpp") is not None and find_spec("gguf") is not None
MISSING = "llama.cpp is left out: pip install 'jumok[bench]' installs xllamacpp and gguf."


@dataclass(frozen=True)
class Written:
    """What a request took. own: tokens a second of one of its texts, by the server's clock, without the prompt."""

    tokens: int
    seconds: float
    own: float


class Llama:
    """The other process, from this side. url: where its server listens."""

    def __init__(self, file: Path, *, slots: int, context: int, threads: int, exact: bool) -> None:
        numbers = {"--slots": slots, "--context": context, "--threads": threads}
        command = [sys.executable, __file__, str(file), *(str(word) for pair in numbers.items() for word in pair)]
        self._process = subprocess.Popen(
            [*command, *(["--exact"] if exact else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.url: str = self._answer()["url"]

    def write(self, prompts: Sequence[Sequence[int]], tokens: int, *, temperature: float = 0.8) -> Written:
        """Write so many tokens after each prompt, all at once."""
        return Written(**self._ask({"prompt": [list(ids) for ids in prompts], **sampling(tokens, temperature)}))

    def ids(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """The ids that are likeliest after a prompt."""
        answer = self.post("/completion", prompt=list(prompt), return_tokens=True, **sampling(tokens, 0.0))
        return list(answer["tokens"])

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Send a request to the server."""
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return dict(json.load(answer))

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("llama.cpp has ended; its messages are above.")
        return dict(json.loads(line))


def sampling(tokens: int, temperature: float) -> dict[str, Any]:
    """The fields of a request that draws as jumok does: a temperature and nothing else."""
    return {
        "n_predict": tokens, "temperature": temperature, "samplers": ["temperature"], "top_k": 0, "top_p": 1.0,
        "min_p": 0.0, "repeat_penalty": 1.0, "cache_prompt": False, "ignore_eos": True,
    }  # fmt: skip


@contextmanager
def started(file: Path, *, slots: int, context: int, threads: int, exact: bool = False) -> Iterator[Llama]:
    """A process for as long as the block lasts.

    Args:
        slots: texts that are written side by side. context: the most tokens of one of them.
        exact: compute attention in float32, not in float16, which is slower.
    """
    one = Llama(file, slots=slots, context=context, threads=threads, exact=exact)
    try:
        yield one
    finally:
        one.close()


# --- the other process ------------------------------------------------------------------------------------------------


def serve(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The address of the server, then an answer to each line of the input."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(options.model)
    settings.n_parallel = options.slots
    settings.n_ctx = options.slots * options.context
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = options.threads
    if options.exact:
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = (
            xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )  # it rounds to float16
    settings.cache_ram_mib = 0
    settings.ui = settings.fit_params = False
    settings.verbosity = -1
    server = xllamacpp.Server(settings)
    yield {"url": server.listening_address}
    for line in sys.stdin:
        began = perf_counter()
        answer = server.handle_completions(json.loads(line))
        seconds = perf_counter() - began
        # `usage` is that of the first text only. Without an end, all of them have as many tokens.
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}, answer
        yield {
            "seconds": seconds,
            "tokens": answer["usage"]["completion_tokens"] * len(answer["choices"]),
            "own": answer["timings"]["predicted_per_second"],
        }


def main() -> None:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--exact", action="store_true", help="attention in float32")
    for answer in serve(parser.parse_args()):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
