"""Convert errors to lines on stderr and exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka import errors
from aiokafka.structs import TopicPartition

K = TypeVar("K")

#: Exit codes and their meanings; docs/cli.rst has the same.
CODES = {
    0: "done",
    1: "failed, or answered with no",
    2: "wrong usage",
    3: "no broker responded in time",
    4: "authentication failed, or the user may not do this",
    5: "no such topic, partition, group or resource",
    130: "interrupted by Ctrl-C",
    143: "terminated",
}

_LATE = (
    asyncio.TimeoutError,
    TimeoutError,
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
    errors.NoBrokersAvailable,
)
_REFUSED = (
    errors.AuthenticationFailedError,
    errors.SaslAuthenticationFailed,
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.DelegationTokenAuthorizationFailed,
)
_MISSING = (
    errors.UnknownTopicOrPartitionError,
    errors.GroupIdNotFound,
    errors.ResourceNotFound,
    errors.TransactionalIdNotFound,
    errors.DelegationTokenNotFound,
    errors.BrokerIdNotRegistered,
    errors.LogDirNotFound,
    errors.UnknownTopicId,
    errors.VoterNotFound,
)

_RESPONSES = (*_REFUSED, *_MISSING)
_WRONG = (errors.KafkaConfigurationError, errors.IllegalArgumentError, ValueError, TypeError)


class PartlyFailedError(errors.KafkaError):
    """Some items of a command failed. `failed` has a line for each item. `first` is the error that
    determines the exit code."""

    def __init__(self, failed: Iterable[str], first: BaseException | None = None) -> None:
        self.failed = list(failed)
        self.first = first
        super().__init__("; ".join(self.failed))


async def parts(
    call: Awaitable[Mapping[K, Any] | None], items: Collection[K] | None
) -> tuple[Mapping[K, Any], errors.AdminItemsError | None]:
    """Return the results of an admin call about items, such as topics, and the error of the items
    that failed. The command prints the results and then raises the error.

    `items` is None if the call itself finds the items, such as all brokers.
    """
    try:
        found = await call
    except errors.AdminItemsError as failed:
        if items is not None and len(set(items)) < 2:
            raise  # the keys are not `items` but parts of the item, as partitions of a group
        return failed.results, failed
    return dict.fromkeys(items or ()) if found is None else found, None


def code_of(error: BaseException) -> int:
    if isinstance(error, PartlyFailedError) and error.first is not None:
        return code_of(error.first)
    if isinstance(error, errors.AdminItemsError):
        codes = {code_of(each) for each in error.errors.values()}
        return codes.pop() if len(codes) == 1 else 1
    if isinstance(error, errors.KafkaTimeoutError) and isinstance(error.__cause__, _RESPONSES):
        return code_of(error.__cause__)  # brokers responded with this error until the deadline
    if isinstance(error, _LATE):
        return 3
    if isinstance(error, _REFUSED):
        return 4
    if isinstance(error, _MISSING):
        return 5
    return 2 if isinstance(error, _WRONG) else 1


def lines_of(error: BaseException) -> list[str]:
    """Return the lines to print for an error: one line, or a line for each failed item."""
    if isinstance(error, PartlyFailedError):
        return [_line(text) for text in error.failed]
    if isinstance(error, errors.AdminItemsError):
        return [_line(f"{_name(item)}{each}") for item, each in error.errors.items()]
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, errors.KafkaError | OSError | ValueError | TypeError):
        text = f"{type(error).__name__}: {text}"
    return [_line(text)]


def _name(item: object) -> str:
    """Return the prefix of an item's error, or "" if the error itself names the item."""
    if isinstance(item, TopicPartition):
        return f"{item.topic}-{item.partition}: "
    # ConfigKey is a tuple, but its str() is readable.
    has_name = isinstance(item, str | int) or (
        isinstance(item, tuple) and "__str__" in vars(type(item))
    )
    return f"{item}: " if has_name else ""


def _line(text: str) -> str:
    return " ".join(text.split())
