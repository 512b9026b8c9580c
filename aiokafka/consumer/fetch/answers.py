"""What each answer to a fetch means for its partition. Synchronous: no awaits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import _seams
from aiokafka.consumer.fetch.buffer import Frame, scan_record_set
from aiokafka.consumer.partition_state import PartitionState
from aiokafka.errors import (
    BrokerResponseError,
    CorruptRecordException,
    KafkaError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpoch,
    for_code,
)
from aiokafka.record.reader import RecordReader
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.fetch.fetcher import Fetcher
    from aiokafka.consumer.fetch.node import NodeFetcher
    from aiokafka.protocol.messages.fetch import NodeEndpoint, PartitionData

__all__ = ["FetchAnswers"]

_Failure = Callable[[], KafkaError]

# Not in `invalid_metadata`, but the leader may be another one all the same.
_ALSO_REFRESH = frozenset({OffsetNotAvailable.errno, UnknownLeaderEpoch.errno})

log = logging.getLogger("aiokafka.consumer.fetcher")


class FetchAnswers:
    """Turns partition answers into buffered records, new positions, back-off, or failures to
    report.

    Used by one NodeFetcher at a time, within one synchronous step: `begin`, `settle` for each
    partition, `end`. Nothing here can loop without back-off: whatever is not data delays the
    partition's next fetch.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._config = fetcher.config
        self._buffer = fetcher.buffer
        self._node: NodeFetcher | None = None
        self._frame: Frame | None = None
        self._arrived: dict[TopicPartition, None] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._endpoints: dict[int, BrokerMetadata] = {}
        self._timestamp = 0
        self._now = 0.0

    def begin(self, node: NodeFetcher, endpoints: Sequence[NodeEndpoint]) -> None:
        """The following answers came in one response of `node`."""
        self._node = node
        self._frame = None
        self._now = asyncio.get_running_loop().time()
        self._timestamp = int(_seams.wall_time() * 1000)
        self._endpoints = {
            e.node_id: BrokerMetadata(e.node_id, e.host, e.port, e.rack) for e in endpoints
        }

    def settle(self, state: PartitionState, data: PartitionData) -> None:
        """Take note of one partition's answer, which is to what its cursor asks for."""
        if data.error_code:
            self._on_error(state, data)
            return
        state.highwater = data.high_watermark
        if data.last_stable_offset >= 0 or self._config.read_committed:
            state.lso = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start = data.log_start_offset
        state.timestamp = self._timestamp
        state.cursor.failures = state.cursor.losses = 0
        if data.records:
            self._on_records(state, data, data.records)
        if data.preferred_read_replica >= 0:
            self._on_advice(state, data.preferred_read_replica)

    def end(self) -> None:
        """Wake the readers, pass on what was learnt about leaders."""
        if self._arrived:
            arrived, self._arrived = self._arrived, {}
            self._fetcher.arrived(arrived)
        if self._leaders:
            leaders, self._leaders = self._leaders, {}
            self._fetcher.client.update_leaders(leaders, self._endpoints.values())
        self._node = self._frame = None

    def _on_advice(self, state: PartitionState, replica: int) -> None:
        """The leader names a replica to read from. Only a leader may, and not itself."""
        assert self._node is not None
        if replica == self._node.node_id or state.cursor.preferred is not None:
            log.debug("%s: broker %d names %d to read from", state.tp, self._node.node_id, replica)
            self._postpone(state)
            self._fetcher.leave_replica(state)
        else:
            self._fetcher.use_replica(state, replica)

    # -- data --------------------------------------------------------------------------------------

    def _on_records(self, state: PartitionState, data: PartitionData, records: Any) -> None:
        cursor = state.cursor
        size = len(records)
        end, spans = scan_record_set(memoryview(records))
        if end < 0 and cursor.offset >= 0 and self._is_cut_short(records, size):
            self._fail(state, _too_large(state, self._config.max_partition_fetch_bytes))
            return
        if 0 <= end <= cursor.offset:
            self._fail(state, _no_progress(state, cursor.offset, end))
            return
        reader = self._reader(state, data, records)
        self._buffer.add(state, reader, self._frame_of(records))
        self._arrived[state.tp] = None
        if end < 0:
            # An unreadable record set: it is there to raise its error; nothing after it can be
            # asked for.
            self._postpone(state)
        else:
            cursor.advance(end, spans)

    def _reader(self, state: PartitionState, data: PartitionData, records: Any) -> RecordReader:
        config = self._config
        aborted = data.aborted_transactions or ()
        return RecordReader(
            records,
            state.tp.topic,
            state.tp.partition,
            position=state.cursor.offset,
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            aborted=[(entry.producer_id, entry.first_offset) for entry in aborted],
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )

    def _frame_of(self, records: Any) -> Frame:
        """The accounting of this response's memory, counted once."""
        if self._frame is None:
            assert self._node is not None
            whole: Any = records.obj if isinstance(records, memoryview) else records
            self._frame = Frame(len(whole), self._node.release)
            self._node.pinned += len(whole)
        return self._frame

    def _is_cut_short(self, records: Any, size: int) -> bool:
        """Whether the first batch is larger than what was sent of it (brokers before 0.10.1)."""
        return size < 17 or int.from_bytes(bytes(records[8:12]), "big", signed=True) + 12 > size

    # -- errors ------------------------------------------------------------------------------------

    def _on_error(self, state: PartitionState, data: PartitionData) -> None:
        error = for_code(data.error_code)
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            self._leaders[state.tp] = (leader.leader_id, leader.leader_epoch)
        if error is OffsetOutOfRangeError:
            self._on_out_of_range(state)
        elif error is TopicAuthorizationFailedError:
            self._fail(state, _denied(state))
        elif error is CorruptRecordException or not (error.retriable or error.errno == -1):
            self._fail(state, _broker_error(state, error))
        else:
            self._on_passing(state, error)

    def _on_passing(self, state: PartitionState, error: type[BrokerResponseError]) -> None:
        log.debug("%s: fetch answered %s", state.tp, error.__name__)
        self._postpone(state)
        if state.cursor.preferred is not None:
            self._fetcher.leave_replica(state)
        if error.invalid_metadata or error.errno in _ALSO_REFRESH:
            self._fetcher.client.request_metadata(f"{state.tp}: fetch answered {error.__name__}")

    def _on_out_of_range(self, state: PartitionState) -> None:
        """The offset is not in the log: of the replica, of the data buffered ahead, or at all."""
        cursor = state.cursor
        if cursor.preferred is not None:
            # A replica may lag behind; the leader knows.
            self._postpone(state)
            self._fetcher.leave_replica(state)
        elif cursor.queued:
            self._buffer.discard(state)
            self._postpone(state)
        else:
            self._fetcher.on_lost_position(state, _out_of_range(state))

    def _fail(self, state: PartitionState, failure: _Failure) -> None:
        """Report, and look again later: the cause may be mended meanwhile."""
        self._postpone(state)
        self._fetcher.report(state, failure)

    def _postpone(self, state: PartitionState) -> None:
        client = self._config.client
        state.cursor.back_off(self._now, client.retry_backoff, client.retry_backoff_max)


def _denied(state: PartitionState) -> _Failure:
    topic = state.tp.topic
    return lambda: TopicAuthorizationFailedError(topic)


def _broker_error(state: PartitionState, error: type[BrokerResponseError]) -> _Failure:
    tp, offset = state.tp, state.cursor.offset
    return lambda: error(f"{tp}: fetch at offset {offset} failed")


def _out_of_range(state: PartitionState) -> _Failure:
    tp, offset = state.tp, state.cursor.offset
    return lambda: OffsetOutOfRangeError({tp: offset})


def _too_large(state: PartitionState, limit: int) -> _Failure:
    tp, offset = state.tp, state.cursor.offset
    return lambda: RecordTooLargeError(
        f"{tp}: the record at offset {offset} is larger than max_partition_fetch_bytes={limit}"
    )


def _no_progress(state: PartitionState, offset: int, end: int) -> _Failure:
    tp = state.tp
    return lambda: CorruptRecordException(
        f"{tp}: asked for offset {offset}, the broker sent records up to {end} only"
    )
