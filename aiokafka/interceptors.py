"""Base classes of interceptors (KIP-42): they see records on their way in and out, and may change
them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ProducerInterceptor", "ProducerRecord", "Records"]

Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
"""What `getmany` returns."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """The arguments of `send`. `dataclasses.replace` makes a changed copy."""

    topic: str
    value: Any = None
    """The value before the serializer."""

    key: Any = None
    """The key before the serializer."""

    partition: int | None = None
    timestamp_ms: float | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ProducerInterceptor:
    """Sees the records of a producer: `interceptors=` takes a list of instances.

    The methods do nothing; a subclass overrides some of them, with plain or coroutine functions.
    Interceptors are called in the order of the list. An exception is logged, at most once a minute,
    and the other interceptors are called as if the failing one did not exist.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Called once by the constructor of the producer.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `transactional_id` (None without).
        """

    def on_send(
        self, record: ProducerRecord
    ) -> ProducerRecord | Awaitable[ProducerRecord | None] | None:
        """Return the record to send instead of `record`; None for no change.

        `send` calls it before the serializers and the partitioner, and awaits a coroutine. Each
        interceptor gets the record returned by the one before.
        """

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> Awaitable[None] | None:
        """Called when `record`, as it was sent, was written (`metadata`) or has failed (`error`).

        Both are None with `acks=0`. It is called once for each record, also if `send` raises or is
        cancelled (`error` is then a CancelledError). If that happens in an `on_send`, only the
        interceptors whose `on_send` was called get the record. Coroutines run one after the other
        in a task of the producer, each for 30 seconds at most. While a thousand coroutines wait,
        `send` blocks.
        """


class ConsumerInterceptor:
    """Sees the records of a consumer: `interceptors=` takes a list of instances.

    The methods do nothing; a subclass overrides some of them, with plain or coroutine functions.
    Interceptors are called in the order of the list. An exception is logged, at most once a minute,
    and the other interceptors are called as if the failing one did not exist.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Called once by the constructor of the consumer.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `group_id` (None without).
        """

    def on_poll(self, seconds: float) -> Awaitable[None] | None:
        """Called before `on_consume` with the time that the call has waited for the records.

        Coroutines run later, like those of `on_commit`.
        """

    def on_consume(self, records: Records) -> Records | Awaitable[Records | None] | None:
        """Return the records for the application; None for no change.

        `getmany` and `getone` call it when there are records. Each interceptor gets the records
        returned by the one before. Dropped records count as read. If the call is cancelled while a
        coroutine runs, it consumes nothing: the next call gets the records again.

        Meanwhile other reading calls wait, and none may be made here. `position` stays before the
        records until the application gets them. Records of revoked partitions are dropped, so the
        call waits for the end of a rebalance that begins meanwhile. `getmany` waits until its
        timeout, and the next call gets the records again.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Awaitable[None] | None:
        """Called when offsets were committed, by the application or in the background.

        Coroutines run one after the other in a task of the consumer, each for 30 seconds at most.
        If more than a thousand coroutines wait, the oldest are dropped.
        """
