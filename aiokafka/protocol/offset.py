"""Old import path and names; the home is `aiokafka.protocol.messages.list_offsets`."""

from aiokafka.protocol.messages.list_offsets import ListOffsetsRequest as OffsetRequest
from aiokafka.protocol.messages.list_offsets import ListOffsetsResponse as OffsetResponse

__all__ = ["OffsetRequest", "OffsetResponse"]
