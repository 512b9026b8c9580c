"""Compress batches, not so many in one turn that the event loop stands still."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aiokafka.producer.batches.batch import ProducerBatch
from aiokafka.producer.batches.partition_queue import PartitionQueue
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.record.compression import GZIP, LZ4, SNAPPY, ZSTD, codec_id

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig

__all__ = ["Compressing"]

_PER_TURN = {GZIP: 65_536, SNAPPY: 524_288, LZ4: 524_288, ZSTD: 262_144}
"""Bytes of records that a codec packs in a millisecond or less, by its default level."""

_HARD = 32_768
"""... and at the levels above `_EASY`."""

_EASY = {GZIP: 6, LZ4: 2, ZSTD: 3}

_PATIENCE = 0.02
"""Seconds after which a turn does more: twice as much after twice as long, and so on. A busy
application may bring more in its long turns than is compressed otherwise, and its records would
wait behind all that has room in the buffer memory.
"""


class Compressing:
    """Compresses the batches of one broker, a request's at a time.

    Owns how many bytes of records were compressed in this turn of the event loop, which queues have
    a batch that is still to be compressed for the next request, and when that was begun.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: MessageAccumulator,
        seal: Callable[[PartitionQueue, float], ProducerBatch | None],
    ) -> None:
        """Begin without a request. `seal(queue, now)` returns the batch of a queue that leaves
        with the next request, or None.
        """
        codec, level = codec_id(config.compression_type), config.compression_level
        self.is_used = bool(codec)
        self._accumulator = accumulator
        self._seal = seal
        is_hard = level is not None and level > _EASY.get(codec, level)
        self._per_turn = _HARD if is_hard else _PER_TURN.get(codec, 0)
        self._request_size = config.max_request_size
        self._bytes = 0
        self._line: deque[PartitionQueue] = deque()
        self._begun_at = 0.0
        self._room = 0
        self.has_rest = False
        """Whether another turn has to look for more: there was no room in this request, or time has
        passed since it was begun.
        """

    def begin_turn(self) -> None:
        """Begin to count again: this is another turn of the event loop."""
        self._bytes = 0

    @property
    def has_begun(self) -> bool:
        """Whether a request is still to be compressed."""
        return bool(self._line)

    def begin(self, line: Iterable[PartitionQueue], now: float) -> None:
        """Begin with another request, of batches from the queues in `line`.

        What comes later is for the request after it, so that an application which goes on sending
        cannot keep this one from leaving.
        """
        self._line.extend(line)
        self._begun_at = now
        self.has_rest = False
        self._room = self._request_size

    def go_on(self, now: float) -> bool:
        """Compress what fills the request; return False if the rest has to wait for another turn
        of the event loop, which would stand still otherwise.
        """
        limit = self._per_turn * max(1.0, (now - self._begun_at) / _PATIENCE)
        while self._line and self._room > 0:
            if self._bytes >= limit:
                self.has_rest = True
                return False
            batch = self._seal(self._line.popleft(), now)
            # What was compressed before may wait for something else, and takes no room.
            if batch is not None and not batch.builder.compressed_size:
                self._room -= self._compress(batch)
        if self._line:
            self.has_rest = True
            self._line.clear()
        return True

    def _compress(self, batch: ProducerBatch) -> int:
        """Return the bytes that a sealed batch has now."""
        builder = batch.builder
        builder.build()
        self._bytes += builder.size
        sizing = self._accumulator.sizing(batch.partition.topic)
        sizing.learn(builder.size, builder.compressed_size)
        return builder.compressed_size
