"""What the members of a consumer group exchange, and how partitions are assigned."""

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand

if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, "assignors", "protocol")
