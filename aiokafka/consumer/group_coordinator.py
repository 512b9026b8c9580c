"""Import path of aiokafka, kept as a shim: the code is in `consumer/group/`."""

from aiokafka.client import CoordinationType
from aiokafka.consumer.group.group import Group as GroupCoordinator
from aiokafka.consumer.group.no_group import NoGroup as NoGroupCoordinator
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest

__all__ = [
    "CoordinationType",
    "GroupCoordinator",
    "NoGroupCoordinator",
    "OffsetCommitRequest",
]
