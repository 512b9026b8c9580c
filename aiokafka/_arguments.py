"""Checks of the arguments of public calls, for all kinds of clients.

Each function gets the name of the argument first, and returns the value, converted if necessary. It
raises TypeError for a value of a wrong type, ValueError for another wrong value. The text of the
error has the name of the argument and says what is accepted.
"""

from __future__ import annotations

import enum
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from aiokafka._config.options import Flag, brief, check
from aiokafka._partitions import TopicPartition, as_partition

__all__ = [
    "as_enum",
    "as_enums",
    "as_flag",
    "as_function",
    "as_having",
    "as_instance",
    "as_int",
    "as_ints",
    "as_list",
    "as_milliseconds",
    "as_names",
    "as_number",
    "as_partitions",
    "as_pattern",
    "as_principal",
    "as_text",
    "as_tp",
    "by_partition",
    "items_of",
    "least_records",
    "record_limit",
    "stop_limit",
]

E = TypeVar("E", bound=enum.Enum)
K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

_MOST_RECORDS = 2**31 - 1
_STOP_TIMEOUT = 10.0


# -- Single values


def as_text(argument: str, value: Any, *, empty: bool = True) -> str:
    """Return a str. `empty`: whether "" is accepted. Errors do not show the value."""
    if not isinstance(value, str):
        raise TypeError(f"{argument}: must be a str, not {type(value).__name__}")
    if not value and not empty:
        raise ValueError(f"{argument}: must not be empty")
    return value


def as_principal(argument: str, value: Any) -> tuple[str, str]:
    """Split a principal such as "User:alice" into its type and its name."""
    kind, colon, name = as_text(argument, value).partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{argument}: {value!r} must be a principal such as 'User:alice'")
    return kind, name


def as_int(argument: str, value: Any, least: int | None = None, accepted: str = "") -> int:
    """Return an integer of any type, such as NumPy's, as int; a bool is not accepted.

    `least`: the minimum. `accepted`: what is accepted, for the text of the error; by default an
    integer, of at least `least`.
    """
    if not accepted:
        accepted = "an integer" if least is None else f"an integer of at least {least}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}={brief(value)}: must be {accepted}") from None
    if least is not None and number < least:
        raise ValueError(f"{argument}={number}: must be {accepted}")
    return number


def as_number(argument: str, value: Any, accepted: str, least: float = -math.inf) -> float:
    """Return a number of any type except bool as a float; NaN is not accepted.

    `accepted`: what is accepted, for the text of the error. `least`: the minimum.
    """
    rule = f"{argument}={brief(value)}: must be {accepted}"
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)
    except TypeError:
        raise TypeError(rule) from None
    except OverflowError:
        number = math.nan
    if not number >= least:  # also for NaN
        raise ValueError(rule)
    return number


def as_milliseconds(argument: str, value: Any) -> float:
    """Return a non-negative number of milliseconds as a float."""
    return as_number(argument, value, "a number of milliseconds, at least 0", 0)


def as_flag(argument: str, value: Any) -> bool:
    """Return True or False; the equal numbers 1 and 0 are converted."""
    if value is not True and value is not False:
        value = check(_FLAG, argument, value)
    return bool(value)


_FLAG = Flag()


def as_function(argument: str, value: Any) -> Any:
    """Return a callable."""
    if not callable(value):
        raise TypeError(f"{argument}={brief(value)}: must be a function")
    return value


def as_instance(argument: str, value: Any, kind: type[T]) -> T:
    """Return `value` if it is an instance of the class `kind`; otherwise raise TypeError."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise TypeError(f"{argument}: must be {article} {kind.__name__}, not {brief(value)}")
    return value


def as_having(argument: str, value: T, name: str, accepted: str) -> T:
    """Return an object with the attribute `name`. `accepted`: what is accepted, for the text of the
    error, which does not show the value."""
    if isinstance(value, type):
        raise TypeError(f"{argument}: must be {accepted}, not the class {value.__name__}")
    if not hasattr(value, name):
        raise TypeError(f"{argument}: must be {accepted}, not {type(value).__name__}")
    return value


def as_enum(argument: str, value: E | Any, kind: type[E]) -> E:
    """Return the member of the enum `kind` for a member or its value."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(each.name for each in kind)
        raise ValueError(f"{argument}: {brief(value)}: must be one of {known}") from None


