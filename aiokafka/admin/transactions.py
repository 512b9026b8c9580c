"""Transactions, and the producers that write in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka._partitions import as_partition
from aiokafka.admin import _hanging, _producers, _transactions
from aiokafka.admin._room import Room
from aiokafka.admin._transaction_values import (
    ActiveProducer,
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from aiokafka.admin.enums import TransactionState
from aiokafka.structs import TopicPartition

__all__ = ["Transactions"]

# Kafka's own default for transaction.max.timeout.ms, and the time its tools add to it.
_LONGEST_MS = 900_000 + 300_000


class Transactions(Room):
    """Calls about transactions and their producers: `admin.transactions`."""

    async def describe(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return what coordinators know of transactional ids (Java: describeTransactions, KIP-664,
        Kafka 3.0).

        Args:
            transactional_ids: the ids.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises TransactionalIdNotFound for an id that has never been used, or not for long:
        AdminItemsError if several were asked for.
        """
        ids = _ids(transactional_ids)
        return await _transactions.describe(self._router, ids, self._deadline(timeout_ms))

    async def producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Return the producers that leaders know of (Java: describeProducers, KIP-664, Kafka 2.8).

        Args:
            partitions: the partitions.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a partition: AdminItemsError if several were asked for.
        """
        wanted = [as_partition(tp) for tp in partitions]
        return await _producers.describe(self._router, wanted, self._deadline(timeout_ms))

    async def abort(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Abort a transaction in one partition, past its coordinator (Java: abortTransaction,
        KIP-664).

        This is for transactions that hang: see `find_hanging`. To end one that a coordinator knows,
        use `force_terminate`.

        Args:
            partition: where it is open.
            producer_id: its producer, as `producers` names it.
            producer_epoch: the producer's epoch there.
            coordinator_epoch: that of the coordinator there; None if the partition knows of none.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidProducerEpoch if the producer has a newer epoch by now, and
        TransactionCoordinatorFenced if the coordinator has. What other partitions have of the
        transaction stays open.
        """
        for name, number in (("producer_id", producer_id), ("producer_epoch", producer_epoch)):
            if number < 0:
                raise ValueError(f"{name}={number!r}: must be at least 0")
        await _producers.abort(
            self._router,
            as_partition(partition),
            (producer_id, producer_epoch),
            0 if coordinator_epoch is None else max(coordinator_epoch, 0),
            self._deadline(timeout_ms),
        )

    async def fence(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, FencedProducer]:
        """Fence the producers of transactional ids (Java: fenceProducers, KIP-588, Kafka 0.11).

        A producer that still runs fails with ProducerFenced, and its open transaction is aborted.

        Args:
            transactional_ids: the ids. One that is not in use yet becomes known by this.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the session that took the place of each producer. Raises the error of an id:
        AdminItemsError if several were given.
        """
        ids = _ids(transactional_ids)
        return await _transactions.fence(self._router, ids, self._deadline(timeout_ms))

    async def force_terminate(
        self, transactional_id: str, *, timeout_ms: float | None = None
    ) -> None:
        """Abort the open transaction of a transactional id (Java: forceTerminateTransaction,
        KIP-939).

        Its producer is fenced, and records of the transaction are never read by consumers with
        `read_committed`. All brokers from Kafka 0.11 on can do it.

        Args:
            transactional_id: the id.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises TransactionalIdNotFound for an id that no coordinator knows (asked from Kafka 3.0
        on).
        """
        (name,) = _ids([transactional_id])
        deadline = self._deadline(timeout_ms)
        await _transactions.check_known(self._router, name, deadline)
        await _transactions.fence(self._router, [name], deadline)

    async def find_hanging(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        older_than_ms: float = _LONGEST_MS,
        timeout_ms: float | None = None,
    ) -> list[HangingTransaction]:
        """Return transactions that are open in partitions, and that no coordinator will end.

        Consumers with `read_committed` do not get past them. `abort` ends them.

        Args:
            partitions: where to look; by default everywhere.
            older_than_ms: milliseconds since the last write: transactions that were written to
                later are left out, whatever coordinators say. By default what Kafka's tool takes,
                20 minutes: the longest time that brokers give transactions, and five minutes more.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Leaders are asked for open transactions first, then coordinators (KIP-664, Kafka 3.0). A
        partition without a leader is not waited for. If some partitions cannot be looked into, it
        raises AdminItemsError: `errors` says why, `results` has what hangs in each of the others.
        """
        if older_than_ms < 0:
            raise ValueError(f"older_than_ms={older_than_ms!r}: must be at least 0")
        wanted = None if partitions is None else [as_partition(tp) for tp in partitions]
        return await _hanging.find_hanging(
            self._router, wanted, older_than_ms, self._deadline(timeout_ms)
        )

    async def list(
        self,
        *,
        states: Iterable[TransactionState] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers (Java: listTransactions, KIP-664, Kafka 3.0).

        Args:
            states: only those in one of these states.
            producer_ids: only those of one of these producers.
            duration_ms: only transactions that are open for longer than so many milliseconds
                (KIP-994, Kafka 3.8).
            transactional_id_pattern: only ids that match a regular expression of RE2
                (KIP-1152, Kafka 4.1).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidRegularExpression for a pattern that brokers do not understand. If some
        brokers do not respond in time, AdminItemsError has the error of each by its id, and what
        the others have listed, by transactional id, as results.
        """
        wanted = _transactions.TransactionFilter(
            _states(states), tuple(producer_ids), duration_ms, transactional_id_pattern
        )
        if duration_ms is not None and duration_ms < 0:
            raise ValueError(f"duration_ms={duration_ms!r}: must be at least 0")
        return await _transactions.list_all(self._router, wanted, self._deadline(timeout_ms))


def _ids(transactional_ids: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(transactional_ids, str):
        raise TypeError("transactional_ids: must be several ids, not one str")
    ids = tuple(transactional_ids)
    for each in ids:
        if not isinstance(each, str) or not each:
            raise ValueError(f"transactional_ids: {each!r}: must be a str that is not empty")
    return ids


def _states(states: Iterable[Any]) -> tuple[TransactionState, ...]:
    found = tuple(states)
    for state in found:
        if not isinstance(state, TransactionState) or state is TransactionState.UNKNOWN:
            raise ValueError(f"states: {state!r}: must be a TransactionState other than UNKNOWN")
    return found
