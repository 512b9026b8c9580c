"""Transactions and the producers that write in them, as brokers tell of them."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka.admin._values import Value
from aiokafka.admin.enums import TransactionState
from aiokafka.structs import TopicPartition

__all__ = [
    "ActiveProducer",
    "FencedProducer",
    "HangingTransaction",
    "TransactionDescription",
    "TransactionListing",
]


@dataclass(frozen=True)
class TransactionListing(Value):
    """A transactional id and where its transaction stands."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int
    """Id of the broker that coordinates it."""


@dataclass(frozen=True)
class TransactionDescription(Value):
    """What the coordinator knows of a transactional id."""

    transactional_id: str
    coordinator: int
    """Id of the broker that coordinates it."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """Milliseconds after which the coordinator aborts a transaction."""

    start_ms: int | None
    """When the open transaction began, in milliseconds since 1970; None if there is none."""

    partitions: frozenset[TopicPartition]
    """The partitions of the open transaction."""


@dataclass(frozen=True)
class ActiveProducer(Value):
    """What the leader of a partition knows of an idempotent or transactional producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    """Timestamp of the newest batch, in milliseconds since 1970; -1 if there is none."""

    coordinator_epoch: int | None
    """The epoch of the coordinator that ended the last transaction; None if none did."""

    transaction_start_offset: int | None
    """The first offset of the open transaction; None if there is none."""


@dataclass(frozen=True)
class FencedProducer(Value):
    """The session of a transactional id that fenced the former one."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class HangingTransaction(Value):
    """A transaction that is open in a partition, and that no coordinator will end."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None
    """The id that has this producer; None if no coordinator knows of one."""
