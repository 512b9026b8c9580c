"""The fetcher of a consumer under the attribute names of aiokafka 0.14's `Fetcher`, which programs
use."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import asyncio

    from aiokafka.consumer.consumer import AIOKafkaConsumer

__all__ = ["FetcherNames"]


class FetcherNames:
    """The attribute `_fetcher` of a consumer, which Faust and kafkaesk use to read records.

    Tests of tracing libraries replace `next_record` and `fetched_records`, in order to need no
    broker. `getone()` and `getmany()` of the consumer then call the replacements, as they do in
    aiokafka 0.14.
    """

    def __init__(self, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer._fetch, name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "next_record":
            vars(self._consumer)["_read_one"] = self._replaced_read_one
        elif name == "fetched_records":
            vars(self._consumer)["_read_many"] = self._replaced_read_many

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        method = {"next_record": "_read_one", "fetched_records": "_read_many"}.get(name)
        if method is not None:
            del vars(self._consumer)[method]

    async def _replaced_read_one(
        self, partitions: tuple[TopicPartition, ...]
    ) -> ConsumerRecord[Any, Any]:
        self._consumer._check_can_read()
        return await self.next_record(partitions)

    async def _replaced_read_many(
        self, wanted: Collection[TopicPartition] | None, timeout_ms: float, limit: int, least: int
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        self._consumer._check_can_read()
        most = None if limit < 0 else limit
        return dict(
            await self.fetched_records(tuple(wanted or ()), timeout_ms / 1000, max_records=most)
        )

    @property
    def _closed(self) -> bool:
        return not self._consumer._fetch.is_running

    @property
    def _fetch_waiters(self) -> Collection[asyncio.Future[bool]]:
        return self._consumer._queue.waiters

    async def next_record(self, partitions: Iterable[TopicPartition]) -> ConsumerRecord[Any, Any]:
        """Wait for the next record of `partitions` (empty: of all partitions), and return it,
        without calling interceptors. Raises ConsumerStoppedError if the consumer is stopped."""
        wanted, queue, fetch = _wanted(partitions), self._consumer._queue, self._consumer._fetch
        queue.buffer.begin_call(self._consumer._loop.time())
        while fetch.is_running:
            record = queue.next_of(wanted)
            if queue.buffer.suspended is not None:
                record = await self._consumer._finish_one(intercepts=False)
                if record is None:
                    continue
            if record is not None:
                return record
            fetch.await_records(wanted)
            await queue.wait(wanted, None)
        raise ConsumerStoppedError("the consumer was stopped; make a new one")

    async def fetched_records(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return records of `partitions` (empty: of all partitions), without calling interceptors.

        Waits up to `timeout` seconds for the first records; returns {} after this time, and if the
        consumer is stopped.
        """
        wanted, queue, fetch = _wanted(partitions), self._consumer._queue, self._consumer._fetch
        limit = -1 if max_records is None else max_records
        deadline = self._consumer._loop.time() + timeout
        queue.buffer.begin_call(self._consumer._loop.time())
        in_time = True
        while True:
            records = queue.take(wanted, limit)
            if queue.buffer.suspended is not None:
                records = await self._consumer._finish_many(records, wanted, limit, deadline)
            if records or not fetch.is_running or not in_time:
                return records
            fetch.await_records(wanted)
            in_time = await queue.wait(wanted, deadline)


def _wanted(partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition] | None:
    return frozenset(partitions) or None
