"""Compatibility module, an import path of aiokafka 0.14: the code is in `consumer/group/`."""

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.consumer.group.group import GroupMembership as GroupCoordinator
from aiokafka.consumer.group.no_group import NoGroup as NoGroupCoordinator
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = [
    "ConnectionGroup",
    "CoordinationType",
    "GroupCoordinator",
    "NoGroupCoordinator",
    "OffsetAndMetadata",
    "OffsetCommitRequest",
    "TopicPartition",
]
