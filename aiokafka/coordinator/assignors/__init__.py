"""Assignors: they distribute the partitions of a group over its members."""

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand

if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, "abstract", "roundrobin")
