"""Assignors, and the encoding of the metadata that group members exchange."""

from typing import TYPE_CHECKING

from aiokafka._loading import on_demand

if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, "assignors", "protocol")
