"""Import path of aiokafka: the bases of the messages that older programs know."""

from aiokafka._upstream.messages import Request, RequestStruct, Response

__all__ = ["Request", "RequestStruct", "Response"]
