"""What a record weighs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord

__all__ = ["size_of"]


def size_of(record: ConsumerRecord[Any, Any]) -> int:
    """Return the bytes of key, value and headers as they were in the log."""
    size = max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
