"""Requests of a range reader when an offset or a topic is not what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._reading.answers import doubts_metadata
from aiokafka._reading.epochs import OldEpochs
from aiokafka._reading.offsets import FoundOffset, list_offsets, offsets_in
from aiokafka.errors import (
    BrokerResponseError,
    LeaderNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_partition,
)
from aiokafka.protocol.messages.list_offsets import EARLIEST, LATEST
from aiokafka.ranges.state import RangeState

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient

__all__ = [
    "Bounds",
    "Look",
    "has_another_leader",
    "is_another_topic",
    "is_missing",
    "is_so_for_sure",
    "put_off",
]

_LOOKS = 3  # before a topic is said to be gone


class Bounds:
    """Where the log of a range's partition begins and ends."""

    def __init__(self, client: AIOKafkaClient, state: RangeState, old_epochs: OldEpochs) -> None:
        self._client = client
        self._state = state
        self._old_epochs = old_epochs

    async def ask(self) -> tuple[int, int]:
        """Return the first offset and the one after the last. Raises the broker's error."""
        return await self._ask(EARLIEST), await self._ask(LATEST)

    async def _ask(self, place: int) -> int:
        tp, cluster = self._state.tp, self._client.cluster
        leader = cluster.leader_for_partition(tp)
        if leader is None or leader < 0:
            self._client.look_for_leader(tp, f"{self._state}: no leader is known")
            raise LeaderNotAvailableError(f"{self._state}: no leader is known")
        epoch = self._old_epochs.to_ask(tp, cluster.leader_epoch(tp))
        request = list_offsets({tp: place}, lambda _: epoch)
        found = offsets_in(await self._client.send(leader, request)).get(tp, UnknownError)
        if isinstance(found, FoundOffset):
            if found.offset >= 0:
                return found.offset
        else:
            self._old_epochs.note(leader, tp, epoch, found)
        self._client.request_metadata(f"{self._state}: offsets were not found")
        # No error and no offset is no bound. Taken for one, it would be the loss of the whole
        # range.
        error = UnknownError if isinstance(found, FoundOffset) else found
        raise for_partition(error, tp, "offset not found")


def put_off(
    client: AIOKafkaClient, state: RangeState, error: type[BrokerResponseError], now: float
) -> None:
    """Retry later, with newer metadata, after the error of a leader."""
    state.postpone(now, error.__name__)
    is_doubtful = doubts_metadata(error, state.failures)
    ask = client.doubt_metadata if is_doubtful else client.request_metadata
    ask(f"{state}: fetch answered {error.__name__}")


Look = Callable[["AIOKafkaClient", RangeState], bool]


def is_another_topic(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the client knows another topic by this name than that of the range."""
    known, wanted = client.cluster.topic_id(state.tp.topic), state.range.topic_id
    return None not in (known, wanted) and known != wanted


def is_missing(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the partition does not exist, as far as the client knows."""
    cluster, (topic, number) = client.cluster, state.tp
    if code := cluster.topic_error(topic):
        return code == UnknownTopicOrPartitionError.errno
    known = cluster.known_partitions(topic)
    return known is not None and len(known) > 0 and number not in known


async def is_gone(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the partition does not exist, after more looks if the client knows none."""
    return is_missing(client, state) and bool(await is_so_for_sure(client, state, is_missing))


def has_another_leader(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the client knows another leader than the one that named the log's end."""
    leader = client.cluster.leader_for_partition(state.tp)
    return leader is not None and leader not in (-1, state.told_by)


async def is_so_for_sure(client: AIOKafkaClient, state: RangeState, look: Look) -> bool | None:
    """Return what `look` says after more looks; None if no broker responds.

    The client, or the broker that it asked, may know an older state. No response proves nothing.
    """
    for _ in range(_LOOKS):
        if not await client.force_metadata_update():
            return None
        if not look(client, state):
            return False
        # Another look at once would ask the same broker, which may be behind the others for a
        # moment.
        await asyncio.sleep(client.config.retry_backoff)
    return True
