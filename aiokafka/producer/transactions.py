"""What the transaction calls of a producer do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout_at
from aiokafka._group_members import readers
from aiokafka.errors import (
    IllegalGenerationError,
    InvalidTxnState,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    StaleMemberEpoch,
    TransactionAbortable,
)
from aiokafka.net.failures import renewed
from aiokafka.producer.group_offsets import Offsets, Share, as_group, as_offsets, share_out
from aiokafka.producer.producer_id import ProducerIdentity
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.producer.transaction_requests import TransactionRequests
from aiokafka.producer.transaction_state import Transaction, TransactionState

if TYPE_CHECKING:
    from aiokafka._config import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.sender import Sender

__all__ = ["Transactions"]

# The epoch is, or the transaction of that epoch was ended by somebody else.
_PAST = (ProducerFenced, InvalidTxnState)
_OLD_GENERATION = (IllegalGenerationError, StaleMemberEpoch)

_OPEN = (
    TransactionState.IN_TRANSACTION,
    TransactionState.ABORTABLE,
    TransactionState.ABORTING,
)


class Transactions:
    """Owns the `Transaction` of a producer and takes it from state to state.

    Every call is bounded by `max_block_ms`. One that ran out of time or was cancelled can be made
    again and goes on where it was; nothing else is possible meanwhile.
    """

    def __init__(
        self, client: AIOKafkaClient, config: ProducerConfig, sender: Sender, transactional_id: str
    ) -> None:
        self.transaction = Transaction(transactional_id, self._stop_accepting)
        self.manager = TransactionManager(self.transaction)
        self._client = client
        self._config = config
        self._sender = sender
        self._requests = TransactionRequests(client, transactional_id)
        self._loop = asyncio.get_running_loop()
        self._entered = asyncio.Event()
        self._entered.set()

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open that can be aborted."""
        return self.transaction.state in _OPEN

    @property
    def has_to_abort(self) -> bool:
        """Whether an abort is all that is possible."""
        return self.transaction.state is TransactionState.ABORTABLE

    @property
    def _identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.manager.producer_id, self.manager.producer_epoch)

    def _stop_accepting(self) -> None:
        self._sender.accumulator.accept(False)
        if self.transaction.error is not None:
            # Not now: this is called while batches are being settled.
            self._loop.call_soon(self._drop_waiting)

    def _drop_waiting(self) -> None:
        """What has not been sent never will be."""
        error = self.transaction.error
        if error is not None and self.transaction.state is not TransactionState.IN_TRANSACTION:
            self._sender.drop_waiting(error)

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    async def start(self, deadline: float) -> None:
        """Take over the transactional id. Raises KafkaTimeoutError at `deadline` (loop time)."""
        identity = await self._requests.init(self._config.transaction_timeout, None, deadline)
        self.manager.set_producer_id(*identity)
        self.transaction.end()

    async def begin(self) -> None:
        """Start a transaction."""
        self.transaction.raise_failure()
        is_version_2 = await self._requests.is_version_2(self._deadline())
        self.transaction.begin(is_version_2)
        self._sender.accumulator.accept(True)

    async def commit(self) -> None:
        """Deliver everything, then commit."""
        self.transaction.begin_commit()
        deadline = self._deadline()
        await self._sender.accumulator.flush(deadline)
        self.transaction.raise_failure()
        await self._end(is_commit=True, deadline=deadline)

    async def abort(self) -> None:
        """Drop what was not sent, then abort."""
        self.transaction.begin_abort()
        deadline = self._deadline()
        self._sender.drop_waiting(KafkaError("not sent: the transaction was aborted"))
        await self._sender.accumulator.flush(deadline)
        await self._wait_until_entered(deadline)
        await self._end(is_commit=False, deadline=deadline)

    async def _wait_until_entered(self, deadline: float) -> None:
        """A request to enter partitions may be under way, or about to be repeated. Overtaken by the
        end, it would enter them into the next transaction, which would not know of it.
        """
        try:
            async with timeout_at(deadline):
                await self._entered.wait()
        except asyncio.TimeoutError:
            raise KafkaTimeoutError("not aborted in time: partitions are being entered") from None

    async def _end(self, *, is_commit: bool, deadline: float) -> None:
        transaction = self.transaction
        identity = self._identity
        try:
            if transaction.has_effects:
                transaction.is_ending = is_commit
                identity = await self._requests.end(
                    identity, is_commit, transaction.is_version_2, deadline
                )
        except _PAST as error:
            if is_commit:
                raise await self._explain(error, deadline) from error
            can_renew = await self._requests.can_renew(deadline)
            if isinstance(error, ProducerFenced):
                may_go_on = can_renew  # whether it was the time-out or another, shows below
            else:
                # There is nothing to abort: what was to enter something was cancelled or refused.
                # Should it come late, it is of an old epoch.
                may_go_on = not transaction.partitions and not transaction.groups
            if not may_go_on:
                transaction.fail_for_good(error)
                raise
            transaction.needs_new_epoch |= can_renew
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            transaction.fail(error)
            if not is_commit:
                transaction.fail_for_good(error)
            raise
        if transaction.needs_new_epoch and identity == self._identity:
            identity = await self._renew(deadline)
        if identity != self._identity:
            self.manager.set_producer_id(*identity)
        transaction.end()

    async def _renew(self, deadline: float) -> ProducerIdentity:
        """A new epoch, under which no sequence number was used (KIP-360)."""
        try:
            return await self._requests.init(
                self._config.transaction_timeout, self._identity, deadline
            )
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            self.transaction.fail_for_good(error)
            raise

    async def _explain(self, past: KafkaError, deadline: float) -> BaseException:
        """What has become of the transaction, the coordinator saying that it is past.

        Another producer with the transactional id is one cause. The other is a transaction that
        took too long: its coordinator has aborted it under the next epoch, and gives that to its
        former owner, but to nobody else (KIP-588, KIP-360).
        """
        transaction = self.transaction
        try:
            if not await self._requests.can_renew(deadline):
                raise past
            identity = await self._requests.init(
                self._config.transaction_timeout, self._identity, deadline
            )
        except KafkaTimeoutError as error:
            return error
        except KafkaError as error:
            transaction.fail_for_good(error)
            return renewed(error)
        self.manager.set_producer_id(*identity)
        limit = self._config.transaction_timeout * 1000
        late = TransactionAbortable(
            f"the transaction took longer than transaction_timeout_ms={limit:g}, so its "
            "coordinator has aborted it"
        )
        transaction.fail(late)
        transaction.has_effects = transaction.needs_new_epoch = False
        return renewed(late)

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Make offsets of a group part of the transaction."""
        offsets = as_offsets(given)
        transaction = self.transaction
        transaction.check("send_offsets_to_transaction")
        deadline = self._deadline()
        try:
            member = as_group(group)
            group_id = member if isinstance(member, str) else member.group_id
            if not transaction.is_version_2 and group_id not in transaction.groups:
                transaction.has_effects = True
                await self._requests.add_group(self._identity, group_id, deadline)
            transaction.has_effects = True
            transaction.groups.add(group_id)
            shares = self._shares(offsets, group)
            while shares:
                shares = await self._commit_offsets(shares, offsets, group, deadline)
        except _PAST as error:
            raise await self._explain(error, deadline) from error
        except KafkaError as error:
            transaction.fail(error)
            raise

    def _shares(self, offsets: Offsets, group: Any) -> list[Share]:
        """Who commits what, as things stand."""
        member = as_group(group)
        group_id = member if isinstance(member, str) else member.group_id
        found = readers(self._loop, self._client.cluster.cluster_id, group_id)
        return share_out(offsets, member, found)

    async def _commit_offsets(
        self, shares: list[Share], offsets: Offsets, group: Any, deadline: float
    ) -> list[Share]:
        """Commit; returns what there is to try again."""
        try:
            for member, part in shares:
                await self._requests.commit_offsets(
                    self._identity,
                    member,
                    part,
                    deadline,
                    is_version_2=self.transaction.is_version_2,
                )
        except _OLD_GENERATION:
            # The group has gone on: with our partitions still ours, as members of the next
            # generation we may commit.
            renewed_shares = self._shares(offsets, group)
            if renewed_shares == shares:
                raise
            return renewed_shares
        return []

    async def enter_partitions(self) -> None:
        """For ever: tell the coordinator of partitions before records go to them (not needed in
        transactions of version 2).
        """
        delivery = self._sender.delivery
        while True:
            await delivery.partitions_wanted.wait()
            delivery.partitions_wanted.clear()
            transaction = self.transaction
            wanted = set(transaction.wanted)
            if not wanted or not transaction.takes_records:
                continue
            # The coordinator may know of them from now on, whatever becomes of the request.
            transaction.has_effects = True
            identity = self._identity
            self._entered.clear()
            try:
                await self._requests.add_partitions(identity, wanted, self._deadline())
                transaction.wanted -= wanted
                transaction.partitions |= wanted
                self._sender.resume(wanted)
            except KafkaError as error:
                if identity == self._identity:
                    transaction.fail(error)
            finally:
                self._entered.set()
