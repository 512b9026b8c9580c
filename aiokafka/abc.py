"""Abstract base classes that applications implement."""

from __future__ import annotations

import abc
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

__all__ = [
    "AbstractSaslMechanism",
    "AbstractTokenProvider",
    "AsyncConsumerRebalanceListener",
    "ConsumerRebalanceListener",
]


class ConsumerRebalanceListener(abc.ABC):
    """Methods that a consumer calls when a rebalance changes its partitions.

    A method may be a plain function or a coroutine function, which is awaited. While a method runs,
    `getone` and `getmany` return no records, so the method must not wait for a lock that the
    application holds around these calls. A method may call `seek` and the methods `seek_to_*`,
    `position`, `commit`, `committed`, `pause` and `resume`. Calls that would wait for the rebalance
    or change the subscription raise IllegalStateError: `getone`, `getmany`, `stop`, `subscribe`,
    `unsubscribe`, `assign`. Exceptions do not stop the rebalance: they are logged, and raised by
    the application's next `getone` or `getmany`.

    Each call gets a new set of TopicPartition. The argument is annotated as Any, so that subclasses
    may use `set[TopicPartition]`, `Collection[TopicPartition]` or another type.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: Any) -> Awaitable[None] | None:
        """Called before partitions are revoked: the last chance to commit their offsets, or to save
        their local state.

        The consumer no longer returns records of these partitions. With eager assignors `revoked`
        has all partitions of the consumer; before the first assignment it is empty. `stop` does not
        call this method.
        """

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: Any) -> Awaitable[None] | None:
        """Called after partitions are assigned: the place to seek or to load local state.

        The consumer returns no records until this method has ended. With eager assignors `assigned`
        has all partitions of the consumer, otherwise only the new ones; it may be empty.
        """

    def on_partitions_lost(self, lost: Any) -> Awaitable[None] | None:
        """Called when partitions are lost: another member may own them already (KIP-429).

        The consumer calls it in place of `on_partitions_revoked` when the group has removed this
        member, so the coordinator would reject a commit. By default it calls
        `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ConsumerRebalanceListener):
    """A ConsumerRebalanceListener whose methods are coroutine functions, for listeners that await,
    for example, a database."""

    @abc.abstractmethod
    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Called before partitions are revoked; see ConsumerRebalanceListener."""

    @abc.abstractmethod
    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Called after partitions are assigned; see ConsumerRebalanceListener."""

    async def on_partitions_lost(self, lost: Any) -> None:
        """Called when partitions are lost; by default it awaits `on_partitions_revoked`."""
        await self.on_partitions_revoked(lost)


class AbstractTokenProvider(abc.ABC):
    """Source of tokens for SASL/OAUTHBEARER.

    The constructor accepts and ignores keyword arguments, so that a subclass may pass its
    configuration to it.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a token that is valid now.

        Called for every new connection and for each reauthentication. Implementations may await the
        network, and should return the same token until that token is about to expire.
        """

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token (KIP-342), by default none."""
        return {}

    def refused(self, token: str) -> None:  # noqa: B027
        """Called when a broker has rejected a token. Does nothing by default.

        A provider that caches tokens should drop `token`. This must not block.
        """


class AbstractSaslMechanism(abc.ABC):
    """A SASL mechanism of the application, for the option `sasl_mechanism`.

    One object serves all connections of its clients. Each authentication, also a reauthentication,
    iterates over `exchange`, so keep the state of one authentication in local variables of
    `exchange`.
    """

    name: str
    """Name of the mechanism in sasl.enabled.mechanisms of the brokers, such as "PLAIN"."""

    @abc.abstractmethod
    def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        """Yield the client's tokens one after the other; each `yield` returns the broker's response
        to the token. Return after the last response.

        Implement it as an `async def` with `yield`. Before the first `yield` it may await the
        network, for example to fetch credentials. An exception there counts as an outage, and the
        client tries again after a backoff; an exception after the first `yield` fails the
        authentication. Raise AuthenticationFailedError if the broker does not prove its identity.
        The time for the tokens is limited, as for each connection, by
        `socket_connection_setup_timeout_ms`.

        Args:
            host: Host name of the broker.
        """

    def refused(self) -> None:  # noqa: B027
        """Called when a broker has rejected the client. Does nothing by default.

        A mechanism that caches credentials should drop them. This must not block.
        """
