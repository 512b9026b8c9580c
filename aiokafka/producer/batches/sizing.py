"""Estimate how many bytes of records fill a batch of a topic, once it is compressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.record.compression import codec_id

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig

__all__ = ["BatchSizing"]

_MARGIN = 1.05
"""A batch that turns out a little less compressible than those before should still fit."""

_MOST_GROWTH = 16
"""How many times `max_batch_size` a batch may have before it is compressed."""

_MEMORY = 0.8
"""Share of the old estimate that a new observation leaves in place."""

_LARGEST = 1_000_000
"""Bytes up to which a batch grows behind others. Topics take 1,048,588 by default."""

_LARGEST_COMPRESSED = 262_144
"""... of records that are compressed: in one step, while the event loop stands still."""

_SHARE = 16
"""... and at most one part in so many of `buffer_memory`: while a batch is in flight, others need
memory to grow in."""

_TRUST = 600.0
"""Seconds for which a limit counts that brokers have shown: it may be raised again."""


class BatchSizing:
    """Learns from each batch of a topic how well it compresses, and from refusals how large a
    batch brokers take.

    Owns: the estimated ratio, the limit learnt from the topic's brokers, and when that was.
    """

    def __init__(self, config: ProducerConfig, clock: Callable[[], float]) -> None:
        """Begin with what is configured. `clock()` gives the time in seconds."""
        self._codec = codec_id(config.compression_type)
        self._level = config.compression_level
        self._most = self._full = config.max_batch_size
        largest = _LARGEST_COMPRESSED if self._codec else _LARGEST
        largest = min(largest, config.max_request_size, config.buffer_memory // _SHARE)
        self._largest = 0 if config.is_given("max_batch_size") else largest
        self._may_grow = True
        self._ratio = 1.0
        self._clock = clock
        self._refused_at = 0.0

    def new_builder(self) -> RecordBatchBuilder:
        """Return an empty batch that takes as many bytes as fill it once they are compressed."""
        if self._refused_at and self._clock() - self._refused_at > _TRUST:
            self._full = self._most
            self._may_grow = True
            self._refused_at = 0.0
        limit = self._full
        if self._codec:
            growth = max(1.0, 1 / (self._ratio * _MARGIN))
            limit = int(limit * min(growth, _MOST_GROWTH))
        return self.builder(limit)

    @property
    def largest(self) -> int:
        """Bytes up to which a batch may grow while it waits behind others, before compression; 0 if
        it may not: `max_batch_size` was set, or a broker has refused a batch that had grown."""
        return self._largest if self._may_grow else 0

    @property
    def limit(self) -> int:
        """Bytes that a batch may have on the wire."""
        return self._full

    def builder(self, limit: int) -> RecordBatchBuilder:
        """Return an empty batch that takes `limit` bytes before compression."""
        return RecordBatchBuilder(compression=self._codec, level=self._level, size_limit=limit)

    def learn(self, size: int, compressed_size: int) -> None:
        """Learn from a batch of `size` bytes that was compressed."""
        if 2 * size < self._full:
            return  # a few records compress worse than a full batch does
        ratio = compressed_size / size
        if ratio > self._ratio:
            # At once: too large a batch costs a refusal, too small a one only a little efficiency.
            self._ratio = ratio
        else:
            self._ratio = self._ratio * _MEMORY + ratio * (1 - _MEMORY)

    def refuse(self, size: int) -> None:
        """Learn that a broker found a batch of `size` compressed bytes too large (KIP-126)."""
        self._ratio = 1.0
        self._may_grow = False
        self._full = max(1, min(self._full, size // 2))
        self._refused_at = self._clock()
