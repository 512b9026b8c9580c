"""Fetch ranges ahead of a reader: one request at a time to each leader, within a memory bound."""

from __future__ import annotations

import asyncio
import collections
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._reading import (
    CutShort,
    Failed,
    Fetched,
    FetchSpec,
    FoundOffset,
    NotNow,
    OldEpochs,
    OutOfRange,
    doubts_metadata,
    fetch_topics,
    is_passing,
    list_offsets,
    named_leaders,
    offsets_in,
    partitions_in,
    read_answer,
    room_for_records,
)
from aiokafka._retry import Backoff
from aiokafka._tasks import TaskOwner, together
from aiokafka._typing import Self
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
    for_code,
    for_partition,
    renewed,
)
from aiokafka.protocol.messages.fetch import LAST_VERSION_WITH_NAMES, FetchRequest
from aiokafka.protocol.messages.list_offsets import EARLIEST, LATEST
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.ranges.state import (
    DataLoss,
    DataLossError,
    LossKind,
    OffsetSizes,
    PartitionRange,
    PinnedResponse,
    RangeLimits,
    RangePhase,
    RangeState,
    RecordSet,
    checked,
    first_batch_size,
    no_batch,
    too_large,
)
from aiokafka.record.columns import ColumnReader
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData
    from aiokafka.protocol.messages.metadata import MetadataResponse

__all__ = [
    "Bounds",
    "Callers",
    "Look",
    "OtherBrokers",
    "RangeReader",
    "has_another_leader",
    "is_another_topic",
    "is_missing",
    "is_so_for_sure",
    "put_off",
]


# -- Who waits for records of a range reader, and the time that runs meanwhile


class Callers:
    """Lets the time of ranges without progress run only while a caller waits for records.

    A caller may be away for long, at work on what it has got: brokers that were down meanwhile, and
    are back when it calls again, are no reason to fail.

    Owns: how many wait, and since when none has.
    """

    def __init__(self, states: Sequence[RangeState]) -> None:
        self._states = states
        self._loop = asyncio.get_running_loop()
        self._away_since = self._loop.time()
        self._waiting = 0

    @property
    def are_waiting(self) -> bool:
        """Whether a caller waits."""
        return self._waiting > 0

    async def wait(self, arrived: asyncio.Event) -> None:
        """Wait for `arrived`, as a caller."""
        if not self._waiting:
            self._come_back()
        self._waiting += 1
        try:
            await arrived.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._away_since = self._loop.time()

    def _come_back(self) -> None:
        now = self._loop.time()
        away = now - self._away_since
        for state in self._states:
            state.leave_out(away, now)


# -- What other brokers than its leader know of a partition


_ASKED = 3  # brokers in each look
_PATIENCE = 5.0  # seconds for each of connecting and responding
_VALID = 2.0  # seconds in which a look stands for all ranges of its topic
_PAUSE = 5.0  # seconds between looks that no range waits for
_FIRST_WITHOUT_CREATION = 4  # MetadataRequest: before, to ask for a topic may make it


