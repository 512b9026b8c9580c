"""The state and the coordinators of a fake cluster, for the request handlers of all brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.testing.acls import Acls
from aiokafka.testing.batches import BatchRefusedError
from aiokafka.testing.controller import Controller
from aiokafka.testing.fetch_sessions import FetchSessions
from aiokafka.testing.groups import Coordinators, Groups
from aiokafka.testing.quotas import Quotas
from aiokafka.testing.replication import Reassignments, Replication
from aiokafka.testing.sasl import DelegationTokens, ScramCredentials
from aiokafka.testing.telemetry import TelemetryReceiver
from aiokafka.testing.transactions import Transactions

if TYPE_CHECKING:
    from random import Random

    from aiokafka.testing.batches import Batch
    from aiokafka.testing.script import RequestContext, Script
    from aiokafka.testing.security import Security
    from aiokafka.testing.state import ClusterState, Partition

_FIRST_ADDING_PARTITION = 12  # first Produce version that adds partitions (KIP-890)
_FIRST_ABORTABLE_ERROR = 11  # first Produce version with the error TRANSACTION_ABORTABLE
_FIRST_VERIFYING = (3, 6)  # the first release that verifies transactional batches (KIP-890)


class Services:
    """The state of a cluster and its coordinators, shared by all brokers."""

    def __init__(
        self,
        state: ClusterState,
        script: Script,
        random: Random,
        security: Security | None = None,
    ) -> None:
        if security is not None and not hasattr(security, "credentials"):
            raise TypeError(f"security must be a Security or None, not {type(security).__name__}")
        self.state = state
        #: Source of all random choices.
        self.random = random
        #: Replication from leaders to followers.
        self.replication = Replication(state, random)
        #: Ongoing partition reassignments.
        self.reassignments = Reassignments(state)
        #: Registers brokers and elects leaders.
        self.controller = Controller(self)
        self._script = script
        #: SASL settings; None without SASL.
        self.security = security
        #: SCRAM credentials, which clients may set even without SASL.
        self.credentials = ScramCredentials() if security is None else security.credentials
        #: Delegation tokens (KIP-48), which clients may create even without SASL.
        self.tokens = DelegationTokens() if security is None else security.tokens
        #: ACL entries, and permissions that tests have withdrawn.
        self.acls = Acls(state.config)
        #: Quotas that tests or clients have set, and the usage of clients.
        self.quotas = Quotas()
        #: The assignment of groups and transactional ids to coordinators.
        self.coordinators = Coordinators(state, random)
        #: Receiver of the metrics that clients push (KIP-714).
        self.telemetry = TelemetryReceiver(state)
        #: All groups, their members and committed offsets.
        self.groups = Groups(state, self.coordinators, script)
        #: Share sessions, share partitions and their stored states (KIP-932).
        self.shares = self.groups.shares
        #: All transactional ids and their transactions.
        self.transactions = Transactions(state, self.coordinators, self.groups, script)
        self._fetch_sessions: dict[int, FetchSessions] = {}
        self._is_closed = False

    def fetch_sessions(self, node_id: int) -> FetchSessions:
        """Return the incremental fetch sessions of one broker."""
        sessions = self._fetch_sessions.get(node_id)
        if sessions is None:
            slots = self.state.setting("max.incremental.fetch.session.cache.slots")
            sessions = self._fetch_sessions[node_id] = FetchSessions(slots)
        return sessions

    def check_transaction(
        self,
        context: RequestContext,
        partition: Partition,
        batch: Batch,
        transactional_id: str | None,
    ) -> None:
        """Check that a transactional batch belongs to an open transaction, and that the producer of
        a non-transactional batch has no open transaction.

        Brokers before 3.6 do not verify batches with the transaction coordinator: they accept the
        transactional batches of every producer that is not fenced.

        Raises:
            BatchRefusedError: the batch may not be written.
        """
        if not batch.is_transactional:
            if batch.producer_id in partition.log.producers.open:
                raise BatchRefusedError(
                    errors.InvalidTxnState,
                    "a plain batch of a producer with an open transaction",
                    in_log=True,
                )
            return
        if transactional_id is None:
            raise BatchRefusedError(
                errors.TransactionalIdAuthorizationFailed,
                "transactional records in a request without a transactional id",
            )
        if context.profile.release < _FIRST_VERIFYING:
            return
        if partition.log.producers.is_in_transaction(batch):
            return  # the coordinator has verified an earlier batch of the transaction
        errno = self.transactions.check_produce(
            transactional_id,
            batch.producer_id,
            batch.producer_epoch,
            partition,
            adds_partition=self.adds_partitions(context),
        )
        if errno == errors.InvalidTxnState.errno and context.api_version >= _FIRST_ABORTABLE_ERROR:
            errno = errors.TransactionAbortable.errno
        if errno:
            raise BatchRefusedError(errno, "the coordinator knows of no such open transaction")

    def adds_partitions(self, context: RequestContext) -> bool:
        """Return whether a Produce request adds its partitions to the transaction (KIP-890)."""
        second = self.state.profile.level("transaction.version") >= 2
        return second and context.api_version >= _FIRST_ADDING_PARTITION

    def cluster_changed(self) -> None:
        """Continue reassignments, replication, transactions and waiting tests, after a change of
        brokers, leaders or the controller.
        """
        self.reassignments.advance()
        self.replication.replicate()
        self.transactions.complete_waiting()
        self._script.wake()

    def node_stopped(self, node_id: int) -> None:
        """Discard the fetch sessions and the loaded coordinator state of a broker: a stopped broker
        loses its memory."""
        self._fetch_sessions.pop(node_id, None)
        self.shares.node_stopped(node_id)
        self.coordinators.broker_stopped(node_id)

    def resume(self) -> None:
        """Restart the timers of sessions and transactions after `close()`, as restarted brokers
        do.
        """
        if not self._is_closed:
            return
        self._is_closed = False
        self.groups.resume()
        self.transactions.resume()
        self.controller.resume()

    def close(self) -> None:
        """Cancel all timers."""
        self._is_closed = True
        self.groups.close()
        self.shares.close()
        self.transactions.close()
        self.controller.close()
        self.replication.close()
