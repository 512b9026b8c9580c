"""Offsets from partition leaders: by timestamp (ListOffsets) and by leader epoch
(OffsetForLeaderEpoch)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiokafka import _clock
from aiokafka._compat import timeout_at
from aiokafka._reading import (
    FoundOffset,
    Offsets,
    by_topic,
    doubts_metadata,
    is_transient,
    list_offsets,
    offsets_in,
)
from aiokafka._retry import Backoff
from aiokafka._tasks import together
from aiokafka.errors import (
    BrokerResponseError,
    InvalidTopicError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
    for_code,
    for_partition,
)
from aiokafka.protocol.messages import fetch as messages
from aiokafka.protocol.messages.fetch import (
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._reading import FencedEpochs
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata

__all__ = ["EARLIEST", "LATEST", "EpochEnd", "OffsetLookup", "OffsetSpec"]


class OffsetSpec(NamedTuple):
    """A position to look up: the special timestamp of the earliest or latest offset, or the time
    `age` seconds ago."""

    timestamp: int
    age: float | None = None

    @classmethod
    def from_policy(cls, policy: str, duration: float | None) -> OffsetSpec | None:
        """Return the spec of an `auto_offset_reset`; None for "none". `duration`: for "by_duration"
        (KIP-1106) the number of seconds, else None."""
        if duration is not None:
            return cls(0, duration)
        return {"earliest": EARLIEST, "latest": LATEST, "none": None}[policy]

    def timestamp_now(self) -> int:
        """Return the timestamp for a request sent now, in milliseconds."""
        if self.age is None:
            return self.timestamp
        return max(0, int((_clock.wall_time() - self.age) * 1000))


EARLIEST = OffsetSpec(messages.EARLIEST)
LATEST = OffsetSpec(messages.LATEST)


# From this version on, OffsetForLeaderEpoch contains the current leader epoch. With it, a broker
# can reject an outdated client, or notice that the broker itself is no longer the leader (KIP-320).
_FIRST_FENCED_VERSION = 2


class EpochEnd:
    """The response of a leader for one partition. `end_offset`: the end offset of the requested
    leader epoch or, if the leader has no record of this epoch, of the largest earlier epoch.
    `leader_epoch`: the epoch that the end offset belongs to. Both fields are -1 if unknown."""

    __slots__ = ("end_offset", "leader_epoch")

    def __init__(self, leader_epoch: int, end_offset: int) -> None:
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class EpochQuery:
    """The leader epochs in a request that validates a position. `offset_epoch`: the epoch of the
    record before the position. `current_epoch`: the epoch of the present leader."""

    __slots__ = ("current_epoch", "offset_epoch")

    def __init__(self, offset_epoch: int, current_epoch: int) -> None:
        self.offset_epoch = offset_epoch
        self.current_epoch = current_epoch


log = logging.getLogger("aiokafka.consumer.fetcher")

EpochEnds = dict[TopicPartition, EpochEnd | type[BrokerResponseError]]


class OffsetLookup:
    """Sends ListOffsets and OffsetForLeaderEpoch to partition leaders. Has no state."""

    def __init__(
        self, client: AIOKafkaClient, config: ConsumerConfig, fenced_epochs: FencedEpochs
    ) -> None:
        self._client = client
        self._config = config
        self._fenced_epochs = fenced_epochs

    async def ask(
        self, node_id: int, wanted: Mapping[TopicPartition, int], isolation: int | None = None
    ) -> Offsets:
        """Send a ListOffsets to one broker, and return its result for each partition.

        Args:
            node_id: The broker.
            wanted: For each partition a timestamp in ms, or the special timestamp of EARLIEST or
                LATEST.
            isolation: The isolation level, by default as configured.

        Raises the errors of `client.send`, and UnsupportedVersionError for a timestamp if the
        broker is older than Kafka 0.10.1; errors of single partitions are values of the result.
        """
        if any(timestamp >= 0 for timestamp in wanted.values()):
            await self._need_timestamps(node_id)
        known = {tp: self._client.cluster.leader_epoch(tp) for tp in wanted}
        epochs = {tp: self._fenced_epochs.epoch_to_send(tp, epoch) for tp, epoch in known.items()}
        if isolation is None:
            isolation = int(self._config.read_committed)
        request = list_offsets(wanted, epochs.__getitem__, isolation)
        found = offsets_in(await self._client.send(node_id, request))
        self._note_errors(node_id, epochs, found)
        return found

    def _note_errors(
        self, node_id: int, epochs: Mapping[TopicPartition, int], found: Offsets | EpochEnds
    ) -> None:
        """Pass the errors of partitions, with the requested leader epochs, to `FencedEpochs`."""
        for tp, answer in found.items():
            if isinstance(answer, type) and tp in epochs:
                self._fenced_epochs.on_error(node_id, tp, epochs[tp], answer)

    async def _need_timestamps(self, node_id: int) -> None:
        """Raise UnsupportedVersionError if the broker is older than Kafka 0.10.1. Such a broker
        cannot find a single record by time: it returns the start of a log segment."""
        connection = await self._client.connection(node_id)
        if connection.pick(ListOffsetsRequest) == 0:
            raise UnsupportedVersionError(
                f"broker {node_id} is too old to look up offsets by time (Kafka 0.10.1 can)"
            )

    async def ask_epochs(
        self, node_id: int, wanted: Mapping[TopicPartition, EpochQuery]
    ) -> EpochEnds | None:
        """Send an OffsetForLeaderEpoch to one broker. Return the ends of leader epochs; None if the
        broker is too old for this request.

        Raises like `client.send`; errors of single partitions are values of the result.
        """
        # The broker's API versions are known as soon as there is a connection.
        await self._client.connection(node_id)
        versions = self._client.versions(node_id)
        if versions is not None and not _knows_epochs(versions.api_versions):
            return None
        epochs = {
            tp: self._fenced_epochs.epoch_to_send(tp, q.current_epoch) for tp, q in wanted.items()
        }
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=partition,
                            current_leader_epoch=epochs[TopicPartition(topic, partition)],
                            leader_epoch=query.offset_epoch,
                        )
                        for partition, query in partitions
                    ],
                )
                for topic, partitions in by_topic(wanted.items()).items()
            ],
        )
        response = await self._client.send(node_id, request)
        found: EpochEnds = {}
        for topic in response.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.topic, p.partition)
                if p.error_code:
                    found[tp] = for_code(p.error_code)
                else:
                    found[tp] = EpochEnd(p.leader_epoch, p.end_offset)
        self._note_errors(node_id, epochs, found)
        return found

    async def find(
        self, wanted: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the offset of each partition for its timestamp in `wanted`. Retry after retriable
        errors.

        Raises KafkaTimeoutError at `deadline` (loop time), with the missing partitions and the
        reasons. Raises errors that are not retriable, such as TopicAuthorizationFailedError, at
        once.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        pending = dict(wanted)
        reasons: dict[TopicPartition, str] = {}
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        await self._learn(dict.fromkeys(tp.topic for tp in pending), deadline)
        while pending:
            answers = await self._round(pending, deadline, delays.failures + 1)
            for tp, answer in answers.items():
                if isinstance(answer, KafkaError):
                    reasons[tp] = str(answer)
                elif tp in pending:
                    found[tp] = answer
                    del pending[tp]
            if pending:
                await self._pause(delays.next(), deadline, pending, reasons)
        return found

    async def _learn(self, topics: Iterable[str], deadline: float) -> None:
        """Request metadata of the topics that have none, and wait for the first response, until
        `deadline` at most. Do not wait for topics that the response lacks: a topic that does not
        exist must not delay the look-up in other topics."""
        found = [self._client.add_topic(topic) for topic in topics]
        unknown = [future for future in found if not future.done()]
        if unknown:
            await asyncio.wait(unknown, timeout=deadline - asyncio.get_running_loop().time())

    def _without_leader(self, tp: TopicPartition) -> KafkaError:
        """Return the error of a partition without a leader. Raises TopicAuthorizationFailedError
        and InvalidTopicError, which are not retriable."""
        code = self._client.cluster.topic_error(tp.topic)
        if not code:
            return LeaderNotAvailableError(f"{tp} has no known leader")
        error = for_partition(for_code(code), tp)
        if isinstance(error, (TopicAuthorizationFailedError, InvalidTopicError)):
            raise error
        return error

    async def _round(
        self, pending: Mapping[TopicPartition, int], deadline: float, number: int
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """Send one request to each leader, concurrently. Return the offset or a retriable error of
        each partition; after errors, request metadata. Raises errors that are not retriable.
        `number`: the number of this round, from 1."""
        answers: dict[TopicPartition, FoundOffset | KafkaError] = {}
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in pending.items():
            # Mark the topic as used: metadata of unused topics is dropped.
            self._client.touch_topic(tp.topic)
            leader = self._client.cluster.leader_for_partition(tp)
            if leader is None or leader < 0:
                self._client.look_for_leader(tp, f"leader of {tp} unknown")
                answers[tp] = self._without_leader(tp)
            else:
                by_leader.setdefault(leader, {})[tp] = timestamp
        # Each request ends at the deadline, so a slow leader cannot delay this round beyond it.
        parts = await together(
            self._ask_within(node_id, part, deadline) for node_id, part in by_leader.items()
        )
        for part in parts:
            answers.update(part)
        errors = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
        why = "offsets were not found everywhere"
        if any(doubts_metadata(error, number) for error in errors):
            self._client.doubt_metadata(why)
        elif errors:
            self._client.request_metadata(why)
        return answers

    async def _ask_within(
        self, node_id: int, wanted: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """Return the requested offsets of partitions that one broker leads; wait at most until
        `deadline`. Retriable errors, a missing response and missing partitions are values of the
        result; other errors are raised. An offset of -1 means that all records are older than the
        timestamp, or have no timestamps."""
        try:
            async with timeout_at(deadline):
                found = await self.ask(node_id, wanted)
        except asyncio.TimeoutError:
            return dict.fromkeys(wanted, RequestTimedOutError(f"no answer from broker {node_id}"))
        except KafkaError as error:
            if not error.retriable:
                raise
            return dict.fromkeys(wanted, error)
        text = f"the ListOffsets response of broker {node_id} lacks"
        answers: dict[TopicPartition, FoundOffset | KafkaError] = {
            tp: KafkaProtocolError(f"{text} {tp}") for tp in wanted if tp not in found
        }
        for tp, answer in found.items():
            if isinstance(answer, FoundOffset):
                answers[tp] = answer
            # The record format (before Kafka 0.10) has no timestamps, so no record can be found.
            elif answer is UnsupportedForMessageFormatError:
                answers[tp] = FoundOffset(-1, -1, -1)
            elif is_transient(answer):
                answers[tp] = answer(f"{tp}: offset not found")
            else:
                raise for_partition(answer, tp, "offset not found")
        return answers

    async def _pause(
        self,
        delay: float,
        deadline: float,
        pending: Mapping[TopicPartition, int],
        reasons: Mapping[TopicPartition, str],
    ) -> None:
        """Wait `delay` seconds before the next round of requests. If a pending partition has no
        leader now, end the wait as soon as all pending partitions have leaders. Raises
        KafkaTimeoutError, with `reasons`, if the round would begin after `deadline` (loop
        time)."""
        now = asyncio.get_running_loop().time()
        if now + delay >= deadline:
            why = "; ".join(sorted({reasons.get(tp, "no response") for tp in pending}))
            raise KafkaTimeoutError(f"no offsets in time for {sorted(pending)}: {why}")

        def has_leaders(cluster: ClusterMetadata) -> bool:
            leaders = [cluster.leader_for_partition(tp) for tp in pending]
            return all(leader is not None and leader >= 0 for leader in leaders)

        if has_leaders(self._client.cluster):
            await asyncio.sleep(delay)
            return
        # Wait for metadata instead of sleeping, because this wait also raises if the client is
        # closed. Without a leader no request is sent, so nothing else would raise.
        with contextlib.suppress(KafkaTimeoutError):
            why = "offsets are asked for"
            await self._client.wait_for_metadata(has_leaders, now + delay, why)


def _knows_epochs(api_versions: Mapping[int, tuple[int, int]]) -> bool:
    offered = api_versions.get(OffsetForLeaderEpochRequest.API_KEY)
    return offered is not None and offered[1] >= _FIRST_FENCED_VERSION
