"""What the client knows about the cluster: an immutable snapshot with query methods."""

from __future__ import annotations

from aiokafka._metadata.snapshot import ClusterMetadata
from aiokafka._metadata.topic_info import PartitionInfo, TopicInfo
from aiokafka.structs import BrokerMetadata, PartitionMetadata, TopicPartition

__all__ = [
    "BrokerMetadata",
    "ClusterMetadata",
    "PartitionInfo",
    "PartitionMetadata",
    "TopicInfo",
    "TopicPartition",
]