class OtherBrokers:
    """Says whether the leader of a partition leads in fact.

    1. A leader is cut off from the other brokers, and they elect the next one.
    2. It does not know, and goes on answering: fetches, look-ups of offsets, and metadata that
       names it as the leader. Its log lacks what the next leader was sent since.
    3. A client that is connected to it alone asks no other broker for metadata. So this does, and
       the client takes over what they know of newer leaders.

    Owns: the looks that are under way, and what the last look at each topic has brought.
    """

    def __init__(self, client: AIOKafkaClient, tasks: TaskOwner) -> None:
        self._client = client
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._said: dict[str, dict[int, ClusterMetadata]] = {}
        self._said_at: dict[str, float] = {}

    def look_soon(self, topic: str) -> None:
        """Look at a topic, unless that was done a moment ago. One look serves all partitions."""
        if not self._is_younger(topic, _PAUSE):
            self._look(topic)

    async def is_named(self, tp: TopicPartition, leader: int | None) -> bool:
        """Return whether `leader` leads, as the client knows it, and as others say if there are
        any."""
        if not self._is_younger(tp.topic, _VALID):
            await asyncio.wait([self._look(tp.topic)])
        cluster = self._client.cluster
        if leader is None or cluster.leader_for_partition(tp) != leader:
            return False
        if not set(cluster.node_ids) - {leader}:
            return True
        # One that is behind says nothing.
        votes = [
            seen.leader_for_partition(tp)
            for node_id, seen in self._said.get(tp.topic, {}).items()
            if node_id != leader and not 0 <= seen.leader_epoch(tp) < cluster.leader_epoch(tp)
        ]
        return bool(votes) and all(vote == leader for vote in votes)

    def _is_younger(self, topic: str, seconds: float) -> bool:
        at = self._said_at.get(topic)
        return topic not in self._looks and at is not None and self._loop.time() - at < seconds

    def _look(self, topic: str) -> asyncio.Task[None]:
        task = self._looks.get(topic)
        if task is None:
            task = self._tasks.start(self._ask_some(topic), name=f"others-{topic}")
            self._looks[topic] = task
        return task

    async def _ask_some(self, topic: str) -> None:
        try:
            nodes = sorted(self._client.cluster.node_ids)
            some = random.sample(nodes, min(_ASKED, len(nodes)))
            answers = await together(self._ask(node_id, topic) for node_id in some)
            found = dict(zip(some, answers, strict=True))
            self._said[topic] = {node: seen for node, seen in found.items() if seen is not None}
            self._said_at[topic] = self._loop.time()
        finally:
            del self._looks[topic]

    async def _ask(self, node_id: int, topic: str) -> ClusterMetadata | None:
        """Return what a broker knows of the topic; None if it does not respond, or knows another
        topic by this name."""
        patience = min(_PATIENCE, self._client.config.request_timeout)
        try:
            seen = ClusterMetadata().updated(await self._send(node_id, topic, patience))
        except KafkaError:
            return None
        client = self._client
        ids = {seen.topic_id(topic), client.cluster.topic_id(topic)} - {None}
        if len(ids) > 1:
            return None
        client.update_leaders(
            {
                tp: (leader, seen.leader_epoch(tp))
                for number in seen.known_partitions(topic) or ()
                if (leader := seen.leader_for_partition(tp := TopicPartition(topic, number)))
                is not None
                and leader >= 0
            }
        )
        return seen

    async def _send(self, node_id: int, topic: str, patience: float) -> MetadataResponse:
        connection = await self._client.connection(node_id, timeout=patience)
        version = connection.pick(MetadataRequest)
        if version >= _FIRST_WITHOUT_CREATION:
            one = [MetadataRequestTopic(name=topic)]
            request = MetadataRequest(topics=one, allow_auto_topic_creation=False)
        else:
            # All topics, in version 0 by none.
            request = MetadataRequest(topics=None if version else [])
        return await connection.request(request, version=version, timeout=patience)


# -- Requests of a range reader when an offset or a topic is not what it was


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


log = logging.getLogger("aiokafka.ranges")

_MEBIBYTE = 1024 * 1024
_CLOSE_TIMEOUT = 2.0
_BUSY = (RangePhase.FETCHING, RangePhase.LOOKING_UP)
_LOOK_INTERVAL = 1.0  # seconds between looks at deadlines and at new metadata


