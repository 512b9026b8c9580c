"""Encode and decode records: batches, message sets, columns, compression codecs. No I/O."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiokafka._loading import on_demand

if TYPE_CHECKING:
    from aiokafka.record.columns import BinaryColumn, Columns, HeaderColumn
    from aiokafka.record.rows import BinarySource, HeaderSource, RowSource, route_rows

__all__ = [
    "BinaryColumn",
    "BinarySource",
    "Columns",
    "HeaderColumn",
    "HeaderSource",
    "RowSource",
    "route_rows",
]

_IN_COLUMNS = {"BinaryColumn", "Columns", "HeaderColumn"}
_OF_AIOKAFKA = {"MemoryRecords": "memory_records"}
_MODULES = ("control_record", "default_records", "legacy_records", "memory_records", "util")
_load_module = on_demand(__name__, *_MODULES)


def __getattr__(name: str) -> Any:
    # Import on first use, because most programs need none of these names.
    if name not in __all__ and name not in _OF_AIOKAFKA:
        return _load_module(name)
    home = _OF_AIOKAFKA.get(name) or ("columns" if name in _IN_COLUMNS else "rows")
    return getattr(import_module(f"{__name__}.{home}"), name)
