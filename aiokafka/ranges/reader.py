"""RangeReader: fetches ranges of offsets before the application requests the records, with one
request at a time per leader."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from aiokafka._arguments import as_flag, as_having, as_instance
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._metadata.leader_votes import LeaderVotes
from aiokafka._reading import (
    BatchTooLarge,
    Failed,
    FencedEpochs,
    Fetched,
    FetchSpec,
    FoundOffset,
    OutOfRange,
    RetryLater,
    doubts_metadata,
    fetch_topics,
    is_transient,
    list_offsets,
    max_record_bytes,
    named_leaders,
    offsets_in,
    partitions_in,
    read_partition,
)
from aiokafka._retry import Backoff
from aiokafka._tasks import TaskOwner
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
from aiokafka.protocol.messages.fetch import EARLIEST, LAST_VERSION_WITH_NAMES, LATEST, FetchRequest
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

if TYPE_CHECKING:
    from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData

__all__ = [
    "RangeReader",
    "WaitingCallers",
    "has_another_leader",
    "is_another_topic",
    "is_confirmed",
    "is_missing",
    "log_bounds",
    "retry_later",
]


class WaitingCallers:
    """The calls of `RangeReader.next()` that wait for records. While no call waits, the timeout
    clocks of the ranges are stopped.

    The application may process records for a long time between two calls. An outage that begins and
    ends in this time must not fail a range.

    Owns: the number of waiting calls, and the time since which no call waits.
    """

    def __init__(self, states: Sequence[RangeState]) -> None:
        self._states = states
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()
        self._waiting = 0

    def __bool__(self) -> bool:
        return self._waiting > 0

    async def wait(self, arrived: asyncio.Event) -> None:
        """Wait for `arrived` in a call of `next()`. If no other call waits, first exclude the time
        without a waiting call from the timeout clocks."""
        if not self._waiting:
            now = self._loop.time()
            for state in self._states:
                state.exclude_time(now - self._idle_since, now)
        self._waiting += 1
        try:
            await arrived.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._idle_since = self._loop.time()


# A topic counts as deleted or recreated if this number of consecutive metadata refreshes show it.
_REFRESHES = 3


async def log_bounds(
    client: AIOKafkaClient, state: RangeState, fenced_epochs: FencedEpochs
) -> tuple[int, int]:
    """Return the log start offset and the log end offset. Raises the error of the broker or
    connection, UnknownError if a response has no offset, LeaderNotAvailableError without a known
    leader."""
    earliest = await _list_offset(client, state, fenced_epochs, EARLIEST)
    return earliest, await _list_offset(client, state, fenced_epochs, LATEST)


async def _list_offset(
    client: AIOKafkaClient, state: RangeState, fenced_epochs: FencedEpochs, timestamp: int
) -> int:
    tp, cluster = state.tp, client.cluster
    leader = cluster.leader_for_partition(tp)
    if leader is None or leader < 0:
        client.look_for_leader(tp, f"{state}: no leader is known")
        raise LeaderNotAvailableError(f"{state}: no leader is known")
    epoch = fenced_epochs.epoch_to_send(tp, cluster.leader_epoch(tp))
    request = list_offsets({tp: timestamp}, lambda _: epoch)
    found = offsets_in(await client.send(leader, request)).get(tp, UnknownError)
    if isinstance(found, FoundOffset):
        if found.offset >= 0:
            return found.offset
    else:
        fenced_epochs.on_error(leader, tp, epoch, found)
    client.request_metadata(f"{state}: offsets were not found")
    # A response with neither an error nor an offset must not count as a loss of the whole range:
    # raise UnknownError.
    error = UnknownError if isinstance(found, FoundOffset) else found
    raise for_partition(error, tp, "offset not found")


def retry_later(
    client: AIOKafkaClient, state: RangeState, error: type[BrokerResponseError], now: float
) -> None:
    """Postpone the next fetch of a range after an error response of its leader, and request a
    metadata refresh."""
    state.postpone(now, error.__name__)
    is_doubtful = doubts_metadata(error, state.failures)
    ask = client.doubt_metadata if is_doubtful else client.request_metadata
    ask(f"{state}: Fetch failed with {error.__name__}")


def is_another_topic(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the topic's id in the client's metadata differs from the range's topic id;
    False if one of them is unknown."""
    known, wanted = client.cluster.topic_id(state.tp.topic), state.range.topic_id
    return None not in (known, wanted) and known != wanted


