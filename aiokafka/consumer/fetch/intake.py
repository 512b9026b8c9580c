"""Take in one fetch response: records to the buffer, errors to readers, news to placement and
positions. No awaits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka import _seams
from aiokafka._reading import (
    CutShort,
    Failed,
    Failure,
    Fetched,
    Nothing,
    NotNow,
    OutOfRange,
    doubts_metadata,
    named_brokers,
    named_leader,
    read_answer,
)
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer.fetch.buffer import Frame
from aiokafka.errors import (
    BrokerResponseError,
    KafkaError,
    KafkaProtocolError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from aiokafka.record.reader import RecordReader
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.fetch.host import NodeHost
    from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData

__all__ = ["Intake"]

log = logging.getLogger("aiokafka.consumer.fetcher")


class Intake:
    """Applies what one response says, partition by partition; made for that response and dropped
    after `finish()`.

    Whatever is not data delays the partition's next fetch, so that no answer can make a loop.

    Owns: the Frame that counts the response's memory, which partitions got records, and the leaders
    that the response names.
    """

    def __init__(
        self,
        shared: Shared,
        host: NodeHost,
        node_id: int,
        pin: Callable[[int], Frame],
        sent_at: float,
    ) -> None:
        self._shared = shared
        self._host = host
        self._node_id = node_id
        self._pin = pin
        self._sent_at = sent_at
        self._now = asyncio.get_running_loop().time()
        self._timestamp = int(_seams.wall_time() * 1000)
        self._frame: Frame | None = None
        self._arrived: dict[TopicPartition, None] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}

    def accept(self, state: PartitionState, data: PartitionData) -> None:
        """Apply one partition's answer, which is to what its cursor asks for."""
        if data.error_code:
            # Collected, and applied by `finish()`: the metadata changes once for all partitions of
            # the response.
            leader = named_leader(data)
            if leader is not None:
                self._leaders[state.tp] = leader
        else:
            self._note_ends(state, data)
            lag = state.lag(self._shared.config.read_committed)
            self._shared.meter.fetched(state, data.records, self._sent_at, lag)
        answer = read_answer(state.tp, state.cursor.offset, data)
        # What cannot be read comes as it is with each fetch: pauses grow.
        is_whole = isinstance(answer, Fetched) and answer.scan.end >= 0
        if is_whole or isinstance(answer, Nothing):
            state.retry.succeed()
        if isinstance(answer, Fetched):
            self._buffer(state, answer)
        elif isinstance(answer, CutShort):
            self._fail(state, self._too_large(state))
        elif isinstance(answer, Failed):
            self._fail(state, answer.failure)
        elif isinstance(answer, NotNow):
            self._put_off(state, answer)
        elif isinstance(answer, OutOfRange):
            self._on_out_of_range(state, answer.failure)
        # Last, as it moves the partition to another broker. The response of a leader that gives
        # this advice has no records.
        if not data.error_code and data.preferred_read_replica >= 0:
            self._on_advice(state, data.preferred_read_replica)

    def finish(self, response: FetchResponse) -> None:
        """Wake the readers of what arrived, pass on what was learnt about leaders."""
        if self._arrived:
            self._host.announce(self._arrived)
        if self._leaders:
            self._shared.client.update_leaders(self._leaders, named_brokers(response))

    # -- data --------------------------------------------------------------------------------------

    def _note_ends(self, state: PartitionState, data: PartitionData) -> None:
        # Servers that do not know an offset have -1.
        state.note_ends(
            data.high_watermark if data.high_watermark >= 0 else state.highwater,
            data.last_stable_offset if data.last_stable_offset >= 0 else state.lso,
            data.log_start_offset if data.log_start_offset >= 0 else state.log_start,
            self._timestamp,
        )

    def _buffer(self, state: PartitionState, found: Fetched) -> None:
        if self._frame is None:
            # All of the response stays in memory while one record set of it does.
            self._frame = self._pin(found.response_bytes)
        self._shared.desk.buffer.add(state, self._reader(state, found), self._frame)
        self._arrived[state.tp] = None
        if found.scan.end < 0:
            # Reading raises the error of the first batch; what is after it cannot be asked for.
            self._postpone(state)
        else:
            state.cursor.advance(found.scan.end, found.scan.spans)

    def _reader(self, state: PartitionState, found: Fetched) -> RecordReader:
        config = self._shared.config
        return RecordReader(
            found.data,
            state.tp.topic,
            state.tp.partition,
            position=state.cursor.offset,
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            aborted=found.aborted,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )

    # -- errors ------------------------------------------------------------------------------------

    def _on_advice(self, state: PartitionState, replica: int) -> None:
        """Follow the leader's advice to read from a replica. Only a leader may give it, and it may
        not name itself."""
        if replica == self._node_id or state.home.preferred is not None:
            text = f"{state.tp}: broker {self._node_id} names {replica} to read from"
            log.debug("%s", text)
            self._postpone(state, KafkaProtocolError(text))
            self._host.refuse_replica(state)
        else:
            self._host.prefer_replica(state, replica)

    def _put_off(self, state: PartitionState, answer: NotNow) -> None:
        name = answer.error.__name__
        log.debug("%s: fetch answered %s", state.tp, name)
        epoch = state.cursor.leader_epoch
        self._shared.old_epochs.note(self._node_id, state.tp, epoch, answer.error)
        self._postpone(state, answer.error)
        if state.home.preferred is not None:
            self._host.refuse_replica(state)
        if not answer.is_stale_metadata:
            return
        why, client = f"{state.tp}: fetch answered {name}", self._shared.client
        if doubts_metadata(answer.error, state.retry.failures):
            client.doubt_metadata(why)
        else:
            client.request_metadata(why)

    def _on_out_of_range(self, state: PartitionState, failure: Failure) -> None:
        """Look for the cause: a replica that lags, data buffered ahead of the reader that the log
        has lost, or a position that is not in the log."""
        cursor = state.cursor
        if state.home.preferred is not None:
            # A replica may lag behind; the leader knows.
            self._postpone(state, OffsetOutOfRangeError)
            self._host.refuse_replica(state)
        elif cursor.queued:
            # What is buffered lies before the offset that was asked for. With its epochs known, it
            # was compared with this leader's log, which has lost its beginning then (retention):
            # what is left to read is still good. Otherwise the log may have lost its end, and that
            # as well: ask again from where the reader is, and find out.
            is_compared = min(cursor.leader_epoch, cursor.offset_epoch) >= 0
            if not is_compared or state.next_offset >= cursor.offset:
                self._shared.desk.buffer.discard(state)
            self._postpone(state, OffsetOutOfRangeError)
        else:
            self._host.on_out_of_range(state, failure)

    def _too_large(self, state: PartitionState) -> Failure:
        limit = self._shared.config.max_partition_fetch_bytes
        where = f"{state.tp}: the record at offset {state.cursor.offset}"
        text = f"{where} is larger than max_partition_fetch_bytes={limit}"
        return lambda: RecordTooLargeError(text)

    def _fail(self, state: PartitionState, failure: Failure) -> None:
        self._postpone(state)
        if state.home.preferred is not None:
            # The leader may have what is damaged here, and hears of new rights by itself.
            self._host.refuse_replica(state)
            return
        self._shared.desk.report(state, failure)
        if self._shared.meter.collector is not None:
            self._shared.meter.fetch_failed([state.tp], failure())

    def _postpone(
        self, state: PartitionState, error: KafkaError | type[BrokerResponseError] | None = None
    ) -> None:
        """Delay the next fetch. `error`: unless the application gets it."""
        client = self._shared.config.client
        state.retry.postpone(self._now, client.retry_backoff, client.retry_backoff_max, error)
