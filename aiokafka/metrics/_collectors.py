"""Base classes of what `metrics_collector=` takes: their methods are called with events."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from aiokafka.structs import TopicPartition

__all__ = [
    "ConsumerMetricsCollector",
    "NullConsumerMetricsCollector",
    "NullProducerMetricsCollector",
    "ProducerMetricsCollector",
]


class _Collector:
    """What both collectors have in common: a warning for a method that would never be called."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unknown = [
            name
            for name in sorted(vars(cls))
            if name.startswith("on_") and not any(name in vars(base) for base in cls.__mro__[1:])
        ]
        # The classes here declare the events.
        if unknown and cls.__module__ != __name__:
            warnings.warn(
                f"{cls.__name__} has methods that no client calls, perhaps misspelt: "
                f"{', '.join(unknown)}",
                UserWarning,
                stacklevel=2,
            )


class ProducerMetricsCollector(_Collector):
    """Gets told what becomes of the batches of a producer: `metrics_collector=` takes an instance.

    Each method does nothing here; a subclass overrides those it wants. They are called with
    keyword arguments, from the event loop, and the producer goes on when they return: they have to
    be quick. What one raises is logged, once a minute, and changes nothing. Times are in seconds.

    A producer without a collector, or with this class itself, calls nothing.
    """

    def on_batch_dispatched(
        self,
        *,
        topic: str,
        partition: int,
        queue_time_seconds: float,
        batch_size_bytes: int,
        record_count: int,
        attempt: int,
    ) -> None:
        """Take note that a batch goes into a request, for the first time or again.

        `queue_time_seconds` is how long it has waited for this attempt: since its first record, or
        since the last attempt failed. `batch_size_bytes` is its size before compression. `attempt`
        counts from 1.
        """

    def on_batch_completed(
        self,
        *,
        topic: str,
        partition: int,
        send_to_completion_seconds: float,
        record_count: int,
        acknowledged: bool,
        batch_age_seconds: float,
    ) -> None:
        """Take note that a batch was written, and that its futures have their results.

        `acknowledged` is False with `acks=0`, where no broker says so. `send_to_completion_seconds`
        counts from the last dispatch, `batch_age_seconds` from the first record, retries included.
        """

    def on_batch_failed(
        self,
        *,
        topic: str,
        partition: int,
        exception: BaseException,
        record_count: int,
        batch_age_seconds: float,
    ) -> None:
        """Take note that a batch was given up, and that its futures raise.

        `batch_age_seconds` counts from the first record, retries included.
        """

    def on_buffer_wait(self, *, topic: str, partition: int, wait_seconds: float) -> None:
        """Take note that a call of `send` or `send_batch` waited for memory, and for how long.

        It is called once for each such call, when the wait is over, also by an error or a
        cancellation. `partition` is -1 if that came before a partition was chosen.
        """


class NullProducerMetricsCollector(ProducerMetricsCollector):
    """Does nothing, for programs that want to name a collector in any case."""


class ConsumerMetricsCollector(_Collector):
    """Gets told what a consumer does: `metrics_collector=` takes an instance.

    Each method does nothing here; a subclass overrides those it wants. They are called with
    keyword arguments, from the event loop, and the consumer goes on when they return: they have to
    be quick. What one raises is logged, once a minute, and changes nothing. Times are in seconds.

    A consumer without a collector, or with this class itself, calls nothing.
    """

    def on_fetch_completed(
        self,
        *,
        topic: str,
        partition: int,
        fetch_seconds: float,
        record_count: int,
        size_bytes: int,
    ) -> None:
        """Take note that a broker has responded to a fetch of a partition.

        `fetch_seconds` is the time from the request to the response, and includes the time that the
        broker waits for records. `record_count` and `size_bytes` are those of the batches in the
        response, compressed: records that were fetched for nothing are among them, such as those
        before the position, or of aborted transactions.
        """

    def on_fetch_failed(self, *, topic: str, partition: int, exception: BaseException) -> None:
        """Take note that a fetch got no response, or an error that the next call raises.

        Errors that pass by themselves, such as a leader that has moved, are not among them.
        """

    def on_records_consumed(self, *, topic: str, partition: int, record_count: int) -> None:
        """Take note that records were handed to the application.

        It is called with the records since the last call, at the end of every `getmany`, and when
        the records of a response are all returned: for the records of `getone` it is late.
        """

    def on_records_lag(self, *, topic: str, partition: int, lag: int) -> None:
        """Take note how many offsets are between the position and the end of a partition.

        It is called when a broker has responded to a fetch of the partition, before the application
        takes the records of that response.
        """

    def on_commit_completed(
        self, *, offsets: Mapping[TopicPartition, int], commit_seconds: float
    ) -> None:
        """Take note that offsets were committed, by the application or in the background."""

    def on_commit_failed(
        self,
        *,
        offsets: Mapping[TopicPartition, int],
        exception: BaseException,
        commit_seconds: float,
    ) -> None:
        """Take note that a commit has failed, after its retries."""


class NullConsumerMetricsCollector(ConsumerMetricsCollector):
    """Does nothing, for programs that want to name a collector in any case."""
