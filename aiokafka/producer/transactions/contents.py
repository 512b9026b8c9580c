"""Add partitions and offsets to a transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka._group_members import readers
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    StaleMemberEpoch,
    TransactionAbortable,
)
from aiokafka.producer.transactions.errands import Errand, Errands
from aiokafka.producer.transactions.fencing import PAST, Fencing
from aiokafka.producer.transactions.group_offsets import (
    Offsets,
    Share,
    as_group,
    as_offsets,
    share_out,
    with_epochs,
)
from aiokafka.producer.transactions.requests import TransactionRequests
from aiokafka.producer.transactions.state import Transaction

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.sending.sender import Sender

__all__ = ["TransactionContents"]

_OLD_GENERATION = (IllegalGenerationError, StaleMemberEpoch)


class TransactionContents:
    """Sends the requests that add partitions and offsets to the transaction."""

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        sender: Sender,
        transaction: Transaction,
        requests: TransactionRequests,
        fencing: Fencing,
    ) -> None:
        self.errands = Errands(transaction, sender.owner)
        self._client = client
        self._config = config
        self._sender = sender
        self._transaction = transaction
        self._requests = requests
        self._fencing = fencing
        self._loop = asyncio.get_running_loop()

    def _deadline(self) -> float:
        return self._loop.time() + self._config.max_block

    # -- offsets

    async def send_offsets(self, given: Any, group: Any) -> None:
        """Add offsets of a group to the transaction.

        Raises TypeError or ValueError for wrong arguments, CommitFailedError if partitions were
        taken away, errors of the brokers. After an error the transaction has to be aborted.
        """
        offsets = as_offsets(given)
        transaction = self._transaction
        transaction.check("send_offsets_to_transaction")
        number = transaction.number
        deadline = self._deadline()
        try:
            shares = self._shares(offsets, group)
            if not offsets:
                return

            async def work(errand: Errand) -> None:
                await self._send_shares(shares, offsets, group, deadline, errand)

            await self.errands.run("send_offsets_to_transaction", work, deadline)
        except KafkaError as error:
            if transaction.number == number:
                transaction.fail(error)
            raise

    def _shares(self, offsets: Offsets, group: Any) -> list[Share]:
        """Return which member commits which offsets, as the group is now."""
        member = as_group(group)
        found = readers(self._loop, self._client.cluster.cluster_id, _name_of(group))
        return share_out(with_epochs(offsets, found), member, found)

    async def _send_shares(
        self,
        shares: list[Share],
        offsets: Offsets,
        group: Any,
        deadline: float,
        errand: Errand,
    ) -> None:
        transaction = self._transaction
        group_id = shares[0][0].group_id
        try:
            if not transaction.is_version_2 and group_id not in transaction.groups:
                identity = self._fencing.identity
                await self._requests.add_group(identity, group_id, deadline, errand)
            # Noted with version 2 as well: what was added decides whether an unknown transaction
            # was empty (`ProducerTransactions._abort_what_is_past`).
            transaction.add_group(group_id)
            while shares:
                shares = await self._commit_offsets(shares, offsets, group, deadline, errand)
        except PAST as error:
            if errand.is_recalled:
                raise
            # It may change the epoch, so it has to come to an end.
            errand.must_finish = True
            raise await self._fencing.explain(error, deadline) from error

    async def _commit_offsets(
        self,
        shares: list[Share],
        offsets: Offsets,
        group: Any,
        deadline: float,
        errand: Errand,
    ) -> list[Share]:
        """Send the offsets; return those to send again in the name of another generation.

        How offsets stay right although the group rebalances meanwhile:

        1. The application has processed records of partition 0 and asks to commit offset 10. Its
           consumer is a member of generation 5; `share_out` has checked that partition 0 was not
           revoked since the records were returned.
        2. The group rebalances: generation 6. The consumer keeps partition 0.
        3. The coordinator refuses the offsets of generation 5 (KIP-447).
        4. We look at the consumers again. If one had lost the partition, `share_out` would raise
           CommitFailedError, as its next owner may have processed the same records. It has not, so
           the offset is sent again, as generation 6.
        5. If the consumer is still in generation 5, it does not know of the rebalance yet. There is
           nothing else to send, so the error is raised, and the application aborts.
        """
        try:
            for member, part in shares:
                await self._requests.commit_offsets(
                    self._fencing.identity,
                    member,
                    part,
                    deadline,
                    errand,
                    is_version_2=self._transaction.is_version_2,
                )
        except _OLD_GENERATION:
            # Step 4.
            renewed_shares = self._shares(offsets, group)
            if renewed_shares == shares:
                raise
            return renewed_shares
        return []

    # -- partitions

    async def attend(self) -> None:
        """Ask the coordinator for what batches need before they are sent, until cancelled."""
        wanted = self._sender.delivery.coordinator_wanted
        while True:
            await wanted.wait()
            wanted.clear()
            transaction = self._transaction
            number = transaction.number
            # Asked for by a batch of a transaction that has failed, or is being aborted.
            if not transaction.takes_records:
                continue
            try:
                if transaction.doubt is not None:
                    await self.errands.run("fencing", self._clear_up, self._deadline())
                elif transaction.wanted:
                    await self.errands.run(
                        "AddPartitionsToTxn", self._enter_partitions, self._deadline()
                    )
            except KafkaError as error:
                # The errand may have outlived its transaction, and the next one has nothing to do
                # with the error.
                if transaction.number == number:
                    transaction.fail(error)

    async def _enter_partitions(self, errand: Errand) -> None:
        """Add partitions before records go to them; not needed in transactions of version 2."""
        transaction = self._transaction
        wanted = set(transaction.wanted)
        deadline = self._deadline()
        try:
            await self._requests.add_partitions(self._fencing.identity, wanted, deadline, errand)
        except PAST as error:
            if errand.is_recalled:
                raise
            errand.must_finish = True
            raise await self._fencing.explain(error, deadline) from error
        transaction.add_partitions(wanted)
        # In this order: the senders look at once whether the partitions are admitted.
        self._sender.resume(wanted)

    async def _clear_up(self, errand: Errand) -> None:
        """Ask the coordinator what the error of a leader means that refused records."""
        transaction = self._transaction
        doubt = transaction.doubt
        assert doubt is not None
        deadline = self._deadline()
        if not transaction.is_version_2:
            # To ask for a new epoch would end an open transaction before Kafka 4.0, and fence this
            # producer. A partition that was added can be added again without any effect, though not
            # one that is gone. This one has a leader.
            assert transaction.doubtful is not None
            known = {transaction.doubtful}
            try:
                await self._requests.add_partitions(self._fencing.identity, known, deadline, errand)
            except PAST as error:
                doubt = error
            else:
                # Whatever the leader lacks, the coordinator can abort it.
                raise TransactionAbortable(str(doubt)) if isinstance(doubt, PAST) else doubt
        errand.must_finish = True
        raise await self._fencing.explain(doubt, deadline) from doubt


def _name_of(group: Any) -> str:
    member = as_group(group)
    return member if isinstance(member, str) else member.group_id
