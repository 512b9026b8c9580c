"""Import path of aiokafka, kept as a shim: what the key of a transaction's marker says."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["ABORT_MARKER", "COMMIT_MARKER", "ControlRecord"]

_KEY = struct.Struct(">HH")


class ControlRecord(NamedTuple):
    """A marker. The consumer does not use it."""

    version: int
    type_: int

    @classmethod
    def parse(cls, data: bytes) -> ControlRecord:
        """Return the marker whose record has this key."""
        return cls(*_KEY.unpack_from(data))


ABORT_MARKER = ControlRecord(0, 0)
COMMIT_MARKER = ControlRecord(0, 1)
