"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens."""

from aiokafka.admin._delegation_token import DelegationToken
from aiokafka.admin.client import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.records import Records
from aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "DelegationToken",
    "NewPartitions",
    "NewTopic",
    "Records",
    "RecordsToDelete",
]
