"""Convert errors to lines for stderr, and to exit codes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from aiokafka import errors
from aiokafka.structs import TopicPartition

K = TypeVar("K")

#: Exit codes and their meanings; docs/cli.rst has the same.
CODES = {
    0: "done",
    1: "failed, not confirmed, or the cluster is not healthy",
    2: "wrong usage",
    3: "no broker responded in time",
    4: "authentication failed, or the user lacks permission",
    5: "no such topic, partition, group or resource",
    130: "interrupted by Ctrl-C",
    143: "terminated by SIGTERM",
}

_LATE = (
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
    errors.ControllerIdNotRegistered,
    errors.LogDirNotFound,
    errors.UnknownTopicId,
    errors.VoterNotFound,
)

_OF_THE_USER = (errors.KafkaConfigurationError, errors.IllegalArgumentError)

# Errors for which `text_of` omits the description, because their text means the same. (If the text
# is only a name, `text_of` adds the description.)
_DESCRIBED_BY_TEXT = (*_MISSING, errors.TopicAlreadyExistsError, errors.NonEmptyGroup)

# For a topic that the user has no permission to describe, brokers return the same error as for a
# topic that does not exist.
_HIDDEN = " (or this user may not see it)"

_RESPONSES = (*_REFUSED, *_MISSING)
_WRONG = (errors.KafkaConfigurationError, errors.IllegalArgumentError, ValueError, TypeError)


class PartlyFailedError(errors.KafkaError):
    """Some items of a command failed. `failed` has a line for each of these items; the exit code is
    that of the error `first`."""

    def __init__(self, failed: Iterable[str], first: BaseException | None = None) -> None:
        self.failed = list(failed)
        self.first = first
        super().__init__("; ".join(self.failed))


async def parts(
    call: Awaitable[Mapping[K, Any] | None], items: Collection[K] | None
) -> tuple[Mapping[K, Any], errors.AdminItemsError | None]:
    """Return the results of an admin call about items, such as topics, and the AdminItemsError of
    the items that failed (None if none failed). The command prints the results, and then raises
    this error.

    `items` is None if the call itself finds the items, such as all brokers. If `items` has only one
    item, an AdminItemsError is raised and not returned, because there are no results to print.
    """
    try:
        found = await call
    except errors.AdminItemsError as failed:
        if items is not None and len(set(items)) < 2:
            raise  # with errors by parts of the single item, such as the partitions of a group
        return failed.results, failed
    return dict.fromkeys(items or ()) if found is None else found, None


def code_of(error: BaseException) -> int:
    if isinstance(error, PartlyFailedError) and error.first is not None:
        return code_of(error.first)
    if isinstance(error, errors.AdminItemsError):
        codes = {code_of(each) for each in error.errors.values()}
        return codes.pop() if len(codes) == 1 else 1
    if isinstance(error, errors.KafkaTimeoutError) and isinstance(error.__cause__, _RESPONSES):
        return code_of(error.__cause__)  # until the deadline, brokers returned this error
    if isinstance(error, _LATE) or _is_asyncio_timeout(error):
        return 3
    if isinstance(error, _REFUSED):
        return 4
    if isinstance(error, _MISSING):
        return 5
    return 2 if isinstance(error, _WRONG) else 1


def _is_asyncio_timeout(error: BaseException) -> bool:
    """Return whether this is an asyncio.TimeoutError, which in Python 3.10 is not a subclass of
    TimeoutError."""
    asyncio = sys.modules.get("asyncio")  # imported only by commands that run, not by --help
    return asyncio is not None and isinstance(error, asyncio.TimeoutError)


def lines_of(error: BaseException) -> list[str]:
    """Return the lines to print for an error: one line, or a line for each failed item."""
    if isinstance(error, PartlyFailedError):
        return [_line(text) for text in error.failed]
    if isinstance(error, errors.AdminItemsError):
        return [_item_line(item, each) for item, each in error.errors.items()]
    text = text_of(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, errors.KafkaError | OSError | ValueError | TypeError):
        text = f"{type(error).__name__}: {text}"
    return [_line(text)]


def text_of(error: BaseException) -> str:
    """Return the text of an error for users of a shell.

    The text of a broker's error omits the number and the class of the error. It also omits the
    description of the error if the description only repeats the text. The text of a
    KafkaConfigurationError or IllegalArgumentError omits the class. (The traceback of --debug
    contains all of these.)
    """
    if isinstance(error, _OF_THE_USER) and error.args:
        return str(error.args[0])
    if not isinstance(error, errors.BrokerResponseError) or not error.args:
        return str(error) or type(error).__name__
    text = str(error.args[0])
    subject, _, rest = text.partition(": ")
    if f"'{subject}'" in rest:
        text = rest  # omit a name that is repeated: "orders: Topic 'orders' already exists."
    says_all = isinstance(error, _DESCRIBED_BY_TEXT) and " " in text
    meaning = error.description
    if says_all or not meaning or meaning.rstrip(".").lower() in text.lower():
        said = text.rstrip(".")
    else:
        said = f"{text.rstrip('.')}. {meaning}".rstrip(".")
    is_hidden = isinstance(error, errors.UnknownTopicOrPartitionError)
    return said + (_HIDDEN if is_hidden and "has partitions" not in said else "")


def _item_line(item: object, error: BaseException) -> str:
    text, name = text_of(error), _name(item)
    is_named = repr(item) in text or (name != "" and text.startswith(name.removesuffix(": ")))
    return _line(text if is_named else f"{name}{text}")


def _name(item: object) -> str:
    """Return the item as a prefix for its error; "" if the text of the error names the item."""
    if isinstance(item, TopicPartition):
        return f"{item.topic}-{item.partition}: "
    # ConfigKey is a tuple with a readable str().
    has_name = isinstance(item, str | int) or (
        isinstance(item, tuple) and "__str__" in vars(type(item))
    )
    return f"{item}: " if has_name else ""


def _line(text: str) -> str:
    return " ".join(text.split())
