"""How late an event loop calls what is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka._typing import Self, later
from aiokafka.metrics._clients import LATENCY_MS, Histogram, register, unregister

if TYPE_CHECKING:
    from types import TracebackType

    from aiokafka.metrics._values import MetricsSnapshot
else:
    MetricsSnapshot = later("aiokafka.metrics._values.MetricsSnapshot")

__all__ = ["LoopLag"]


class LoopLag:
    """Measures how late the event loop is, while it is started.

    A loop that is late is held up by code that computes, or blocks, without `await`: heartbeats,
    fetches and commits wait as long. A timer comes every `interval_ms`, and what it is late by is
    counted in the histogram `lag` of the group `event-loop-metrics`; it costs a few microseconds
    each time. Nothing measures unless the program asks for it::

        with LoopLag():
            await serve()

    `metrics()` has the numbers, and `KafkaCollector` has them among those of the clients.
    """

    def __init__(self, interval_ms: float = 100) -> None:
        """Begin at zero. Raises ValueError for an interval below 1, RuntimeError without a running
        event loop."""
        if not interval_ms >= 1:  # NaN is neither
            raise ValueError(f"interval_ms={interval_ms!r}: must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._interval = interval_ms / 1000
        self._lag = Histogram(LATENCY_MS)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now on; does nothing if it does already."""
        if self._timer is None:
            register(self)
            self._set()

    def stop(self) -> None:
        """Measure no more; what was counted stays in `metrics()`."""
        unregister(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _set(self) -> None:
        self._due = self._loop.time() + self._interval
        self._timer = self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self._lag.observe(max(0.0, self._loop.time() - self._due) * 1000)
        self._set()

    def metrics(self) -> MetricsSnapshot:
        """Return what was counted so far, at any time."""
        from aiokafka.metrics._values import Distribution, Metric, MetricKind, MetricsSnapshot

        lag = Distribution(*self._lag.read())
        return MetricsSnapshot(
            [Metric("event-loop-metrics", "lag", lag, MetricKind.HISTOGRAM, "ms")]
        )
