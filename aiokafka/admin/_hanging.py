"""Finding transactions that are open in partitions, and that no coordinator will end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aiokafka import _seams
from aiokafka.admin import _producers, _transactions
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._items import attempt, outcome
from aiokafka.admin._producers import Producers
from aiokafka.admin._routing import Router
from aiokafka.admin._transaction_values import (
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
)
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    TransactionalIdNotFound,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import TopicPartition

__all__ = ["find_hanging"]


@dataclass
class _Look:
    """What leaders told: producers of each partition, and why there are none of others."""

    producers: dict[TopicPartition, Producers] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)

    def are_open(self, latest: float) -> list[tuple[TopicPartition, ActiveProducer]]:
        """Return the open transactions that were not written to after `latest` (milliseconds)."""
        return [
            (tp, each)
            for tp, producers in self.producers.items()
            for each in producers
            if each.transaction_start_offset is not None and each.last_timestamp <= latest
        ]


async def find_hanging(
    router: Router,
    partitions: Collection[TopicPartition] | None,
    older_than_ms: float,
    deadline: float,
) -> list[HangingTransaction]:
    """Return the open transactions that no coordinator will end.

    A partition that cannot be looked into is an error of its own, as `_items.outcome` raises it
    beside what hangs in each of the others.
    """
    everywhere = partitions is None
    asked = await _all_partitions(router, deadline) if partitions is None else partitions
    first = await _look(router, asked, everywhere, deadline)
    found = await _uncared_for(
        router, first.are_open(_seams.wall_time() * 1000 - older_than_ms), deadline
    )
    now = await _look(router, {one.partition for one in found}, True, deadline)
    by_partition: dict[TopicPartition, list[HangingTransaction] | KafkaError] = {
        tp: [] for tp in first.producers
    }
    for one in found:
        kept = by_partition[one.partition]
        if isinstance(kept, list) and _is_still_open(one, now.producers.get(one.partition, ())):
            kept.append(one)
    by_partition |= first.errors | now.errors
    return [one for part in outcome(by_partition).values() for one in part]


async def _all_partitions(router: Router, deadline: float) -> list[TopicPartition]:
    metadata = await fetch_metadata(router, None, deadline)
    return [
        TopicPartition(str(topic.name), each.partition_index)
        for topic in metadata.topics
        for each in topic.partitions
    ]


async def _look(
    router: Router, partitions: Iterable[TopicPartition], may_be_gone: bool, deadline: float
) -> _Look:
    """Ask leaders for producers. With `may_be_gone` a partition that is gone has none.

    A partition without a leader is not waited for: it may have none for long, and there are others.
    """
    final = (UnknownTopicOrPartitionError, LeaderNotAvailableError)
    wanted = list(dict.fromkeys(partitions))
    look = _Look()
    found = await attempt(_producers.describe(router, wanted, deadline, final=final), wanted)
    for tp, each in found.items():
        if not isinstance(each, KafkaError):
            look.producers[tp] = each
        elif not (may_be_gone and isinstance(each, UnknownTopicOrPartitionError)):
            look.errors[tp] = each
    return look


async def _uncared_for(
    router: Router, opened: Collection[tuple[TopicPartition, ActiveProducer]], deadline: float
) -> list[HangingTransaction]:
    """Return those of the open transactions that no coordinator knows to be open there."""
    if not opened:
        return []
    ids = {each.producer_id for _, each in opened}
    listed = await _transactions.list_all(
        router, _transactions.TransactionFilter(producer_ids=ids), deadline
    )
    names = {one.producer_id: one.transactional_id for one in listed}
    known = await _known(router, names.values(), deadline)
    return [
        HangingTransaction(tp, each, names.get(each.producer_id))
        for tp, each in opened
        if not _is_cared_for(tp, each, known.get(names.get(each.producer_id, "")))
    ]


async def _known(
    router: Router, names: Collection[str], deadline: float
) -> Mapping[str, TransactionDescription]:
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


def _is_still_open(one: HangingTransaction, now: Producers) -> bool:
    """Say whether a second look found the transaction, too.

    A transaction that ended between the two questions, to leaders and then to coordinators, looks
    like one that hangs: open there, unknown here. Its leader knows by now that it has ended.
    """
    start = one.producer.transaction_start_offset
    return any(
        each.producer_id == one.producer.producer_id and each.transaction_start_offset == start
        for each in now
    )
