"""What users name in arguments: partitions, places in them, settings."""

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

__all__ = [
    "Finite",
    "Place",
    "distinct",
    "is_number",
    "name_of",
    "numbers",
    "offsets_at",
    "pairs",
    "partition_of",
    "place",
    "seconds",
]

K = TypeVar("K")
V = TypeVar("V")

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Place(NamedTuple):
    """A place: `kind` is earliest, latest, stored, offset, tail (records before the end) or time
    (milliseconds since 1970)."""

    kind: str
    value: int = 0


class Finite(click.FloatRange):
    """A number within bounds that is one: not nan, and not endless."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; raise click.BadParameter for what is none."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 500ms, 30s, 5m, 2h or 1d.

    Raises ValueError for anything else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smhdw])", text)
    if match is None:
        raise ValueError(f"{text!r} must be a duration such as 500ms, 30s, 5m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def place(text: str, now: float | None = None) -> Place:
    """Return the place that a text names: earliest, latest, stored, an offset (42), so many records
    before the end (-10), so long ago (-2h), milliseconds since 1970 (@1700000000000), or a date and
    time in UTC (2026-01-31T12:00).

    Raises ValueError for anything else.
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
    """Return the place of a moment in seconds since 1970; nothing is older than that."""
    return Place("time", int(moment * 1000) if moment > 0 else 0)


def numbers(text: str) -> list[int]:
    """Return the numbers of a text such as 0,3-5.

    Raises ValueError for anything else.
    """
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
    """Say whether a text is an integer from 0 on; other digits than ASCII's are none."""
    return text.isascii() and text.isdigit()


def partition_of(text: str) -> TopicPartition:
    """Return the partition that `topic-partition` names; raise click.BadParameter otherwise."""
    topic, _, number = text.rpartition("-")
    if not topic or not is_number(number):
        raise click.BadParameter(f"{text!r} must be TOPIC-PARTITION")
    return TopicPartition(topic, int(number))


def name_of(tp: TopicPartition) -> str:
    """Return the name that `partition_of` reads."""
    return f"{tp.topic}-{tp.partition}"


def distinct(items: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Return a dict of what the arguments say. Raises click.BadParameter for a key named twice."""
    found: dict[K, V] = {}
    for key, value in items:
        if key in found:
            name = "-".join(map(str, key)) if isinstance(key, tuple) else key
            raise click.BadParameter(f"{name} is given twice")
        found[key] = value
    return found


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the settings of `name=value` texts.

    Raises click.BadParameter without a `=`, and for a name that is given twice.
    """
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
    """Return the offset of a place in each partition. A time after the last record is the end."""
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
