"""The requests and responses of clients, in one module for each API or family of APIs.

Import a message and its structs from its module. The package loads modules on demand, by the name
of a message (`from aiokafka.protocol.messages import FetchRequest`) or by API key.
"""

import importlib
from typing import Any, Final

from aiokafka.protocol.schema import Request, Response

APIS: Final = {
    0: ("produce", "Produce"),
    1: ("fetch", "Fetch"),
    2: ("list_offsets", "ListOffsets"),
    3: ("metadata", "Metadata"),
    8: ("offset_commit", "OffsetCommit"),
    9: ("offset_fetch", "OffsetFetch"),
    10: ("find_coordinator", "FindCoordinator"),
    11: ("join_group", "JoinGroup"),
    12: ("heartbeat", "Heartbeat"),
    13: ("leave_group", "LeaveGroup"),
    14: ("sync_group", "SyncGroup"),
    15: ("groups", "DescribeGroups"),
    16: ("groups", "ListGroups"),
    17: ("sasl", "SaslHandshake"),
    18: ("api_versions", "ApiVersions"),
    19: ("topics", "CreateTopics"),
    20: ("topics", "DeleteTopics"),
    21: ("records", "DeleteRecords"),
    22: ("init_producer_id", "InitProducerId"),
    23: ("offset_for_leader_epoch", "OffsetForLeaderEpoch"),
    24: ("transactions", "AddPartitionsToTxn"),
    25: ("transactions", "AddOffsetsToTxn"),
    26: ("transactions", "EndTxn"),
    27: ("transaction_admin", "WriteTxnMarkers"),
    28: ("transactions", "TxnOffsetCommit"),
    29: ("acls", "DescribeAcls"),
    30: ("acls", "CreateAcls"),
    31: ("acls", "DeleteAcls"),
    32: ("configs", "DescribeConfigs"),
    33: ("configs", "AlterConfigs"),
    34: ("log_dirs", "AlterReplicaLogDirs"),
    35: ("log_dirs", "DescribeLogDirs"),
    36: ("sasl", "SaslAuthenticate"),
    37: ("topics", "CreatePartitions"),
    38: ("delegation_tokens", "CreateDelegationToken"),
    39: ("delegation_tokens", "RenewDelegationToken"),
    40: ("delegation_tokens", "ExpireDelegationToken"),
    41: ("delegation_tokens", "DescribeDelegationToken"),
    42: ("groups", "DeleteGroups"),
    43: ("replicas", "ElectLeaders"),
    44: ("incremental_alter_configs", "IncrementalAlterConfigs"),
    45: ("replicas", "AlterPartitionReassignments"),
    46: ("replicas", "ListPartitionReassignments"),
    47: ("offset_delete", "OffsetDelete"),
    48: ("quotas", "DescribeClientQuotas"),
    49: ("quotas", "AlterClientQuotas"),
    50: ("scram", "DescribeUserScramCredentials"),
    51: ("scram", "AlterUserScramCredentials"),
    55: ("quorum", "DescribeQuorum"),
    57: ("cluster", "UpdateFeatures"),
    60: ("cluster", "DescribeCluster"),
    61: ("transaction_admin", "DescribeProducers"),
    64: ("cluster", "UnregisterBroker"),
    65: ("transaction_admin", "DescribeTransactions"),
    66: ("list_transactions", "ListTransactions"),
    68: ("consumer_group_heartbeat", "ConsumerGroupHeartbeat"),
    69: ("consumer_group_describe", "ConsumerGroupDescribe"),
    71: ("telemetry", "GetTelemetrySubscriptions"),
    72: ("telemetry", "PushTelemetry"),
    74: ("configs", "ListConfigResources"),
    75: ("topics", "DescribeTopicPartitions"),
    76: ("share_group_heartbeat", "ShareGroupHeartbeat"),
    77: ("share_group_describe", "ShareGroupDescribe"),
    78: ("share_fetch", "ShareFetch"),
    79: ("share_acknowledge", "ShareAcknowledge"),
    80: ("quorum", "AddRaftVoter"),
    81: ("quorum", "RemoveRaftVoter"),
    88: ("streams_group_heartbeat", "StreamsGroupHeartbeat"),
    89: ("streams_group_describe", "StreamsGroupDescribe"),
    90: ("share_offsets", "DescribeShareGroupOffsets"),
    91: ("share_offsets", "AlterShareGroupOffsets"),
    92: ("share_offsets", "DeleteShareGroupOffsets"),
}
"""By API key: the module of the messages, and their name without "Request" or "Response"."""

_DATA = {
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ControlRecordTypeSchema": "control_records",
    "EndTxnMarker": "control_records",
}

_HOMES: Final = _DATA | {
    name + suffix: module for module, name in APIS.values() for suffix in ("Request", "Response")
}


def request_class(api_key: int) -> type[Request[Response]]:
    """Return the request class of an API key. Raises KeyError if clients have no such API."""
    module, name = APIS[api_key]
    found: type[Request[Response]] = getattr(_load(module), name + "Request")
    return found


def _load(module: str) -> Any:
    return importlib.import_module(f"{__name__}.{module}")


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_load(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
