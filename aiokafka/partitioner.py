"""Choose the partition of a record. Pure: nothing here waits or talks to a broker.

A partitioner is any callable `(key_bytes, all_partitions, available_partitions) -> partition`. One
that has a method `partition_for(topic, key_bytes, all_partitions, available_partitions)` is asked
by that instead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["DefaultPartitioner", "RoundRobinPartitioner", "murmur2"]


def murmur2(data: bytes | bytearray) -> int:
    """Hash `data` as Java's `Utils.murmur2`, read as an unsigned 32-bit number."""
    buffer = data if type(data) is bytes else bytes(data)
    m = 0x5BD1E995
    length = len(buffer)
    h = 0x9747B28C ^ length
    i = 0
    while i + 4 <= length:
        k = buffer[i] | buffer[i + 1] << 8 | buffer[i + 2] << 16 | buffer[i + 3] << 24
        k = (k * m) & 0xFFFFFFFF
        k ^= k >> 24
        h = ((h * m) ^ (k * m)) & 0xFFFFFFFF
        i += 4
    if length - i == 3:
        h ^= buffer[i + 2] << 16
    if length - i >= 2:
        h ^= buffer[i + 1] << 8
    if length - i >= 1:
        h = ((h ^ buffer[i]) * m) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * m) & 0xFFFFFFFF
    return h ^ (h >> 15)


class DefaultPartitioner:
    """Records with equal keys go to one partition, the same that Java's client chooses.

    Called with key None it picks at random among the available partitions. The producer does not
    call it for such records: it fills a batch for one partition and then moves to the next
    (KIP-480, KIP-794).
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return a member of `all_partitions`; of `available`, if any, when `key` is None."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


class RoundRobinPartitioner:
    """Every record goes to the next partition of its topic, whatever its key (KIP-369)."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the next partition, for a caller that has only one topic."""
        return self.partition_for("", key, all_partitions, available)

    def partition_for(
        self,
        topic: str,
        key: bytes | None,
        all_partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return the next available partition of `topic`; of all of them when none is available."""
        turn = self._turns.get(topic)
        if turn is None:
            # Many short-lived producers must not all begin with the same partition.
            turn = random.randrange(len(all_partitions))
        self._turns[topic] = turn + 1
        choices = available or all_partitions
        return choices[turn % len(choices)]
