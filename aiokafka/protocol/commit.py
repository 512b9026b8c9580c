"""Old import path; the homes are in `aiokafka.protocol.messages`."""

from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from aiokafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
]
