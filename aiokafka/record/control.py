"""Control records: the markers that a broker writes at the end of a transaction."""

from __future__ import annotations

import struct
from typing import NamedTuple

from aiokafka.errors import CorruptRecordError

__all__ = ["ABORT", "COMMIT", "ControlRecord"]

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecord(NamedTuple):
    """A marker: `kind` is ABORT, COMMIT, or a number that belongs to the brokers themselves."""

    version: int
    kind: int
    coordinator_epoch: int = -1

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None = None) -> ControlRecord:
        """The marker in a record of a control batch. CorruptRecordError if it cannot be one.

        Later versions of key and value may be longer (KIP-98): what follows is left alone.
        """
        if key is None or len(key) < _KEY.size:
            raise CorruptRecordError(f"a control record has the key {key!r}")
        version, kind = _KEY.unpack_from(key)
        if value is None or len(value) < _VALUE.size or kind not in (ABORT, COMMIT):
            return cls(version, kind)
        return cls(version, kind, _VALUE.unpack_from(value)[1])
