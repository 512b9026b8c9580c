"""The driver's requests to the cluster: partitions, offsets, and commits of the query's progress.

They run in the event loop of the process. This module does not depend on Spark.
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

# Seconds to wait for a topic that the brokers do not know, because it may have been created just
# now. Afterwards the topic counts as missing.
_TOPIC_TIMEOUT = 5.0
# The list of partitions is refreshed after this number of seconds, even if no refresh is requested.
_DISCOVERY_INTERVAL = 1.0
_RETRY_INTERVAL = 0.05
# Seconds between two look-ups of the partitions while an offset request runs. The request may be
# waiting for a topic that was deleted.
_LOOK_INTERVAL = 1.0

Bounds = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


async def open_cluster(options: ReadOptions) -> Cluster:
    """Return a connected Cluster, which the caller must close. Waits for an available broker, up to
    `broker_timeout`."""
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
    """The subscribed partitions have changed while an offset request was running."""


class Cluster:
    """The Kafka cluster of a query: its subscribed topics, and their offsets at the isolation level
    of the query.

    Owns a client, and a consumer that reads no records: it looks up offsets, and commits the
    progress of the query (`mirror`). Also stores which topics are missing, and for which partitions
    the query starts at the first record, starts at a given offset, or ends at the end of the log.
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
        """Connect the client, and start the consumer."""
        await self._client.bootstrap()
        await self._consumer.start()

    async def close(self) -> None:
        """Cancel a running commit, and close the consumer and the client."""
        await self.mirror.close()
        await self._consumer.stop()
        await self._client.close()

    # -- partitions

    async def partitions(
        self, *, refresh: bool = True, known: Iterable[str] = ()
    ) -> dict[str, list[int]]:
        """Return the subscribed partitions by topic. Without `refresh`, the result may be up to a
        second old. `known` are topics that the query has read before: with a pattern, they are
        looked up by name, too, because a broker may return an incomplete list of topics.

        Raises UnknownTopicOrPartitionError for a missing topic or partition, unless data loss is
        tolerated.
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
        # A broker that was just started may return an incomplete list of topics. A topic that is
        # missing now would count as new later, and the query would read it again from its start.
        # So check for the missing topics by name.
        hidden = set(_matching(wanted.pattern, known)) - found.keys()
        return {**found, **await self._look_for(hidden)}

    async def existing(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Return all partitions of the subscribed topics, and of each topic in `topics` that
        exists, even if it is not subscribed."""
        known = await self.partitions(refresh=False)
        # With `assign`, `partitions()` returns only the assigned partitions. `_assigned_topics` has
        # all partitions of their topics.
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

        Waits up to `_TOPIC_TIMEOUT` for a missing topic, unless it was missing in an earlier call.
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
        """Return whether the brokers no longer know a topic, although the client's metadata still
        has the topic. (The client removes a topic after several metadata responses without it.)
        """
        has_partitions = self._client.cluster.known_partitions(topic) is not None
        return has_partitions and self._is_unknown(topic)

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of the subscribed topics (KIP-516). Topics whose id is unknown are
        omitted."""
        ids = {topic: self._client.cluster.topic_id(topic) for topic in self._partitions}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    # -- offsets

    async def starting(self) -> Offsets:
        """Return the offsets at which the query starts, according to its options."""
        self._from_first.clear()
        self._with_given_start.clear()
        partitions = await self.partitions()
        if self._uses_group():
            return await self._committed(partitions)
        return await self._resolve(self._options.starting, partitions, "starting")

    def first_offsets(self, start: Offsets) -> Offsets:
        """Return the offsets of `start` for the partitions that start at their first record because
        of "earliest", or because the group has no committed offset. Partitions with another kind of
        start (offset, timestamp or committed offset) are omitted, even if they start at the first
        record.
        """
        return _by_topic({tp: start[tp.topic][tp.partition] for tp in self._from_first})

    async def ending(self, start: Offsets) -> Offsets:
        """Return the end offsets of a batch query that starts at `start`.

        If the end of a log is before the requested start (see `truncated_ranges`), retries up to
        `fetchOffset.numRetries` times: a new leader may report a too low end at first.
        """
        partitions, attempts = await self.partitions(), self._options.retries + 1
        while True:
            end = await self._resolve(self._options.ending, partitions, "ending")
            attempts -= 1
            if not attempts or not self.truncated_ranges(start, end):
                return end
            await asyncio.sleep(self._options.retry_interval)

    def truncated_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """For each partition whose log ends before the start of the query, return the range from
        the end of the log to this start.

        Only partitions that are read to the end of their log are checked, and only if the start is
        a given offset, a timestamp or a committed offset.
        """
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._with_given_start & self._with_latest_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    def contradictory_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """For each partition for which the options set an end before the start, return the range
        from this end to the start. Returns [] if the query starts at the committed offsets of a
        group.
        """
        if self._uses_group():
            return []  # no contradiction: the group has read beyond the requested end
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._with_given_start - self._with_latest_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    async def latest(self, known: Offsets | None = None) -> Offsets:
        """Return the current end offsets of all subscribed partitions.

        If an end is before the offset in `known`, retries up to `fetchOffset.numRetries` times: a
        new leader may report a too low end at first.
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
        """Return the current first offsets of all subscribed partitions. `known` are topics that
        the query has read before.
        """
        return await self._log_bounds(known, self._consumer.beginning_offsets)

    async def earliest(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the current first offsets of these partitions."""
        tps = _partitions(partitions)
        return _by_topic(await self._consumer.beginning_offsets(tps)) if tps else {}

    async def not_before(self, start: Offsets, end: Offsets, millis: int) -> Offsets:
        """Return `start`, moved in each partition to the first record whose timestamp is at least
        `millis` (since 1970), but never to a lower offset. A partition without such a record starts
        at `end`.
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
        """Return the offsets that `ask` looks up for the subscribed partitions: first or end
        offsets.

        For a topic that was just deleted, the consumer would wait a minute for a leader. Therefore
        `_watch` looks up the partitions every second during the request; if the partitions change,
        the request is cancelled and repeated. After `broker_timeout` it is repeated a last time,
        without `_watch`.
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
            # No broker is available. The offset request runs at the same time, and waits for a
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
        """Look up the partitions every second until `is_done` is set. Raise _PartitionsChangedError
        if they have changed."""
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
        """Return the committed offsets of the group; for a partition without a committed offset,
        its first offset."""
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
        """Look up the requested timestamps, and add their offsets to `found`. Return the partitions
        that have no record with the timestamp or a later one.

        If `side` is "starting", raises ValueError for such partitions, unless
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
                f"no record has the requested timestamp or a later one: {names}; to begin these "
                "partitions at their end, set startingOffsetsByTimestampStrategy=latest"
            )
        return missing


