"""The actions of :meth:`FakeCluster.intercept`, errors of handlers, and checks of arguments."""

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
    """Raise TypeError if `given` is a bool or not an integer, ValueError if it is below `least`."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{name} must be a whole number, not {given!r}")
    if given < least:
        raise ValueError(f"{name} must be at least {least}, not {given}")


def check_seconds(name: str, given: Any) -> None:
    """Raise TypeError if `given` is a bool or not a number, ValueError if it is negative or NaN."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{name} must be a number, not {given!r}")
    if not given >= 0:
        raise ValueError(f"{name} must be at least 0, not {given}")


# -- Actions


ErrorCode = int | type[BrokerResponseError]
"""An error code, or the error class with that code."""


class CloseConnectionError(Exception):
    """The broker closes the connection without a response."""


class RefusedError(Exception):
    """The broker rejects a request, or an item of a request. If a handler raises this error, the
    response has `errno` for every item of the request.

    Args:
        error: An error code, or an error class of :mod:`aiokafka.errors`.
        message: The error message of the response.
    """

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        self.errno = error if isinstance(error, int) else error.errno
        super().__init__(message or self.errno)
        self.message = message


@dataclass(frozen=True)
class Fail:
    """Respond with an error code, in the error code fields of the response. The request has no
    effect. For a Produce request with acks=0, close the connection, as Kafka does.

    Args:
        error: An error code, or an error class of :mod:`aiokafka.errors`.

    Example::

        cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=2)
    """

    error: ErrorCode

    def __post_init__(self) -> None:
        if not isinstance(getattr(self.error, "errno", self.error), int):
            raise TypeError(
                "error must be a number, or an error class that has one, such as "
                f"NotLeaderForPartitionError, not {self.error!r}"
            )

    @property
    def errno(self) -> int:
        """The error code of `error`."""
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

    Until then, the request has no effect, and later requests of the same connection wait. Other
    connections are not blocked.

    Args:
        event: The event to wait for.
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
        handled: False (the default): the request has no effect. True: the request is handled and
            only its response is lost, so that a retry may produce duplicates.
    """

    handled: bool = False


@dataclass(frozen=True)
class Silence:
    """Send no response, but keep the connection open and handle later requests. The client must
    time out.

    Args:
        handled: False (the default): the request has no effect. True: the request is handled, but
            its response is not sent.
    """

    handled: bool = False


@dataclass(frozen=True)
class RawBytes:
    """Send `data` in place of a response. The request has no effect. `data` is sent unchanged: for
    a well-formed response, it must begin with the int32 length.
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
        change: A function that is called with the response. It returns the response to send, or
            None after it has modified its argument.
    """

    change: Callable[[Any], Response | None]

    def __post_init__(self) -> None:
        if not callable(self.change):
            raise TypeError(f"change must be a function, not {self.change!r}")


Action = Fail | Delay | Hold | Cut | Silence | RawBytes | Edit
Answer = Action | Response | None
"""An action, a response object to send, or None to let the broker handle the request."""


def refuse_class(name: str, given: object) -> None:
    """Raise TypeError if `given` is a class, and suggest the intended action."""
    if isinstance(given, type) and is_dataclass(given):
        raise TypeError(f"{name}: give {given.__name__}(...), not the class")
    if isinstance(given, type) and issubclass(given, BaseException):
        raise TypeError(f"{name}: give Fail({given.__name__}), not the error itself")


def check_answer(name: str, given: object) -> None:
    """Raise TypeError unless `given` is an action, a response or None."""
    refuse_class(name, given)
    if not (given is None or isinstance(given, Action | Response)):
        raise TypeError(f"{name} must be an action or a response, not {given!r}")
