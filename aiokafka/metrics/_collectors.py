"""Base classes for `metrics_collector=`, whose methods clients call for events."""

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
    """Base class of the collectors. Warns if a subclass defines a method `on_*` that no client
    calls."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unknown = [
            name
            for name in sorted(vars(cls))
            if name.startswith("on_") and not any(name in vars(base) for base in cls.__mro__[1:])
        ]
        # The classes of this module declare the events, so do not warn about them.
        if unknown and cls.__module__ != __name__:
            warnings.warn(
                f"{cls.__name__} has methods that no client calls, perhaps misspelt: "
                f"{', '.join(unknown)}",
                UserWarning,
                stacklevel=2,
            )


class ProducerMetricsCollector(_Collector):
    """Receives events of a producer's batches: `metrics_collector=` takes an instance.

    Override the methods for the events of interest; by default they do nothing. They are called
    with keyword arguments in the event loop, so they must be fast. Their exceptions are logged once
    a minute and otherwise ignored. Times are in seconds. Producers do not call an instance of this
    class itself, only instances of subclasses.
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
        """Called when a batch is put into a request, at the first or a later attempt.

        `queue_time_seconds` is the time since the first record or the last failed attempt.
        `batch_size_bytes` is the size before compression. `attempt` starts at 1.
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
        """Called when a batch was written, after its futures were resolved.

        `acknowledged` is False with `acks=0`. `send_to_completion_seconds` counts from the last
        dispatch, `batch_age_seconds` from the first record, including retries.
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
        """Called when a batch has failed, after its futures were resolved.

        `batch_age_seconds` counts from the first record, including retries.
        """

    def on_buffer_wait(self, *, topic: str, partition: int, wait_seconds: float) -> None:
        """Called when a call of `send` or `send_batch` has waited for buffer memory.

        This is called once for each `send` or `send_batch`, when the wait ends, also with an error
        or a cancellation. `partition` is -1 if no partition was chosen yet.
        """


class NullProducerMetricsCollector(ProducerMetricsCollector):
    """Does nothing; for programs that always pass a collector."""


class ConsumerMetricsCollector(_Collector):
    """Receives events of a consumer: `metrics_collector=` takes an instance.

    Override the methods for the events of interest; by default they do nothing. They are called
    with keyword arguments in the event loop, so they must be fast. Their exceptions are logged once
    a minute and otherwise ignored. Times are in seconds. Consumers do not call an instance of this
    class itself, only instances of subclasses.
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
        """Called when a broker has responded to a fetch of a partition.

        `fetch_seconds` is the response time, including the wait of the broker for records.
        `record_count` and `size_bytes` describe the compressed batches in the response, including
        records before the position and records of aborted transactions.
        """

    def on_fetch_failed(self, *, topic: str, partition: int, exception: BaseException) -> None:
        """Called when a fetch got no response, or an error that the consumer's next call raises.

        Not called for errors that the consumer retries, such as NOT_LEADER_OR_FOLLOWER.
        """

    def on_records_consumed(self, *, topic: str, partition: int, record_count: int) -> None:
        """Called when records were returned to the application.

        This is called at the end of every `getmany`. Records of `getone` are reported together,
        when all records of a fetch response were returned.
        """

    def on_records_lag(self, *, topic: str, partition: int, lag: int) -> None:
        """Called with the number of offsets between the position and the end of a partition.

        This is called for each response to a fetch of the partition, before the application gets
        the records of that response.
        """

    def on_commit_completed(
        self, *, offsets: Mapping[TopicPartition, int], commit_seconds: float
    ) -> None:
        """Called when offsets were committed, by the application or in the background."""

    def on_commit_failed(
        self,
        *,
        offsets: Mapping[TopicPartition, int],
        exception: BaseException,
        commit_seconds: float,
    ) -> None:
        """Called when a commit has failed, after its retries."""


class NullConsumerMetricsCollector(ConsumerMetricsCollector):
    """Does nothing; for programs that always pass a collector."""
