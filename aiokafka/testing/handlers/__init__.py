"""One module per API, named by its key. Each has

- ``REQUEST``, the request class;
- ``handle(context, request)``, plain or ``async``: do it and return the response (None: no answer);
- ``refuse(context, request, errno)``: the response that says no to everything in the request.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from aiokafka.protocol.schema import Request, Response
from aiokafka.testing.script import RequestContext

_MODULES = {
    0: "_00_produce",
    1: "_01_fetch",
    2: "_02_list_offsets",
    3: "_03_metadata",
    8: "_08_offset_commit",
    9: "_09_offset_fetch",
    10: "_10_find_coordinator",
    11: "_11_join_group",
    12: "_12_heartbeat",
    13: "_13_leave_group",
    14: "_14_sync_group",
    15: "_15_describe_groups",
    16: "_16_list_groups",
    17: "_17_sasl_handshake",
    18: "_18_api_versions",
    19: "_19_create_topics",
    20: "_20_delete_topics",
    21: "_21_delete_records",
    22: "_22_init_producer_id",
    23: "_23_offset_for_leader_epoch",
    24: "_24_add_partitions_to_txn",
    25: "_25_add_offsets_to_txn",
    26: "_26_end_txn",
    27: "_27_write_txn_markers",
    28: "_28_txn_offset_commit",
    29: "_29_describe_acls",
    30: "_30_create_acls",
    31: "_31_delete_acls",
    32: "_32_describe_configs",
    33: "_33_alter_configs",
    34: "_34_alter_replica_log_dirs",
    35: "_35_describe_log_dirs",
    36: "_36_sasl_authenticate",
    37: "_37_create_partitions",
    38: "_38_create_delegation_token",
    39: "_39_renew_delegation_token",
    40: "_40_expire_delegation_token",
    41: "_41_describe_delegation_token",
    42: "_42_delete_groups",
    43: "_43_elect_leaders",
    44: "_44_incremental_alter_configs",
    45: "_45_alter_partition_reassignments",
    46: "_46_list_partition_reassignments",
    47: "_47_offset_delete",
    48: "_48_describe_client_quotas",
    49: "_49_alter_client_quotas",
    50: "_50_describe_user_scram_credentials",
    51: "_51_alter_user_scram_credentials",
    55: "_55_describe_quorum",
    57: "_57_update_features",
    60: "_60_describe_cluster",
    61: "_61_describe_producers",
    64: "_64_unregister_broker",
    65: "_65_describe_transactions",
    66: "_66_list_transactions",
    68: "_68_consumer_group_heartbeat",
    69: "_69_consumer_group_describe",
    71: "_71_get_telemetry_subscriptions",
    72: "_72_push_telemetry",
    74: "_74_list_config_resources",
    75: "_75_describe_topic_partitions",
    77: "_77_share_group_describe",
    80: "_80_add_raft_voter",
    81: "_81_remove_raft_voter",
    89: "_89_streams_group_describe",
    90: "_90_describe_share_group_offsets",
    91: "_91_alter_share_group_offsets",
    92: "_92_delete_share_group_offsets",
}


class HandlerModule(Protocol):
    """The shape of the modules here."""

    REQUEST: type[Request[Any]]

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Do what is asked."""

    def refuse(self, context: RequestContext, request: Any, errno: int) -> Response:
        """Say no to all of it."""


_loaded: dict[int, HandlerModule] = {}


def known(api_key: int) -> bool:
    """Return whether the fake brokers have this API."""
    return api_key in _MODULES


def load(api_key: int) -> HandlerModule:
    """Return the module of an API; import it on first use, because messages cost time to
    declare.
    """
    module = _loaded.get(api_key)
    if module is None:
        name = f"{__name__}.{_MODULES[api_key]}"
        module = _loaded[api_key] = cast("HandlerModule", import_module(name))
    return module
