"""Counts of the server for /metrics, in Prometheus' text format.

Source: https://prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

#: Upper bounds of the histogram of durations, in seconds.
BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
Labels: TypeAlias = tuple[tuple[str, str], ...]
#: Name -> (help, values by labels).
Gauges: TypeAlias = Mapping[str, tuple[str, Mapping[Labels, float]]]


class Metrics:
    """What has happened since the server started. It is used in the event loop only."""

    def __init__(self) -> None:
        self.requests: Counter[Labels] = Counter()
        self.audio_seconds = 0.0  # of recordings that were transcribed
        self.speech_seconds = 0.0  # of speech that was generated
        self._within: Counter[tuple[str, float]] = Counter()  # requests by route and bucket
        self._seconds: dict[str, float] = {}
        self._count: Counter[str] = Counter()

    def add_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request; status 0: its client was gone before the answer began."""
        self.requests[("route", route), ("status", str(status or 499))] += 1
        self._seconds[route] = self._seconds.get(route, 0.0) + seconds
        self._count[route] += 1
        for bound in BUCKETS_S:
            self._within[route, bound] += seconds <= bound

    def text(self, gauges: Gauges) -> str:
        """The text of /metrics; `gauges` have the values of this moment."""
        parts = [
            *_metric("requests_total", "counter", "Requests answered.", self.requests.items()),
            *_metric(
                "audio_seconds_total",
                "counter",
                "Seconds of audio transcribed.",
                [((), self.audio_seconds)],
            ),
            *_metric(
                "speech_seconds_total",
                "counter",
                "Seconds of speech generated.",
                [((), self.speech_seconds)],
            ),
            *self._durations(),
        ]
        for name, (help, values) in gauges.items():
            parts += _metric(name, "gauge", help, values.items())
        return "".join(f"{line}\n" for line in parts)

    def _durations(self) -> Iterator[str]:
        name = "oscine_request_seconds"
        yield f"# HELP {name} Time from a request to the end of its answer."
        yield f"# TYPE {name} histogram"
        for route, count in self._count.items():
            for bound in BUCKETS_S:
                labels = _labels((("route", route), ("le", f"{bound:g}")))
                yield f"{name}_bucket{labels} {self._within[route, bound]}"
            yield f"{name}_bucket{_labels((('route', route), ('le', '+Inf')))} {count}"
            yield f"{name}_sum{_labels((('route', route),))} {self._seconds[route]:.6f}"
            yield f"{name}_count{_labels((('route', route),))} {count}"


def _metric(
    name: str, kind: str, help: str, values: Iterable[tuple[Labels, float]]
) -> Iterator[str]:
    yield f"# HELP oscine_{name} {help}"
    yield f"# TYPE oscine_{name} {kind}"
    for labels, value in values:
        yield f"oscine_{name}{_labels(labels)} {value:g}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
