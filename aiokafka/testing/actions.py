"""Actions of interceptions, errors of brokers, and checks of arguments."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from aiokafka.errors import BrokerResponseError
from aiokafka.protocol.schema import Response

# -- Checks of arguments


def check_whole(name: str, given: Any, least: float = -math.inf) -> None:
    """Raise TypeError unless `given` is an integer, ValueError below `least`."""
    if not isinstance(given, int):
        raise TypeError(f"{name} must be a whole number, not {given!r}")
    if given < least:
        raise ValueError(f"{name} must be at least {least}, not {given}")


def check_seconds(name: str, given: Any) -> None:
    """Raise TypeError unless `given` is a number, ValueError below 0."""
    if not isinstance(given, int | float):
        raise TypeError(f"{name} must be a number, not {given!r}")
    if not given >= 0:
        raise ValueError(f"{name} must be at least 0, not {given}")


# -- Actions


class CloseConnectionError(Exception):
    """The broker closes the connection without a response."""


class RefusedError(Exception):
    """The broker rejects a request, or an item of one. If a handler raises it, the response has
    `errno` for every item of the request.
    """

    def __init__(self, errno: int, message: str = "") -> None:
        super().__init__(message or errno)
        self.errno = errno
        self.message = message


@dataclass(frozen=True)
class Fail:
    """Respond with an error code, in the fields that the API has for it. The request has no effect.
    The connection of a producer with acks=0 is closed instead, as in Kafka.

    Args:
        error: An error code, or an error class of :mod:`aiokafka.errors`.

    Example::

        cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=2)
    """

    error: int | type[BrokerResponseError]

    def __post_init__(self) -> None:
        if not isinstance(getattr(self.error, "errno", self.error), int):
            raise TypeError(
                "error must be a number, or an error class that has one, such as "
                f"NotLeaderForPartitionError, not {self.error!r}"
            )

    @property
    def errno(self) -> int:
        """The error code."""
        return self.error if isinstance(self.error, int) else self.error.errno


@dataclass(frozen=True)
class Delay:
    """Wait, then continue with `then`.

    Args:
        seconds: The delay.
        then: The next action or response; None (the default) handles the request as usual.
    """

    seconds: float
    then: Answer = None

    def __post_init__(self) -> None:
        check_seconds("seconds", self.seconds)
        check_answer("then", self.then)


@dataclass(frozen=True)
class Hold:
    """Wait until the test sets `event`, then continue with `then`.

    The request has no effect before. Other connections are not blocked.

    Args:
        event: The event.
        then: The next action or response; None (the default) handles the request as usual.
    """

    event: asyncio.Event
    then: Answer = None

    def __post_init__(self) -> None:
        if not inspect.iscoroutinefunction(getattr(self.event, "wait", None)):
            raise TypeError(f"event must be an asyncio.Event, not {self.event!r}")
        check_answer("then", self.then)


@dataclass(frozen=True)
class Cut:
    """Close the connection without a response.

    Args:
        handled: False (the default): the request has no effect. True: it is handled first, and only
            its response is lost, as in the case in which retries produce duplicates.
    """

    handled: bool = False


@dataclass(frozen=True)
class Silence:
    """Send no response, but keep the connection open and handle later requests. The client must
    time out.

    Args:
        handled: Whether the request takes effect.
    """

    handled: bool = False


@dataclass(frozen=True)
class RawBytes:
    """Send these bytes instead of a response. The request has no effect. A well-formed response
    begins with its int32 length.
    """

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(self.data).__name__}")


@dataclass(frozen=True)
class Edit:
    """Handle the request, then change its response. Requests without a response (acks=0) are only
    handled.

    Args:
        change: Called with the response, which it may modify; returns the response to send, or None
            for the modified one.
    """

    change: Callable[[Any], Response | None]

    def __post_init__(self) -> None:
        if not callable(self.change):
            raise TypeError(f"change must be a function, not {self.change!r}")


Action = Fail | Delay | Hold | Cut | Silence | RawBytes | Edit
Answer = Action | Response | None
"""An action, a response object to send, or None to let the broker handle the request."""


def refuse_class(name: str, given: object) -> None:
    """Raise TypeError for a class in place of an action, with the probable intention."""
    if isinstance(given, type) and is_dataclass(given):
        raise TypeError(f"{name}: give {given.__name__}(...), not the class")
    if isinstance(given, type) and issubclass(given, BaseException):
        raise TypeError(f"{name}: give Fail({given.__name__}), not the error itself")


def check_answer(name: str, given: object) -> None:
    """Raise TypeError unless `given` is an action, a response or None."""
    refuse_class(name, given)
    if not (given is None or isinstance(given, Action | Response)):
        raise TypeError(f"{name} must be an action or a response, not {given!r}")
