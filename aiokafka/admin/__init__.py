"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens.

The names are loaded when they are first used: a program that lists topics does not wait for the
code of groups and tokens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.admin._group_descriptions import (
        GroupDescription,
        GroupListing,
        GroupMember,
        StreamsTasks,
    )
    from aiokafka.admin._group_offsets import OffsetReset, ResetKind, ResetRule, ShareOffset
    from aiokafka.admin._lag import GroupLag, PartitionLag, PartitionOwner
    from aiokafka.admin._raw import SendTo
    from aiokafka.admin._replicas import Reassignment
    from aiokafka.admin.acls import AclBinding, AclFilter, Acls, ResourcePattern
    from aiokafka.admin.brokers import (
        Broker,
        Brokers,
        ClusterDescription,
        FeatureLevels,
        Features,
        LogDir,
        LogDirReplica,
        Quorum,
        QuorumReplica,
    )
    from aiokafka.admin.client import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.admin.configs import (
        ConfigChange,
        ConfigKey,
        Configs,
        ConfigSetting,
        ConfigSynonym,
    )
    from aiokafka.admin.enums import (
        AclOperation,
        AclPermission,
        ConfigOperation,
        ConfigSource,
        ConfigType,
        ElectionType,
        FeatureUpgradeType,
        GroupState,
        GroupType,
        PatternType,
        QuotaName,
        ResourceType,
        ScramMechanism,
        TopicAction,
        TransactionState,
    )
    from aiokafka.admin.groups import Groups
    from aiokafka.admin.new_partitions import NewPartitions
    from aiokafka.admin.new_topic import NewTopic
    from aiokafka.admin.offsets import ListedOffset, Offsets, OffsetSpec
    from aiokafka.admin.quotas import QuotaEntity, QuotaFilter, Quotas
    from aiokafka.admin.records import Records
    from aiokafka.admin.records_to_delete import RecordsToDelete
    from aiokafka.admin.tokens import DelegationToken, Tokens
    from aiokafka.admin.topics import (
        DeclaredTopic,
        PartitionDescription,
        TopicCreation,
        TopicDescription,
        TopicListing,
        Topics,
        TopicSetting,
        TopicStep,
    )
    from aiokafka.admin.transactions import (
        ActiveProducer,
        FencedProducer,
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
        Transactions,
    )
    from aiokafka.admin.users import NewScramCredential, ScramCredential, Users

__all__ = [
    "AIOKafkaAdminClient",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Acls",
    "ActiveProducer",
    "Broker",
    "Brokers",
    "ClusterDescription",
    "ConfigChange",
    "ConfigKey",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSetting",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Configs",
    "DeclaredTopic",
    "DelegationToken",
    "ElectionType",
    "FeatureLevels",
    "FeatureUpgradeType",
    "Features",
    "FencedProducer",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "GroupState",
    "GroupType",
    "Groups",
    "HangingTransaction",
    "ListedOffset",
    "LogDir",
    "LogDirReplica",
    "NewPartitions",
    "NewScramCredential",
    "NewTopic",
    "OffsetReset",
    "OffsetSpec",
    "Offsets",
    "PartitionDescription",
    "PartitionLag",
    "PartitionOwner",
    "PatternType",
    "Quorum",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaName",
    "Quotas",
    "Reassignment",
    "Records",
    "RecordsToDelete",
    "ResetKind",
    "ResetRule",
    "ResourcePattern",
    "ResourceType",
    "ScramCredential",
    "ScramMechanism",
    "SendTo",
    "ShareOffset",
    "StreamsTasks",
    "Tokens",
    "TopicAction",
    "TopicCreation",
    "TopicDescription",
    "TopicListing",
    "TopicSetting",
    "TopicStep",
    "Topics",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "Transactions",
    "Users",
]

_HOMES = {
    "AIOKafkaAdminClient": "client",
    "AclBinding": "acls",
    "AclFilter": "acls",
    "AclOperation": "enums",
    "AclPermission": "enums",
    "Acls": "acls",
    "ActiveProducer": "transactions",
    "Broker": "brokers",
    "Brokers": "brokers",
    "ClusterDescription": "brokers",
    "ConfigChange": "configs",
    "ConfigKey": "configs",
    "ConfigOperation": "enums",
    "ConfigResource": "config_resource",
    "ConfigResourceType": "config_resource",
    "ConfigSetting": "configs",
    "ConfigSource": "enums",
    "ConfigSynonym": "configs",
    "ConfigType": "enums",
    "Configs": "configs",
    "DeclaredTopic": "topics",
    "DelegationToken": "tokens",
    "ElectionType": "enums",
    "FeatureLevels": "brokers",
    "FeatureUpgradeType": "enums",
    "Features": "brokers",
    "FencedProducer": "transactions",
    "GroupDescription": "_group_descriptions",
    "GroupLag": "_lag",
    "GroupListing": "_group_descriptions",
    "GroupMember": "_group_descriptions",
    "GroupState": "enums",
    "GroupType": "enums",
    "Groups": "groups",
    "HangingTransaction": "transactions",
    "ListedOffset": "offsets",
    "LogDir": "brokers",
    "LogDirReplica": "brokers",
    "NewPartitions": "new_partitions",
    "NewScramCredential": "users",
    "NewTopic": "new_topic",
    "OffsetReset": "_group_offsets",
    "OffsetSpec": "offsets",
    "Offsets": "offsets",
    "PartitionDescription": "topics",
    "PartitionLag": "_lag",
    "PartitionOwner": "_lag",
    "PatternType": "enums",
    "Quorum": "brokers",
    "QuorumReplica": "brokers",
    "QuotaEntity": "quotas",
    "QuotaFilter": "quotas",
    "QuotaName": "enums",
    "Quotas": "quotas",
    "Reassignment": "_replicas",
    "Records": "records",
    "RecordsToDelete": "records_to_delete",
    "ResetKind": "_group_offsets",
    "ResetRule": "_group_offsets",
    "ResourcePattern": "acls",
    "ResourceType": "enums",
    "ScramCredential": "users",
    "ScramMechanism": "enums",
    "SendTo": "_raw",
    "ShareOffset": "_group_offsets",
    "StreamsTasks": "_group_descriptions",
    "Tokens": "tokens",
    "TopicAction": "enums",
    "TopicCreation": "topics",
    "TopicDescription": "topics",
    "TopicListing": "topics",
    "TopicSetting": "topics",
    "TopicStep": "topics",
    "Topics": "topics",
    "TransactionDescription": "transactions",
    "TransactionListing": "transactions",
    "TransactionState": "enums",
    "Transactions": "transactions",
    "Users": "users",
}
_SUBMODULES = frozenset(
    (
        "acls",
        "brokers",
        "client",
        "config_resource",
        "configs",
        "enums",
        "groups",
        "new_partitions",
        "new_topic",
        "offsets",
        "quotas",
        "records",
        "records_to_delete",
        "results",
        "tokens",
        "topics",
        "transactions",
        "users",
    )
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(f"aiokafka.admin.{home}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"aiokafka.admin.{name}")
    else:
        raise AttributeError(f"module 'aiokafka.admin' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBMODULES})
