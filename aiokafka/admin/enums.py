"""Enums for the numbers and names in Kafka's protocol: operations, sources, types and states."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "AclOperation",
    "AclPermission",
    "ConfigOperation",
    "ConfigSource",
    "ConfigType",
    "ElectionType",
    "FeatureUpgradeType",
    "GroupState",
    "GroupType",
    "PatternType",
    "QuotaName",
    "ResourceType",
    "ScramMechanism",
    "TopicAction",
    "TransactionState",
    "operations_of",
]

# The bit field of authorized operations in a response, if they were not requested.
_NOT_REQUESTED = -(2**31)


class _Known(enum.IntEnum):
    """Base class of enums of numbers. A number that is not defined, such as one of a newer broker,
    becomes UNKNOWN (0)."""

    @classmethod
    def _missing_(cls, value: object) -> _Known | None:
        return cls(0) if isinstance(value, int) and value else None


class AclOperation(_Known):
    """An operation on a resource. UNKNOWN stands for operations of newer brokers; ANY is for
    filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Known):
    """Whether an ACL entry allows or denies the operation; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(_Known):
    """The type of the resources of an ACL entry; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Known):
    """How the name of an ACL entry is compared with the name of a resource.

    ANY and MATCH are for filters. ANY selects LITERAL and PREFIXED entries whose name is exactly
    the name in the filter. MATCH selects all entries that apply to a resource with the name in the
    filter.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class TransactionState(enum.Enum):
    """The state of a transaction; the values are Kafka's names."""

    UNKNOWN = ""
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, name: str) -> TransactionState:
        """Return the state of this name, or UNKNOWN for a state of a newer broker."""
        return next((state for state in cls if state.value == name), cls.UNKNOWN)


class ScramMechanism(_Known):
    """The SCRAM mechanism, named after its hash function."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class QuotaName(enum.Enum):
    """A value that `QuotaEntity` and `QuotaFilter` accept in place of a name."""

    #: All users, client ids or IP addresses that have no quota of their own.
    DEFAULT = "default"
    #: In filters: matches all names and the default.
    ANY = "any"


class ConfigSource(_Known):
    """The source of a setting's value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(_Known):
    """The type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(enum.IntEnum):
    """How a request changes a setting. APPEND and SUBTRACT are for settings that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(enum.IntEnum):
    """Which replica an election makes the leader."""

    #: The first replica of the partition, if it is in sync.
    PREFERRED = 0
    #: For a partition without a leader, any running replica. Records may be lost.
    UNCLEAN = 1


class TopicAction(enum.IntEnum):
    """What a `TopicStep` does with a topic. The steps are done in the order of these values."""

    CREATE = 0
    GROW = 1
    CONFIGURE = 2
    DELETE = 3


class FeatureUpgradeType(enum.IntEnum):
    """How a request may change the level of a feature."""

    #: Allows only a higher level.
    UPGRADE = 1
    #: Allows only a lower level, if the downgrade loses no metadata.
    SAFE_DOWNGRADE = 2
    #: Allows only a lower level, even if the downgrade loses metadata.
    UNSAFE_DOWNGRADE = 3


class _Named(enum.Enum):
    """Base class of enums of names. `of` returns UNKNOWN for a name of a newer broker."""

    @classmethod
    def _missing_(cls, value: object) -> _Named | None:
        """Accept a name in any case, with or without underscores, such as "preparing_rebalance".

        Returns None for other values, so that the enum raises ValueError.
        """
        word = str(value).replace("_", "").lower()
        for each in cls:
            if each.value.lower() == word:
                return each
        return None

    @classmethod
    def of(cls, word: str) -> Self:
        """Return the member for a name in a response; UNKNOWN for a name of a newer broker."""
        try:
            return cls(word)
        except ValueError:
            return cls("Unknown")


class GroupType(_Named):
    """The type of a group, which is the protocol of its members."""

    UNKNOWN = "Unknown"
    #: The group leader assigns the partitions (JoinGroup, SyncGroup). Groups without members that
    #: only store committed offsets also have this type.
    CLASSIC = "Classic"
    #: The broker assigns the partitions (KIP-848).
    CONSUMER = "Consumer"
    #: The members share the records of each partition (KIP-932).
    SHARE = "Share"
    #: The broker assigns the tasks of Kafka Streams (KIP-1071).
    STREAMS = "Streams"


class GroupState(_Named):
    """The state of a group."""

    UNKNOWN = "Unknown"
    #: Classic group: the members have to rejoin.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: Classic group: the members wait for their assignments.
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: All members have their assignments.
    STABLE = "Stable"
    #: The group is being deleted.
    DEAD = "Dead"
    #: The group has no members.
    EMPTY = "Empty"
    #: Consumer or streams group: the broker computes a new assignment.
    ASSIGNING = "Assigning"
    #: Consumer or streams group: members have not yet revoked or taken over all partitions (tasks)
    #: of the new assignment.
    RECONCILING = "Reconciling"
    #: Streams group: topics that the group needs do not exist.
    NOT_READY = "NotReady"


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations in the bit field of a response; None if they were not requested."""
    if bits == _NOT_REQUESTED:
        return None
    return frozenset(AclOperation(n) for n in range(1, 31) if bits >> n & 1)
