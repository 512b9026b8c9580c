"""The parts of a fake cluster that request handlers work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.testing.acls import Acls
from aiokafka.testing.batches import BatchRefusedError
from aiokafka.testing.controller import Controller
from aiokafka.testing.coordinators import Coordinators
from aiokafka.testing.fetch_sessions import FetchSessions
from aiokafka.testing.groups import Groups
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

_FIRST_ADDING_PARTITION = 12  # Produce versions; KIP-890
_FIRST_ABORTABLE_ERROR = 11
_FIRST_VERIFYING = (3, 6)  # releases


class Services:
    """Everything of a cluster that is not a socket: its state and its coordinators."""

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
        #: Draws all that is left to chance.
        self.random = random
        #: How replicas copy from their leaders.
        self.replication = Replication(state, random)
        #: Partitions on their way to other brokers.
        self.reassignments = Reassignments(state)
        #: What decides who leads.
        self.controller = Controller(self)
        self._script = script
        #: Who may log in; None where brokers ask for no login.
        self.security = security
        #: Passwords that SCRAM checks; kept also where brokers ask for no login.
        self.credentials = ScramCredentials() if security is None else security.credentials
        #: Delegation tokens, with which other clients may log in.
        self.tokens = DelegationTokens() if security is None else security.tokens
        #: What clients may not do.
        self.acls = Acls(state.config)
        #: How much they may use.
        self.quotas = Quotas()
        #: Who coordinates what, and what is being loaded.
        self.coordinators = Coordinators(state, random)
        #: Metrics of clients.
        self.telemetry = TelemetryReceiver(state)
        #: The group coordinators.
        self.groups = Groups(state, self.coordinators, script)
        #: The transaction coordinators.
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
        """Ask the coordinator whether a batch may be written as part of a transaction.

        Brokers before 3.6 write what comes, as long as the producer is not fenced.

        Raises:
            BatchRefusedError: it may not.
        """
        if not batch.is_transactional:
            if batch.producer_id in partition.log.producers.open:
                raise BatchRefusedError(
                    errors.InvalidTxnState.errno,
                    "a plain batch of a producer with an open transaction",
                    in_log=True,
                )
            return
        if transactional_id is None:
            raise BatchRefusedError(
                errors.TransactionalIdAuthorizationFailed.errno,
                "transactional records in a request without a transactional id",
            )
        if context.profile.release < _FIRST_VERIFYING:
            return
        if partition.log.producers.is_in_transaction(batch):
            return  # verified before, under whatever transactional id
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
        """Return whether a Produce request enters its partitions into the transaction (KIP-890)."""
        second = self.state.profile.level("transaction.version") >= 2
        return second and context.api_version >= _FIRST_ADDING_PARTITION

    def topic_deleted(self, name: str) -> None:
        """Forget what belongs to a topic."""
        self.groups.forget_topic(name)

    def leaders_changed(self) -> None:
        """Complete the transactions that wait for a leader: partitions may have one again."""
        self.transactions.complete_waiting()

    def cluster_changed(self) -> None:
        """Wake what depends on the controller: it has decided something, or there is none or one
        again.
        """
        self.reassignments.advance()
        self.replication.pursue()
        self.leaders_changed()
        self._script.wake()

    def node_stopped(self, node_id: int) -> None:
        """Forget what only the memory of that broker held."""
        self._fetch_sessions.pop(node_id, None)
        self.coordinators.broker_stopped(node_id)

    def resume(self) -> None:
        """Go on with what `close()` has interrupted, if it was called, as brokers do that start
        again."""
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
        self.transactions.close()
        self.controller.close()
        self.replication.close()
