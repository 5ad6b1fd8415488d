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
        self._registry = registry = CollectorRegistry()
        requests, whole = "Requests that were answered.", "Time until the last byte of an answer."
        first, between = "Time from a request to its first token.", "Time between two tokens of a text."
        buckets = TOKEN_BUCKETS
        self._requests = Counter("jumok_requests", requests, ["path", "status"], registry=registry)
        self._seconds = Histogram("jumok_request_seconds", whole, ["path"], buckets=REQUEST_BUCKETS, registry=registry)
        self._first = Histogram("jumok_first_token_seconds", first, buckets=buckets, registry=registry)
        self._between = Histogram("jumok_between_tokens_seconds", between, buckets=buckets, registry=registry)
        registry.register(_Texts(counts))

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
        for kind, unit, name, help_text in (
            (GaugeMetricFamily, "texts", "running", "Texts that are being written."),
            (GaugeMetricFamily, "texts", "waiting", "Texts that wait for a slot."),
            (CounterMetricFamily, "texts", "finished", "Texts that ended."),
            (CounterMetricFamily, "tokens", "written", "Tokens that were written."),
            (CounterMetricFamily, "tokens", "read", "Tokens of prompts that were read."),
            (CounterMetricFamily, "tokens", "reused", "Tokens of prompts whose keys and values were there already."),
        ):
            family = kind(f"jumok_{unit}_{name}", help_text, labels=["model"])
            for model, count in counts.items():
                family.add_metric([model], getattr(count, name))
            yield family
