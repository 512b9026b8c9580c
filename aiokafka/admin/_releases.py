"""Which API each call of the rooms cannot do without, and so the first release that has it."""

from __future__ import annotations

from aiokafka.protocol.releases import first_release

__all__ = ["OPERATIONS", "operations"]

OPERATIONS: dict[str, tuple[str, int, str]] = {
    # call: (API, its key, what only newer brokers do)
    "brokers.add_voter": ("AddRaftVoter", 80, ""),
    "brokers.describe_cluster": ("Metadata", 3, "fenced brokers: 4.0"),
    "brokers.features": ("ApiVersions", 18, "any features: 2.4; levels in force: 2.7"),
    "brokers.log_dirs": ("DescribeLogDirs", 35, "sizes of volumes: 3.3"),
    "brokers.move_replicas": ("AlterReplicaLogDirs", 34, ""),
    "brokers.quorum": ("DescribeQuorum", 55, "directories and listeners: 3.9"),
    "brokers.remove_voter": ("RemoveRaftVoter", 81, ""),
    "brokers.unregister": ("UnregisterBroker", 64, ""),
    "brokers.update_features": ("UpdateFeatures", 57, "validate_only, unsafe downgrades: 3.3"),
    "configs.alter": ("IncrementalAlterConfigs", 44, "client metrics: 3.7"),
    "configs.describe": ("DescribeConfigs", 32, "synonyms: 1.1; types, documentation: 2.6"),
    "configs.list_resources": ("ListConfigResources", 74, "others than client metrics: 4.1"),
    "configs.set_exactly": ("AlterConfigs", 33, ""),
    "records.delete": ("DeleteRecords", 21, ""),
    "topics.apply": ("CreateTopics", 19, "changing settings: 2.3"),
    "topics.cancel_reassignments": ("AlterPartitionReassignments", 45, ""),
    "topics.create": ("CreateTopics", 19, "numbers and settings in the result: 2.4; ids: 2.8"),
    "topics.create_partitions": ("CreatePartitions", 37, ""),
    "topics.delete": ("DeleteTopics", 20, "by id: 2.8"),
    "topics.describe": ("Metadata", 3, "operations: 2.3; by id: 3.1; eligible leaders: 3.7"),
    "topics.elect_leaders": ("ElectLeaders", 43, "unclean: 2.4"),
    "topics.list": ("Metadata", 3, "ids: 2.8"),
    "topics.reassign": ("AlterPartitionReassignments", 45, "keeping the replication factor: 4.1"),
    "topics.reassignments": ("ListPartitionReassignments", 46, ""),
    "topics.wait_until_ready": ("Metadata", 3, ""),
}


def operations() -> list[tuple[str, str, str, str]]:
    """Return (call, API, first release, what only newer brokers do) of each call."""
    return [
        (f"admin.{call}", api, first_release(key) or "", newer)
        for call, (api, key, newer) in sorted(OPERATIONS.items())
    ]
