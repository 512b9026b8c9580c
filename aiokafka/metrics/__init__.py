"""Metrics of clients: snapshots of all metrics, and collectors, which clients call for events."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokafka._typing import later
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.metrics._values import Distribution, Metric, MetricKind, MetricsSnapshot
    from aiokafka.share.acquired import AcknowledgeType
else:
    AcknowledgeType = later("aiokafka.share.acquired.AcknowledgeType")

__all__ = [
    "ConsumerMetricsCollector",
    "Distribution",
    "Metric",
    "MetricKind",
    "MetricsSnapshot",
    "NullConsumerMetricsCollector",
    "NullProducerMetricsCollector",
    "ProducerMetricsCollector",
]


# -- Base classes of the objects for `metrics_collector=`


class _Collector:
    """Base class of the collectors. Warns about a subclass with a method `on_*` that no client
    calls."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        unknown = [
            name
            for name in sorted(vars(cls))
            if name.startswith("on_") and not any(name in vars(base) for base in cls.__mro__[1:])
        ]
        # The subclasses in this module declare the events, so do not warn about them.
        if unknown and cls.__module__ != __name__:
            warnings.warn(
                f"{cls.__name__} has methods that no client calls, perhaps misspelt: "
                f"{', '.join(unknown)}",
                UserWarning,
                stacklevel=2,
            )


class ProducerMetricsCollector(_Collector):
    """Receives the events of a producer's batches. Pass an instance of a subclass as
    `metrics_collector=`.

    Override the methods for the events that you need; by default they do nothing. The producer
    calls them in the event loop, with keyword arguments, so they must be fast. An exception is
    logged, at most once a minute, and otherwise ignored. Times are in seconds. Instances of this
    class itself are never called.
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
        """Called when a batch is put into a request, for its first attempt and for each retry.

        `queue_time_seconds` is the time since the batch got its first record, or since its last
        attempt failed. `batch_size_bytes` is the size before compression. `attempt` starts at 1.
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
        """Called when a batch was written, after its futures got their results.

        With `acks=0`, it is called when the batch was sent, and `acknowledged` is False.
        `send_to_completion_seconds` is the time since the batch was last put into a request,
        `batch_age_seconds` the time since its first record, including retries.
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
        """Called when a batch has failed, after its futures got the exception.

        `batch_age_seconds` is the time since the first record of the batch, including retries.
        """

    def on_buffer_wait(self, *, topic: str, partition: int, wait_seconds: float) -> None:
        """Called when a call of `send` or `send_batch` no longer waits for buffer memory.

        It is called once for each call that had to wait, even if the wait ended with an error or a
        cancellation. `partition` is -1 if no partition was chosen yet.
        """


class NullProducerMetricsCollector(ProducerMetricsCollector):
    """A collector that does nothing, for programs that always pass one."""


class ConsumerMetricsCollector(_Collector):
    """Receives the events of a consumer or share consumer. Pass an instance of a subclass as
    `metrics_collector=`.

    A share consumer has no position, so it calls neither `on_records_lag` nor the methods for
    commits. Only a share consumer calls the methods for acknowledgements.

    Override the methods for the events that you need; by default they do nothing. The consumer
    calls them in the event loop, with keyword arguments, so they must be fast. An exception is
    logged, at most once a minute, and otherwise ignored. Times are in seconds. Instances of this
    class itself are never called.
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

        `fetch_seconds` is the response time, including the time that the broker waited for records.
        `record_count` and `size_bytes` are those of the compressed batches in the response, so they
        include records before the position and records of aborted transactions. A share consumer
        calls the method only for partitions in which the fetch has acquired offsets;
        `record_count` is the number of these offsets.
        """

    def on_fetch_failed(self, *, topic: str, partition: int, exception: BaseException) -> None:
        """Called when a fetch got no response, or an error that the next call of the application
        raises.

        It is not called for errors that the consumer retries, such as NOT_LEADER_OR_FOLLOWER.
        """

    def on_records_consumed(self, *, topic: str, partition: int, record_count: int) -> None:
        """Called when records were returned to the application.

        For `getmany`, it is called at the end of each call. For `getone`, it is called when all
        records of a fetch response were returned; by a share consumer, at the end of each call.
        """

    def on_records_lag(self, *, topic: str, partition: int, lag: int) -> None:
        """Called with the lag: the number of offsets from the position to the end of a partition.

        It is called for each response to a fetch of the partition, before the application gets the
        records of that response.
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
        """Called when a commit has finally failed, after its retries."""

    def on_records_acknowledged(
        self, *, topic: str, partition: int, acknowledge_type: AcknowledgeType, record_count: int
    ) -> None:
        """Called when a broker has stored acknowledgements of a share consumer, or has renewed
        acquisition locks."""

    def on_acknowledgement_failed(
        self, *, topic: str, partition: int, record_count: int, exception: BaseException
    ) -> None:
        """Called when acknowledgements of a share consumer have finally failed: the records are
        delivered again."""


class NullConsumerMetricsCollector(ConsumerMetricsCollector):
    """A collector that does nothing, for programs that always pass one."""


# -- Snapshots of metrics


def __getattr__(name: str) -> Any:
    # Import `_values` only when one of its names is used, because its dataclasses take time to
    # create.
    if name not in __all__:
        raise AttributeError(f"module 'aiokafka.metrics' has no attribute {name!r}")
    from aiokafka.metrics import _values

    value = globals()[name] = getattr(_values, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
