"""Old import path of the bases of messages; their home is `aiokafka.protocol.schema`."""

from aiokafka.protocol.schema import Request, Response, Struct

__all__ = ["Request", "Response", "Struct"]
