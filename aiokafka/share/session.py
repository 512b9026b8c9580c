"""The share session with one broker: ShareFetch, ShareAcknowledge, and their responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiokafka._health import NodeHealth, broker_health
from aiokafka._log import SubjectLog
from aiokafka._reading import is_transient
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InvalidRecordState,
    InvalidShareSessionEpoch,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
    for_partition,
    renewed,
)
from aiokafka.protocol.messages.share_groups import (
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from aiokafka.share.acquired import (
    Acknowledgement,
    AcknowledgeType,
    Acquisition,
    TopicIdPartition,
    acknowledgement_batches,
    by_partition,
    without_overlaps,
)
from aiokafka.share.buffer import AcquiredRange, AcquiredRecordSet
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.messages.share_groups import (
        AcknowledgePartitionData,
        AcquiredRecords,
        PartitionData,
        ShareAcknowledgeResponse,
        ShareFetchResponse,
    )
    from aiokafka.share.fetcher import ShareFetcher

__all__ = ["NodeShareSession", "ShareSession", "acquired_ranges"]

log = logging.getLogger("aiokafka.share")

_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

_ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}

_FIRST_WITH_RENEWALS = 2
"""The first version of ShareAcknowledge with RENEW (KIP-1222)."""

# Seconds after which acknowledgements are sent if no fetch is due that could carry them. With a
# request for each record, the broker would also write the state of the share group for each record.
_LINGER = 0.05

# Longest wait of a fetch at the broker, as a part of the lock's timeout: the session sends one
# request at a time, so a RENEW waits for the fetch in flight.
_LONGEST_WAIT = 1 / 4

_MAX_OFFSET = 2**63 - 1


class ShareSession:
    """The epoch of the share session with one broker, and its partitions. No I/O.

    A request with epoch 0 opens a session, and replaces an earlier one. Each following request
    increments the epoch. A request with epoch -1 closes the session, and the broker releases the
    acquired records. The first request of a session cannot have acknowledgements.

    Owns: `epoch`, of the next request; `known`, the partitions that the broker's session has, with
    their names.
    """

    def __init__(self) -> None:
        self.epoch = _FIRST_EPOCH
        self.known: dict[TopicIdPartition, TopicPartition] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker has a session, as far as the client knows."""
        return self.epoch != _FIRST_EPOCH

    def restart(self) -> None:
        """Open a new session with the next request."""
        self.epoch = _FIRST_EPOCH
        self.known.clear()

    def advance(self) -> None:
        """Increment the epoch, because the broker has accepted a request. The epoch after the
        largest one is 1."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def fetch_request(
        self,
        wanted: Mapping[TopicIdPartition, TopicPartition],
        acknowledgements: Iterable[Acknowledgement],
    ) -> ShareFetchRequest:
        """Return the next ShareFetch; the caller sets group, member and limits. `acknowledgements`
        must be of partitions in `wanted`."""
        added = {tip: None for tip in wanted if tip not in self.known}
        forgotten = [tip for tip in self.known if tip not in wanted]
        batches = {
            tip: acknowledgement_batches(some) for tip, some in by_partition(acknowledgements)
        }
        self.known = dict(wanted)
        topics: dict[bytes, FetchTopic] = {}
        for tip in {**added, **dict.fromkeys(batches)}:
            topic = topics.setdefault(
                tip.topic_id, FetchTopic(topic_id=tip.topic_id, partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition_index=tip.partition, acknowledgement_batches=batches.get(tip, [])
                )
            )
        gone: dict[bytes, ForgottenTopic] = {}
        for tip in forgotten:
            left = gone.setdefault(
                tip.topic_id, ForgottenTopic(topic_id=tip.topic_id, partitions=[])
            )
            left.partitions.append(tip.partition)
        return ShareFetchRequest(
            member_id="",
            share_session_epoch=self.epoch,
            max_wait_ms=0,
            min_bytes=0,
            max_records=0,
            batch_size=0,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def acknowledge_request(
        self, acknowledgements: Iterable[Acknowledgement], is_last: bool
    ) -> ShareAcknowledgeRequest:
        """Return the next ShareAcknowledge; the caller sets group and member. `is_last`: whether
        the request closes the session."""
        topics: dict[bytes, AcknowledgeTopic] = {}
        is_renewal = False
        for tip, some in by_partition(acknowledgements):
            topic = topics.setdefault(
                tip.topic_id, AcknowledgeTopic(topic_id=tip.topic_id, partitions=[])
            )
            is_renewal |= any(map(_is_renewal, some))
            topic.partitions.append(
                AcknowledgePartition(
                    partition_index=tip.partition,
                    acknowledgement_batches=acknowledgement_batches(some),
                )
            )
        return ShareAcknowledgeRequest(
            member_id="",
            share_session_epoch=_FINAL_EPOCH if is_last else self.epoch,
            is_renew_ack=is_renewal,
            topics=list(topics.values()),
        )


class NodeShareSession:
    """Sends the requests of one share session, one at a time, and evaluates the responses.

    Owns: the share session, and the connection that it was opened on (a broker closes the session,
    and releases its records, when the connection closes); the queue of acknowledgements; the
    partitions to fetch, those in backoff, and deferred ones; the acquisitions of the session.

    What the loop of `run()` does, by priority:

    1. Close the session, with all acknowledgements, when the consumer stops, or if the broker leads
       no partition of this member any more and all records are acknowledged.
    2. Send ShareAcknowledge: if a `commit()` waits, for a RENEW (a fetch must not have one), for
       partitions that are not fetched now, or after `_LINGER` if no fetch is due.
    3. Send ShareFetch, with the other acknowledgements, if the application wants records.

    A session is lost if its connection closes, a request gets no response, or the broker rejects
    the whole request, for example because it does not know the session. Then the outcome of the
    acknowledgements in flight is unknown: the broker may have applied them, otherwise it delivers
    the records again. All acknowledgements of the session's records fail, including later ones.

    The duration of acquisition locks counts from the time when the request was sent: the broker
    acquires or renews at any time between the request and the response. If the broker cannot store
    the acknowledgements of the request at once, it delays the response for seconds. If the duration
    counted from the response, a record could be processed here after another member had got it.
    """

    def __init__(self, node_id: int, fetcher: ShareFetcher) -> None:
        self.node_id = node_id
        self.session = ShareSession()
        self.health: NodeHealth = broker_health(
            fetcher.client, node_id, SubjectLog(log, fetcher.config.subject), None
        )
        self._log = SubjectLog(log, fetcher.config.subject)
        self._fetcher = fetcher
        self._connection: BrokerConnection | None = None
        self._partitions: dict[TopicIdPartition, TopicPartition] = {}
        self._retry_at: dict[TopicIdPartition, float] = {}
        self._deferred: dict[TopicIdPartition, float] = {}
        self._queue: list[Acknowledgement] = []
        self._queued_at = 0.0
        self._not_before = 0.0
        self._acquisitions: WeakSet[Acquisition] = WeakSet()
        client = fetcher.config.client
        self._backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._signal = Signal()
        self._is_closing = False
        self._is_last = False  # whether the request in flight closes the session
        self._is_fetching = False
        self._loop = asyncio.get_running_loop()

    # -- called by the other parts of the consumer

    def set_partitions(self, partitions: Mapping[TopicIdPartition, TopicPartition]) -> None:
        """Fetch exactly these partitions from now on."""
        if partitions != self._partitions:
            self._partitions = dict(partitions)
            self._retry_at = {tip: at for tip, at in self._retry_at.items() if tip in partitions}
            self._signal.notify()

    def defer(self, tip: TopicIdPartition, until: float) -> None:
        """Fetch a partition again only at `until` (loop time), or later."""
        self._deferred[tip] = max(until, self._deferred.get(tip, until))
        self._signal.notify()

    def enqueue(self, acknowledgement: Acknowledgement) -> None:
        """Queue an acknowledgement."""
        if self._is_closing and _is_renewal(acknowledgement):
            self._fetcher.acknowledgements.drop([acknowledgement])
            return
        if not self._queue:
            self._queued_at = self._loop.time()
            self._signal.notify()
        self._queue.append(acknowledgement)

    def wake(self) -> None:
        """Make `run()` check whether a request is due."""
        self._signal.notify()

    def close(self) -> None:
        """Close the session after the request in flight; then `run()` ends. The last request
        must not have a RENEW."""
        self._is_closing = True
        renewals = [each for each in self._queue if _is_renewal(each)]
        self._queue = [each for each in self._queue if not _is_renewal(each)]
        self._fetcher.acknowledgements.drop(renewals)
        self._signal.notify()

    def is_of(self, fetcher: ShareFetcher) -> bool:
        """Return whether this is a session of the consumer of `fetcher`."""
        return self._fetcher is fetcher

    @property
    def is_leader(self) -> bool:
        """Whether the broker leads a partition of this member."""
        return bool(self._partitions)

    @property
    def is_unused(self) -> bool:
        """Whether the broker leads no partition of this member, and has no session. A fetch in
        flight counts as a session, because it may open one: a second NodeShareSession for the
        broker would replace that session, and the first one would then close the session of the
        second."""
        return not (self._partitions or self._queue or self._is_fetching or self.session.is_open)

    @property
    def can_renew(self) -> bool:
        """Whether the broker supports renewals of acquisition locks."""
        versions = self._fetcher.client.versions(self.node_id)
        if versions is None:
            return True
        known = versions.api_versions.get(ShareAcknowledgeRequest.API_KEY, (0, 0))
        return known[1] >= _FIRST_WITH_RENEWALS

    # -- the loop

    async def run(self) -> None:
        """Send requests until `close()`."""
        try:
            while not self._is_closing:
                await self._step()
            await self._close_session()
        finally:
            # After a cancellation, there may be acknowledgements that were not sent: they fail.
            self._lose(IllegalStateError("the consumer was stopped"))

    async def _step(self) -> None:
        now = self._loop.time()
        wake_at = self._next_retry(now)
        if self._not_before > now:
            await self._signal.wait(self._not_before)
            return
        wanted = self._wanted(now)
        is_fetch_due = bool(wanted) and self._fetcher.buffer.is_wanted
        if self._queue and self._is_acknowledge_due(now, wanted, is_fetch_due):
            await self._acknowledge()
        elif is_fetch_due:
            self._is_fetching = True
            try:
                await self._fetch(wanted)
            finally:
                self._is_fetching = False
        elif not self._partitions and self.session.is_open and not self._has_records():
            await self._close_session()
        else:
            if self._queue:
                wake_at = min(wake_at or _NEVER, self._queued_at + _LINGER)
            await self._signal.wait(wake_at)

    def _next_retry(self, now: float) -> float | None:
        times = (*self._retry_at.values(), *self._deferred.values())
        return min((at for at in times if at > now), default=None)

    def _wanted(self, now: float) -> dict[TopicIdPartition, TopicPartition]:
        if not (self._retry_at or self._deferred):
            return self._partitions
        self._retry_at = {tip: at for tip, at in self._retry_at.items() if at > now}
        self._deferred = {tip: at for tip, at in self._deferred.items() if at > now}
        without = {**self._retry_at, **self._deferred}
        return {tip: tp for tip, tp in self._partitions.items() if tip not in without}

    def _is_acknowledge_due(
        self, now: float, wanted: Mapping[TopicIdPartition, TopicPartition], is_fetch_due: bool
    ) -> bool:
        if self._fetcher.acknowledgements.is_committing:
            return True
        if not is_fetch_due and now >= self._queued_at + _LINGER:
            return True
        return any(_is_renewal(each) or each.acquisition.tip not in wanted for each in self._queue)

    def _has_records(self) -> bool:
        now = self._loop.time()
        return any(each.unsettled and each.last_lock_end > now for each in list(self._acquisitions))

    def _take_queue(self) -> list[Acknowledgement]:
        """Return the acknowledgements to send. Fail acknowledgements whose lock has expired: if
        another member has finished the record since, the broker would ignore the acknowledgement
        and report a success."""
        now, queue = self._loop.time(), self._queue
        self._queue = []
        for each in queue:
            each.acquisition.growing = None
        acknowledgements = self._fetcher.acknowledgements
        expired = [each for each in queue if each.expires_at <= now]
        if expired:
            queue = [each for each in queue if each.expires_at > now]
            acknowledgements.settle(expired, InvalidRecordState("the acquisition lock has expired"))
        sent, replaced = without_overlaps(queue)
        acknowledgements.drop(replaced)
        return sent

    # -- requests

    async def _connect(self) -> BrokerConnection:
        """Return a connection to the broker. If the connection of the session was closed, the
        session is lost."""
        client = self._fetcher.client
        connection = await client.connection(self.node_id, ConnectionGroup.FETCH)
        if connection is not self._connection:
            if self.session.is_open:
                self._lose(KafkaConnectionError(f"node {self.node_id}: the connection was closed"))
            self._connection = connection
        return connection

    async def _fetch(self, wanted: dict[TopicIdPartition, TopicPartition]) -> None:
        config, buffer = self._fetcher.config, self._fetcher.buffer
        sent: list[Acknowledgement] = []
        sent_at = self._loop.time()
        try:
            connection = await self._connect()
            if self.session.is_open:
                sent = self._take_queue()
            request = self.session.fetch_request(wanted, sent)
            request.group_id, request.member_id = config.group_id, self._fetcher.member_id
            longest_wait = self._fetcher.lock_timeout * _LONGEST_WAIT
            request.max_wait_ms = round(min(config.fetch_max_wait, longest_wait) * 1000)
            request.min_bytes, request.max_bytes = config.fetch_min_bytes, config.fetch_max_bytes
            request.max_records = request.batch_size = max(1, buffer.demand)
            request.share_acquire_mode = _ACQUIRE_MODES[config.share_acquire_mode]
            with self.health.asked("ShareFetch", config.fetch_max_wait):
                sent_at = self._loop.time()
                response = await connection.request(
                    request,
                    version=connection.pick(ShareFetchRequest),
                    timeout=config.client.request_timeout + config.fetch_max_wait,
                )
        except KafkaError as error:
            self._fetcher.meter.fetch_failed(wanted.values(), error)
            self._fail_request(sent, error)
            return
        except BaseException:
            self._fetcher.acknowledgements.settle(
                sent, IllegalStateError("the consumer was stopped")
            )
            raise
        if self._is_accepted(response.error_code, response.error_message, sent):
            self._on_fetched(response, sent, sent_at)

    async def _acknowledge(self, is_last: bool = False) -> None:
        config = self._fetcher.config
        sent: list[Acknowledgement] = []
        sent_at = self._loop.time()
        try:
            connection = await self._connect()
            sent = self._take_queue()
            if not self.session.is_open:
                return  # the session was lost: all its acknowledgements have failed
            if not (sent or is_last):
                return
            self._is_last = is_last
            request = self.session.acknowledge_request(sent, is_last)
            request.group_id, request.member_id = config.group_id, self._fetcher.member_id
            with self.health.asked("ShareAcknowledge"):
                sent_at = self._loop.time()
                response = await connection.request(
                    request, version=connection.pick(ShareAcknowledgeRequest)
                )
        except KafkaError as error:
            self._fail_request(sent, error)
            return
        except BaseException:
            self._fetcher.acknowledgements.settle(
                sent, IllegalStateError("the consumer was stopped")
            )
            raise
        if self._is_accepted(response.error_code, response.error_message, sent):
            self._on_acknowledged(response, sent, sent_at)

    async def _close_session(self) -> None:
        """Close the session: the broker releases the records that are not acknowledged."""
        # Drop the buffered records first: otherwise a call could return records that the broker has
        # already released.
        self._fetcher.buffer.drop(self)
        if self.session.is_open and self._connection is not None and self._connection.is_open:
            await self._acknowledge(is_last=True)
        self._lose(InvalidRecordState("the share session was closed"))

    def _fail_request(self, sent: Iterable[Acknowledgement], error: KafkaError) -> None:
        """Handle a request that got no response: it is unknown whether the broker has processed
        it."""
        self.health.note(error)
        self._fetcher.acknowledgements.settle(sent, error)
        self._lose(error)
        if isinstance(error, UnsupportedVersionError):
            error = UnsupportedVersionError(
                f"{error}: share groups need Kafka 4.1 or later, with the feature share.version"
            )
            self._fetcher.buffer.fail(error)
        elif not is_transient(error):
            self._fetcher.buffer.fail(renewed(error))
        self._pause()

    def _pause(self) -> None:
        self._not_before = self._loop.time() + self._backoff.next()

    def _reset_backoff(self, now: float) -> None:
        """Reset the backoff after a response, unless partitions or acknowledgements are retried."""
        if not self._retry_at and self._not_before <= now:
            self._backoff.reset()

    def _lose(self, error: KafkaError) -> None:
        """Restart the session. Fail all of its acquisitions and queued acknowledgements with
        `error`, and drop its buffered records."""
        self.session.restart()
        self._connection = None
        self._is_last = False
        for acquisition in list(self._acquisitions):
            acquisition.fail(error)
        self._acquisitions.clear()
        queue, self._queue = self._queue, []
        self._fetcher.acknowledgements.settle(queue, error)
        self._fetcher.buffer.drop(self)

    # -- responses

    def _is_accepted(
        self, error_code: int, message: str | None, sent: Iterable[Acknowledgement]
    ) -> bool:
        if not error_code:
            self.health.succeed()
            self.session.advance()
            return True
        error = for_code(error_code)(f"node {self.node_id}: {message or 'share session'}")
        self.health.note(error)
        self._log.debug("node %d rejects a request: %s", self.node_id, error)
        self._fetcher.acknowledgements.settle(sent, error)
        self._lose(error)
        if isinstance(error, GroupAuthorizationFailedError):
            error = GroupAuthorizationFailedError(self._fetcher.config.group_id)
        if not (is_transient(error) or isinstance(error, _SESSION_ERRORS)):
            self._fetcher.meter.fetch_failed(self._partitions.values(), error)
            self._fetcher.buffer.fail(renewed(error))
        # Open the next session after a backoff, because the broker may reject that session, too.
        self._pause()
        return False

    def _on_fetched(
        self, response: ShareFetchResponse, sent: list[Acknowledgement], sent_at: float
    ) -> None:
        fetcher = self._fetcher
        now = self._loop.time()
        fetcher.note_lock_timeout(response.acquisition_lock_timeout_ms / 1000)
        acknowledged = dict(by_partition(sent))
        fetched: list[AcquiredRecordSet] = []
        failed: list[TopicIdPartition] = []
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.responses:
            for data in topic.partitions:
                tip = TopicIdPartition(topic.topic_id, data.partition_index)
                if tip in acknowledged:
                    some = acknowledged.pop(tip)
                    self._settle(tip, some, sent_at, data.acknowledge_error_code, leaders, data)
                tp = self.session.known.get(tip)
                if tp is None:
                    continue
                if data.error_code:
                    failed.append(tip)
                    self._fail_partition(tp, for_code(data.error_code), leaders, data)
                elif data.acquired_records:
                    found = self._acquire(tip, tp, data, sent_at + fetcher.lock_timeout)
                    if found is not None:
                        fetched.append(found)
        self._settle_missing(acknowledged)
        self._update_leaders(leaders, response)
        if failed:
            self._retry_at.update(dict.fromkeys(failed, now + self._backoff.next()))
        self._reset_backoff(now)
        fetcher.meter.responded(
            sent_at,
            response.throttle_time_ms,
            [(each.acquisition.tp, each.acquired, each.nbytes) for each in fetched],
        )
        fetcher.buffer.add(fetched)

    def _acquire(
        self, tip: TopicIdPartition, tp: TopicPartition, data: PartitionData, expires_at: float
    ) -> AcquiredRecordSet | None:
        try:
            ranges = acquired_ranges(tp, data.acquired_records)
        except KafkaProtocolError as error:
            self._fetcher.buffer.fail(error)
            return None
        acquisition = Acquisition(self, tip, tp, expires_at)
        self._acquisitions.add(acquisition)
        fetcher = self._fetcher
        return AcquiredRecordSet(
            acquisition, ranges, data.records or b"", fetcher.config, fetcher.acknowledgements
        )

    def _fail_partition(
        self,
        tp: TopicPartition,
        error: type[BrokerResponseError],
        leaders: dict[TopicPartition, tuple[int, int]],
        data: PartitionData,
    ) -> None:
        """Handle the error of a fetched partition. If its leader has moved, store the new leader
        and refresh the metadata. If the error is not retriable, make a reading call raise it."""
        if error.invalid_metadata:
            self._note_leader(tp, data, leaders)
            self._fetcher.client.request_metadata(f"{tp}: ShareFetch failed with {error.__name__}")
        elif not is_transient(error):
            failure = for_partition(error, tp, "ShareFetch failed")
            self._fetcher.meter.fetch_failed([tp], failure)
            self._fetcher.buffer.fail(failure)

    def _on_acknowledged(
        self, response: ShareAcknowledgeResponse, sent: list[Acknowledgement], sent_at: float
    ) -> None:
        if response.acquisition_lock_timeout_ms > 0:
            self._fetcher.note_lock_timeout(response.acquisition_lock_timeout_ms / 1000)
        acknowledged = dict(by_partition(sent))
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.responses:
            for data in topic.partitions:
                tip = TopicIdPartition(topic.topic_id, data.partition_index)
                if tip in acknowledged:
                    some = acknowledged.pop(tip)
                    self._settle(tip, some, sent_at, data.error_code, leaders, data)
        self._settle_missing(acknowledged)
        self._update_leaders(leaders, response)
        self._reset_backoff(self._loop.time())

    def _settle(
        self,
        tip: TopicIdPartition,
        sent: list[Acknowledgement],
        sent_at: float,
        error_code: int,
        leaders: dict[TopicPartition, tuple[int, int]],
        data: PartitionData | AcknowledgePartitionData,
    ) -> None:
        """Settle the acknowledgements of one partition.

        If the leader has moved, they fail: the new leader has no share session that acquired the
        records. After another retriable error (the broker could not store the group's state) the
        records are still acquired, so the acknowledgements are sent again until the locks expire.
        If a broker refuses a RENEW, for example because the group's configuration does not permit
        it, the broker applies none of the partition's acknowledgements: send them again without the
        RENEW.
        """
        acknowledgements, tp = self._fetcher.acknowledgements, sent[0].acquisition.tp
        if not error_code:
            expires_at = sent_at + self._fetcher.lock_timeout
            for each in sent:
                if _is_renewal(each):
                    each.acquisition.renew(each.first, expires_at)
            acknowledgements.settle(sent, None)
            return
        error = for_code(error_code)
        reason = ": the leader has moved or restarted" if error.invalid_metadata else ""
        failure = for_partition(error, tp, f"the acknowledgement failed{reason}")
        if error.invalid_metadata:
            self._note_leader(tp, data, leaders)
            self._fetcher.client.request_metadata(f"{tp}: an acknowledgement failed")
        elif not self._is_last:
            sent = self._queue_again(sent, error)
        acknowledgements.settle(sent, failure)

    def _queue_again(
        self, sent: list[Acknowledgement], error: type[BrokerResponseError]
    ) -> list[Acknowledgement]:
        """Queue the acknowledgements of one partition that may succeed after `error`, and return
        the others."""
        is_renewal_refused = error is InvalidRecordState and any(map(_is_renewal, sent))
        if not (is_renewal_refused or is_transient(error)):
            return sent
        now = self._loop.time()
        again: list[Acknowledgement] = []
        failed: list[Acknowledgement] = []
        for each in sent:
            # The last request must not have a RENEW.
            is_refused = _is_renewal(each) and (is_renewal_refused or self._is_closing)
            (failed if is_refused or each.expires_at <= now else again).append(each)
        if again:
            self._queue = [*again, *self._queue]
            self._queued_at = now
            # Pause once for each response, even if several partitions fail.
            if not is_renewal_refused and self._not_before <= now:
                self._pause()
        return failed

    def _settle_missing(
        self, acknowledged: Mapping[TopicIdPartition, list[Acknowledgement]]
    ) -> None:
        for sent in acknowledged.values():
            text = f"{sent[0].acquisition.tp}: the response lacks the partition"
            self._fetcher.acknowledgements.settle(sent, UnknownTopicOrPartitionError(text))

    def _note_leader(
        self,
        tp: TopicPartition,
        data: PartitionData | AcknowledgePartitionData,
        leaders: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            leaders[tp] = (leader.leader_id, leader.leader_epoch)

    def _update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        response: ShareFetchResponse | ShareAcknowledgeResponse,
    ) -> None:
        if leaders:
            endpoints = [
                BrokerMetadata(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints
            ]
            self._fetcher.client.update_leaders(leaders, endpoints)


def _is_renewal(acknowledgement: Acknowledgement) -> bool:
    return acknowledgement.type == AcknowledgeType.RENEW


_SESSION_ERRORS = (InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound)
_NEVER = float("inf")


def acquired_ranges(tp: TopicPartition, acquired: Iterable[AcquiredRecords]) -> list[AcquiredRange]:
    """Return the ranges of acquired records in a response. Raises KafkaProtocolError unless they
    are ordered and do not overlap."""
    ranges: list[AcquiredRange] = []
    position = 0
    for each in acquired:
        if not position <= each.first_offset <= each.last_offset < _MAX_OFFSET:
            raise KafkaProtocolError(
                f"{tp}: acquired offsets in the response are not in order: {each.first_offset} to "
                f"{each.last_offset} after {position - 1}"
            )
        ranges.append((each.first_offset, each.last_offset, each.delivery_count))
        position = each.last_offset + 1
    return ranges
