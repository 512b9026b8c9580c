"""The parts of a fake cluster that request handlers work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.testing.fetch_sessions import FetchSessions

if TYPE_CHECKING:
    from aiokafka.testing.batches import Batch
    from aiokafka.testing.broker import FakeBroker
    from aiokafka.testing.script import RequestContext
    from aiokafka.testing.state import ClusterState, Partition


class Services:
    """Everything of a cluster that is not a socket: its state and its coordinators."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._fetch_sessions: dict[int, FetchSessions] = {}

    def fetch_sessions(self, node_id: int) -> FetchSessions:
        """The incremental fetch sessions of one broker."""
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
        """Raise BatchRefusedError unless the batch may be part of a transaction."""

    def node_stopped(self, node_id: int) -> None:
        """Forget what only the memory of that broker held."""
        self._fetch_sessions.pop(node_id, None)

    def connection_closed(self, broker: FakeBroker) -> None:
        """A client is gone."""

    def close(self) -> None:
        """Cancel all timers."""
