"""The table of admin calls: the API that each needs, and the first release of Kafka that has it."""

from __future__ import annotations

from aiokafka.protocol.versions import first_release

__all__ = ["OPERATIONS", "operations"]

OPERATIONS: dict[str, tuple[str, int, str]] = {
    # call: (API, API key, features that need a newer release)
    "acls.create": ("CreateAcls", 30, "prefixes: 2.0"),
    "acls.delete": ("DeleteAcls", 31, "prefixes: 2.0"),
    "acls.describe": ("DescribeAcls", 29, "prefixes: 2.0"),
    "brokers.add_voter": ("AddRaftVoter", 80, ""),
    "brokers.describe_cluster": ("Metadata", 3, "fenced brokers: 4.0"),
    "brokers.features": ("ApiVersions", 18, "levels in force: 2.7"),
    "brokers.log_dirs": ("DescribeLogDirs", 35, "sizes of volumes: 3.3"),
    "brokers.move_replicas": ("AlterReplicaLogDirs", 34, ""),
    "brokers.quorum": ("DescribeQuorum", 55, "directories and listeners: 3.9"),
    "brokers.remove_voter": ("RemoveRaftVoter", 81, ""),
    "brokers.unregister": ("UnregisterBroker", 64, ""),
    "brokers.unregister_controller": ("UnregisterController", 94, ""),
    "brokers.update_features": ("UpdateFeatures", 57, "validate_only, unsafe downgrades: 3.3"),
    "configs.alter": ("IncrementalAlterConfigs", 44, "client metrics: 3.7"),
    "configs.describe": ("DescribeConfigs", 32, "synonyms: 1.1; types, documentation: 2.6"),
    "configs.list_resources": ("ListConfigResources", 74, "others than client metrics: 4.1"),
    "configs.set_exactly": ("AlterConfigs", 33, ""),
    "groups.alter_offsets": ("OffsetCommit", 8, ""),
    "groups.alter_share_offsets": ("AlterShareGroupOffsets", 91, "with share.version=1: 4.1"),
    "groups.delete": ("DeleteGroups", 42, ""),
    "groups.delete_offsets": ("OffsetDelete", 47, ""),
    "groups.delete_share_offsets": ("DeleteShareGroupOffsets", 92, "with share.version=1: 4.1"),
    "groups.describe": ("DescribeGroups", 15, "consumer groups: 4.0; share, streams groups: 4.1"),
    "groups.lag": ("OffsetFetch", 9, ""),
    "groups.list": ("ListGroups", 16, "states: 2.6; types: 3.8"),
    "groups.offsets": ("OffsetFetch", 9, "all of a group: 0.10.2; require_stable: 2.5"),
    "groups.remove_members": ("LeaveGroup", 13, ""),
    "groups.reset_offsets": ("OffsetCommit", 8, "all of a group: 0.10.2; times: 0.10.1"),
    "groups.share_offsets": ("DescribeShareGroupOffsets", 90, "with share.version=1: 4.1"),
    "offsets.list": ("ListOffsets", 2, "times: 0.10.1; MAX_TIMESTAMP: 3.0; tiers: 3.5 to 4.2"),
    "quotas.alter": ("AlterClientQuotas", 49, "addresses: 2.7"),
    "quotas.alter_all": ("AlterClientQuotas", 49, "addresses: 2.7"),
    "quotas.describe": ("DescribeClientQuotas", 48, "addresses: 2.7"),
    "records.delete": ("DeleteRecords", 21, ""),
    "tokens.create": ("CreateDelegationToken", 38, "for another owner: 3.3"),
    "tokens.describe": ("DescribeDelegationToken", 41, "requesters: 3.3"),
    "tokens.expire": ("ExpireDelegationToken", 40, ""),
    "tokens.renew": ("RenewDelegationToken", 39, ""),
    "topics.apply": ("CreateTopics", 19, "changing settings: 2.3; the brokers' numbers: 2.4"),
    "topics.cancel_reassignments": ("AlterPartitionReassignments", 45, ""),
    "topics.create": ("CreateTopics", 19, "the brokers' numbers: 2.4; ids in the result: 2.8"),
    "topics.create_partitions": ("CreatePartitions", 37, ""),
    "topics.delete": ("DeleteTopics", 20, "by id: 2.8"),
    "topics.describe": ("Metadata", 3, "operations: 2.3; by id: 3.1; eligible leaders: 3.7"),
    "topics.elect_leaders": ("ElectLeaders", 43, "unclean: 2.4"),
    "topics.list": ("Metadata", 3, "ids: 2.8"),
    "topics.reassign": ("AlterPartitionReassignments", 45, "keeping the replication factor: 4.1"),
    "topics.reassignments": ("ListPartitionReassignments", 46, ""),
    "topics.wait_until_ready": ("Metadata", 3, ""),
    "transactions.abort": ("WriteTxnMarkers", 27, ""),
    "transactions.describe": ("DescribeTransactions", 65, ""),
    "transactions.fence": ("InitProducerId", 22, ""),
    "transactions.find_hanging": ("DescribeProducers", 61, "if there are open ones: 3.0"),
    "transactions.force_terminate": ("InitProducerId", 22, "unknown ids are told: 3.0"),
    "transactions.list": ("ListTransactions", 66, "duration: 3.8; pattern: 4.1"),
    "transactions.producers": ("DescribeProducers", 61, ""),
    "users.delete": ("AlterUserScramCredentials", 51, ""),
    "users.describe": ("DescribeUserScramCredentials", 50, ""),
    "users.upsert": ("AlterUserScramCredentials", 51, ""),
}

_LATER = {
    # call: first release, where that is later than the first release with the API
    "brokers.features": "2.4",
    "groups.alter_share_offsets": "4.2",
    "groups.delete_share_offsets": "4.2",
    "groups.lag": "0.10.2",
    "groups.remove_members": "2.4",
    "groups.share_offsets": "4.2",
}


def operations() -> list[tuple[str, str, str, str]]:
    """Return (call, API, first release, features that need a newer release) of each call."""
    return [
        (f"admin.{call}", api, _LATER.get(call) or first_release(key) or "", newer)
        for call, (api, key, newer) in sorted(OPERATIONS.items())
    ]
