"""What a client is doing at this moment, as plain data and over HTTP."""

from aiokafka.debug._app import DebugApp
from aiokafka.debug._loop_lag import LoopLag
from aiokafka.debug._snapshot import snapshot

__all__ = ["DebugApp", "LoopLag", "snapshot"]
