"""Old import path; the home is `aiokafka.protocol.messages.fetch`."""

from aiokafka.protocol.messages.fetch import FetchRequest, FetchResponse

__all__ = ["FetchRequest", "FetchResponse"]
