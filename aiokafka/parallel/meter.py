"""Count what a ParallelConsumer does. Twice per record, so it does very little."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.metrics import Metric
    from aiokafka.parallel.retry import RetryTopics
    from aiokafka.parallel.work import WorkQueue

__all__ = ["Meter", "read_parallel"]

_GROUP = "parallel-consumer-metrics"
_RETRY_GROUP = "retry-topics-metrics"


class Meter:
    """Counts records, and for how long they are processed, all together.

    Owns these counts. The time is that of one record after the other, as a worker spends it: each
    time a record begins or ends, those that ran until then have taken so much longer.
    """

    __slots__ = ("_at", "_busy", "_loop", "_running", "failed", "finished")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()
        self._running = 0
        self._busy = 0.0
        self.finished = 0
        """Records that are done, those that were sent to a retry topic among them."""
        self.failed = 0
        """Records whose handler or block has raised an exception."""

    def moved(self, running: int) -> None:
        """Take note that so many records are being processed from now on."""
        now = self._loop.time()
        self._busy += self._running * (now - self._at)
        self._running = running
        self._at = now

    def finish(self, running: int) -> None:
        """Take note that a record is done, and so many are still being processed."""
        self.finished += 1
        self.moved(running)

    def fail(self) -> None:
        """Take note that a handler or block has raised an exception."""
        self.failed += 1

    @property
    def busy(self) -> float:
        """Seconds that records have been processed for, those that still are included."""
        return self._busy + self._running * max(0.0, self._loop.time() - self._at)


def read_parallel(
    client_id: str, meter: Meter, queue: WorkQueue, paused: int, retry: RetryTopics | None
) -> Iterator[Metric]:
    """Yield all metrics of a ParallelConsumer at this moment."""
    # Not needed by programs that never ask.
    from aiokafka.metrics import Metric, MetricKind

    tags = {"client-id": client_id}
    for name, value, unit in (
        ("records-finished-total", meter.finished, "records"),
        ("records-failed-total", meter.failed, "records"),
        ("process-time-total", meter.busy * 1000, "ms"),
    ):
        yield Metric(_GROUP, name, value, MetricKind.COUNTER, unit, tags)
    spans = [partition.tracker.span for partition in list(queue.partitions)]
    for name, value, unit in (
        ("records-running", queue.running, "records"),
        ("records-unfinished", queue.records, "records"),
        ("unfinished-bytes", queue.nbytes, "bytes"),
        ("records-uncommitted-max", max(spans, default=0), "records"),
        ("partitions-paused", paused, ""),
    ):
        yield Metric(_GROUP, name, value, MetricKind.GAUGE, unit, tags)
    if retry is None:
        return
    waiting = queue.waiting.records
    yield Metric(_RETRY_GROUP, "records-waiting", waiting, MetricKind.GAUGE, "records", tags)
    for origin, sent in list(retry.sent.items()):
        one = {**tags, "topic": origin}
        for name, value in (
            ("record-retry-total", sent.retried),
            ("record-dead-letter-total", sent.dead),
        ):
            yield Metric(_RETRY_GROUP, name, value, MetricKind.COUNTER, "records", one)
