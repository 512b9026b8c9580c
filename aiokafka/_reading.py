"""Fetch and ListOffsets requests and responses, for consumers and range readers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiokafka.errors import (
    BrokerResponseError,
    CorruptRecordException,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderForPartitionError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownLeaderEpoch,
    for_code,
    for_partition,
)
from aiokafka.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.record.header import Scan, is_cut_short, scan_record_set
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.protocol.versions import BrokerVersions

__all__ = [
    "MAX_OFFSET",
    "BatchTooLarge",
    "Failed",
    "Failure",
    "FencedEpochs",
    "FetchSpec",
    "Fetched",
    "FoundOffset",
    "NoRecords",
    "Offsets",
    "OutOfRange",
    "PartitionResult",
    "RetryLater",
    "by_topic",
    "doubts_metadata",
    "fetch_topics",
    "is_transient",
    "list_offsets",
    "max_record_bytes",
    "named_brokers",
    "named_leader",
    "named_leaders",
    "offsets_in",
    "partitions_in",
    "read_partition",
]


_NO_EPOCH = -1
_FIRST_RELIABLE_METADATA = 9  # Metadata version of Kafka 2.4
# After more than this many consecutive FENCED_LEADER_EPOCH errors, requests omit the epoch.
_MOST_FENCED = 2


class FencedEpochs:
    """Leader epochs that were rejected with FENCED_LEADER_EPOCH.

    Usually the next metadata has the new epoch. But during a reassignment, which may take hours,
    the metadata of Kafka 2.1 to 2.3 keeps the previous epoch, and the leader rejects every request
    with this epoch (KAFKA-9212). After a few such errors, requests omit the epoch.
    """

    def __init__(self, versions: Callable[[int], BrokerVersions | None]) -> None:
        self._versions = versions
        self.fenced: dict[TopicPartition, tuple[int, int]] = {}
        """By partition: the rejected epoch, and the number of errors in a row. Usually empty."""

    def epoch_to_send(self, tp: TopicPartition, epoch: int) -> int:
        """Return the leader epoch for a request: `epoch`, or -1 if it was rejected more than
        `_MOST_FENCED` times in a row."""
        fenced, errors = self.fenced.get(tp, (_NO_EPOCH, 0))
        return _NO_EPOCH if epoch == fenced and errors > _MOST_FENCED else epoch

    def on_error(
        self, node_id: int, tp: TopicPartition, epoch: int, error: type[BrokerResponseError]
    ) -> None:
        """Count the error of a request with `epoch`, if the error is FENCED_LEADER_EPOCH and the
        broker has the bug KAFKA-9212."""
        versions = self._versions(node_id)
        if error is not FencedLeaderEpoch or versions is None:
            return
        newest = versions.api_versions.get(MetadataRequest.API_KEY, (0, 0))[1]
        if newest < _FIRST_RELIABLE_METADATA:
            fenced, errors = self.fenced.get(tp, (epoch, 0))
            self.fenced[tp] = (epoch, errors + 1 if fenced == epoch else 1)


# -- ListOffsets

V = TypeVar("V")

_BROKER_TIMEOUT_MS = 30_000


class FoundOffset:
    """A result of ListOffsets. `offset` is -1 if all records are older than the timestamp."""

    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = leader_epoch


Offsets = dict[TopicPartition, FoundOffset | type[BrokerResponseError]]


def by_topic(items: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    """Return a dict from topic to (partition number, value) pairs, as requests need them."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for tp, value in items:
        topics.setdefault(tp.topic, []).append((tp.partition, value))
    return topics


