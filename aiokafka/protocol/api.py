"""Import path of aiokafka: the base classes of aiokafka's messages."""

from aiokafka._upstream.messages import Request, RequestStruct, Response

__all__ = ["Request", "RequestStruct", "Response"]
