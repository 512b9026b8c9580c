"""API versions and features of each Kafka release, for the APIs of the fake cluster.

The ranges are from the ApiVersions responses of running brokers. Kafka 0.9 lacks this API, so its
ranges are from its protocol definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.version import Version

RELEASES = ("0.9", "0.10.2", "0.11", "1.1", "2.1", "2.8", "3.9", "4.0", "4.3", "4.4")
"""The values of ``FakeCluster(as_version=...)``."""

_TABLE = """
 0 Produce                   0-1   0-2   0-3   0-5   0-7   0-9  0-11  0-12  0-13  0-13
 1 Fetch                     0-1   0-3   0-5   0-7  0-10  0-12  0-17  4-17  4-18  4-18
 2 ListOffsets                 0   0-1   0-2   0-2   0-4   0-6   0-9  1-10  1-11  1-11
 3 Metadata                    0   0-2   0-4   0-5   0-7  0-11  0-12  0-13  0-13  0-13
 8 OffsetCommit              0-2   0-2   0-3   0-3   0-6   0-8   0-9   2-9  2-10  2-10
 9 OffsetFetch               0-1   0-2   0-3   0-3   0-5   0-7   0-9   1-9  1-10  1-10
10 FindCoordinator             0     0   0-1   0-1   0-2   0-3   0-6   0-6   0-6   0-6
11 JoinGroup                   0   0-1   0-2   0-2   0-3   0-7   0-9   0-9   0-9   0-9
12 Heartbeat                   0     0   0-1   0-1   0-2   0-4   0-4   0-4   0-4   0-4
13 LeaveGroup                  0     0   0-1   0-1   0-2   0-4   0-5   0-5   0-5   0-5
14 SyncGroup                   0     0   0-1   0-1   0-2   0-5   0-5   0-5   0-5   0-5
15 DescribeGroups              0     0   0-1   0-1   0-2   0-5   0-5   0-6   0-6   0-6
16 ListGroups                  0     0   0-1   0-1   0-2   0-4   0-5   0-5   0-5   0-5
17 SaslHandshake               .     0     0   0-1   0-1   0-1   0-1   0-1   0-1   0-1
18 ApiVersions                 .     0   0-1   0-1   0-2   0-3   0-4   0-4   0-4   0-5
19 CreateTopics                .   0-1   0-2   0-2   0-3   0-7   0-7   2-7   2-7   2-7
20 DeleteTopics                .     0   0-1   0-1   0-3   0-6   0-6   1-6   1-6   1-6
21 DeleteRecords               .     .     0     0   0-1   0-2   0-2   0-2   0-2   0-2
22 InitProducerId              .     .     0     0   0-1   0-4   0-5   0-5   0-5   0-5
23 OffsetForLeaderEpoch        .     .     0     0   0-2   0-4   0-4   2-4   2-4   2-4
24 AddPartitionsToTxn          .     .     0     0   0-1   0-3   0-5   0-5   0-5   0-5
25 AddOffsetsToTxn             .     .     0     0   0-1   0-3   0-4   0-4   0-4   0-4
26 EndTxn                      .     .     0     0   0-1   0-3   0-4   0-5   0-5   0-5
27 WriteTxnMarkers             .     .     0     0     0   0-1   0-1     1   1-2   1-2
28 TxnOffsetCommit             .     .     0     0   0-2   0-3   0-4   0-5   0-5   0-6
29 DescribeAcls                .     .     0     0   0-1   0-2   0-3   1-3   1-3   1-3
30 CreateAcls                  .     .     0     0   0-1   0-2   0-3   1-3   1-3   1-3
31 DeleteAcls                  .     .     0     0   0-1   0-2   0-3   1-3   1-3   1-3
32 DescribeConfigs             .     .     0   0-1   0-2   0-4   0-4   1-4   1-4   1-4
33 AlterConfigs                .     .     0     0   0-1   0-2   0-2   0-2   0-2   0-2
34 AlterReplicaLogDirs         .     .     .     0   0-1   0-2   0-2   1-2   1-2   1-2
35 DescribeLogDirs             .     .     .     0   0-1   0-2   0-4   1-4   1-5   1-5
36 SaslAuthenticate            .     .     .     0     0   0-2   0-2   0-2   0-2   0-2
37 CreatePartitions            .     .     .     0   0-1   0-3   0-3   0-3   0-3   0-3
38 CreateDelegationToken       .     .     .     0   0-1   0-2   0-3   1-3   1-3   1-3
39 RenewDelegationToken        .     .     .     0   0-1   0-2   0-2   1-2   1-2   1-2
40 ExpireDelegationToken       .     .     .     0   0-1   0-2   0-2   1-2   1-2   1-2
41 DescribeDelegationToken     .     .     .     0   0-1   0-2   0-3   1-3   1-3   1-3
42 DeleteGroups                .     .     .     0   0-1   0-2   0-2   0-2   0-2   0-3
43 ElectLeaders                .     .     .     .     .   0-2   0-2   0-2   0-2   0-2
44 IncrementalAlterConfigs     .     .     .     .     .   0-1   0-1   0-1   0-1   0-1
45 AlterPartitionReassignments .     .     .     .     .     0     0     0   0-1   0-1
46 ListPartitionReassignments  .     .     .     .     .     0     0     0     0     0
47 OffsetDelete                .     .     .     .     .     0     0     0     0     0
48 DescribeClientQuotas        .     .     .     .     .   0-1   0-1   0-1   0-1   0-1
49 AlterClientQuotas           .     .     .     .     .   0-1   0-1   0-1   0-1   0-1
50 DescribeUserScramCredentials .    .     .     .     .     0     0     0     0     0
51 AlterUserScramCredentials   .     .     .     .     .     0     0     0     0     0
55 DescribeQuorum              .     .     .     .     .     .   0-2   0-2   0-2   0-2
57 UpdateFeatures              .     .     .     .     .     0   0-1   0-2   0-2   0-2
60 DescribeCluster             .     .     .     .     .     0   0-1   0-2   0-2   0-2
61 DescribeProducers           .     .     .     .     .     0     0     0     0     0
64 UnregisterBroker            .     .     .     .     .     .     0     0     0     0
65 DescribeTransactions        .     .     .     .     .     .     0     0     0     0
66 ListTransactions            .     .     .     .     .     .   0-1   0-1   0-2   0-2
68 ConsumerGroupHeartbeat      .     .     .     .     .     .     0   0-1   0-1   0-1
69 ConsumerGroupDescribe       .     .     .     .     .     .     0   0-1   0-1   0-1
71 GetTelemetrySubscriptions   .     .     .     .     .     .     0     0     0     0
72 PushTelemetry               .     .     .     .     .     .     0     0     0     0
74 ListConfigResources         .     .     .     .     .     .     0     0   0-1   0-1
75 DescribeTopicPartitions     .     .     .     .     .     .     0     0     0     0
76 ShareGroupHeartbeat         .     .     .     .     .     .     .     .     1     1
77 ShareGroupDescribe          .     .     .     .     .     .     .     .     1     1
78 ShareFetch                  .     .     .     .     .     .     .     .   1-2   1-2
79 ShareAcknowledge            .     .     .     .     .     .     .     .   1-2   1-2
80 AddRaftVoter                .     .     .     .     .     .     0     0   0-1   0-1
81 RemoveRaftVoter             .     .     .     .     .     .     0     0     0     0
89 StreamsGroupDescribe        .     .     .     .     .     .     .     .     0   0-1
90 DescribeShareGroupOffsets   .     .     .     .     .     .     .     .   0-1   0-1
91 AlterShareGroupOffsets      .     .     .     .     .     .     .     .     0     0
92 DeleteShareGroupOffsets     .     .     .     .     .     .     .     .     0     0
94 UnregisterController        .     .     .     .     .     .     .     .     .     0
"""

_FEATURES: dict[str, dict[str, tuple[int, int, int]]] = {
    # name: (minimum supported, maximum supported, finalized)
    "3.9": {"kraft.version": (0, 1, 0), "metadata.version": (1, 21, 21)},
    "4.0": {
        "group.version": (0, 1, 1),
        "kraft.version": (0, 1, 0),
        "metadata.version": (7, 25, 25),
        "transaction.version": (0, 2, 2),
    },
    "4.3": {
        "group.version": (0, 1, 1),
        "kraft.version": (0, 1, 0),
        "metadata.version": (7, 30, 30),
        "share.version": (0, 1, 1),
        "transaction.version": (0, 2, 2),
    },
    "4.4": {
        "group.version": (0, 1, 1),
        "kraft.version": (0, 1, 0),
        "metadata.version": (7, 33, 33),
        "share.version": (0, 2, 2),
        "transaction.version": (0, 2, 2),
    },
}

_REFUSED_PRODUCE_VERSIONS = 3
"""4.x advertises Produce v0 to v2 for old librdkafka (KAFKA-18659), but rejects them."""


@dataclass(frozen=True)
class BrokerProfile:
    """The API versions, features and differences from Kafka of the server that a fake broker
    imitates: a release of Kafka, or another server with Kafka's protocol, such as Azure Event
    Hubs."""

    name: str
    """One of :data:`RELEASES`."""
    release: tuple[int, ...]
    """The release as numbers, for comparisons."""
    ranges: dict[int, tuple[int, int]]
    """Lowest and highest version that ApiVersions advertises, by API key."""
    features: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """(minimum supported, maximum supported, finalized level), by feature."""

    # Only servers other than Kafka set the fields below (:mod:`aiokafka.testing.servers`).
    changes: Mapping[int, Sequence[Callable[[Any, Any], None]]] = field(default_factory=dict)
    """Functions that change responses, by API key; called with context and response."""
    closes_on_newer_clients: bool = False
    """Whether an unsupported version of ApiVersions closes the connection."""
    answers_without_acks: bool = False
    """Whether Produce requests with ``acks=0`` get a response."""
    any_broker_leads: bool = False
    """Whether every broker is a leader of every partition."""
    compressions: frozenset[int] | None = None
    """The accepted compression types, besides no compression; None if all are accepted."""

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker handles this API version."""
        low, high = self.ranges.get(api_key, (0, -1))
        if api_key == 0 and self.release >= (4, 0):
            low = _REFUSED_PRODUCE_VERSIONS
        return low <= version <= high

    def level(self, feature: str) -> int:
        """Return the finalized level of a feature, 0 if it is disabled or unknown."""
        return self.features.get(feature, (0, 0, 0))[2]


def profile(release: str) -> BrokerProfile:
    """Return the profile of one of :data:`RELEASES`.

    Raises:
        ValueError: for any other release.
    """
    if release not in RELEASES:
        raise ValueError(f"as_version must be one of {', '.join(RELEASES)}, not {release!r}")
    column = RELEASES.index(release)
    ranges: dict[int, tuple[int, int]] = {}
    for line in _TABLE.strip().splitlines():
        key, _name, *cells = line.split()
        cell = cells[column]
        if cell != ".":
            low, _, high = cell.partition("-")
            ranges[int(key)] = (int(low), int(high or low))
    numbers = Version(release).release
    return BrokerProfile(release, numbers, ranges, dict(_FEATURES.get(release, {})))
