"""Actions: what an interception does instead of the broker. Also checks of arguments of tests."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from aiokafka.errors import BrokerResponseError
from aiokafka.protocol.schema import Response

# -- Checks of arguments, when they are given: a later error would be far from its cause


def check_whole(name: str, given: Any, least: float = -math.inf) -> None:
    """Raise TypeError for what is no whole number, ValueError below `least`."""
    if not isinstance(given, int):
        raise TypeError(f"{name} must be a whole number, not {given!r}")
    if given < least:
        raise ValueError(f"{name} must be at least {least}, not {given}")


def check_seconds(name: str, given: Any) -> None:
    """Raise TypeError for what is no number, ValueError below 0."""
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
    """Answer with an error code, in the shape that the API has for it; the request has no effect.
    A producer without acks gets no answer: its connection is closed, as Kafka does.

    Args:
        error: A number, or an error class of :mod:`aiokafka.errors`.

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
        """The number that goes over the wire."""
        return self.error if isinstance(self.error, int) else self.error.errno


@dataclass(frozen=True)
class Delay:
    """Wait, then go on with `then`.

    Args:
        seconds: How long the broker sits on the request.
        then: What follows; None (the default) handles the request as usual.
    """

    seconds: float
    then: Answer = None

    def __post_init__(self) -> None:
        check_seconds("seconds", self.seconds)
        check_answer("then", self.then)


@dataclass(frozen=True)
class Hold:
    """Wait until the test sets `event`, then go on with `then` (None: handle the request as usual).

    The request has no effect before. The broker's other connections go on.
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
        handled: False (the default): the request has no effect. True: it is handled first, only its
            response is lost, which is the case that makes producers write twice.
    """

    handled: bool = False


@dataclass(frozen=True)
class Silence:
    """Never answer, but keep the connection open and serve what comes after: the client's request
    timeout must end the wait.

    Args:
        handled: Whether the request has its effect.
    """

    handled: bool = False


@dataclass(frozen=True)
class RawBytes:
    """Write these bytes to the connection instead of a response; the request has no effect.

    They go out as they are: a well-formed response begins with its own int32 length.
    """

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, not {type(self.data).__name__}")


@dataclass(frozen=True)
class Edit:
    """Handle the request, then let `change` alter the response object or return another. It is not
    called where there is no response, as to a producer without acks.

    Args:
        change: Called with the response; what it returns is sent, or the (mutated) same if None.
    """

    change: Callable[[Any], Response | None]

    def __post_init__(self) -> None:
        if not callable(self.change):
            raise TypeError(f"change must be a function, not {self.change!r}")


Action = Fail | Delay | Hold | Cut | Silence | RawBytes | Edit
Answer = Action | Response | None
"""An action, a response object to send, or None to let the broker handle the request."""


def refuse_class(name: str, given: object) -> None:
    """Raise TypeError for a class in place of an action, saying what was probably meant."""
    if isinstance(given, type) and is_dataclass(given):
        raise TypeError(f"{name}: give {given.__name__}(...), not the class")
    if isinstance(given, type) and issubclass(given, BaseException):
        raise TypeError(f"{name}: give Fail({given.__name__}), not the error itself")


def check_answer(name: str, given: object) -> None:
    """Raise TypeError for what is no answer."""
    refuse_class(name, given)
    if not (given is None or isinstance(given, Action | Response)):
        raise TypeError(f"{name} must be an action or a response, not {given!r}")
