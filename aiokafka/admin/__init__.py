"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens.

The names are loaded when they are first used: a program that lists topics does not wait for the
code of groups and tokens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.admin._acl_values import AclBinding, AclFilter, ResourcePattern
    from aiokafka.admin._broker_values import (
        Broker,
        ClusterDescription,
        FeatureLevels,
        Features,
        LogDir,
        LogDirReplica,
        Quorum,
        QuorumReplica,
    )
    from aiokafka.admin._config_values import (
        ConfigChange,
        ConfigKey,
        ConfigSetting,
        ConfigSynonym,
    )
    from aiokafka.admin._declared import DeclaredTopic, TopicStep
    from aiokafka.admin._delegation_token import DelegationToken
    from aiokafka.admin._group_values import (
        GroupDescription,
        GroupListing,
        GroupMember,
        StreamsTasks,
    )
    from aiokafka.admin._lag_values import GroupLag, PartitionLag, PartitionOwner
    from aiokafka.admin._offset_values import ListedOffset, OffsetSpec
    from aiokafka.admin._quota_values import QuotaEntity, QuotaFilter
    from aiokafka.admin._raw import SendTo
    from aiokafka.admin._reset_values import OffsetReset, ResetKind, ResetRule
    from aiokafka.admin._share_offsets import ShareOffset
    from aiokafka.admin._topic_values import (
        PartitionDescription,
        Reassignment,
        TopicCreation,
        TopicDescription,
        TopicListing,
        TopicSetting,
    )
    from aiokafka.admin._transaction_values import (
        ActiveProducer,
        FencedProducer,
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
    )
    from aiokafka.admin._user_values import NewScramCredential, ScramCredential
    from aiokafka.admin.acls import Acls
    from aiokafka.admin.brokers import Brokers
    from aiokafka.admin.client import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.admin.configs import Configs
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
    from aiokafka.admin.offsets import Offsets
    from aiokafka.admin.quotas import Quotas
    from aiokafka.admin.records import Records
    from aiokafka.admin.records_to_delete import RecordsToDelete
    from aiokafka.admin.tokens import Tokens
    from aiokafka.admin.topics import Topics
    from aiokafka.admin.transactions import Transactions
    from aiokafka.admin.users import Users

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
    "AclBinding": "_acl_values",
    "AclFilter": "_acl_values",
    "AclOperation": "enums",
    "AclPermission": "enums",
    "Acls": "acls",
    "ActiveProducer": "_transaction_values",
    "Broker": "_broker_values",
    "Brokers": "brokers",
    "ClusterDescription": "_broker_values",
    "ConfigChange": "_config_values",
    "ConfigKey": "_config_values",
    "ConfigOperation": "enums",
    "ConfigResource": "config_resource",
    "ConfigResourceType": "config_resource",
    "ConfigSetting": "_config_values",
    "ConfigSource": "enums",
    "ConfigSynonym": "_config_values",
    "ConfigType": "enums",
    "Configs": "configs",
    "DeclaredTopic": "_declared",
    "DelegationToken": "_delegation_token",
    "ElectionType": "enums",
    "FeatureLevels": "_broker_values",
    "FeatureUpgradeType": "enums",
    "Features": "_broker_values",
    "FencedProducer": "_transaction_values",
    "GroupDescription": "_group_values",
    "GroupLag": "_lag_values",
    "GroupListing": "_group_values",
    "GroupMember": "_group_values",
    "GroupState": "enums",
    "GroupType": "enums",
    "Groups": "groups",
    "HangingTransaction": "_transaction_values",
    "ListedOffset": "_offset_values",
    "LogDir": "_broker_values",
    "LogDirReplica": "_broker_values",
    "NewPartitions": "new_partitions",
    "NewScramCredential": "_user_values",
    "NewTopic": "new_topic",
    "OffsetReset": "_reset_values",
    "OffsetSpec": "_offset_values",
    "Offsets": "offsets",
    "PartitionDescription": "_topic_values",
    "PartitionLag": "_lag_values",
    "PartitionOwner": "_lag_values",
    "PatternType": "enums",
    "Quorum": "_broker_values",
    "QuorumReplica": "_broker_values",
    "QuotaEntity": "_quota_values",
    "QuotaFilter": "_quota_values",
    "QuotaName": "enums",
    "Quotas": "quotas",
    "Reassignment": "_topic_values",
    "Records": "records",
    "RecordsToDelete": "records_to_delete",
    "ResetKind": "_reset_values",
    "ResetRule": "_reset_values",
    "ResourcePattern": "_acl_values",
    "ResourceType": "enums",
    "ScramCredential": "_user_values",
    "ScramMechanism": "enums",
    "SendTo": "_raw",
    "ShareOffset": "_share_offsets",
    "StreamsTasks": "_group_values",
    "Tokens": "tokens",
    "TopicAction": "enums",
    "TopicCreation": "_topic_values",
    "TopicDescription": "_topic_values",
    "TopicListing": "_topic_values",
    "TopicSetting": "_topic_values",
    "TopicStep": "_declared",
    "Topics": "topics",
    "TransactionDescription": "_transaction_values",
    "TransactionListing": "_transaction_values",
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
