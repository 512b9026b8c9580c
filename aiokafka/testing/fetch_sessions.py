"""Incremental fetch sessions as a broker keeps them (KIP-227)."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka import errors
from aiokafka.testing.actions import RefusedError

_FULL = 0
_NO_SESSION = -1
_MAX_EPOCH = 2**31 - 1


@dataclass(slots=True)
class FetchPosition:
    """One requested partition of a session, and the offsets last reported to the client."""

    topic: str | bytes
    """Topic name, or topic id from Fetch v13 on."""
    partition: int
    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int
    reported: tuple[int, ...] = ()
    """(high watermark, last stable offset, log start offset) in the last response."""


@dataclass(slots=True)
class FetchSession:
    """The partitions that a client fetches from one broker, in the order of reading."""

    session_id: int
    epoch: int = 1
    """Epoch that the next request of the session must have."""
    positions: OrderedDict[tuple[str | bytes, int], FetchPosition] = field(
        default_factory=OrderedDict
    )

    def served(self, position: FetchPosition) -> None:
        """Move a partition whose records were sent to the end of the order, so that the next
        response begins with other partitions."""
        self.positions.move_to_end((position.topic, position.partition))


class FetchSessionError(RefusedError):
    """The broker does not know the session, or expects another epoch of the session."""


class FetchSessions:
    """The sessions of one broker. If all slots are used, a new session evicts the session that was
    used longest ago."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        updates: Iterable[FetchPosition],
        forgotten: Iterable[tuple[str | bytes, int]],
    ) -> tuple[FetchSession, bool]:
        """Handle the session fields of a Fetch request.

        Returns:
            The session, and whether the response is incremental (with changed partitions only).
            Session id 0 means that the client requested no session, that the session has no
            partitions, or that the broker is configured to have no slots.

        Raises:
            FetchSessionError: the session is unknown, or the epoch is not its next epoch.
        """
        if epoch in (_FULL, _NO_SESSION):
            self._sessions.pop(session_id, None)
            positions = OrderedDict(((p.topic, p.partition), p) for p in updates)
            session = FetchSession(0, positions=positions)
            if epoch == _FULL and positions:
                self._keep(session)
            return session, False
        known = self._sessions.get(session_id)
        if known is None:
            raise FetchSessionError(errors.FetchSessionIdNotFound.errno)
        if known.epoch != epoch:
            raise FetchSessionError(errors.InvalidFetchSessionEpoch.errno)
        known.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        _update(known, updates, forgotten)
        self._sessions.move_to_end(session_id)
        if not known.positions:
            del self._sessions[session_id]
            known.session_id = 0
        return known, True

    def forget_all(self) -> None:
        """Evict every session, as a cache that is too small for all clients does."""
        self._sessions.clear()

    def _keep(self, session: FetchSession) -> None:
        if self._slots <= 0:
            return
        while len(self._sessions) >= self._slots:
            self._sessions.popitem(last=False)
        session.session_id = random.randrange(1, 2**31)
        self._sessions[session.session_id] = session


def _update(
    session: FetchSession,
    updates: Iterable[FetchPosition],
    forgotten: Iterable[tuple[str | bytes, int]],
) -> None:
    for position in updates:
        key = (position.topic, position.partition)
        known = session.positions.get(key)
        if known is not None:
            position.reported = known.reported
        session.positions[key] = position
    for key in forgotten:
        session.positions.pop(key, None)