def as_pattern(argument: str, value: Any) -> str | re.Pattern[str]:
    """Return `value`, a regular expression as a str or compiled. A str is not compiled here, so an
    invalid expression is not detected."""
    if not isinstance(value.pattern if isinstance(value, re.Pattern) else value, str):
        raise TypeError(
            f"{argument}={brief(value)}: must be a str or a compiled regular expression"
        )
    found: str | re.Pattern[str] = value
    return found


def as_tp(argument: str, value: Any) -> TopicPartition:
    """Return a TopicPartition, or a tuple of topic and partition, as a TopicPartition."""
    tp = as_partition(value, f"{argument}: must be TopicPartition instances")
    if type(tp.topic) is str and type(tp.partition) is int:
        return tp
    # The fields of a TopicPartition may have any type, so check them.
    number = as_int(f"{argument}: partition of {tp.topic!r}", tp.partition)
    return TopicPartition(as_text(f"{argument}: topic", tp.topic), number)


# -- Several values


def as_list(
    argument: str, values: Iterable[T], items: str = "values", one: type | tuple[type, ...] = ()
) -> list[T]:
    """Return the items of an iterable as a list.

    Raises TypeError for str and bytes, whose items are characters and numbers, and for an instance
    of the class or classes `one`, which is a single item. `items`: what the items are, for the text
    of the error.
    """
    kind = type(values).__name__
    if isinstance(values, str | bytes) or (one and isinstance(values, one)):
        raise TypeError(f"{argument}: must be several {items}, not one {kind}")
    try:
        iterator = iter(values)
    except TypeError:
        raise TypeError(f"{argument}: must be several {items}, not {kind}") from None
    return list(iterator)


def as_names(argument: str, values: Iterable[str], *, repeats: bool = False) -> list[str]:
    """Return the names, without repeats unless `repeats`."""
    names = as_list(argument, values, "names")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: must be names, not {brief(name)}")
    return names if repeats else list(dict.fromkeys(names))


def as_ints(argument: str, values: Iterable[int]) -> list[int]:
    """Return the integers without repeats."""
    numbers = as_list(argument, values, "integers")
    return list(dict.fromkeys(as_int(argument, number) for number in numbers))


def as_enums(argument: str, values: Iterable[E | str], kind: type[E]) -> list[E]:
    """Return members of the enum `kind` for members or their values."""
    items = as_list(argument, values, one=enum.Enum)
    return [as_enum(argument, value, kind) for value in items]


def as_partitions(argument: str, values: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions without repeats."""
    tps = as_list(argument, values, "partitions", TopicPartition)
    return list(dict.fromkeys(as_tp(argument, tp) for tp in tps))


def items_of(argument: str, values: Mapping[K, V]) -> Iterable[tuple[K, V]]:
    """Return the items of a dict or other mapping."""
    if not callable(getattr(values, "items", None)):
        raise TypeError(f"{argument}: must be a dict, not {type(values).__name__}")
    return values.items()


def by_partition(argument: str, values: Mapping[Any, V]) -> list[tuple[TopicPartition, V]]:
    """Return the items of a mapping whose keys are partitions."""
    return [(as_tp(argument, tp), value) for tp, value in items_of(argument, values)]


# -- Limits


def record_limit(max_records: Any, default: int | None) -> int:
    """Return the limit for one `getmany()`: `max_records`, or `default` if `max_records` is None;
    -1 if both are None (no limit). Raises ValueError also for a wrong type, as aiokafka 0.14 does.
    """
    if max_records is None:
        return -1 if default is None else min(default, _MOST_RECORDS)
    if not isinstance(max_records, int) or max_records <= 0:
        raise ValueError(f"`max_records` must be a positive Integer, not {max_records!r}")
    return min(max_records, _MOST_RECORDS)


def least_records(min_records: Any, limit: int) -> int:
    """Return the number of records that one `getmany()` waits for: `min_records`, or 1 if
    `min_records` is None. `limit`: the result of `record_limit()`, which is the maximum."""
    if min_records is None:
        return 1
    least = as_int("min_records", min_records, 1)
    if 0 <= limit < least:
        raise ValueError(
            f"min_records={least}: must not be more than max_records or max_poll_records, "
            f"which is {limit}"
        )
    return least


def stop_limit(timeout: Any) -> float:
    """Return the timeout of `stop()` in seconds: `timeout`, or 10 if `timeout` is None."""
    if timeout is None:
        return _STOP_TIMEOUT
    return as_number("timeout", timeout, "a number of seconds, at least 0, or None", 0)