def is_missing(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether the partition does not exist according to the client's metadata; False if the
    metadata lacks the topic's partitions, or has another error for the topic."""
    cluster, (topic, number) = client.cluster, state.tp
    if code := cluster.topic_error(topic):
        return code == UnknownTopicOrPartitionError.errno
    known = cluster.known_partitions(topic)
    return known is not None and len(known) > 0 and number not in known


def has_another_leader(client: AIOKafkaClient, state: RangeState) -> bool:
    """Return whether a leader is known, and is not the broker that reported the log end last."""
    leader = client.cluster.leader_for_partition(state.tp)
    return leader is not None and leader not in (-1, state.end_source)


async def is_confirmed(
    client: AIOKafkaClient,
    state: RangeState,
    check: Callable[[AIOKafkaClient, RangeState], bool],
) -> bool | None:
    """Return whether `check` is true after each of several metadata refreshes; None if no broker
    responds. One refresh is not enough, because a broker's metadata may be outdated."""
    for _ in range(_REFRESHES):
        if not await client.force_metadata_update():
            return None
        if not check(client, state):
            return False
        # Wait: an immediate refresh could use the same broker, and its metadata may still be
        # outdated.
        await asyncio.sleep(client.config.retry_backoff)
    return True


log = logging.getLogger("aiokafka.ranges")

_MEBIBYTE = 1024 * 1024
_CLOSE_TIMEOUT = 2.0
_BUSY = (RangePhase.FETCHING, RangePhase.LOOKING_UP)
_CHECK_INTERVAL = 1.0  # seconds between checks of deadlines and metadata


class RangeReader:
    """Reads any number of ranges of offsets to their ends, concurrently.

    ::

        async with RangeReader(client, [PartitionRange("topic", 0, 0, 1000)]) as reader:
            while (records := await reader.next()) is not None:
                while (rows := records.read(max_rows=8192)) is not None:
                    ...  # the first rows.size rows of rows.columns

    Use the reader in the client's event loop only; the returned record sets may be read in another
    thread. `close()` ends all tasks of the reader.

    Args:
        client: A started AIOKafkaClient, which may be shared.
        ranges: The ranges to read.
        read_committed: Skip records of open and aborted transactions. A range must then not end
            after the last stable offset.
        fail_on_data_loss: Raise DataLossError for lost records. If False, skip lost records with a
            warning, and list them in `losses`.
        max_bytes: Maximum bytes of a fetch response.
        max_partition_bytes: Maximum bytes of one partition in a fetch response.
        min_bytes: Bytes that a broker waits for before it responds to a fetch.
        max_wait_ms: How long a broker waits for `min_bytes`.
        buffer_memory: Maximum bytes of fetched, unread responses of all brokers.
        timeout_ms: Longest time without progress of a range while a call of `next()` waits.
        check_crcs: Check the checksum of every batch.
        sizes: Record sizes shared with other readers of the same topics. Without known sizes, the
            first fetch of a range is small.

    Raises TypeError or ValueError for an invalid limit or range. Sizes are integers of at least 1
    (`min_bytes`: 0), times numbers of milliseconds of at least 0.
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
        self._client = as_having("client", client, "config", "an AIOKafkaClient")
        self._log = SubjectLog(log, f"RangeReader of {client!r}")
        self._read_committed = as_flag("read_committed", read_committed)
        self._fail_on_data_loss = as_flag("fail_on_data_loss", fail_on_data_loss)
        self._check_crcs = as_flag("check_crcs", check_crcs)
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
        sizes = OffsetSizes() if sizes is None else as_instance("sizes", sizes, OffsetSizes)
        self._states = [
            RangeState(r, now, Backoff(config.retry_backoff, config.retry_backoff_max), sizes)
            for r in checked(ranges)
        ]
        self._callers = WaitingCallers(self._states)
        self._tasks = TaskOwner(f"{config.client_id}:ranges", self._fail)
        self._votes = LeaderVotes(client, self._tasks)
        self._fenced_epochs = FencedEpochs(client.versions)
        self._ready: collections.deque[tuple[RecordSet, PinnedResponse]] = collections.deque()
        self._current: PinnedResponse | None = None
        self._fetching_nodes: set[int] = set()
        self._pinned: collections.Counter[int] = collections.Counter()
        self._responses = 0
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._is_started = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def next(self) -> RecordSet | None:
        """Return the next record set of any range; None after the end of all ranges.

        The call releases the memory of the previous record set. The record sets of a partition come
        in order. A cancelled call consumes nothing.

        Raises DataLossError; KafkaTimeoutError with offset and cause if a range makes no progress
        for `timeout_ms`; CorruptRecordError; RecordTooLargeError with brokers before 0.10.1; errors
        of brokers that are not retriable; IllegalStateError after `close()`.
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
        # Release again: another call may have returned a record set while this call waited.
        self._release()
        records, self._current = self._ready.popleft()
        return records

    async def close(self) -> None:
        """End all tasks and drop unread record sets. Later calls of `next()` raise
        IllegalStateError, or the earlier failure. May be called repeatedly."""
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
        """Stop fetching, and store the first error. `next()` returns all fetched record sets, then
        raises this error."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()
        self._wake.set()

    def _on_metadata(self, _: ClusterMetadata) -> None:
        self._wake.set()

    # -- which ranges to fetch, and from which broker

    async def _run(self) -> None:
        while self._failure is None and not self._is_read:
            self._wake.clear()
            now = self._loop.time()
            self._check_deadlines(now)
            self._start_fetches(now)
            try:
                async with timeout(self._pause(now)):
                    await self._wake.wait()
            except asyncio.TimeoutError:
                continue
        self._arrived.set()

    def _pause(self, now: float) -> float:
        retries = [s.retry_at - now for s in self._states if s.retry_at > now]
        return min([_CHECK_INTERVAL, *retries])

    def _start_fetches(self, now: float) -> None:
        """Start a fetch to every leader without an in-flight fetch, if the leader's share of the
        buffer memory has space for the response."""
        by_leader = self._by_leader(now)
        if not by_leader:
            return
        # Divide the buffer memory among these leaders, and the brokers with a fetch in flight or
        # with unread responses in memory.
        brokers = {*by_leader, *self._fetching_nodes, *+self._pinned}
        share = self._limits.buffer_memory // len(brokers)
        size = max(1, min(self._limits.max_bytes, share // 2))
        for node_id, states in by_leader.items():
            if node_id in self._fetching_nodes:
                continue
            if self._pinned[node_id] + size > max(share, size):
                # Restart the timeout clocks of all ranges of these partitions: they wait until the
                # application reads record sets, and not for the broker.
                full = {state.tp for state in states}
                for state in self._states:
                    if state.tp in full:
                        state.since = now
                continue
            for state in states:
                state.transition(RangePhase.FETCHING)
            self._fetching_nodes.add(node_id)
            self._tasks.start(self._fetch(node_id, states, size), name=f"fetch-{node_id}")

    def _by_leader(self, now: float) -> dict[int, list[RangeState]]:
        """Return the ranges to fetch from each leader, at most one per partition. The range that
        has waited longest for records is first."""
        by_leader: dict[int, list[RangeState]] = {}
        taken = {s.tp: s for s in self._states if s.phase in _BUSY}
        for state in sorted(self._states, key=lambda s: s.last_response):
            if state.phase is not RangePhase.IDLE or not state.is_due(now, self._client.cluster):
                continue
            if state.tp in taken:
                # The ranges of a partition are fetched one at a time. This range waits for the
                # other range and not for the broker, so the progress of the other range counts.
                state.since = max(state.since, taken[state.tp].since)
                continue
            leader = self._leader(state, now)
            if leader is not None:
                taken[state.tp] = state
                by_leader.setdefault(leader, []).append(state)
        return by_leader

    def _leader(self, state: RangeState, now: float) -> int | None:
        topic, cluster = state.tp.topic, self._client.cluster
        self._client.touch_topic(topic)
        state.metadata = cluster.partition(state.tp)
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
        for state in self._states if self._callers else ():
            # Requests in flight have their own deadlines.
            if state.phase is not RangePhase.IDLE or now - state.since < self._limits.timeout:
                continue
            state.transition(RangePhase.LOOKING_UP)
            self._tasks.start(self._check_late(state), name=f"late-{state}")

    # -- one fetch ---------------------------------------------------------------------------------

    async def _fetch(self, node_id: int, states: list[RangeState], size: int) -> None:
        limits = self._limits
        # Request at most `max_response_bytes`: the client rejects a larger response and closes the
        # connection.
        fits = max_record_bytes(self._client.config.max_response_bytes, len(states))
        size = max(1, min(size, fits))
        limit = min(size, limits.max_partition_bytes)
        # A request names all topics either by id or by name.
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
            self._fetching_nodes.discard(node_id)
            self._on_failed_fetch(node_id, states, error)
        else:
            self._fetching_nodes.discard(node_id)
            self._handle_response(node_id, states, response, size)
        self._wake.set()

    def _spec(self, state: RangeState, limit: int, has_ids: bool) -> FetchSpec:
        topic_id = (state.range.topic_id if has_ids else None) or ZERO_UUID
        epoch = self._fenced_epochs.epoch_to_send(
            state.tp, self._client.cluster.leader_epoch(state.tp)
        )
        return FetchSpec(topic_id, state.position, epoch, state.size.ask(state.left, limit))

    def _on_failed_fetch(self, node_id: int, states: list[RangeState], error: KafkaError) -> None:
        if not error.retriable:
            self._fail(error)
            return
        for state in states:
            state.postpone(self._loop.time(), str(error))
        self._client.request_metadata(f"fetch from broker {node_id} failed")

    def _handle_response(
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
                self._handle_partition(found, data, frame, limit)
        # If the response has more than half of the requested size, a range may have no records only
        # because the response was full: do not double the limit of this range.
        is_filled = frame.nbytes > size // 2
        for state in states:
            if state.phase is not RangePhase.FETCHING:
                continue
            is_short = not (is_filled or answer.error_code) and state.left_in_log > 0
            if (is_short and state.size.double(limit)) or frame.unread:
                state.transition(RangePhase.IDLE)
                continue
            if state.ends_early and now - state.since > _CHECK_INTERVAL:
                self._votes.poll_soon(state.tp.topic)
            end = f"nothing before {state.high_watermark}, the end of the log"
            state.postpone(now, for_code(code).__name__ if (code := answer.error_code) else end)
        self._pinned[node_id] += frame.nbytes

    def _handle_partition(
        self, state: RangeState, data: PartitionData, frame: PinnedResponse, limit: int
    ) -> None:
        if not data.error_code:
            state.high_watermark, state.end_source = data.high_watermark, frame.node_id
        answer = read_partition(state.tp, state.position, data, state.range.until)
        if isinstance(answer, Fetched):
            self._queue_records(state, answer, frame)
        elif isinstance(answer, BatchTooLarge):
            if state.size.double(limit):
                state.transition(RangePhase.IDLE)
            else:
                self._fail(too_large(state, limit))
        elif isinstance(answer, OutOfRange):
            state.transition(RangePhase.LOOKING_UP)
            self._tasks.start(self._look_up(state), name=f"look-up-{state}")
        elif isinstance(answer, Failed) and not answer.is_retriable:
            self._fail(answer.failure())
        elif isinstance(answer, (Failed, RetryLater)):
            error, known = for_code(data.error_code), self._client.cluster.leader_epoch(state.tp)
            self._fenced_epochs.on_error(frame.node_id, state.tp, known, error)
            retry_later(self._client, state, error, self._loop.time())

    def _queue_records(self, state: RangeState, answer: Fetched, frame: PinnedResponse) -> None:
        """Queue the fetched records, and advance the position of the range to their end. Fail if
        they do not begin with a valid batch."""
        scan = answer.scan
        if scan.end < 0:
            self._fail(no_batch(state, answer))
            return
        if scan.size:
            self._add(state, answer, frame)
        first = state.position if scan.first < 0 else min(state.position, scan.first)
        state.size.served(scan.size, scan.end - first, first_batch_size(answer.data))
        self._responses += 1
        state.last_response = self._responses
        state.advance(scan.end, self._loop.time())

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

    # -- out of range, lost records and timeouts ---------------------------------------------------

    async def _look_up(self, state: RangeState) -> None:
        """After OFFSET_OUT_OF_RANGE, look up the bounds of the log. Then report a data loss, begin
        at the first record (`from_first`), or retry; fail after an error that is not transient."""
        leader = self._client.cluster.leader_for_partition(state.tp)
        try:
            earliest, latest = await log_bounds(self._client, state, self._fenced_epochs)
        except KafkaError as error:
            if not is_transient(error):
                self._fail(error)
                return
            state.postpone(self._loop.time(), str(error))
            self._wake.set()
            return
        now, wanted = self._loop.time(), state.range
        if state.position < earliest and wanted.from_first and state.position == wanted.start:
            self._log.info("%s: the log now begins at offset %d", state, earliest)
            state.advance(min(earliest, wanted.until), now)
            self._arrived.set()
        elif state.position < earliest:
            self._report_loss(state, LossKind.RETENTION, earliest, now)
        elif state.position > latest and await self._votes.confirm(state.tp, leader):
            self._report_loss(state, LossKind.TRUNCATION, wanted.until, self._loop.time())
        else:
            # A loss is not certain: the leader may have caught up or changed since the error.
            # Retry.
            state.postpone(self._loop.time(), f"the log has offsets {earliest} to {latest - 1}")
        self._wake.set()

    async def _check_topic(self, state: RangeState) -> None:
        is_another = await is_confirmed(self._client, state, is_another_topic)
        if is_another:
            self._report_loss(state, LossKind.NEW_TOPIC, state.range.until, self._loop.time())
        elif is_another is None:
            state.postpone(self._loop.time(), "the metadata of its topic is not available")
        else:
            state.transition(RangePhase.IDLE)
        self._wake.set()

    async def _check_late(self, state: RangeState) -> None:
        """Handle a range without progress for `timeout_ms`: report a data loss if the partition was
        deleted or its log truncated, restart the clock after a leader change, or fail."""
        kind = None
        if is_missing(self._client, state) and await is_confirmed(self._client, state, is_missing):
            kind = LossKind.DELETED
        elif state.ends_early and await self._votes.confirm(state.tp, state.end_source):
            kind = LossKind.TRUNCATION
        if kind is not None:
            self._report_loss(state, kind, state.range.until, self._loop.time())
        elif state.ends_early and has_another_leader(self._client, state):
            # The new leader has not reported its log end yet.
            state.restart_clock(self._loop.time())
        else:
            self._fail(state.timeout_error(self._limits.timeout))
        self._wake.set()

    def _report_loss(self, state: RangeState, kind: LossKind, until: int, now: float) -> None:
        loss = state.data_loss_until(kind, until)
        if self._fail_on_data_loss:
            self._fail(DataLossError(loss))
            return
        self._log.warning("skipped: %s", loss)
        self.losses.append(loss)
        state.advance(loss.until, now)
        self._arrived.set()
