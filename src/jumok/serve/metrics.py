"""`Metrics`: the figures of a server, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jumok.inference.service import Counts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds of a request, of the first token, and between tokens: from a step of a tiny model to a request's timeout.
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
TOKEN_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts what a server does, in a registry of its own: two servers in one process count apart.

    Args:
        counts: returns the counts of the loaded models by their names, as `Models.counts`.
    """

    def __init__(self, counts: Callable[[], Mapping[str, Counts]] = dict) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "jumok_requests", "Requests that were answered.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "jumok_request_seconds",
            "Time until the last byte of an answer.",
            ["path"],
            buckets=REQUEST_BUCKETS,
            registry=self._registry,
        )
        self._first = Histogram(
            "jumok_first_token_seconds",
            "Time from a request to its first token.",
            buckets=TOKEN_BUCKETS,
            registry=self._registry,
        )
        self._between = Histogram(
            "jumok_between_tokens_seconds",
            "Time between two tokens of a text.",
            buckets=TOKEN_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Texts(counts))

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. path: the path of its route, not what the client wrote: each path becomes a time series."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def first_token(self, seconds: float) -> None:
        """Count the time from a request to its first token."""
        self._first.observe(seconds)

    def between(self, seconds: float) -> None:
        """Count the time between two tokens of a text."""
        self._between.observe(seconds)

    def text(self) -> str:
        """Return all figures, for GET /metrics; their content type is CONTENT_TYPE."""
        return generate_latest(self._registry).decode()


class _Texts(Collector):
    """Collects the counts of the loaded models when the figures are asked for."""

    def __init__(self, counts: Callable[[], Mapping[str, Counts]]) -> None:
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        """Describe nothing: the registry need not ask the models for their counts when it registers this collector."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each count, with the name of the model as a label."""
        counts = dict(self._counts())
        gauges = {"running": "Texts that are being written.", "waiting": "Texts that wait for a slot."}
        totals = {
            "finished": "Texts that ended.",
            "written": "Tokens that were written.",
            "read": "Tokens of prompts that were read.",
            "reused": "Tokens of prompts whose keys and values were there already.",
        }
        for name, help_text in gauges.items():
            gauge = GaugeMetricFamily(f"jumok_texts_{name}", help_text, labels=["model"])
            for model, count in counts.items():
                gauge.add_metric([model], getattr(count, name))
            yield gauge
        for name, help_text in totals.items():
            unit = "texts" if name == "finished" else "tokens"
            total = CounterMetricFamily(f"jumok_{unit}_{name}", help_text, labels=["model"])
            for model, count in counts.items():
                total.add_metric([model], getattr(count, name))
            yield total
