"""Reading the logs of partitions: what a consumer and a reader of ranges have in common. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    PartitionData,
)
from aiokafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.record.header import Scan, is_cut_short, scan_record_set
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.protocol.versions import BrokerVersions

__all__ = [
    "MAX_OFFSET",
    "Answer",
    "CutShort",
    "Failed",
    "Failure",
    "FetchSpec",
    "Fetched",
    "FoundOffset",
    "NotNow",
    "Nothing",
    "Offsets",
    "OldEpochs",
    "OutOfRange",
    "by_topic",
    "doubts_metadata",
    "fetch_topics",
    "is_passing",
    "list_offsets",
    "named_brokers",
    "named_leader",
    "named_leaders",
    "offsets_in",
    "partitions_in",
    "read_answer",
    "room_for_records",
]


# -- Leader epochs that the metadata names though the leader has a later one. Pure


_NO_EPOCH = -1
_FIRST_RELIABLE_METADATA = 9  # of Kafka 2.4
_PATIENCE = 2


class OldEpochs:
    """Epochs that leaders refuse as old ones.

    Usually the next metadata has the new epoch. But while a partition is reassigned, Kafka 2.1 to
    2.3 go on naming the epoch of before (KAFKA-9212): a leader asked with it refuses until the
    reassignment is over, which may take hours. So it is asked without any then.
    """

    def __init__(self, versions: Callable[[int], BrokerVersions | None]) -> None:
        self._versions = versions
        self._refused: dict[TopicPartition, tuple[int, int]] = {}

    def to_ask(self, tp: TopicPartition, epoch: int) -> int:
        """Return what to name to the leader of a partition: this epoch, or none if the leader goes
        on refusing it."""
        refused, times = self._refused.get(tp, (_NO_EPOCH, 0))
        return _NO_EPOCH if epoch == refused and times > _PATIENCE else epoch

    def note(
        self, node_id: int, tp: TopicPartition, epoch: int, error: type[BrokerResponseError]
    ) -> None:
        """Take note of what a broker answered when it was asked with an epoch."""
        if error is not FencedLeaderEpoch or not _is_told_late(self._versions(node_id)):
            return
        refused, times = self._refused.get(tp, (epoch, 0))
        self._refused[tp] = (epoch, times + 1 if refused == epoch else 1)


def _is_told_late(versions: BrokerVersions | None) -> bool:
    if versions is None:
        return False
    newest = versions.api_versions.get(MetadataRequest.API_KEY, (0, 0))[1]
    return newest < _FIRST_RELIABLE_METADATA


# -- ListOffsets: offsets by timestamp or special place, to ask for and to read. Pure


V = TypeVar("V")

_BROKER_TIMEOUT_MS = 30_000


class FoundOffset(NamedTuple):
    """ListOffsets' answer; `offset` is -1 when no record is as young as asked."""

    offset: int
    timestamp: int
    leader_epoch: int


Offsets = dict[TopicPartition, FoundOffset | type[BrokerResponseError]]


