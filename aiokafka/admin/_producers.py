"""What is said to the leaders of partitions about producers and their open transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aiokafka import _seams
from aiokafka.admin import _transactions
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._items import attempt
from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router
from aiokafka.admin._transaction_values import (
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
)
from aiokafka.errors import (
    KafkaError,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.messages import transaction_admin as wire
from aiokafka.structs import TopicPartition

Producers = tuple[ActiveProducer, ...]


async def describe(
    router: Router,
    partitions: Iterable[TopicPartition],
    deadline: float,
    *,
    final: tuple[type[KafkaError], ...] = (),
) -> dict[TopicPartition, Producers]:
    """Return the producers that leaders know of; raise what failed.

    Errors of the types `final` are not waited for.
    """

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> dict[TopicPartition, Producers | KafkaError]:
        def build(version: int) -> wire.DescribeProducersRequest:
            topics: dict[str, list[int]] = {}
            for tp in part:
                topics.setdefault(tp.topic, []).append(tp.partition)
            return wire.DescribeProducersRequest(
                topics=[
                    wire.TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ]
            )

        call = Call(wire.DescribeProducersRequest, build)
        response = await router.send(node_id, call, deadline)
        return {
            TopicPartition(topic.name, each.partition_index): _producers(topic.name, each)
            for topic in response.topics
            for each in topic.partitions
        }

    return await by_leader(router, partitions, send, deadline, final=final)


def _producers(topic: str, each: wire.PartitionResponse) -> Producers | KafkaError:
    if each.error_code:
        what = f"{topic}-{each.partition_index}"
        return for_code(each.error_code)(
            f"{what}: {each.error_message}" if each.error_message else what
        )
    return tuple(
        ActiveProducer(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=_or_none(one.coordinator_epoch),
            transaction_start_offset=_or_none(one.current_txn_start_offset),
        )
        for one in each.active_producers
    )


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None


async def abort(
    router: Router,
    partition: TopicPartition,
    producer: tuple[int, int],
    coordinator_epoch: int,
    deadline: float,
) -> None:
    """Have the leader of a partition write an abort marker for a producer (id and epoch)."""

    def build(version: int) -> wire.WriteTxnMarkersRequest:
        marker = wire.WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=False,
            topics=[
                wire.WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
            coordinator_epoch=coordinator_epoch,
        )
        return wire.WriteTxnMarkersRequest(markers=[marker])

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        call = Call(wire.WriteTxnMarkersRequest, build)
        response = await router.send(node_id, call, deadline)
        return {
            TopicPartition(topic.name, each.partition_index): _marker_error(topic.name, each)
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }

    await by_leader(router, [partition], send, deadline)


def _marker_error(topic: str, each: wire.WritableTxnMarkerPartitionResult) -> KafkaError | None:
    code = each.error_code
    return for_code(code)(f"{topic}-{each.partition_index}") if code else None


async def find_hanging(
    router: Router,
    partitions: Collection[TopicPartition] | None,
    older_than_ms: float,
    deadline: float,
) -> list[HangingTransaction]:
    """Return the open transactions that no coordinator will end."""
    if partitions is None:
        described = await _existing(router, await _all_partitions(router, deadline), deadline)
    else:
        described = await describe(router, partitions, deadline)
    latest = _seams.wall_time() * 1000 - older_than_ms
    open_ones = [
        (tp, each)
        for tp, producers in described.items()
        for each in producers
        if each.transaction_start_offset is not None and each.last_timestamp <= latest
    ]
    if not open_ones:
        return []
    ids = {each.producer_id for _, each in open_ones}
    listed = await _transactions.list_all(
        router, _transactions.TransactionFilter(producer_ids=ids), deadline
    )
    names = {one.producer_id: one.transactional_id for one in listed}
    known = await _known(router, names.values(), deadline)
    found = [
        HangingTransaction(tp, each, names.get(each.producer_id))
        for tp, each in open_ones
        if not _is_cared_for(tp, each, known.get(names.get(each.producer_id, "")))
    ]
    return await _still_open(router, found, deadline)


async def _all_partitions(router: Router, deadline: float) -> list[TopicPartition]:
    metadata = await fetch_metadata(router, None, deadline)
    return [
        TopicPartition(str(topic.name), each.partition_index)
        for topic in metadata.topics
        for each in topic.partitions
    ]


async def _existing(
    router: Router, partitions: Collection[TopicPartition], deadline: float
) -> dict[TopicPartition, Producers]:
    """Describe producers; a partition that was deleted meanwhile is left out."""
    final = (UnknownTopicOrPartitionError,)
    found = await attempt(describe(router, partitions, deadline, final=final), partitions)
    existing: dict[TopicPartition, Producers] = {}
    for tp, producers in found.items():
        if not isinstance(producers, KafkaError):
            existing[tp] = producers
        elif not isinstance(producers, UnknownTopicOrPartitionError):
            raise producers
    return existing


async def _known(
    router: Router, names: Collection[str], deadline: float
) -> dict[str, TransactionDescription]:
    """Describe transactional ids; one that has expired meanwhile is left out."""
    found = await attempt(_transactions.describe(router, names, deadline), names)
    known: dict[str, TransactionDescription] = {}
    for name, one in found.items():
        if isinstance(one, TransactionDescription):
            known[name] = one
        elif not isinstance(one, TransactionalIdNotFound):
            raise one
    return known


def _is_cared_for(
    tp: TopicPartition, producer: ActiveProducer, known: TransactionDescription | None
) -> bool:
    """Say whether a coordinator has the transaction open in this partition, and so will end it."""
    same = known is not None and known.producer_id == producer.producer_id
    return known is not None and same and tp in known.partitions


async def _still_open(
    router: Router, found: list[HangingTransaction], deadline: float
) -> list[HangingTransaction]:
    """Leave out what has ended since.

    A transaction that ended between the two questions, to leaders and then to coordinators, looks
    like one that hangs: open there, unknown here. Its leader knows by now that it has ended.
    """
    if not found:
        return []
    now = await _existing(router, {one.partition for one in found}, deadline)
    open_now = {
        (tp, each.producer_id, each.transaction_start_offset)
        for tp, producers in now.items()
        for each in producers
    }
    return [
        one
        for one in found
        if (one.partition, one.producer.producer_id, one.producer.transaction_start_offset)
        in open_now
    ]
