"""The bases of the messages that older programs know, by the names of aiokafka 0.14."""

from aiokafka.protocol._tuples import Request, RequestStruct, Response

__all__ = ["Request", "RequestStruct", "Response"]
