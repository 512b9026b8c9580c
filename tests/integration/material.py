"""Numbered records, and digests of what was read, so that a million can be compared cheaply."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

PARTITIONS = 4
FIRST_TIMESTAMP = 1_700_000_000_000

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Message:
    """What a record is, apart from where it lies."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...]


def message(number: int) -> Message:
    """Of all shapes: sizes from nothing to 2 kB, no key, no value, none to three headers."""
    size = 2000 if number % 97 == 0 else number % 120
    text = b"record-%d;" % number
    value = (text * (size // len(text) + 1))[:size]
    return Message(
        key=None if number % 5 == 0 else b"key-%d" % (number % 1000),
        value=None if number % 11 == 0 and number % 5 else value,
        timestamp=FIRST_TIMESTAMP + number,
        headers=tuple((f"h{n}", None if n == 2 else b"%d" % number) for n in range(number % 4)),
    )


def partition_of(number: int) -> int:
    return number % PARTITIONS


@dataclass
class Digests:
    """What was seen of a topic: per partition, the number of records and a digest in order."""

    count: int = 0
    _hashes: list[hashlib._Hash] = field(
        default_factory=lambda: [hashlib.sha256() for _ in range(PARTITIONS)]
    )

    def add(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Sequence[Header],
    ) -> None:
        seen = repr((key, value, timestamp, tuple(headers)))
        self._hashes[partition].update(seen.encode())
        self.count += 1

    @property
    def result(self) -> tuple[int, list[str]]:
        return self.count, [found.hexdigest() for found in self._hashes]


def expected(count: int) -> tuple[int, list[str]]:
    """What a reader of the first ``count`` messages must have seen."""
    digests = Digests()
    for number in range(count):
        wanted = message(number)
        digests.add(
            partition_of(number), wanted.key, wanted.value, wanted.timestamp, wanted.headers
        )
    return digests.result
