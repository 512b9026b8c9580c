"""The driver's requests to the cluster: which partitions there are, where they begin and end.

Runs in the event loop of the process; nothing here knows Spark.
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
from aiokafka.spark._loop import connected
from aiokafka.spark._offsets import OffsetRange, Offsets, Wish, wishes
from aiokafka.spark._options import EARLIEST, LATEST, Bound, ReadOptions
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Cluster", "Mirror", "open_cluster"]

log = logging.getLogger("aiokafka.spark")

# A topic that was just created may take a moment to be known everywhere.
_TOPIC_TIMEOUT = 5.0
# New partitions are noticed after this long at the latest.
_DISCOVERY_INTERVAL = 1.0
_RETRY_INTERVAL = 0.05
# Ends that take longer than this may be those of a topic that was deleted.
_LOOK_INTERVAL = 1.0

Bounds = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


async def open_cluster(options: ReadOptions) -> Cluster:
    """Connect, once a broker is available. The caller closes the result."""
    keywords = {**options.kafka.keywords(), "allow_auto_create_topics": False}

    async def start() -> Cluster:
        cluster = Cluster(options, keywords)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    return await connected(start, options.kafka.patience)


class _OtherPartitionsError(Exception):
    """The subscribed partitions are not the same any more."""


class Cluster:
    """The cluster as a query sees it: only its topics, at its isolation level.

    Owns a client, and a consumer that reads no records: it looks up offsets, and commits them for
    the group that mirrors the query's progress. Remembers which topics were missing, which
    partitions the query begins at their first record or at an offset that was named, and which it
    reads to the ends of their logs.
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
        self._at_first: set[TopicPartition] = set()
        self._named: set[TopicPartition] = set()
        self._at_end: set[TopicPartition] = set()
        self.mirror = Mirror(self._consumer, options.group_id)
        """Mirrors the progress of the query as offsets of a group."""

    async def start(self) -> None:
        """Connect."""
        await self._client.bootstrap()
        await self._consumer.start()

    async def close(self) -> None:
        """Disconnect."""
        await self.mirror.close()
        await self._consumer.stop()
        await self._client.close()

    # -- partitions

    async def partitions(
        self, *, refresh: bool = True, known: Iterable[str] = ()
    ) -> dict[str, list[int]]:
        """Return the subscribed partitions by topic; they may be a second old without
        `refresh`. The query has read the `known` topics before.

        Raises UnknownTopicOrPartitionError for a topic that does not exist, unless data loss is
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
            there = self._assigned_topics = await self._numbers(wanted.assign)
            return _known(wanted.assign, there, self._options.fail_on_data_loss)
        if wanted.topics is not None:
            return await self._numbers(wanted.topics)
        assert wanted.pattern is not None
        patience = self._options.kafka.patience
        everything = await connected(self._client.fetch_all_metadata, patience)
        found = await self._numbers(_matching(wanted.pattern, everything.topics()))
        # One broker made the list, perhaps one that has just started and knows half of it. A topic
        # that is left out for a moment would be new afterwards, and read from its start again.
        hidden = set(_matching(wanted.pattern, known)) - found.keys()
        return {**found, **await self._look_for(hidden)}

    async def existing(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Return the partitions of those of `topics` that exist, subscribed or not."""
        known = await self.partitions(refresh=False)
        # Of assigned topics, also the partitions that are not assigned, or not any more.
        known = {**known, **self._assigned_topics}
        others = await self._look_for(topic for topic in topics if topic not in known)
        return {**others, **known}

    async def _numbers(self, topics: Iterable[str]) -> dict[str, list[int]]:
        names = sorted(topics)
        found = await self._look_for(names)
        missing = [topic for topic in names if topic not in found]
        if missing and self._options.fail_on_data_loss:
            raise UnknownTopicOrPartitionError(f"there is no topic {', '.join(missing)}")
        return found

    async def _look_for(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Look up the partitions of those of `topics` that exist.

        A topic that was missing before is not waited for again.
        """
        found: dict[str, list[int]] = {}
        names = sorted(topics)
        if not names:
            return found
        for topic in names:
            self._client.touch_topic(topic)
        deadline = self._loop.time() + min(_TOPIC_TIMEOUT, self._options.kafka.patience)
        await self._client.force_metadata_update()
        while any(map(self._is_kept, names)) and self._loop.time() < deadline:
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

    def _is_kept(self, topic: str) -> bool:
        """Return whether the client has the partitions of a topic from before only: it keeps them
        for a few responses that do not know the topic."""
        has_partitions = self._client.cluster.known_partitions(topic) is not None
        return has_partitions and self._is_unknown(topic)

    def topic_ids(self) -> dict[str, bytes]:
        """Return the ids of the topics (KIP-516), as far as brokers support them."""
        ids = {topic: self._client.cluster.topic_id(topic) for topic in self._partitions}
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}

    # -- offsets

    async def starting(self) -> Offsets:
        """Return where the query begins, according to its options."""
        self._at_first.clear()
        self._named.clear()
        partitions = await self.partitions()
        if self._uses_group():
            return await self._committed(partitions)
        return await self._resolve(self._options.starting, partitions, "starting")

    def at_first(self, start: Offsets) -> Offsets:
        """Return those offsets of `starting` that are the first of their partition, and that
        neither the options nor a group named."""
        return _by_topic({tp: start[tp.topic][tp.partition] for tp in self._at_first})

    async def ending(self, start: Offsets) -> Offsets:
        """Return where a batch query ends that begins at `start`.

        A new leader may report an end before an offset that was named. It is then asked again a few
        times.
        """
        partitions, attempts = await self.partitions(), self._options.retries + 1
        while True:
            end = await self._resolve(self._options.ending, partitions, "ending")
            attempts -= 1
            if not attempts or not self.beyond(start, end):
                return end
            await asyncio.sleep(self._options.retry_interval)

    def beyond(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return what logs lack that end before the query begins, at offsets that the options or a
        group named, or at records that a time found."""
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._named & self._at_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    def crossed(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the partitions whose reading would end, by the options, before it begins."""
        if self._uses_group():
            return []  # The group has read what was asked for, and more.
        return [
            OffsetRange(tp.topic, tp.partition, last, first)
            for tp in sorted(self._named - self._at_end)
            if (last := end[tp.topic][tp.partition]) < (first := start[tp.topic][tp.partition])
        ]

    async def latest(self, known: Offsets | None = None) -> Offsets:
        """Return the current ends of all partitions.

        A new leader may report an end before one that is `known`. It is then asked again a few
        times.
        """
        if known is None:
            await self.partitions()
        found = await self._bounds(known or {}, self._consumer.end_offsets)
        for _ in range(self._options.retries):
            if known is None or not _is_below(found, known):
                break
            await asyncio.sleep(self._options.retry_interval)
            found = await self._bounds(known, self._consumer.end_offsets)
        return found

    async def first(self, known: Iterable[str]) -> Offsets:
        """Return the current first offsets of all partitions."""
        return await self._bounds(known, self._consumer.beginning_offsets)

    async def earliest(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the first offsets of the partitions."""
        tps = _partitions(partitions)
        return _by_topic(await self._consumer.beginning_offsets(tps)) if tps else {}

    async def not_before(self, start: Offsets, end: Offsets, millis: int) -> Offsets:
        """Return `start` without the records before the first one that is not older than
        `millis`."""
        tps = _partitions(start)
        answers = await self._consumer.offsets_for_times(dict.fromkeys(tps, millis))
        later: Offsets = {}
        for tp, answer in answers.items():
            first = end[tp.topic][tp.partition] if answer is None else answer.offset
            known = start[tp.topic][tp.partition]
            later.setdefault(tp.topic, {})[tp.partition] = max(known, first)
        return later

    async def _bounds(self, known: Iterable[str], ask: Bounds) -> Offsets:
        """Return the ends of the subscribed partitions, or their first offsets: what `ask` returns.

        A topic that was just deleted has no leader, and the consumer waits a minute for one. So
        this looks for topics again meanwhile, and starts over when there are others. When they have
        been others for as long as it waits for a broker, it asks for the ends of those it knows.
        """
        deadline = self._loop.time() + self._options.kafka.patience
        while True:
            partitions, is_done = await self.partitions(refresh=False, known=known), asyncio.Event()
            if self._loop.time() >= deadline:
                return await self._ask_bounds(ask, partitions, is_done)
            try:
                found, _ = await both(
                    self._ask_bounds(ask, partitions, is_done),
                    self._watch(partitions, known, is_done),
                )
            except _OtherPartitionsError:
                continue
            return found

    async def _are_others(self, partitions: dict[str, list[int]], known: Iterable[str]) -> bool:
        try:
            return await self.partitions(known=known) != partitions
        except UnknownTopicOrPartitionError:
            raise
        except KafkaError as error:
            # No broker answers: who asks for the ends waits for one, and knows how long.
            log.debug("topics cannot be looked up: %s", error)
            return False

    async def _ask_bounds(
        self, ask: Bounds, partitions: Mapping[str, Iterable[int]], is_done: asyncio.Event
    ) -> Offsets:
        tps = _partitions(partitions)
        found = _by_topic(await ask(tps)) if tps else {}
        is_done.set()
        return found

    async def _watch(
        self, partitions: dict[str, list[int]], known: Iterable[str], is_done: asyncio.Event
    ) -> None:
        """Raise _OtherPartitionsError when there are other partitions, unless that is done."""
        while True:
            try:
                await asyncio.wait_for(is_done.wait(), _LOOK_INTERVAL)
                return
            except asyncio.TimeoutError:
                if await self._are_others(partitions, known):
                    raise _OtherPartitionsError from None

    def _uses_group(self) -> bool:
        bound = self._options.starting
        is_given = (bound.timestamp, bound.timestamps, bound.offsets) != (None, None, None)
        return bound.word == "committed" and not is_given

    async def _committed(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the committed offsets of the group; the first offset of a partition without
        one."""
        group_id = self._options.group_id
        assert group_id is not None
        tps = _partitions(partitions)

        async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            async with AIOKafkaAdminClient(**self._keywords) as admin:
                return await admin.list_consumer_group_offsets(group_id, partitions=tps)

        stored = await connected(ask, self._options.kafka.patience)
        found = {tp: stored[tp].offset for tp in tps if tp in stored and stored[tp].offset >= 0}
        self._named.update(found)
        missing = [tp for tp in tps if tp not in found]
        if missing:
            found.update(await self._consumer.beginning_offsets(missing))
            self._at_first.update(missing)
        return _by_topic(found)

    async def _resolve(
        self, bound: Bound, partitions: Mapping[str, Iterable[int]], side: str
    ) -> Offsets:
        wanted = {
            TopicPartition(topic, number): wish
            for topic, numbers in wishes(bound, partitions, side).items()
            for number, wish in numbers.items()
        }
        found = {
            tp: wish.offset
            for tp, wish in wanted.items()
            if wish.offset is not None and wish.offset >= 0
        }
        earliest = [tp for tp, wish in wanted.items() if wish.offset == EARLIEST]
        latest = [tp for tp, wish in wanted.items() if wish.offset == LATEST]
        latest += await self._find_times(wanted, side, found)
        if side == "starting":
            self._named.update(found)
        if earliest:
            found.update(await self._consumer.beginning_offsets(earliest))
            self._at_first.update(earliest)
        if side == "ending":
            self._at_end = set(latest)
        if latest:
            found.update(await self._consumer.end_offsets(latest))
        return _by_topic(found)

    async def _find_times(
        self, wanted: Mapping[TopicPartition, Wish], side: str, found: dict[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Add offsets by time to `found`; return the partitions without a record so young."""
        times = {tp: wish.timestamp for tp, wish in wanted.items() if wish.timestamp is not None}
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


def _known(
    assign: dict[str, list[int]], there: dict[str, list[int]], must_be_there: bool
) -> dict[str, list[int]]:
    """Return the assigned partitions that exist."""
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

# The query waits this long for a commit, so that the last one is done when an AvailableNow query
# ends. It does not wait for a coordinator that has kept it waiting before.
_PATIENCE = 0.5


class Mirror:
    """Commits offsets of a group without members, for display: the query does not depend on it.

    Owns the task of the commit, and the offsets to commit next. Uses only the consumer's commits.
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
        """Commit these offsets soon: after the commit in progress, in place of any that wait.

        Never raises. A failure is logged, and the next call tries again.
        """
        if not offsets or offsets == self._wanted:
            return
        # Before the look at the task: one that runs takes it up when its commit is over.
        self._wanted = offsets
        if self._task is not None and not self._task.done():
            return
        self._task = self._tasks.start(self._run(), name="commit")
        if not self._is_late:
            _, pending = await asyncio.wait({self._task}, timeout=_PATIENCE)
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
                # The same offsets count as new with the next call, which then tries again.
                self._tell(error)
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

    def _tell(self, error: Exception) -> None:
        log.log(
            logging.DEBUG if self._warned else logging.WARNING,
            "progress is not mirrored to group %s: %s",
            self._group_id,
            error,
        )
        self._warned = True
