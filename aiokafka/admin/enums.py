"""Kafka's numbers and words for operations, sources, types, states and modes, by name."""

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

_NOT_ASKED = -(2**31)  # what brokers send where operations were not asked for


class _Known(enum.IntEnum):
    """Numbers of which a newer broker may have more: those are UNKNOWN, which is 0."""

    @classmethod
    def _missing_(cls, value: object) -> _Known | None:
        return cls(0) if isinstance(value, int) and value else None


class AclOperation(_Known):
    """What a user may be allowed to do with a resource."""

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
    """Whether an ACL allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourceType(_Known):
    """What an ACL is about; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Known):
    """How the name of an ACL is compared with the name of a resource.

    ANY and MATCH are for filters: ANY takes every pattern with that name, MATCH every pattern that
    applies to a resource of that name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class TransactionState(enum.Enum):
    """Where a transaction stands; the values are Kafka's names."""

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
        """Return the state of this name, UNKNOWN for one that a newer broker has."""
        return next((state for state in cls if state.value == name), cls.UNKNOWN)


class ScramMechanism(_Known):
    """How a user logs in with a password that is not sent."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class QuotaName(enum.Enum):
    """What may stand in place of a name in quotas."""

    #: All that have no quota of their own.
    DEFAULT = "default"
    #: In filters: every name, and the default.
    ANY = "any"


class ConfigSource(_Known):
    """Where the value of a setting comes from."""

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
    """What a setting has for a value."""

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
    """How to change a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ElectionType(enum.IntEnum):
    """Which replica is to lead a partition."""

    #: The first of its replicas, if it is in sync.
    PREFERRED = 0
    #: Any that runs, in sync or not, where there is no leader: records may be lost.
    UNCLEAN = 1


class TopicAction(enum.IntEnum):
    """What has to be done to a topic for a declared state, in this order."""

    CREATE = 0
    GROW = 1
    CONFIGURE = 2
    DELETE = 3


class FeatureUpgradeType(enum.IntEnum):
    """Which ways the level of a feature may go."""

    UPGRADE = 1
    #: Also down, unless something would be lost.
    SAFE_DOWNGRADE = 2
    #: Also down, even if something is lost.
    UNSAFE_DOWNGRADE = 3


class _Named(enum.Enum):
    """Words of the wire; one that this version does not know becomes UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> _Named | None:
        """Accept any spelling: `stable`, `Stable`, `PREPARING_REBALANCE`, `PreparingRebalance`."""
        word = str(value).replace("_", "").lower()
        for each in cls:
            if each.value.lower() == word:
                return each
        return None

    @classmethod
    def of(cls, word: str) -> Self:
        """Return what a broker means by a word."""
        try:
            return cls(word)
        except ValueError:
            return cls("Unknown")


class GroupType(_Named):
    """The protocol that the members of a group speak."""

    UNKNOWN = "Unknown"
    #: JoinGroup and SyncGroup: one of the members assigns. Also a group that only has offsets.
    CLASSIC = "Classic"
    #: The broker assigns (KIP-848).
    CONSUMER = "Consumer"
    #: Members share the records of a partition (KIP-932).
    SHARE = "Share"
    #: Kafka Streams, assigned by the broker (KIP-1071).
    STREAMS = "Streams"


class GroupState(_Named):
    """What a group is doing."""

    UNKNOWN = "Unknown"
    #: Members are asked to join again; of a classic group.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: The members wait for their assignment; of a classic group.
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: All members have what they are to have.
    STABLE = "Stable"
    #: It is being removed.
    DEAD = "Dead"
    #: It has no members.
    EMPTY = "Empty"
    #: The broker computes a new assignment; of the consumer protocol.
    ASSIGNING = "Assigning"
    #: The members move towards a new assignment; of the consumer protocol.
    RECONCILING = "Reconciling"
    #: Topics that it needs are missing; of a streams group.
    NOT_READY = "NotReady"


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Return what the user may do, from a bit field; None if the broker does not say."""
    if bits == _NOT_ASKED:
        return None
    return frozenset(AclOperation(n) for n in range(1, 31) if bits >> n & 1)
