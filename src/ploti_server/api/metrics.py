"""Counts of requests and their times in the text format that Prometheus reads, for this process."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Requests of this process; safe to use from threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}
        self._within: dict[tuple[str, str], list[int]] = {}
        self._open = 0

    def begin(self) -> None:
        """Count a request as being served."""
        with self._turn:
            self._open += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note that a request has been answered; `route` is the route's template, never the path itself."""
        with self._turn:
            self._open -= 1
            self._requests[method, route, status] += 1
            self._seconds[method, route] = self._seconds.get((method, route), 0.0) + seconds
            within = self._within.setdefault((method, route), [0] * (len(_BUCKETS) + 1))
            within[bisect_left(_BUCKETS, seconds)] += 1

    def text(self, gauges: Mapping[str, tuple[str, int]]) -> str:
        """Write everything, with further gauges by name, each with its meaning and value."""
        with self._turn:
            lines = [*self._count_lines(), *self._time_lines()]
            known = {"ploti_http_requests_in_flight": ("Requests being served.", self._open)}
        for name, (meaning, value) in (known | dict(gauges)).items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def _count_lines(self) -> Iterator[str]:
        yield "# HELP ploti_http_requests_total Requests answered."
        yield "# TYPE ploti_http_requests_total counter"
        for (method, route, status), count in sorted(self._requests.items()):
            yield f'ploti_http_requests_total{{{_labels(method, route)},status="{status}"}} {count}'

    def _time_lines(self) -> Iterator[str]:
        name = "ploti_http_request_seconds"
        yield f"# HELP {name} Seconds from a request's arrival to the end of its answer."
        yield f"# TYPE {name} histogram"
        for (method, route), within in sorted(self._within.items()):
            labels, so_far = _labels(method, route), 0
            for most, count in zip((*_BUCKETS, "+Inf"), within, strict=True):
                so_far += count
                yield f'{name}_bucket{{{labels},le="{most}"}} {so_far}'
            yield f"{name}_sum{{{labels}}} {self._seconds[method, route]:.6f}"
            yield f"{name}_count{{{labels}}} {so_far}"


def _labels(method: str, route: str) -> str:
    return f'method="{method}",route="{route}"'
