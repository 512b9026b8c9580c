"""What is said to the leaders of partitions about producers."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin._by_topic import name_of, numbers_by_topic, partitions_in
from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router, error_of
from aiokafka.admin._transaction_values import ActiveProducer
from aiokafka.errors import KafkaError
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
            topics = [
                wire.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(part).items()
            ]
            return wire.DescribeProducersRequest(topics=topics)

        call = Call(wire.DescribeProducersRequest, build)
        response = await router.send(node_id, call, deadline)
        return {tp: _producers(tp, each) for tp, each in partitions_in(response.topics)}

    in_half = router.in_half(send, deadline)
    return await by_leader(router, partitions, in_half, deadline, final=final)


def _producers(tp: TopicPartition, each: wire.PartitionResponse) -> Producers | KafkaError:
    error = error_of(each.error_code, each.error_message, name_of(tp))
    if error is not None:
        return error
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
            tp: error_of(each.error_code, None, name_of(tp))
            for marker in response.markers
            for tp, each in partitions_in(marker.topics)
        }

    await by_leader(router, [partition], send, deadline)
