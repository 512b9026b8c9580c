"""What a client is doing at this moment, as plain data and over HTTP."""

from aiokafka.debug._app import DebugApp, snapshot
from aiokafka.debug._loop_lag import LoopLag

__all__ = ["DebugApp", "LoopLag", "snapshot"]
