"""The requests and responses of clients, in one module for each family of APIs.

Import a message and its structs from its module. The package loads modules on demand, by the name
of a message (`from aiokafka.protocol.messages import FetchRequest`) or by API key. The name of an
API is also a name of its module: `aiokafka.protocol.messages.offset_fetch` is `group_offsets`.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Final

from aiokafka.protocol.schema import Request, Response

APIS: Final = {
    0: ("produce", "Produce"),
    1: ("fetch", "Fetch"),
    2: ("fetch", "ListOffsets"),
    3: ("metadata", "Metadata"),
    8: ("group_offsets", "OffsetCommit"),
    9: ("group_offsets", "OffsetFetch"),
    10: ("metadata", "FindCoordinator"),
    11: ("group_members", "JoinGroup"),
    12: ("group_members", "Heartbeat"),
    13: ("group_members", "LeaveGroup"),
    14: ("group_members", "SyncGroup"),
    15: ("groups", "DescribeGroups"),
    16: ("groups", "ListGroups"),
    17: ("sasl", "SaslHandshake"),
    18: ("metadata", "ApiVersions"),
    19: ("topics", "CreateTopics"),
    20: ("topics", "DeleteTopics"),
    21: ("topics", "DeleteRecords"),
    22: ("produce", "InitProducerId"),
    23: ("fetch", "OffsetForLeaderEpoch"),
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
    44: ("configs", "IncrementalAlterConfigs"),
    45: ("replicas", "AlterPartitionReassignments"),
    46: ("replicas", "ListPartitionReassignments"),
    47: ("groups", "OffsetDelete"),
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
    66: ("transaction_admin", "ListTransactions"),
    68: ("group_members", "ConsumerGroupHeartbeat"),
    69: ("groups", "ConsumerGroupDescribe"),
    71: ("telemetry", "GetTelemetrySubscriptions"),
    72: ("telemetry", "PushTelemetry"),
    74: ("configs", "ListConfigResources"),
    75: ("topics", "DescribeTopicPartitions"),
    76: ("share_groups", "ShareGroupHeartbeat"),
    77: ("share_groups", "ShareGroupDescribe"),
    78: ("share_groups", "ShareFetch"),
    79: ("share_groups", "ShareAcknowledge"),
    80: ("quorum", "AddRaftVoter"),
    81: ("quorum", "RemoveRaftVoter"),
    88: ("streams_groups", "StreamsGroupHeartbeat"),
    89: ("streams_groups", "StreamsGroupDescribe"),
    90: ("share_groups", "DescribeShareGroupOffsets"),
    91: ("share_groups", "AlterShareGroupOffsets"),
    92: ("share_groups", "DeleteShareGroupOffsets"),
    93: ("streams_groups", "StreamsGroupTopologyDescriptionUpdate"),
    94: ("cluster", "UnregisterController"),
}
"""By API key: the module of the messages, and their name without "Request" or "Response"."""

_DATA = {
    "ConsumerProtocolSubscription": "group_members",
    "ConsumerProtocolAssignment": "group_members",
    "ControlRecordTypeSchema": "transactions",
    "EndTxnMarker": "transactions",
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


class _ApiNames:
    """Import hook for the names of APIs, such as `offset_fetch`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, api = name.rpartition(".")
        if package != __name__ or api.title().replace("_", "") + "Request" not in _HOMES:
            return None
        return ModuleSpec(name, _ApiNames)  # type: ignore[arg-type] # a Loader by its methods

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Let the import system create a module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: Any) -> None:
        api = module.__name__.rpartition(".")[2]
        sys.modules[module.__name__] = _load(_HOMES[api.title().replace("_", "") + "Request"])


# Add the hook at the end: the standard finder must find the modules that exist as files first.
sys.meta_path.append(_ApiNames)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_load(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
