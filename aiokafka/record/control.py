"""Control records: the transaction markers that brokers write."""

from __future__ import annotations

import struct

from aiokafka.errors import CorruptRecordError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka.record.header import RecordBatch

__all__ = ["ABORT", "COMMIT", "ControlRecord", "first_key"]

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecord:
    """A control record. `kind`: ABORT or COMMIT for a transaction marker; other numbers are for
    internal records of brokers. `coordinator_epoch`: -1 if unknown."""

    __slots__ = ("coordinator_epoch", "kind", "version")

    def __init__(self, version: int, kind: int, coordinator_epoch: int = -1) -> None:
        self.version = version
        self.kind = kind
        self.coordinator_epoch = coordinator_epoch

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None = None) -> ControlRecord:
        """Parse the record of a control batch.

        Later versions may append fields to key and value (KIP-98), which are ignored. Raises
        CorruptRecordError if the key is missing or too short.
        """
        if key is None or len(key) < _KEY.size:
            raise CorruptRecordError(f"a control record has the key {key!r}")
        version, kind = _KEY.unpack_from(key)
        if value is None or len(value) < _VALUE.size or kind not in (ABORT, COMMIT):
            return cls(version, kind)
        return cls(version, kind, _VALUE.unpack_from(value)[1])


def first_key(
    batch: RecordBatch, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> bytes | None:
    """Return the key of the first record of a magic 2 batch; None for a null key.

    A control batch has one record. The bytes after its key are not checked. Raises
    CorruptRecordError for an invalid record, and the errors of the decompression.
    """
    payload = batch.payload(max_decompressed_bytes)
    end = len(payload)
    size, at = mem.varint(payload, 0, end)
    if at < 0 or size < 0 or size > end - at:
        raise _corrupt(batch, "the length of a record")
    end = at + size
    # Skip the attributes, the timestamp delta and the offset delta; then read the key's size.
    _, at = mem.varint(payload, at + 1, end)
    _, at = mem.varint(payload, at, end)
    size, at = mem.varint(payload, at, end)
    if at < 0 or size < -1 or size > end - at:
        raise _corrupt(batch, "the key of a record")
    return None if size < 0 else bytes(payload[at : at + size])


def _corrupt(batch: RecordBatch, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the control batch at offset {batch.base_offset}: {what} is wrong")