def by_topic(items: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    """Group values of partitions as requests carry them."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for tp, value in items:
        topics.setdefault(tp.topic, []).append((tp.partition, value))
    return topics


def list_offsets(
    wanted: Mapping[TopicPartition, int],
    leader_epoch: Callable[[TopicPartition], int],
    isolation_level: int = 0,
) -> ListOffsetsRequest:
    """Return the request for offsets: a timestamp, or EARLIEST or LATEST, by partition."""
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
    """Return what a response says of each of its partitions; its errors as classes."""
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


# -- What a Fetch asks of each partition, and which partition a part of the response is for. Pure


# Bytes of a response that are no records.
_AROUND_ANSWER = 1024
_AROUND_PARTITION = 400


class FetchSpec(NamedTuple):
    """What a fetch asks of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_topics(entries: Iterable[tuple[TopicPartition, FetchSpec]]) -> list[FetchTopic]:
    """Return these partitions as a request carries them: by topic, in the order given."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for tp, spec in entries:
        # Two topics, one deleted and one created since, may have the same name.
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


def room_for_records(nbytes: int, partitions: int) -> int:
    """Return how many bytes of records a response of `nbytes` about so many partitions may have;
    0 or less for none."""
    return nbytes - _AROUND_ANSWER - _AROUND_PARTITION * partitions


def partitions_in(
    response: FetchResponse, names: Mapping[bytes, str]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yield each partition of a response with its data.

    A response names its topics (up to version 12) or gives the ids that were asked with: `names`
    has the topic by id. Topics of other ids are left out.
    """
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name is not None:
            for data in topic.partitions:
                yield TopicPartition(name, data.partition_index), data


def named_leader(data: PartitionData) -> tuple[int, int] | None:
    """Return the id and epoch of the leader that a broker names in place of itself (KIP-951)."""
    leader = data.current_leader
    is_named = data.error_code and leader.leader_id >= 0 and leader.leader_epoch >= 0
    return (leader.leader_id, leader.leader_epoch) if is_named else None


def named_brokers(response: FetchResponse) -> list[BrokerMetadata]:
    """Return where the leaders are that a response names."""
    return [BrokerMetadata(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]


def named_leaders(
    response: FetchResponse, names: Mapping[bytes, str], id_of: Callable[[str], bytes | None]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[BrokerMetadata]]:
    """Return what `named_leader` says, by partition, and `named_brokers`. `names` as in
    `partitions_in`; topics whose id, `id_of` their name, is another one by now are left out."""
    current = {id_: name for id_, name in names.items() if id_of(name) == id_}
    found = {tp: named_leader(data) for tp, data in partitions_in(response, current)}
    leaders = {tp: leader for tp, leader in found.items() if leader is not None}
    return leaders, named_brokers(response)


# -- Read one partition's part of a fetch response. Changes nothing, no awaits


Failure = Callable[[], KafkaError]

MAX_OFFSET = 2**63 - 1

# Not in `invalid_metadata`, but the leader may be another one all the same.
_ALSO_REFRESH = frozenset({OffsetNotAvailable.errno, UnknownLeaderEpoch.errno})


# What a broker says that leads no more; and how often in a row before the metadata is in doubt.
_LEADS_NO_MORE = frozenset({NotLeaderForPartitionError.errno, FencedLeaderEpoch.errno})
_PATIENCE_WITH_METADATA = 2


class Fetched(NamedTuple):
    """A record set, and what its headers say. Without a complete batch (`scan.end` is -1) the first
    header is not valid: reading the set tells what is wrong with it."""

    data: Any
    scan: Scan
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction in it."""

    @property
    def response_bytes(self) -> int:
        """How much stays in memory as long as these records do: all of their response."""
        return len(getattr(self.data, "obj", self.data))


class Nothing(NamedTuple):
    """The broker has no more records yet."""


class CutShort(NamedTuple):
    """The next batch is larger than the bytes asked for (brokers before 0.10.1)."""


class Failed(NamedTuple):
    """An error to report, by a new exception for each waiter."""

    failure: Failure
    may_pass: bool
    """Whether Kafka calls the error retriable."""


class NotNow(NamedTuple):
    """An error that a later request may not get."""

    error: type[BrokerResponseError]
    is_stale_metadata: bool


class OutOfRange(NamedTuple):
    """The offset is not in the broker's log."""

    failure: Failure


Answer = Fetched | Nothing | CutShort | Failed | NotNow | OutOfRange


def read_answer(
    tp: TopicPartition, offset: int, data: PartitionData, until: int = MAX_OFFSET
) -> Answer:
    """Return what a response means for a partition that was asked for records from `offset` on.

    Records from offset `until` on are not wanted.
    """
    if data.error_code:
        return _read_error(tp, offset, for_code(data.error_code))
    if not data.records:
        return Nothing()
    scan = scan_record_set(data.records, until)
    if scan.end < 0 and is_cut_short(data.records):
        return CutShort()
    if 0 <= scan.end <= offset:
        text = f"{tp}: asked for offset {offset}, the broker sent records up to {scan.end} only"
        return Failed(lambda: CorruptRecordException(text), may_pass=False)
    aborted = data.aborted_transactions or ()
    return Fetched(data.records, scan, [(a.producer_id, a.first_offset) for a in aborted])


def is_passing(error: KafkaError | type[KafkaError]) -> bool:
    """Return whether a retry may help, as it may after an error that the broker did not expect."""
    return error.retriable or getattr(error, "errno", 0) == UnknownError.errno


def doubts_metadata(error: KafkaError | type[KafkaError], failures: int) -> bool:
    """Return whether a leader has denied that it leads so often in a row that the broker which goes
    on naming it may have been cut off from the others."""
    return getattr(error, "errno", 0) in _LEADS_NO_MORE and failures > _PATIENCE_WITH_METADATA


def _read_error(tp: TopicPartition, offset: int, error: type[BrokerResponseError]) -> Answer:
    if error is OffsetOutOfRangeError:
        return OutOfRange(lambda: OffsetOutOfRangeError({tp: offset}))
    # What is damaged on a broker's disk stays so, whatever the code promises.
    if error is CorruptRecordException or not is_passing(error):
        what = f"fetch at offset {offset} failed"
        return Failed(lambda: for_partition(error, tp, what), may_pass=error.retriable)
    return NotNow(error, error.invalid_metadata or error.errno in _ALSO_REFRESH)
