"""Parse the arguments of commands: partitions, positions in partitions, and settings."""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

K = TypeVar("K")
V = TypeVar("V")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Place(NamedTuple):
    """A position in partitions. `kind` is one of these:

    - "earliest", "latest", or "stored" (the committed offset);
    - "offset": `value` is the offset;
    - "tail": `value` is the number of offsets before the end;
    - "time": `value` is in milliseconds since 1970.
    """

    kind: str
    value: int = 0


class Finite(click.FloatRange):
    """A type of click options: a number within bounds that is neither NaN nor infinite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises click.BadParameter for other values."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 500ms, 30s, 5m, 2h or 1d. Raises ValueError for
    other texts."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} must be a duration such as 500ms, 30s, 5m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def place(text: str, now: float | None = None) -> Place:
    """Parse a position.

    A position is earliest, latest, stored, an offset (42), a number of offsets before the end
    (-10), a time before `now` (-2h), milliseconds since 1970 (@1700000000000), or a date and time,
    in UTC if it has no time zone (2026-01-31T12:00). `now` is in seconds since 1970; by default
    the current time. Raises ValueError for other texts.
    """
    if text in ("earliest", "latest", "stored"):
        return Place(text)
    if re.fullmatch(r"-?\d+", text):
        return Place("tail", -int(text)) if text.startswith("-") else Place("offset", int(text))
    if re.fullmatch(r"@\d+", text):
        return Place("time", int(text[1:]))
    if text.startswith("-"):
        return _at((time.time() if now is None else now) - seconds(text[1:]))
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(
            f"{text!r} must be earliest, latest, an offset, -N (the last N), -2h (ago), "
            "@milliseconds, or a date and time"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return _at(moment.timestamp())


def _at(moment: float) -> Place:
    """Return the position of a time in seconds since 1970. A time before 1970 becomes 1970."""
    return Place("time", int(moment * 1000) if moment > 0 else 0)


def numbers(text: str) -> list[int]:
    """Parse partition numbers such as 0,3-5. Raises ValueError for other texts, and for a range
    that ends above a million."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{text!r} must be partitions such as 0,3-5")
        if int(match[2] or 0) > 1_000_000:
            raise ValueError(f"{text!r} names too many partitions")
        found.update(dict.fromkeys(range(int(match[1]), int(match[2] or match[1]) + 1)))
    return list(found)


def is_number(text: str) -> bool:
    """Return whether `text` is a non-negative integer in ASCII digits."""
    return text.isascii() and text.isdigit()


def partition_of(text: str) -> TopicPartition:
    """Parse a partition from `topic-partition`. Raises click.BadParameter for other texts."""
    topic, _, number = text.rpartition("-")
    if not topic or not is_number(number):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION")
    return TopicPartition(topic, int(number))


def name_of(tp: TopicPartition) -> str:
    """Return the name of a partition, in the form that `partition_of` parses."""
    return f"{tp.topic}-{tp.partition}"


def distinct(items: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Return the (key, value) pairs as a dict. Raises click.BadParameter for a repeated key."""
    found: dict[K, V] = {}
    for key, value in items:
        if key in found:
            name = "-".join(map(str, key)) if isinstance(key, tuple) else key
            raise click.BadParameter(f"{name} is given twice")
        found[key] = value
    return found


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Parse texts such as `name=value`. Raises click.BadParameter for other texts, and for a
    repeated name."""
    found: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} must be NAME=VALUE")
        found.append((name, value))
    return distinct(found)


async def offsets_at(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], at: Place
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition. For a time after all records, this is the
    end of the partition. `at` is any position except "stored"."""
    if at.kind == "offset":
        return dict.fromkeys(partitions, at.value)
    if at.kind == "earliest":
        return await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    if at.kind == "latest":
        return ends
    if at.kind == "tail":
        starts = await consumer.beginning_offsets(partitions)
        return {tp: max(starts[tp], ends[tp] - at.value) for tp in partitions}
    times: Any = await consumer.offsets_for_times(dict.fromkeys(partitions, at.value))
    return {tp: times[tp].offset if times.get(tp) is not None else ends[tp] for tp in partitions}
