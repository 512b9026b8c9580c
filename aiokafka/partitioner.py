"""Partitioners: they choose the partition of a record, without I/O.

A partitioner is any callable `(key_bytes, all_partitions, available_partitions) -> partition`. If
the partitioner has a method `partition_for(topic, key_bytes, all_partitions,
available_partitions)`, the producer calls the method instead.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

__all__ = [
    "ConsistentRandomPartitioner",
    "DefaultPartitioner",
    "Fnv1aPartitioner",
    "Murmur2RandomPartitioner",
    "RoundRobinPartitioner",
    "murmur2",
]

# In the compiled module these names are C integers. Literals of this size would be Python objects.
_FACTOR = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Hash `data` as Java's `Utils.murmur2` does; return an unsigned 32-bit number."""
    buffer = data if type(data) is bytes else bytes(data)
    return murmur2_at(buffer, 0, len(buffer))


def murmur2_at(data: bytes | bytearray | memoryview, at: int, length: int) -> int:
    """Return the `murmur2` hash of `length` bytes of `data` from index `at` on, without a check of
    the bounds."""
    m = _FACTOR
    mask = _MASK
    h = _SEED ^ length
    i = at
    end = at + length
    while i + 4 <= end:
        k = data[i + 3]
        k = k << 8 | data[i + 2]
        k = k << 8 | data[i + 1]
        k = k << 8 | data[i]
        k = (k * m) & mask
        k ^= k >> 24
        h = ((h * m) ^ (k * m)) & mask
        i += 4
    if end - i == 3:
        h ^= data[i + 2] << 16
    if end - i >= 2:
        h ^= data[i + 1] << 8
    if end - i >= 1:
        h = ((h ^ data[i]) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)


def fnv1a(data: bytes | bytearray | memoryview) -> int:
    """Return the FNV-1a hash of `data`, an unsigned 32-bit number."""
    buffer = data if type(data) is bytes else bytes(data)
    prime = _FNV_PRIME
    mask = _MASK
    h = _FNV_OFFSET
    for byte in buffer:
        h = ((h ^ byte) * prime) & mask
    return h


class DefaultPartitioner:
    """Chooses the partition by the key's hash, as Java's client does.

    For key None a call returns a random available partition. For records without a key the
    producer does not call the partitioner, but fills a batch of one partition and then switches to
    another partition (KIP-480, KIP-794).
    """

    @classmethod
    def __call__(
        cls, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the partition of `key`. For None, return a random partition of `available`, or of
        `all_partitions` if `available` is empty."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


class RoundRobinPartitioner:
    """Distributes the records of a topic to its partitions in turn, ignoring keys (KIP-369)."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the next partition, with one count for all topics. The producer calls
        `partition_for` instead, which counts for each topic."""
        return self.partition_for("", key, all_partitions, available)

    def partition_for(
        self,
        topic: str,
        key: bytes | None,
        all_partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return the next available partition of `topic`; if no partition is available, the next
        partition of `all_partitions`."""
        turn = self._turns.get(topic)
        if turn is None:
            # Begin with a random partition, so that short-lived producers use all partitions.
            turn = random.randrange(len(all_partitions))
        self._turns[topic] = turn + 1
        choices = available or all_partitions
        return choices[turn % len(choices)]


# -- Partitioners of other clients

# For a program that shares topics with another client, or replaces that client: all records of a
# key must go to the same partition.


class ConsistentRandomPartitioner:
    """Chooses the partition by the key's CRC-32, as librdkafka's default partitioner
    "consistent_random" does. Each record with key None or an empty key goes to a random
    partition."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the partition of `key`."""
        if not key:
            return random.choice(available or all_partitions)
        return all_partitions[zlib.crc32(key) % len(all_partitions)]


class Murmur2RandomPartitioner:
    """Chooses the same partition as "murmur2_random" of librdkafka, which hashes keys, also empty
    keys, as Java's client does. Each record with key None goes to a random partition, while
    `DefaultPartitioner` fills a batch of one partition."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the partition of `key`."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


class Fnv1aPartitioner:
    """Chooses the partition by the key's FNV-1a hash, as sarama's default partitioner
    "NewHashPartitioner" and librdkafka's "fnv1a_random" do. Each record with key None goes to a
    random partition."""

    def __call__(
        self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        """Return the partition of `key`."""
        if key is None:
            return random.choice(available or all_partitions)
        hashed = fnv1a(key)
        # These clients take the absolute value of a signed number, where Java's client clears the
        # sign bit.
        signed = hashed - 0x1_0000_0000 if hashed & 0x8000_0000 else hashed
        return all_partitions[abs(signed) % len(all_partitions)]
