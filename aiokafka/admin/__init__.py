"""Inspect and change a cluster: topics, configurations, groups, records, delegation tokens."""

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
