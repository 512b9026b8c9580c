"""Kafka's wire protocol: bytes in, objects out. Nothing here does I/O."""

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand

if not TYPE_CHECKING:
    __getattr__ = on_demand(
        __name__,
        "admin",
        "api",
        "commit",
        "coordination",
        "fetch",
        "group",
        "metadata",
        "offset",
        "produce",
        "transaction",
    )
