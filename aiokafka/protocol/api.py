"""Compatibility module, an import path of aiokafka 0.14: the base classes of aiokafka's
messages."""

from aiokafka._upstream.messages import Request, RequestStruct, Response

__all__ = ["Request", "RequestStruct", "Response"]
