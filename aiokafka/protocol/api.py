"""Import path of aiokafka, kept as a shim: the bases of the messages that older programs know."""

from aiokafka.protocol._tuples import Request, RequestStruct, Response

__all__ = ["Request", "RequestStruct", "Response"]
