"""The current state of clients, as data for JSON and over HTTP."""

from aiokafka.debug._app import DebugApp, snapshot
from aiokafka.debug._loop_lag import LoopLag

__all__ = ["DebugApp", "LoopLag", "snapshot"]
