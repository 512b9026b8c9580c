"""The driver's requests to the cluster: partitions, offsets, and commits of the query's progress.

Runs in the event loop of the process, independent of Spark.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaClient, AIOKafkaConsumer
from aiokafka._tasks import TaskOwner, both
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from aiokafka.spark._loop import with_retries
from aiokafka.spark._offsets import OffsetRange, Offsets, RequestedOffset, requested_offsets
from aiokafka.spark._options import EARLIEST, LATEST, Bound, ReadOptions
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Cluster", "Mirror", "open_cluster"]

log = logging.getLogger("aiokafka.spark")

# Seconds to wait for a topic that may have just been created.
_TOPIC_TIMEOUT = 5.0
# Maximum age in seconds of the list of partitions, if no refresh is requested.
_DISCOVERY_INTERVAL = 1.0
_RETRY_INTERVAL = 0.05
# Seconds between look-ups of the partitions during an offset request. The request may wait for a
# topic that was deleted.
_LOOK_INTERVAL = 1.0

Bounds = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


async def open_cluster(options: ReadOptions) -> Cluster:
    """Return a connected Cluster; wait for an available broker. The caller closes the Cluster."""
    keywords = {**options.kafka.keywords(), "allow_auto_create_topics": False}

    async def start() -> Cluster:
        cluster = Cluster(options, keywords)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    return await with_retries(start, options.kafka.broker_timeout)


class _PartitionsChangedError(Exception):
    """The subscribed partitions have changed."""


class Cluster:
    """The Kafka cluster of a query: the subscribed topics, and offsets at the query's isolation
    level.

    Owns a client, and a consumer that reads no records: it looks up offsets, and commits the
    progress of the query (`mirror`). Stores which topics were missing, which partitions the query
    reads from their first record, which from a given offset, and which to the end of the log.
    """

    def __init__(self, options: ReadOptions, keywords: dict[str, Any]) -> None:
        self._options = options
        self._keywords = keywords
        self._loop = asyncio.get_running_loop()
        self._client = AIOKafkaClient(**keywords)
        self._consumer = AIOKafkaConsumer(
            **keywords,
            group_id=options.group_id,
            enable_auto_commit=False,
            isolation_level="read_committed" if options.read_committed else "read_uncommitted",
        )
        self._partitions: dict[str, list[int]] = {}
        self._discovered_at = -_DISCOVERY_INTERVAL
        self._assigned_topics: dict[str, list[int]] = {}
        self._missing: set[str] = set()
        self._from_first: set[TopicPartition] = set()
        self._with_given_start: set[TopicPartition] = set()
        self._with_latest_end: set[TopicPartition] = set()
        self.mirror = Mirror(self._consumer, options.group_id)
        """Commits the progress of the query as offsets of a group."""

    async def start(self) -> None:
        """Bootstrap the client, and start the consumer."""
        await self._client.bootstrap()
        await self._consumer.start()

    async def close(self) -> None:
        """Cancel a commit in progress, and close the consumer and the client."""
        await self.mirror.close()
        await self._consumer.stop()
        await self._client.close()

    # -- partitions

    async def partitions(
        self, *, refresh: bool = True, known: Iterable[str] = ()
    ) -> dict[str, list[int]]:
        """Return the subscribed partitions by topic. Without `refresh` the list may be a second
        old. `known` are topics that the query has read before.

        Raises UnknownTopicOrPartitionError for a missing topic, unless data loss is tolerated.
        """
        now = self._loop.time()
        if refresh or now - self._discovered_at >= _DISCOVERY_INTERVAL:
            self._partitions = await self._discover({*self._partitions, *known})
            self._discovered_at = now
        return self._partitions

    async def _discover(self, known: Iterable[str]) -> dict[str, list[int]]:
        wanted = self._options.subscription
        if wanted.assign is not None:
            there = self._assigned_topics = await self._partitions_of(wanted.assign)
            return _assigned_that_exist(wanted.assign, there, self._options.fail_on_data_loss)
        if wanted.topics is not None:
            return await self._partitions_of(wanted.topics)
        assert wanted.pattern is not None
        timeout = self._options.kafka.broker_timeout
        everything = await with_retries(self._client.fetch_all_metadata, timeout)
        found = await self._partitions_of(_matching(wanted.pattern, everything.topics()))
        # A broker that has just started may return an incomplete list. A topic that is missing here
        # would later count as new, and the query would read the topic again from its start.
        hidden = set(_matching(wanted.pattern, known)) - found.keys()
        return {**found, **await self._look_for(hidden)}

    async def existing(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Return the partitions of the subscribed topics, and of other `topics` if they exist."""
        known = await self.partitions(refresh=False)
        # With `assign`, `partitions()` returns the assigned partitions only; `_assigned_topics` has
        # all partitions of these topics.
        known = {**known, **self._assigned_topics}
        others = await self._look_for(topic for topic in topics if topic not in known)
        return {**others, **known}

    async def _partitions_of(self, topics: Iterable[str]) -> dict[str, list[int]]:
        names = sorted(topics)
        found = await self._look_for(names)
        missing = [topic for topic in names if topic not in found]
        if missing and self._options.fail_on_data_loss:
            raise UnknownTopicOrPartitionError(f"there is no topic {', '.join(missing)}")
        return found

    async def _look_for(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Refresh the metadata, and return the partitions of the topics that exist.

        Waits for a missing topic, unless an earlier call has found this topic missing.
        """
        found: dict[str, list[int]] = {}
        names = sorted(topics)
        if not names:
            return found
        for topic in names:
            self._client.touch_topic(topic)
        deadline = self._loop.time() + min(_TOPIC_TIMEOUT, self._options.kafka.broker_timeout)
        await self._client.force_metadata_update()
        while any(map(self._has_former_partitions, names)) and self._loop.time() < deadline:
            await asyncio.sleep(_RETRY_INTERVAL)
            await self._client.force_metadata_update()
        for topic in names:
            if topic in self._missing and self._is_unknown(topic):
                continue
            try:
                numbers = await self._client.wait_for_topic(topic, deadline)
            except UnknownTopicOrPartitionError:
                if topic not in self._missing:
                    log.warning("there is no topic %s", topic)
                self._missing.add(topic)
                continue
            self._missing.discard(topic)
            found[topic] = sorted(numbers)
        return found

    def _is_unknown(self, topic: str) -> bool:
        return self._client.cluster.topic_error(topic) == UnknownTopicOrPartitionError.errno

    def _has_former_partitions(self, topic: str) -> bool:
        """Return whether the brokers do not know a topic, but the client still has its partitions.
        The client keeps partitions for a few metadata responses without the topic.
        """
        has_partitions = self._client.cluster.known_partitions(topic) is not None
        return has_partitions and self._is_unknown(topic)

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of the subscribed topics (KIP-516), without topics whose id is unknown."""
        ids = {topic: self._client.cluster.topic_id(topic) for topic in self._partitions}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    # -- offsets

    async def starting(self) -> Offsets:
        """Return the offsets where the query begins, according to its options."""
        self._from_first.clear()
        self._with_given_start.clear()
        partitions = await self.partitions()
        if self._uses_group():
            return await self._committed(partitions)
        return await self._resolve(self._options.starting, partitions, "starting")

    def first_offsets(self, start: Offsets) -> Offsets:
        """Return the offsets in `start` that are the first offsets of their partitions, and were
        not set by the options or a group.
        """
        return _by_topic({tp: start[tp.topic][tp.partition] for tp in self._from_first})

    async def ending(self, start: Offsets) -> Offsets:
        """Return the end offsets of a batch query that begins at `start`.

        Retries a few times if an end is before a given start, because a new leader may report a low
        end at first.
        """
        partitions, attempts = await self.partitions(), self._options.retries + 1
        while True:
            end = await self._resolve(self._options.ending, partitions, "ending")
            attempts -= 1
            if not attempts or not self.truncated_ranges(start, end):
                return end
            await asyncio.sleep(self._options.retry_interval)

    def truncated_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the range from `end` to `start` of each partition whose log ends before the start
        of the query, if the options, a group or a timestamp set the start.
        """
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._with_given_start & self._with_latest_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    def contradictory_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the range from end to start of each partition for which the options set an end
        before the start.
        """
        if self._uses_group():
            return []  # allowed: the group has committed an offset after the requested end
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._with_given_start - self._with_latest_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    async def latest(self, known: Offsets | None = None) -> Offsets:
        """Return the current end offsets of all subscribed partitions.

        Retries a few times if an end is before the offset in `known`, because a new leader may
        report a low end at first.
        """
        if known is None:
            await self.partitions()
        found = await self._log_bounds(known or {}, self._consumer.end_offsets)
        for _ in range(self._options.retries):
            if known is None or not _is_below(found, known):
                break
            await asyncio.sleep(self._options.retry_interval)
            found = await self._log_bounds(known, self._consumer.end_offsets)
        return found

    async def first(self, known: Iterable[str]) -> Offsets:
        """Return the current first offsets of all subscribed partitions."""
        return await self._log_bounds(known, self._consumer.beginning_offsets)

    async def earliest(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the current first offsets of these partitions."""
        tps = _partitions(partitions)
        return _by_topic(await self._consumer.beginning_offsets(tps)) if tps else {}

    async def not_before(self, start: Offsets, end: Offsets, millis: int) -> Offsets:
        """Return `start`, moved in each partition to the first record not older than `millis`. A
        partition without such a record starts at `end`.
        """
        tps = _partitions(start)
        answers = await self._consumer.offsets_for_times(dict.fromkeys(tps, millis))
        later: Offsets = {}
        for tp, answer in answers.items():
            first = end[tp.topic][tp.partition] if answer is None else answer.offset
            known = start[tp.topic][tp.partition]
            later.setdefault(tp.topic, {})[tp.partition] = max(known, first)
        return later

    async def _log_bounds(self, known: Iterable[str], ask: Bounds) -> Offsets:
        """Return the end offsets or first offsets of the subscribed partitions, looked up by `ask`.

        The consumer waits a minute for the leader of a topic that was just deleted. So `_watch`
        looks up the partitions every second, and the request is repeated if they have changed.
        After `broker_timeout` the request is made once more without further look-ups.
        """
        deadline = self._loop.time() + self._options.kafka.broker_timeout
        while True:
            partitions, is_done = await self.partitions(refresh=False, known=known), asyncio.Event()
            if self._loop.time() >= deadline:
                return await self._look_up_bounds(ask, partitions, is_done)
            try:
                found, _ = await both(
                    self._look_up_bounds(ask, partitions, is_done),
                    self._watch(partitions, known, is_done),
                )
            except _PartitionsChangedError:
                continue
            return found

    async def _have_changed(self, partitions: dict[str, list[int]], known: Iterable[str]) -> bool:
        try:
            return await self.partitions(known=known) != partitions
        except UnknownTopicOrPartitionError:
            raise
        except KafkaError as error:
            # No broker is available. `_look_up_bounds`, which runs at the same time, waits for a
            # broker.
            log.debug("topics cannot be looked up: %s", error)
            return False

    async def _look_up_bounds(
        self, ask: Bounds, partitions: Mapping[str, Iterable[int]], is_done: asyncio.Event
    ) -> Offsets:
        tps = _partitions(partitions)
        found = _by_topic(await ask(tps)) if tps else {}
        is_done.set()
        return found

    async def _watch(
        self, partitions: dict[str, list[int]], known: Iterable[str], is_done: asyncio.Event
    ) -> None:
        """Raise _PartitionsChangedError if the partitions change before `is_done` is set."""
        while True:
            try:
                await asyncio.wait_for(is_done.wait(), _LOOK_INTERVAL)
                return
            except asyncio.TimeoutError:
                if await self._have_changed(partitions, known):
                    raise _PartitionsChangedError from None

    def _uses_group(self) -> bool:
        bound = self._options.starting
        is_given = (bound.timestamp, bound.timestamps, bound.offsets) != (None, None, None)
        return bound.word == "committed" and not is_given

    async def _committed(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the committed offsets of the group, and the first offsets of other partitions."""
        group_id = self._options.group_id
        assert group_id is not None
        tps = _partitions(partitions)

        async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            async with AIOKafkaAdminClient(**self._keywords) as admin:
                return await admin.list_consumer_group_offsets(group_id, partitions=tps)

        stored = await with_retries(ask, self._options.kafka.broker_timeout)
        found = {tp: stored[tp].offset for tp in tps if tp in stored and stored[tp].offset >= 0}
        self._with_given_start.update(found)
        missing = [tp for tp in tps if tp not in found]
        if missing:
            found.update(await self._consumer.beginning_offsets(missing))
            self._from_first.update(missing)
        return _by_topic(found)

    async def _resolve(
        self, bound: Bound, partitions: Mapping[str, Iterable[int]], side: str
    ) -> Offsets:
        wanted = {
            TopicPartition(topic, number): requested
            for topic, numbers in requested_offsets(bound, partitions, side).items()
            for number, requested in numbers.items()
        }
        found = {
            tp: requested.offset
            for tp, requested in wanted.items()
            if requested.offset is not None and requested.offset >= 0
        }
        earliest = [tp for tp, requested in wanted.items() if requested.offset == EARLIEST]
        latest = [tp for tp, requested in wanted.items() if requested.offset == LATEST]
        latest += await self._find_times(wanted, side, found)
        if side == "starting":
            self._with_given_start.update(found)
        if earliest:
            found.update(await self._consumer.beginning_offsets(earliest))
            self._from_first.update(earliest)
        if side == "ending":
            self._with_latest_end = set(latest)
        if latest:
            found.update(await self._consumer.end_offsets(latest))
        return _by_topic(found)

    async def _find_times(
        self,
        wanted: Mapping[TopicPartition, RequestedOffset],
        side: str,
        found: dict[TopicPartition, int],
    ) -> list[TopicPartition]:
        """Look up the offsets of timestamps, and add them to `found`. Return the partitions without
        a record of that time or later.

        If `side` is "starting", such a partition raises ValueError, unless
        startingOffsetsByTimestampStrategy is `latest`.
        """
        times = {tp: each.timestamp for tp, each in wanted.items() if each.timestamp is not None}
        if not times:
            return []
        answers = await self._consumer.offsets_for_times(times)
        found.update({tp: answer.offset for tp, answer in answers.items() if answer is not None})
        missing = sorted(tp for tp, answer in answers.items() if answer is None)
        if missing and side == "starting" and not self._options.no_match_is_latest:
            names = ", ".join(f"{tp.topic}-{tp.partition} from {times[tp]}" for tp in missing)
            raise ValueError(
                f"no record is as young as asked for: {names}; with "
                "startingOffsetsByTimestampStrategy=latest reading begins at the end there"
            )
        return missing


def _matching(pattern: str, topics: Iterable[str]) -> list[str]:
    return [topic for topic in topics if re.fullmatch(pattern, topic)]


def _assigned_that_exist(
    assign: dict[str, list[int]], there: dict[str, list[int]], must_be_there: bool
) -> dict[str, list[int]]:
    """Return the assigned partitions that exist. Raises UnknownTopicOrPartitionError for a missing
    partition if `must_be_there`, else logs a warning.
    """
    known = {
        topic: [number for number in numbers if number in there.get(topic, ())]
        for topic, numbers in assign.items()
    }
    missing = [
        f"{topic}-{number}"
        for topic, numbers in assign.items()
        for number in numbers
        if number not in known[topic]
    ]
    if missing and must_be_there:
        raise UnknownTopicOrPartitionError(f"assign: there is no {', '.join(missing)}")
    if missing:
        log.warning("assign: there is no %s", ", ".join(missing))
    return {topic: numbers for topic, numbers in known.items() if numbers}


def _partitions(by_topic: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, numbers in by_topic.items() for n in numbers]


def _by_topic(found: Mapping[TopicPartition, int]) -> Offsets:
    offsets: Offsets = {}
    for tp, offset in found.items():
        offsets.setdefault(tp.topic, {})[tp.partition] = offset
    return offsets


def _is_below(found: Offsets, known: Offsets) -> bool:
    return any(
        offset < known.get(topic, {}).get(number, offset)
        for topic, numbers in found.items()
        for number, offset in numbers.items()
    )


# -- Progress of the query as committed offsets of a group

# Seconds that the query waits for a commit, so that the last commit succeeds before an AvailableNow
# query ends. If a commit takes longer, the query does not wait again until a commit has succeeded.
_COMMIT_TIMEOUT = 0.5


class Mirror:
    """Commits the progress of a query as offsets of a group without members, for monitoring only.

    Owns the task of the commit, and the offsets to commit next. Uses the consumer only for manual
    assignment and commits.
    """

    def __init__(self, consumer: AIOKafkaConsumer, group_id: str | None) -> None:
        self._consumer = consumer
        self._group_id = group_id
        self._tasks = TaskOwner("aiokafka-spark-mirror")
        self._task: asyncio.Task[None] | None = None
        self._wanted: Offsets = {}
        self._done: Offsets = {}
        self._is_late = False
        self._warned = False

    async def commit(self, offsets: Offsets) -> None:
        """Commit these offsets after the commit in progress, and skip offsets of earlier calls that
        are still uncommitted.

        Never raises. A failure is logged, and the next call retries.
        """
        if not offsets or offsets == self._wanted:
            return
        # Set `_wanted` first: a running task commits these offsets after its current commit.
        self._wanted = offsets
        if self._task is not None and not self._task.done():
            return
        self._task = self._tasks.start(self._run(), name="commit")
        if not self._is_late:
            _, pending = await asyncio.wait({self._task}, timeout=_COMMIT_TIMEOUT)
            self._is_late = bool(pending)

    async def close(self) -> None:
        """Cancel a commit in progress."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while self._wanted != self._done:
            offsets = self._wanted
            try:
                await self._send(offsets)
            except Exception as error:
                # Reset `_wanted`, so that the next call with the same offsets retries.
                self._log_failure(error)
                self._wanted = self._done
                return
            self._done = offsets
            self._is_late = self._warned = False

    async def _send(self, offsets: Offsets) -> None:
        entries = {
            TopicPartition(topic, number): offset
            for topic, numbers in offsets.items()
            for number, offset in numbers.items()
        }
        if self._consumer.assignment() != entries.keys():
            self._consumer.assign(list(entries))
            self._consumer.pause(*entries)
        await self._consumer.commit(entries)

    def _log_failure(self, error: Exception) -> None:
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "progress is not mirrored to group %s: %s",
            self._group_id,
            error,
        )
        self._warned = True