def list_offsets(
    wanted: Mapping[TopicPartition, int],
    leader_epoch: Callable[[TopicPartition], int],
    isolation_level: int = 0,
) -> ListOffsetsRequest:
    """Return a ListOffsets request. `wanted` has a timestamp, EARLIEST or LATEST for each
    partition."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition,
                        current_leader_epoch=leader_epoch(TopicPartition(topic, partition)),
                        timestamp=timestamp,
                    )
                    for partition, timestamp in partitions
                ],
            )
            for topic, partitions in by_topic(wanted.items()).items()
        ],
        timeout_ms=_BROKER_TIMEOUT_MS,
    )


def offsets_in(response: ListOffsetsResponse) -> Offsets:
    """Return the offset, or the class of the error, of each partition in a response."""
    found: Offsets = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                found[tp] = for_code(p.error_code)
            else:
                old_style = p.old_style_offsets[0] if p.old_style_offsets else -1
                offset = p.offset if p.offset >= 0 else old_style
                found[tp] = FoundOffset(offset, p.timestamp, p.leader_epoch)
    return found


# -- Fetch requests

# Upper limits of the bytes of a response without its records.
_RESPONSE_OVERHEAD = 1024
_PARTITION_OVERHEAD = 400


class FetchSpec(NamedTuple):
    """The part of a Fetch request for one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_topics(entries: Iterable[tuple[TopicPartition, FetchSpec]]) -> list[FetchTopic]:
    """Return `entries` grouped by topic, as a Fetch request needs them. The order of `entries` is
    kept."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for tp, spec in entries:
        # A deleted topic and a recreated topic have the same name and different ids.
        key = tp.topic, spec.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=tp.topic, topic_id=spec.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=spec.leader_epoch,
                fetch_offset=spec.offset,
                partition_max_bytes=spec.max_bytes,
            )
        )
    return list(topics.values())


def max_record_bytes(nbytes: int, partitions: int) -> int:
    """Return how many bytes of records fit into a response of `nbytes` with this number of
    partitions; 0 or less if no record fits."""
    return nbytes - _RESPONSE_OVERHEAD - _PARTITION_OVERHEAD * partitions


# -- Fetch responses


def partitions_in(
    response: FetchResponse, names: Mapping[bytes, str]
) -> list[tuple[TopicPartition, PartitionData]]:
    """Return the partitions of a response with their data.

    Responses up to version 12 have topic names, later versions have topic ids: `names` has the
    names of the requested topics by id. Topics with other ids are skipped.
    """
    return [
        (TopicPartition(name, data.partition_index), data)
        for topic in response.responses
        if (name := topic.topic or names.get(topic.topic_id)) is not None
        for data in topic.partitions
    ]


def named_leader(data: PartitionData) -> tuple[int, int] | None:
    """Return the node id and epoch of the new leader in an error response (KIP-951); None if the
    response has no error or no leader."""
    leader = data.current_leader
    is_named = data.error_code and leader.leader_id >= 0 and leader.leader_epoch >= 0
    return (leader.leader_id, leader.leader_epoch) if is_named else None


def named_brokers(response: FetchResponse) -> list[BrokerMetadata]:
    """Return the addresses of the new leaders in a response (KIP-951)."""
    return [BrokerMetadata(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]


def named_leaders(
    response: FetchResponse, names: Mapping[bytes, str], id_of: Callable[[str], bytes | None]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[BrokerMetadata]]:
    """Return `named_leader` of all partitions in a response, and `named_brokers`.

    `names`: as for `partitions_in`. Topics whose present id, `id_of(name)`, differs from the id in
    `names` are skipped.
    """
    current = {id_: name for id_, name in names.items() if id_of(name) == id_}
    found = {tp: named_leader(data) for tp, data in partitions_in(response, current)}
    leaders = {tp: leader for tp, leader in found.items() if leader is not None}
    return leaders, named_brokers(response)


Failure = Callable[[], KafkaError]

MAX_OFFSET = 2**63 - 1

# Errors without `invalid_metadata` after which the metadata may still be outdated.
_ALSO_REFRESH = frozenset({OffsetNotAvailable.errno, UnknownLeaderEpoch.errno})

# Errors of a broker that is not the leader. After more than `_MOST_WRONG_LEADERS` failures in a
# row, the broker that sent the metadata probably lags behind: the next refresh goes to another
# broker.
_NOT_THE_LEADER = frozenset({NotLeaderForPartitionError.errno, FencedLeaderEpoch.errno})
_MOST_WRONG_LEADERS = 2


class Fetched:
    """A record set and the scan of its batch headers. If `scan.end` is -1 the first header is
    invalid, and reading the set raises the error."""

    __slots__ = ("aborted", "data", "response_bytes", "scan")

    def __init__(self, data: Any, scan: Scan, aborted: list[tuple[int, int]]) -> None:
        self.data = data
        self.scan = scan
        self.aborted = aborted
        """(producer id, first offset) of each aborted transaction in the record set."""
        self.response_bytes = len(getattr(data, "obj", data))
        """Size of the whole response, which the records keep in memory."""


class NoRecords:
    """The broker has no new records."""

    __slots__ = ()


class BatchTooLarge:
    """The next batch is larger than the requested size (brokers before 0.10.1)."""

    __slots__ = ()


class Failed:
    """An error for the application. `failure` creates a new exception for each call that raises."""

    __slots__ = ("failure", "is_retriable")

    def __init__(self, failure: Failure, is_retriable: bool) -> None:
        self.failure = failure
        self.is_retriable = is_retriable


class RetryLater:
    """A temporary error: retry the fetch. `is_stale_metadata`: whether the metadata may be
    outdated, so that it has to be refreshed."""

    __slots__ = ("error", "is_stale_metadata")

    def __init__(self, error: type[BrokerResponseError], is_stale_metadata: bool) -> None:
        self.error = error
        self.is_stale_metadata = is_stale_metadata


class OutOfRange:
    """The broker returned OFFSET_OUT_OF_RANGE."""

    __slots__ = ()


PartitionResult = Fetched | NoRecords | BatchTooLarge | Failed | RetryLater | OutOfRange


def read_partition(
    tp: TopicPartition, offset: int, data: PartitionData, until: int = MAX_OFFSET
) -> PartitionResult:
    """Return the result of a fetch of one partition from `offset` on: records, no records, or the
    kind of the error.

    The scan of the batch headers ends after the batch that reaches offset `until`.
    """
    if data.error_code:
        return _read_error(tp, offset, for_code(data.error_code))
    if not data.records:
        return NoRecords()
    scan = scan_record_set(data.records, until)
    if scan.end < 0 and is_cut_short(data.records):
        return BatchTooLarge()
    if 0 <= scan.end <= offset:
        text = f"{tp}: asked for offset {offset}, the broker sent records up to {scan.end} only"
        return Failed(lambda: CorruptRecordException(text), is_retriable=False)
    aborted = data.aborted_transactions or ()
    return Fetched(data.records, scan, [(a.producer_id, a.first_offset) for a in aborted])


def is_transient(error: KafkaError | type[KafkaError]) -> bool:
    """Return whether a retry may succeed: after a retriable error or UNKNOWN_SERVER_ERROR."""
    return error.retriable or getattr(error, "errno", 0) == UnknownError.errno


def doubts_metadata(error: KafkaError | type[KafkaError], failures: int) -> bool:
    """Return whether the metadata is probably outdated: the last of more than two failures in a row
    is NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH. The broker that sent the metadata may have
    lost its connections to the other brokers, so the next refresh should go to another broker."""
    return getattr(error, "errno", 0) in _NOT_THE_LEADER and failures > _MOST_WRONG_LEADERS


def _read_error(
    tp: TopicPartition, offset: int, error: type[BrokerResponseError]
) -> PartitionResult:
    if error is OffsetOutOfRangeError:
        return OutOfRange()
    # CORRUPT_MESSAGE is retriable, but data damaged on a broker's disk stays damaged.
    if error is CorruptRecordException or not is_transient(error):
        what = f"fetch at offset {offset} failed"
        return Failed(lambda: for_partition(error, tp, what), is_retriable=error.retriable)
    return RetryLater(error, error.invalid_metadata or error.errno in _ALSO_REFRESH)
