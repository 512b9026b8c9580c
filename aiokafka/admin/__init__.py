"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens.

A name is loaded when it is first used, so a program that lists topics does not load the code of
groups and tokens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The public names of each module.
_NAMES = {
    "acls": "AclBinding AclFilter Acls ResourcePattern",
    "brokers": (
        "Broker Brokers ClusterDescription FeatureLevels Features LogDir LogDirReplica Quorum "
        "QuorumReplica"
    ),
    "client": "AIOKafkaAdminClient SendTo",
    "config_resource": "ConfigResource ConfigResourceType",
    "configs": "ConfigChange ConfigKey ConfigSetting ConfigSynonym Configs",
    "enums": (
        "AclOperation AclPermission ConfigOperation ConfigSource ConfigType ElectionType "
        "FeatureUpgradeType GroupState GroupType PatternType QuotaName ResourceType "
        "ScramMechanism TopicAction TransactionState"
    ),
    "_group_descriptions": "GroupDescription GroupListing GroupMember StreamsTasks",
    "_group_offsets": "OffsetReset ResetKind ResetRule ShareOffset",
    "groups": "Groups",
    "_lag": "GroupLag PartitionLag PartitionOwner",
    "new_partitions": "NewPartitions",
    "new_topic": "NewTopic",
    "offsets": "ListedOffset OffsetSpec Offsets",
    "quotas": "QuotaEntity QuotaFilter Quotas",
    "records": "Records",
    "records_to_delete": "RecordsToDelete",
    "_replicas": "Reassignment",
    "results": "",
    "tokens": "DelegationToken Tokens",
    "topics": (
        "DeclaredTopic PartitionDescription TopicCreation TopicDescription TopicListing "
        "TopicSetting TopicStep Topics"
    ),
    "transactions": (
        "ActiveProducer FencedProducer HangingTransaction TransactionDescription "
        "TransactionListing Transactions"
    ),
    "users": "NewScramCredential ScramCredential Users",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBMODULES = {module for module in _NAMES if not module.startswith("_")}

if TYPE_CHECKING:  # for type checkers, these imports define the public names
    from aiokafka.admin._group_descriptions import GroupDescription as GroupDescription
    from aiokafka.admin._group_descriptions import GroupListing as GroupListing
    from aiokafka.admin._group_descriptions import GroupMember as GroupMember
    from aiokafka.admin._group_descriptions import StreamsTasks as StreamsTasks
    from aiokafka.admin._group_offsets import OffsetReset as OffsetReset
    from aiokafka.admin._group_offsets import ResetKind as ResetKind
    from aiokafka.admin._group_offsets import ResetRule as ResetRule
    from aiokafka.admin._group_offsets import ShareOffset as ShareOffset
    from aiokafka.admin._lag import GroupLag as GroupLag
    from aiokafka.admin._lag import PartitionLag as PartitionLag
    from aiokafka.admin._lag import PartitionOwner as PartitionOwner
    from aiokafka.admin._replicas import Reassignment as Reassignment
    from aiokafka.admin.acls import AclBinding as AclBinding
    from aiokafka.admin.acls import AclFilter as AclFilter
    from aiokafka.admin.acls import Acls as Acls
    from aiokafka.admin.acls import ResourcePattern as ResourcePattern
    from aiokafka.admin.brokers import Broker as Broker
    from aiokafka.admin.brokers import Brokers as Brokers
    from aiokafka.admin.brokers import ClusterDescription as ClusterDescription
    from aiokafka.admin.brokers import FeatureLevels as FeatureLevels
    from aiokafka.admin.brokers import Features as Features
    from aiokafka.admin.brokers import LogDir as LogDir
    from aiokafka.admin.brokers import LogDirReplica as LogDirReplica
    from aiokafka.admin.brokers import Quorum as Quorum
    from aiokafka.admin.brokers import QuorumReplica as QuorumReplica
    from aiokafka.admin.client import AIOKafkaAdminClient as AIOKafkaAdminClient
    from aiokafka.admin.client import SendTo as SendTo
    from aiokafka.admin.config_resource import ConfigResource as ConfigResource
    from aiokafka.admin.config_resource import ConfigResourceType as ConfigResourceType
    from aiokafka.admin.configs import ConfigChange as ConfigChange
    from aiokafka.admin.configs import ConfigKey as ConfigKey
    from aiokafka.admin.configs import Configs as Configs
    from aiokafka.admin.configs import ConfigSetting as ConfigSetting
    from aiokafka.admin.configs import ConfigSynonym as ConfigSynonym
    from aiokafka.admin.enums import AclOperation as AclOperation
    from aiokafka.admin.enums import AclPermission as AclPermission
    from aiokafka.admin.enums import ConfigOperation as ConfigOperation
    from aiokafka.admin.enums import ConfigSource as ConfigSource
    from aiokafka.admin.enums import ConfigType as ConfigType
    from aiokafka.admin.enums import ElectionType as ElectionType
    from aiokafka.admin.enums import FeatureUpgradeType as FeatureUpgradeType
    from aiokafka.admin.enums import GroupState as GroupState
    from aiokafka.admin.enums import GroupType as GroupType
    from aiokafka.admin.enums import PatternType as PatternType
    from aiokafka.admin.enums import QuotaName as QuotaName
    from aiokafka.admin.enums import ResourceType as ResourceType
    from aiokafka.admin.enums import ScramMechanism as ScramMechanism
    from aiokafka.admin.enums import TopicAction as TopicAction
    from aiokafka.admin.enums import TransactionState as TransactionState
    from aiokafka.admin.groups import Groups as Groups
    from aiokafka.admin.new_partitions import NewPartitions as NewPartitions
    from aiokafka.admin.new_topic import NewTopic as NewTopic
    from aiokafka.admin.offsets import ListedOffset as ListedOffset
    from aiokafka.admin.offsets import Offsets as Offsets
    from aiokafka.admin.offsets import OffsetSpec as OffsetSpec
    from aiokafka.admin.quotas import QuotaEntity as QuotaEntity
    from aiokafka.admin.quotas import QuotaFilter as QuotaFilter
    from aiokafka.admin.quotas import Quotas as Quotas
    from aiokafka.admin.records import Records as Records
    from aiokafka.admin.records_to_delete import RecordsToDelete as RecordsToDelete
    from aiokafka.admin.tokens import DelegationToken as DelegationToken
    from aiokafka.admin.tokens import Tokens as Tokens
    from aiokafka.admin.topics import DeclaredTopic as DeclaredTopic
    from aiokafka.admin.topics import PartitionDescription as PartitionDescription
    from aiokafka.admin.topics import TopicCreation as TopicCreation
    from aiokafka.admin.topics import TopicDescription as TopicDescription
    from aiokafka.admin.topics import TopicListing as TopicListing
    from aiokafka.admin.topics import Topics as Topics
    from aiokafka.admin.topics import TopicSetting as TopicSetting
    from aiokafka.admin.topics import TopicStep as TopicStep
    from aiokafka.admin.transactions import ActiveProducer as ActiveProducer
    from aiokafka.admin.transactions import FencedProducer as FencedProducer
    from aiokafka.admin.transactions import HangingTransaction as HangingTransaction
    from aiokafka.admin.transactions import TransactionDescription as TransactionDescription
    from aiokafka.admin.transactions import TransactionListing as TransactionListing
    from aiokafka.admin.transactions import Transactions as Transactions
    from aiokafka.admin.users import NewScramCredential as NewScramCredential
    from aiokafka.admin.users import ScramCredential as ScramCredential
    from aiokafka.admin.users import Users as Users
else:
    __all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        value = getattr(importlib.import_module(f"aiokafka.admin.{module}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"aiokafka.admin.{name}")
    else:
        raise AttributeError(f"module 'aiokafka.admin' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_SUBMODULES})
