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
    """What `send` was called with. `dataclasses.replace` makes a changed copy."""

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

    Each method does nothing here; a subclass overrides those it wants, as plain or as coroutine
    functions. Interceptors are called in the order of the list. What one raises is logged, once a
    minute, and the others go on as if it were not there.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take note of the producer that it belongs to, which is being made.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `transactional_id` (None without).
        """

    def on_send(
        self, record: ProducerRecord
    ) -> ProducerRecord | Awaitable[ProducerRecord | None] | None:
        """Return the record to send in place of `record`; None to leave it as it is.

        It is called by `send`, before the serializers and the partitioner; each interceptor gets
        what the one before has returned. `send` waits for a coroutine, and can be cancelled there.
        """

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> Awaitable[None] | None:
        """Take note that `record`, as it was sent, is written (`metadata`), or that it was not
        (`error`).

        Both are None with `acks=0`. It is called once for each record, also when `send` itself has
        raised or was cancelled (`error` is a CancelledError then); if that was in an `on_send`,
        only for those that have seen the record. Coroutines run one after the other in a task of
        the producer, each for 30 seconds at most; while a thousand of them wait, so does `send`.
        """


class ConsumerInterceptor:
    """Sees the records of a consumer: `interceptors=` takes a list of instances.

    Each method does nothing here; a subclass overrides those it wants, as plain or as coroutine
    functions. Interceptors are called in the order of the list. What one raises is logged, once a
    minute, and the others go on as if it were not there.
    """

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take note of the consumer that it belongs to, which is being made.

        `options` has the `client_id`, the `bootstrap_servers` as pairs of host and port, and the
        `group_id` (None without).
        """

    def on_poll(self, seconds: float) -> Awaitable[None] | None:
        """Take note that a call has waited so long for the records that `on_consume` gets next.

        Coroutines run later, as those of `on_commit`.
        """

    def on_consume(self, records: Records) -> Records | Awaitable[Records | None] | None:
        """Return the records that the application is to get; None to leave them as they are.

        It is called by `getmany` and `getone`, when there are records; each interceptor gets what
        the one before has returned. Records that are left out count as read. A call that is
        cancelled while a coroutine runs has taken nothing: the records are returned again. Other
        calls that read wait meanwhile; none may be made here. `position` stays before the records
        until the application gets them. Those of a partition that is taken away meanwhile are left
        out, so the call waits for the end of a rebalance that has begun meanwhile: `getmany` until
        its time is over, and then the records come again.
        """

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Awaitable[None] | None:
        """Take note that offsets were committed, by the application or in the background.

        Coroutines run one after the other in a task of the consumer, each for 30 seconds at most.
        Of more than a thousand that wait the oldest are dropped.
        """