def _matching(pattern: str, topics: Iterable[str]) -> list[str]:
    return [topic for topic in topics if re.fullmatch(pattern, topic)]


def _assigned_that_exist(
    assign: dict[str, list[int]], there: dict[str, list[int]], must_be_there: bool
) -> dict[str, list[int]]:
    """Return the assigned partitions that exist. For a missing partition, raise
    UnknownTopicOrPartitionError if `must_be_there`, otherwise log a warning.
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

# Seconds that the query waits for a commit, so that the last commit of an AvailableNow query
# succeeds before the query ends. If a commit took longer, the query does not wait for later
# commits, until one of them has succeeded.
_COMMIT_TIMEOUT = 0.5


class Mirror:
    """Commits the progress of a query as offsets of a group without members, for monitoring only.

    Owns the task that commits, and the offsets to commit next. It uses the consumer only to assign
    partitions manually and to commit.
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
        """Commit these offsets. Wait up to `_COMMIT_TIMEOUT` seconds for the response, unless the
        last commit has taken longer.

        If a commit is already running, only store the offsets: the offsets of the latest call are
        committed when the running commit has ended. Never raises: a failure is logged, and the next
        call commits again.
        """
        if not offsets or offsets == self._wanted:
            return
        # Set `_wanted` first: if the task is running, it commits these offsets next.
        self._wanted = offsets
        if self._task is not None and not self._task.done():
            return
        self._task = self._tasks.start(self._run(), name="commit")
        if not self._is_late:
            _, pending = await asyncio.wait({self._task}, timeout=_COMMIT_TIMEOUT)
            self._is_late = bool(pending)

    async def close(self) -> None:
        """Cancel a running commit."""
        await self._tasks.stop()

    async def _run(self) -> None:
        while self._wanted != self._done:
            offsets = self._wanted
            try:
                await self._send(offsets)
            except Exception as error:
                # With `_wanted` reset, the next call with the same offsets retries.
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
            "commitOffsets: no offsets were committed for group %s: %s",
            self._group_id,
            error,
        )
        self._warned = True
