"""Base classes for users to subclass."""

from __future__ import annotations

import abc
from collections.abc import Awaitable
from typing import Any

__all__ = [
    "AbstractTokenProvider",
    "AsyncConsumerRebalanceListener",
    "ConsumerRebalanceListener",
]


class ConsumerRebalanceListener(abc.ABC):
    """Called when the partitions of a consumer in a group change.

    Every method may be a plain function or a coroutine function, which is awaited. While one runs,
    `getone` and `getmany` return nothing, so a method must not wait for a lock that is held
    around them. `seek` and its kin, `position`, `commit`, `committed`, `pause` and `resume` may be
    called; what would wait for the rebalance itself, or change its subject, raises
    IllegalStateError: `getone`, `getmany`, `stop`, `subscribe`, `unsubscribe`, `assign`. Exceptions
    do not stop the rebalance: they are logged, and raised by the application's next `getone` or
    `getmany`.

    The methods get a set of TopicPartition of their own. Annotate it as `set[TopicPartition]`,
    `frozenset[TopicPartition]`, `Collection[TopicPartition]` or otherwise, as you like: it is an
    Any here, so that all of them check.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Awaitable[None] | None:
        """Give up partitions: the last chance to commit or to save local state for them.

        Called before a rebalance, when no more records of these partitions are returned. With
        eager assignors it gets all partitions, before the first assignment an empty set. It is not
        called by `stop`.
        """

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Awaitable[None] | None:
        """Take over partitions: the place to seek or to load local state.

        Called after a rebalance, before the first record of these partitions is returned. With
        eager assignors it gets all partitions, else those that are new, which may be none.
        """

    def on_partitions_lost(self, lost: Any) -> Awaitable[None] | None:
        """Drop partitions that another member may own already (KIP-429).

        Called in place of `on_partitions_revoked` when the group has removed this member, so a
        commit would be refused. By default it calls `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ConsumerRebalanceListener):
    """A ConsumerRebalanceListener whose methods are coroutine functions, for listeners that wait
    for something, such as a database."""

    @abc.abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Give up partitions; see ConsumerRebalanceListener."""

    @abc.abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Take over partitions; see ConsumerRebalanceListener."""

    async def on_partitions_lost(self, lost: Any) -> None:
        """Drop partitions; by default it awaits `on_partitions_revoked`."""
        await self.on_partitions_revoked(lost)


class AbstractTokenProvider(abc.ABC):
    """Source of tokens for SASL/OAUTHBEARER.

    Keyword arguments of the constructor are accepted and ignored, so that a subclass may pass on
    its configuration.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a token that is valid now.

        Called for every new connection and each time a session has to be renewed. It should keep
        a token until that expires, and may await the network.
        """

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token (KIP-342), by default none."""
        return {}

    def refused(self, token: str) -> None:  # noqa: B027
        """Called when a broker has rejected a token. Does nothing by default.

        A provider that caches tokens should drop this one. Must not block.
        """
