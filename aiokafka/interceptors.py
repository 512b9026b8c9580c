"""Base classes of interceptors (KIP-42). Interceptors get, and may change, the records that a
producer sends or a consumer returns."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ProducerInterceptor", "ProducerRecord", "Records"]

Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
"""The result type of `getmany`: a list of records for each partition."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """The arguments of `send`, immutable: use `dataclasses.replace` to make a changed copy."""

    topic: str
    value: Any = None
    """The value before the serializer."""

    key: Any = None
    """The key before the serializer."""

    partition: int | None = None
    timestamp_ms: float | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ProducerInterceptor:
    """Gets the records of a producer: pass a list of instances as `interceptors=`.

    The methods do nothing; a subclass overrides some of them, with plain or coroutine functions.
    Interceptors are called in the order of the list. An exception is logged, at most once a minute,
    and the other interceptors are called as if the failing one did not exist.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Called once by the constructor of the producer.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `transactional_id` (None without transactions).
        """

    def on_send(
        self, record: ProducerRecord
    ) -> ProducerRecord | Awaitable[ProducerRecord | None] | None:
        """Return the record to send instead of `record`; None for no change.

        `send` calls this method before the serializers and the partitioner, and awaits a coroutine.
        Each interceptor gets the record that the previous interceptor returned.
        """

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> Awaitable[None] | None:
        """Called with the outcome of a record: `metadata` if it was written, `error` if it failed.

        `record` has the changes of all `on_send` methods. With `acks=0`, `metadata` and `error` are
        None if the record was sent. The method is called once for each record, also if `send`
        raises, and if `send` is cancelled (with a CancelledError). If `send` is cancelled during an
        `on_send`, only the interceptors whose `on_send` was called get the record. Coroutines run
        one after the other in a task of the producer, each for 30 seconds at most. While a thousand
        coroutines wait, `send` blocks.
        """


class ConsumerInterceptor:
    """Gets the records of a consumer: pass a list of instances as `interceptors=`.

    The methods do nothing; a subclass overrides some of them, with plain or coroutine functions.
    Interceptors are called in the order of the list. An exception is logged, at most once a minute,
    and the other interceptors are called as if the failing one did not exist.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Called once by the constructor of the consumer.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `group_id` (None without a group).
        """

    def on_poll(self, seconds: float) -> Awaitable[None] | None:
        """Called before `on_consume` with the seconds that `getmany` or `getone` has waited.

        If the method returns a coroutine, the coroutine runs later, as for `on_commit`.
        """

    def on_consume(self, records: Records) -> Records | Awaitable[Records | None] | None:
        """Return the records for the application; None for no change.

        `getmany` and `getone` call this method when there are records. Each interceptor gets the
        records that the previous interceptor returned. Dropped records count as read. If `getmany`
        or `getone` is cancelled while a coroutine runs, no record is consumed: the next call gets
        the records again.

        While interceptors run, calls of `getone` and `getmany` in other tasks wait, and an
        interceptor must not call them: such a call, also in a task that the interceptor has
        started, raises IllegalStateError. `position` does not advance past the records before the
        application gets them. If a rebalance begins, `getone` or `getmany` waits for its end, and
        drops the records of revoked partitions. If the timeout of `getmany` ends first, it returns
        {}, and the next call gets the records again.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Awaitable[None] | None:
        """Called when offsets were committed, by the application or in the background.

        Coroutines run one after the other in a task of the consumer, each for 30 seconds at most.
        If more than a thousand coroutines wait, the oldest are dropped.
        """
