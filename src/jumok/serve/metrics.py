"""`Metrics`: the figures of a server, in the text format of Prometheus.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from jumok.inference.service import Counts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds of a request, of the first token, and between tokens: from a step of a tiny model to a request's timeout.
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
TOKEN_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OF_MODELS = (
    ("gauge", "jumok_texts_running", "running", "Texts that are being written."),
    ("gauge", "jumok_texts_waiting", "waiting", "Texts that wait for a slot."),
    ("counter", "jumok_texts_finished_total", "finished", "Texts that ended."),
    ("counter", "jumok_tokens_written_total", "written", "Tokens that were written."),
    ("counter", "jumok_tokens_read_total", "read", "Tokens of prompts that were read."),
    ("counter", "jumok_tokens_reused_total", "reused", "Tokens of prompts whose keys and values were there already."),
)  # fmt: skip

Sample = tuple[str, Mapping[str, object], float]  # the end of its name, its labels, its value


class Histogram:
    """Counts seconds by the first bound that they do not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, seconds: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def samples(self, **labels: object) -> Iterator[Sample]:
        """Yield how many values are at most each bound, their sum and their number."""
        for bound, count in zip((*self._bounds, "+Inf"), accumulate(self._counts), strict=True):
            yield "_bucket", {**labels, "le": bound}, count
        yield "_sum", labels, self._sum
        yield "_count", labels, sum(self._counts)


class Metrics:
    """Counts what a server does. Only the thread of its event loop may use it.

    Args:
        counts: returns the counts of the loaded models by their names, as `ServedModels.counts`.
    """

    def __init__(self, counts: Callable[[], Mapping[str, Counts]] = dict) -> None:
        self._counts = counts
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(REQUEST_BUCKETS))
        self._first, self._between = Histogram(TOKEN_BUCKETS), Histogram(TOKEN_BUCKETS)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. path: the path of its route, not what the client wrote: each path becomes a time series."""
        self._requests[path, status] += 1
        self._seconds[path].observe(seconds)

    def first_token(self, seconds: float) -> None:
        """Count the time from a request to its first token."""
        self._first.observe(seconds)

    def between(self, seconds: float) -> None:
        """Count the time between two tokens of a text."""
        self._between.observe(seconds)

    def text(self) -> str:
        """Return all figures, for GET /metrics; their content type is CONTENT_TYPE."""
        requests = [("", {"path": path, "status": status}, n) for (path, status), n in self._requests.items()]
        seconds = [sample for path, one in self._seconds.items() for sample in one.samples(path=path)]
        first, between = "Time from a request to its first token.", "Time between two tokens of a text."
        models = self._counts().items()
        return "".join(
            (
                _family("counter", "jumok_requests_total", "Requests that were answered.", requests),
                _family("histogram", "jumok_request_seconds", "Time until the last byte of an answer.", seconds),
                _family("histogram", "jumok_first_token_seconds", first, self._first.samples()),
                _family("histogram", "jumok_between_tokens_seconds", between, self._between.samples()),
                *(
                    _family(kind, name, about, [("", {"model": model}, getattr(n, field)) for model, n in models])
                    for kind, name, field, about in OF_MODELS
                ),
            )
        )


def _family(kind: str, name: str, about: str, samples: Iterable[Sample]) -> str:
    """Return the lines of a figure."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for end, labels, value in samples:
        given = ",".join(f'{label}="{_escaped(str(one))}"' for label, one in labels.items())
        lines.append(f"{name}{end}{{{given}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
