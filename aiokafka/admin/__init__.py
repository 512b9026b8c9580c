"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens."""

from aiokafka.admin._delegation_token import DelegationToken
from aiokafka.admin.client import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.enums import (
    AclOperation,
    ConfigOperation,
    ConfigSource,
    ConfigType,
    ElectionType,
    FeatureUpgradeType,
)
from aiokafka.admin.new_partitions import NewPartitions
from aiokafka.admin.new_topic import NewTopic
from aiokafka.admin.records import Records
from aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = [
    "AIOKafkaAdminClient",
    "AclOperation",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "DelegationToken",
    "ElectionType",
    "FeatureUpgradeType",
    "NewPartitions",
    "NewTopic",
    "Records",
    "RecordsToDelete",
]
