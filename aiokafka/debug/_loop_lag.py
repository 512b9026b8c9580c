"""Measure the lag of an event loop."""

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
    """Measures the lag of the event loop: by how much its timers are late.

    Code that computes or blocks without `await` delays the loop, and so heartbeats, fetches and
    commits. A timer fires every `interval_ms`; its delay is counted in the histogram `lag` of the
    group `event-loop-metrics`. A measurement costs a few microseconds. The timer runs only between
    `start` and `stop`, or in a `with` block::

        with LoopLag():
            await serve()

    `metrics()` returns the histogram, and `KafkaCollector` exports it.
    """

    def __init__(self, interval_ms: float = 100) -> None:
        """Measure the running event loop, every `interval_ms` milliseconds.

        Raises RuntimeError without a running event loop, and ValueError for an interval below 1.
        """
        if not interval_ms >= 1:  # also true for NaN
            raise ValueError(f"interval_ms={interval_ms!r}: must be at least 1")
        self._loop = asyncio.get_running_loop()
        self._interval = interval_ms / 1000
        self._lag = Histogram(LATENCY_MS)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer. A second call has no effect."""
        if self._timer is None:
            register(self)
            self._schedule()

    def stop(self) -> None:
        """Stop the timer. `metrics()` still returns what was measured."""
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

    def _schedule(self) -> None:
        self._due = self._loop.time() + self._interval
        self._timer = self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self._lag.observe(max(0.0, self._loop.time() - self._due) * 1000)
        self._schedule()

    def metrics(self) -> MetricsSnapshot:
        """Return the histogram of the lag in milliseconds. Works before `start` and after
        `stop`."""
        from aiokafka.metrics._values import Distribution, Metric, MetricKind, MetricsSnapshot

        lag = Distribution(*self._lag.read())
        return MetricsSnapshot(
            [Metric("event-loop-metrics", "lag", lag, MetricKind.HISTOGRAM, "ms")]
        )