class RangeReader:
    """Reads ranges of partitions, any number of them at a time, to their ends.

    ::

        async with RangeReader(client, [PartitionRange("topic", 0, 0, 1000)]) as reader:
            while (records := await reader.next()) is not None:
                while (rows := records.read(max_rows=8192)) is not None:
                    ...  # rows.columns, of which rows.size count

    `close()` ends every task of the reader. Use it only in the client's event loop; what it returns
    may be read in another thread.

    `client` is a started AIOKafkaClient, which may be shared. `read_committed` leaves out records
    of open and aborted transactions; a range must then not end after the last stable offset. With
    `fail_on_data_loss` lost records raise DataLossError; else they are skipped with a warning, and
    listed in `losses`. The limits `max_bytes` to `max_wait_ms` apply to each fetch. `buffer_memory`
    is the bytes fetched ahead, over all brokers; `timeout_ms` how long a range may make no progress
    while a caller waits; `check_crcs` checks every batch. `sizes` is what other readers of the same
    topics have learned; without, the first fetch of a range is small.

    Raises TypeError or ValueError for a limit or a range that cannot be: sizes are integers from 1
    (`min_bytes`: 0) on, times numbers of milliseconds from 0 on.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        ranges: Iterable[PartitionRange],
        *,
        read_committed: bool = False,
        fail_on_data_loss: bool = True,
        max_bytes: int = 50 * _MEBIBYTE,
        max_partition_bytes: int = 8 * _MEBIBYTE,
        min_bytes: int = 1,
        max_wait_ms: float = 500,
        buffer_memory: int = 64 * _MEBIBYTE,
        timeout_ms: float = 120_000,
        check_crcs: bool = True,
        sizes: OffsetSizes | None = None,
    ) -> None:
        self.losses: list[DataLoss] = []
        self._client = client
        self._log = SubjectLog(log, f"RangeReader of {client!r}")
        self._read_committed = read_committed
        self._fail_on_data_loss = fail_on_data_loss
        self._check_crcs = check_crcs
        self._limits = RangeLimits.checked(
            max_bytes=max_bytes,
            max_partition_bytes=max_partition_bytes,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            buffer_memory=buffer_memory,
            timeout_ms=timeout_ms,
        )
        self._loop = asyncio.get_running_loop()
        config, now = client.config, self._loop.time()
        sizes = sizes or OffsetSizes()
        self._states = [
            RangeState(r, now, Backoff(config.retry_backoff, config.retry_backoff_max), sizes)
            for r in checked(ranges)
        ]
        self._callers = Callers(self._states)
        self._tasks = TaskOwner(f"{config.client_id}:ranges", self._fail)
        self._others = OtherBrokers(client, self._tasks)
        self._old_epochs = OldEpochs(client.versions)
        self._ready: collections.deque[tuple[RecordSet, PinnedResponse]] = collections.deque()
        self._current: PinnedResponse | None = None
        self._busy: set[int] = set()
        self._pinned: collections.Counter[int] = collections.Counter()
        self._turns = 0
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._is_started = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def next(self) -> RecordSet | None:
        """Return the next record set of any of the ranges; None when all were read to their ends.

        The memory of the previous record set is released, so that more is fetched. The sets of a
        partition come in order. A cancelled call consumes nothing.

        Raises DataLossError; KafkaTimeoutError when a range made no progress for `timeout_ms`,
        saying where and why; CorruptRecordError; RecordTooLargeError with brokers before 0.10.1;
        errors of the brokers that are not retriable; IllegalStateError after `close()`.
        """
        self._start()
        self._release()
        while not self._ready:
            if self._failure is not None:
                raise renewed(self._failure) from self._failure
            if self._is_read:
                return None
            self._arrived.clear()
            self._wake.set()
            await self._callers.wait(self._arrived)
        # Another call may have taken a set while this one waited.
        self._release()
        records, self._current = self._ready.popleft()
        return records

    async def close(self) -> None:
        """End every task and drop what was not read; `next()` raises from now on. May be called
        repeatedly."""
        self._fail(IllegalStateError("the RangeReader is closed"))
        self._client.cluster.remove_listener(self._on_metadata)
        self._ready.clear()
        await self._tasks.stop(self._loop.time() + _CLOSE_TIMEOUT)
        self._ready.clear()

    def _start(self) -> None:
        if not self._is_started and self._failure is None:
            self._is_started = True
            self._client.cluster.add_listener(self._on_metadata)
            self._tasks.start(self._run(), name="ranges")

    def _release(self) -> None:
        response, self._current = self._current, None
        if response is None:
            return
        response.unread -= 1
        if not response.unread:
            self._pinned[response.node_id] -= response.nbytes
            self._wake.set()

    @property
    def _is_read(self) -> bool:
        return all(state.phase is RangePhase.DONE for state in self._states)

    def _fail(self, error: BaseException) -> None:
        """Stop fetching; raise this error after everything that was fetched has been read."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()
        self._wake.set()

    def _on_metadata(self, _: ClusterMetadata) -> None:
        self._wake.set()

    # -- what to ask, and which broker

    async def _run(self) -> None:
        while self._failure is None and not self._is_read:
            self._wake.clear()
            now = self._loop.time()
            self._check_deadlines(now)
            self._launch(now)
            try:
                async with timeout(self._pause(now)):
                    await self._wake.wait()
            except asyncio.TimeoutError:
                continue
        self._arrived.set()

    def _pause(self, now: float) -> float:
        retries = [s.retry_at - now for s in self._states if s.retry_at > now]
        return min([_LOOK_INTERVAL, *retries])

    def _launch(self, now: float) -> None:
        """Start a fetch to every leader that has none in flight, if there is room for a
        response."""
        homes = self._by_leader(now)
        if not homes:
            return
        # Also those that are not asked now: they have what they sent in memory, or will send it.
        brokers = {*homes, *self._busy, *+self._pinned}
        share = self._limits.buffer_memory // len(brokers)
        size = max(1, min(self._limits.max_bytes, share // 2))
        for node_id, states in homes.items():
            if node_id in self._busy:
                continue
            if self._pinned[node_id] + size > max(share, size):
                full = {state.tp for state in states}  # so nothing of these makes progress
                for state in self._states:
                    if state.tp in full:
                        state.since = now
                continue
            for state in states:
                state.transition(RangePhase.FETCHING)
            self._busy.add(node_id)
            self._tasks.start(self._fetch(node_id, states, size), name=f"fetch-{node_id}")

    def _by_leader(self, now: float) -> dict[int, list[RangeState]]:
        """Group the ranges to fetch by leader: the longest unserved first, one a partition."""
        homes: dict[int, list[RangeState]] = {}
        taken = {s.tp: s for s in self._states if s.phase in _BUSY}
        for state in sorted(self._states, key=lambda s: s.turn):
            if state.phase is not RangePhase.IDLE or not state.is_due(now, self._client.cluster):
                continue
            if state.tp in taken:
                # Its time is that of the range that is asked for.
                state.since = max(state.since, taken[state.tp].since)
                continue
            leader = self._leader(state, now)
            if leader is not None:
                taken[state.tp] = state
                homes.setdefault(leader, []).append(state)
        return homes

    def _leader(self, state: RangeState, now: float) -> int | None:
        topic, cluster = state.tp.topic, self._client.cluster
        self._client.touch_topic(topic)
        state.asked = cluster.partition(state.tp)
        if is_another_topic(self._client, state):
            state.transition(RangePhase.LOOKING_UP)
            self._tasks.start(self._check_topic(state), name=f"check-{state}")
            return None
        leader = cluster.leader_for_partition(state.tp)
        if leader is None or leader < 0:
            code = cluster.topic_error(topic)
            why = for_code(code).__name__ if code else "no leader is known"
            state.postpone(now, why)
            self._client.look_for_leader(state.tp, f"{state}: {why}")
            return None
        state.end_wait(now)
        return leader

    def _check_deadlines(self, now: float) -> None:
        for state in self._states if self._callers.are_waiting else ():
            # A request has a deadline of its own.
            if state.phase is not RangePhase.IDLE or now - state.since < self._limits.timeout:
                continue
            state.transition(RangePhase.LOOKING_UP)
            self._tasks.start(self._check_late(state), name=f"late-{state}")

    # -- one fetch ---------------------------------------------------------------------------------

    async def _fetch(self, node_id: int, states: list[RangeState], size: int) -> None:
        limits = self._limits
        # A larger response would be refused, and the connection given up with it.
        passes = room_for_records(self._client.config.max_response_bytes, len(states))
        size = max(1, min(size, passes))
        limit = min(size, limits.max_partition_bytes)
        # A request has either ids or names.
        has_ids = all(state.range.topic_id for state in states)
        request = FetchRequest(
            max_wait_ms=int(limits.max_wait * 1000),
            min_bytes=limits.min_bytes,
            max_bytes=size,
            isolation_level=int(self._read_committed),
            topics=fetch_topics((state.tp, self._spec(state, limit, has_ids)) for state in states),
        )
        timeout = limits.max_wait + min(limits.timeout, self._client.config.request_timeout)
        last = None if has_ids else LAST_VERSION_WITH_NAMES
        try:
            connection = await self._client.connection(
                node_id, ConnectionGroup.FETCH, timeout=timeout
            )
            version = connection.pick(FetchRequest, last)
            response = await connection.request(request, version=version, timeout=timeout)
        except KafkaError as error:
            self._busy.discard(node_id)
            self._on_failed_fetch(node_id, states, error)
        else:
            self._busy.discard(node_id)
            self._settle(node_id, states, response, size)
        self._wake.set()

    def _spec(self, state: RangeState, limit: int, has_ids: bool) -> FetchSpec:
        topic_id = (state.range.topic_id if has_ids else None) or ZERO_UUID
        epoch = self._old_epochs.to_ask(state.tp, self._client.cluster.leader_epoch(state.tp))
        return FetchSpec(topic_id, state.position, epoch, state.size.ask(state.left, limit))

    def _on_failed_fetch(self, node_id: int, states: list[RangeState], error: KafkaError) -> None:
        if not error.retriable:
            self._fail(error)
            return
        for state in states:
            state.postpone(self._loop.time(), str(error))
        self._client.request_metadata(f"fetch from broker {node_id} failed")

    def _settle(
        self, node_id: int, states: list[RangeState], answer: FetchResponse, size: int
    ) -> None:
        now, limit = self._loop.time(), min(size, self._limits.max_partition_bytes)
        asked = {state.tp: state for state in states}
        names = {state.range.topic_id: state.tp.topic for state in states if state.range.topic_id}
        frame = PinnedResponse(node_id)
        self._client.update_leaders(*named_leaders(answer, names, self._client.cluster.topic_id))
        for tp, data in partitions_in(answer, names):
            found = asked.get(tp)
            if found is not None and found.phase is RangePhase.FETCHING:
                self._settle_one(found, data, frame, limit)
        is_filled = frame.nbytes > size // 2  # by others
        for state in states:
            if state.phase is not RangePhase.FETCHING:
                continue
            is_short = not (is_filled or answer.error_code) and state.left_in_log > 0
            if (is_short and state.size.too_small(limit)) or frame.unread:
                state.transition(RangePhase.IDLE)
                continue
            if state.ends_early and now - state.since > _LOOK_INTERVAL:
                self._others.look_soon(state.tp.topic)
            end = f"nothing before {state.high_watermark}, the end of the log"
            state.postpone(now, for_code(code).__name__ if (code := answer.error_code) else end)
        self._pinned[node_id] += frame.nbytes

    def _settle_one(
        self, state: RangeState, data: PartitionData, frame: PinnedResponse, limit: int
    ) -> None:
        if not data.error_code:
            state.high_watermark, state.told_by = data.high_watermark, frame.node_id
        answer = read_answer(state.tp, state.position, data, state.range.until)
        if isinstance(answer, Fetched):
            self._take_in(state, answer, frame)
        elif isinstance(answer, CutShort):
            if state.size.too_small(limit):
                state.transition(RangePhase.IDLE)
            else:
                self._fail(too_large(state, limit))
        elif isinstance(answer, OutOfRange):
            state.transition(RangePhase.LOOKING_UP)
            self._tasks.start(self._look_up(state), name=f"look-up-{state}")
        elif isinstance(answer, Failed) and not answer.may_pass:
            self._fail(answer.failure())
        elif isinstance(answer, (Failed, NotNow)):
            error, known = for_code(data.error_code), self._client.cluster.leader_epoch(state.tp)
            self._old_epochs.note(frame.node_id, state.tp, known, error)
            put_off(self._client, state, error, self._loop.time())

    def _take_in(self, state: RangeState, answer: Fetched, frame: PinnedResponse) -> None:
        """Queue the records of the range, and go on behind them."""
        scan = answer.scan
        if scan.end < 0:
            self._fail(no_batch(state, answer))
            return
        if scan.size:
            self._add(state, answer, frame)
        first = state.position if scan.first < 0 else min(state.position, scan.first)
        state.size.served(scan.size, scan.end - first, first_batch_size(answer.data))
        self._turns += 1
        state.turn = self._turns
        state.moved(scan.end, self._loop.time())

    def _add(self, state: RangeState, found: Fetched, frame: PinnedResponse) -> None:
        reader = ColumnReader(
            memoryview(found.data)[: found.scan.size],
            position=state.position,
            check_crcs=self._check_crcs,
            read_committed=self._read_committed,
            aborted=found.aborted,
        )
        if not frame.unread:
            frame.nbytes = found.response_bytes
        frame.unread += 1
        self._ready.append((RecordSet(state.range, reader), frame))
        self._arrived.set()

    # -- trouble -----------------------------------------------------------------------------------

    async def _look_up(self, state: RangeState) -> None:
        """Find out where a log begins and ends that lacks the offset."""
        leader = self._client.cluster.leader_for_partition(state.tp)
        try:
            earliest, latest = await Bounds(self._client, state, self._old_epochs).ask()
        except KafkaError as error:
            if not is_passing(error):
                self._fail(error)
                return
            state.postpone(self._loop.time(), str(error))
            self._wake.set()
            return
        now, wanted = self._loop.time(), state.range
        if state.position < earliest and wanted.from_first and state.position == wanted.start:
            self._log.info("%s: begins at offset %d now", state, earliest)
            state.moved(min(earliest, wanted.until), now)
            self._arrived.set()
        elif state.position < earliest:
            self._lose(state, LossKind.RETENTION, earliest, now)
        elif state.position > latest and await self._others.is_named(state.tp, leader):
            self._lose(state, LossKind.TRUNCATION, wanted.until, self._loop.time())
        else:
            # A leader that was behind has caught up, or another one leads.
            state.postpone(self._loop.time(), f"the log has offsets {earliest} to {latest - 1}")
        self._wake.set()

    async def _check_topic(self, state: RangeState) -> None:
        is_another = await is_so_for_sure(self._client, state, is_another_topic)
        if is_another:
            self._lose(state, LossKind.NEW_TOPIC, state.range.until, self._loop.time())
        elif is_another is None:
            state.postpone(self._loop.time(), "the metadata of its topic cannot be had")
        else:
            state.transition(RangePhase.IDLE)
        self._wake.set()

    async def _check_late(self, state: RangeState) -> None:
        """Find out why a range made no progress: its partition may not exist any more, or the end
        of its log."""
        kind = None
        if await is_gone(self._client, state):
            kind = LossKind.DELETED
        elif state.ends_early and await self._others.is_named(state.tp, state.told_by):
            kind = LossKind.TRUNCATION
        if kind is not None:
            self._lose(state, kind, state.range.until, self._loop.time())
        elif state.ends_early and has_another_leader(self._client, state):
            # It was not asked yet: the time of the range begins again.
            state.ask_again(self._loop.time())
        else:
            self._fail(state.late(self._limits.timeout))
        self._wake.set()

    def _lose(self, state: RangeState, kind: LossKind, until: int, now: float) -> None:
        loss = state.lost(kind, until)
        if self._fail_on_data_loss:
            self._fail(DataLossError(loss))
            return
        self._log.warning("skipped: %s", loss)
        self.losses.append(loss)
        state.moved(loss.until, now)
        self._arrived.set()
