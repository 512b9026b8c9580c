"""What clients say about their memory: never more than was allowed, and nothing in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation import logs

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from tests.simulation.world import World

# Bytes of a response besides its records, and for each partition in it.
_AROUND_RESPONSE = 100
_AROUND_PARTITION = 100
# Bytes that a record takes besides its value: key, headers, what is around it, and its batch, of
# which it may be the first record.
_AROUND_RECORD = 1400
# Virtual seconds between two looks at a producer.
_LOOK_S = 0.1
# So many looks are taken at one of which no call waits.
_IDLE_LOOKS = 2


def buffered(consumer: AIOKafkaConsumer) -> int:
    """Return the bytes that a consumer has fetched and not returned yet, as it tells them."""
    return int(consumer.metrics().value("fetch-buffer-bytes"))


def check_fetched(
    world: World, name: str, consumer: AIOKafkaConsumer, client: dict[str, Any]
) -> None:
    """See that a consumer has fetched no more than its limit, and what brokers send in any case."""
    limit = client.get("fetch_buffer_memory")
    if limit is None:
        return
    if any(world.history.remade.age(topic.name) for topic in world.scenario.topics):
        return  # batches of a topic that is gone may be the largest
    found = buffered(consumer)
    # One that reads from a broker more gives each of them less, but has more from the others still.
    most = 2 * limit
    if found > most and found > most + world.scenario.cluster.brokers * _least_response(world):
        text = f"{name}: {found} bytes are fetched, fetch_buffer_memory is {limit}"
        world.violate("memory", text)


def _least_response(world: World) -> int:
    """Return the most bytes of a response with one batch, which brokers send whatever its size."""
    tps = [tp for topic in world.scenario.topics for tp in logs.partitions(world, topic.name)]
    found = [log for log in (logs.log_of(world, tp) for tp in tps) if log is not None]
    largest = max((batch.size for log in found for batch in log.batches), default=0)
    return largest + _AROUND_RESPONSE + _AROUND_PARTITION * len(tps)


class RoomWatch:
    """Looks now and then whether a call waits for memory of a producer that is free.

    They are served in the order of coming, and one that is served leaves in the next turn of the
    loop. So two looks in a row that find room for the first one find one that was forgotten.
    """

    def __init__(
        self,
        world: World,
        name: str,
        producer: AIOKafkaProducer,
        memory: int,
        *,
        is_in_order: bool,
    ) -> None:
        """`is_in_order`: no interceptors hold calls up, so they come to wait as they are made."""
        self._is_in_order = is_in_order
        self._world = world
        self._name = name
        self._producer = producer
        self._memory = memory
        self._needs: dict[object, int] = {}
        self._looked_at: set[object] = set()
        self._seen = 0
        self._idle_looks = 0
        self._timer: asyncio.TimerHandle = world.loop.call_later(_LOOK_S, self._look)

    @contextlib.contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """Return a block in which values of so many bytes are given to the producer."""
        call = object()
        self._needs[call] = size + _AROUND_RECORD
        try:
            yield
        finally:
            del self._needs[call]
            self._idle_looks = 0

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._world.loop.call_later(_LOOK_S, self._look)
        free = self._producer.buffer_available_bytes
        if free > self._memory:
            text = f"{self._name}: {free} bytes are free, buffer_memory is {self._memory}"
            self._world.violate("memory", text)
        needs = list(self._needs.values())
        if not self._looked_at <= self._needs.keys():
            self._seen = 0  # one was served meanwhile: the next one's room has just come free
        self._looked_at = set(self._needs)
        # Metrics are many: they are asked only if a call could be one that was forgotten, or left
        # something waiting when it ended.
        self._idle_looks = 0 if needs else self._idle_looks + 1
        waiting = 0
        if self._idle_looks <= _IDLE_LOOKS and free >= min([self._memory, *needs]):
            waiting = int(self._producer.metrics().value("waiting-threads"))
        # Others may wait for metadata, at the beginning.
        is_known = self._is_in_order and waiting == len(needs) > 0
        need = needs[0] if is_known else max(needs, default=0)
        self._seen = self._seen + 1 if waiting and free >= min(self._memory, need) else 0
        if self._seen == 2:
            text = f"{self._name}: {waiting} calls wait for memory, of which {free} bytes are free"
            self._world.violate("forgotten", text)
