"""Profiles of other servers with Kafka's protocol, such as Azure Event Hubs.

``FakeCluster(profile=...)`` selects a profile. A profile has the differences from Apache Kafka 3.9
that clients can see, as far as public sources document them. To add a server, add an entry to
:data:`SERVERS`, with functions that change responses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka.testing.script import RequestContext
from aiokafka.testing.versions import BrokerProfile, profile

__all__ = ["APACHE", "PROFILES", "SERVERS", "Server", "server_profile"]

APACHE = "apache"
_RELEASE = "3.9"
_UNKNOWN_TOPIC_OR_PARTITION = 3
_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA = 0, 1, 2, 3
_OFFSET_FETCH, _FIND_COORDINATOR, _JOIN_GROUP = 9, 10, 11
_OFFSET_FOR_LEADER_EPOCH, _DESCRIBE_CLUSTER = 23, 60

Change = Callable[[RequestContext, Any], None]
"""A function that changes a response of the fake broker in place, to that of another server."""


@dataclass(frozen=True)
class Server:
    """The differences of a server from Apache Kafka."""

    apis: str
    """The supported APIs, separated by spaces: ``key:low-high``, or ``key`` for the versions of
    Kafka 3.9. An empty string stands for all APIs of Kafka 3.9."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings, which the `config` of :class:`FakeCluster` overrides."""
    changes: tuple[tuple[int, Change], ...] = ()
    """Pairs of an API key and a function that changes the responses of this API."""
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of :class:`BrokerProfile`."""


# -- changes ---------------------------------------------------------------------------------------


def _partitions(topics: Any) -> Iterator[Any]:
    for topic in topics:
        yield from topic.partitions


def _fetched(response: Any) -> Iterator[Any]:
    return _partitions(response.responses)


def _produced(response: Any) -> Iterator[Any]:
    for topic in response.responses:
        yield from topic.partition_responses


def _offsets(response: Any) -> Iterator[Any]:
    for group in response.groups or [response]:
        yield from _partitions(group.topics or [])


def _of_topics(response: Any) -> Iterator[Any]:
    return _partitions(response.topics)


def _sets(partitions: Callable[[Any], Iterator[Any]], name: str, value: Any) -> Change:
    """Return a change that sets a field of the partitions in a response."""

    def change(context: RequestContext, response: Any) -> None:
        for partition in partitions(response):
            setattr(partition, name, value)

    return change


def _records_without_epochs(context: RequestContext, response: Any) -> None:
    for partition in _fetched(response):
        partition.current_leader.leader_epoch = -1
        if partition.records:
            partition.records = _without_epochs(bytes(partition.records))


def _without_epochs(records: bytes) -> bytes:
    """Return record batches with leader epoch -1; the checksum does not cover this field."""
    data, position = bytearray(records), 0
    while position + 16 <= len(data):
        struct.pack_into(">i", data, position + 12, -1)
        position += 12 + int(struct.unpack_from(">i", data, position + 8)[0])
    return bytes(data)


def _end_before_the_last_record(context: RequestContext, response: Any) -> None:
    for partition in _fetched(response):
        if not partition.error_code and partition.last_stable_offset > 0:
            partition.last_stable_offset -= 1


def _current_epoch(context: RequestContext, response: Any) -> None:
    for topic in response.topics:
        for found in topic.partitions:
            partition = context.state.partition(topic.name, found.partition_index)
            if partition is not None and found.leader_epoch >= 0:
                found.leader_epoch = partition.leader_epoch


def _aborted_newest_first(context: RequestContext, response: Any) -> None:
    for partition in _fetched(response):
        if partition.aborted_transactions:
            partition.aborted_transactions.reverse()


def _another_leader_each_time(context: RequestContext, response: Any) -> None:
    nodes = [broker.node_id for broker in response.brokers]
    for partition in _partitions(response.topics):
        if nodes and partition.leader_id >= 0:
            chosen = (partition.partition_index + context.correlation_id) % len(nodes)
            partition.leader_id = nodes[chosen]
            partition.replica_nodes = partition.isr_nodes = [nodes[chosen]]


def _this_broker_for_the_leader(context: RequestContext, response: Any) -> None:
    this = context.cluster_state.nodes[context.node_id]
    for endpoint in response.node_endpoints:
        endpoint.host, endpoint.port = this.host, this.port


def _unknown_log_offsets(context: RequestContext, response: Any) -> None:
    for partition in _fetched(response):
        partition.high_watermark = partition.last_stable_offset = partition.log_start_offset = -1
        partition.aborted_transactions = partition.aborted_transactions or []


def _unknown_without_offset(context: RequestContext, response: Any) -> None:
    for partition in _offsets(response):
        if partition.committed_offset < 0 and not partition.error_code:
            partition.error_code = _UNKNOWN_TOPIC_OR_PARTITION
        partition.metadata = partition.metadata or None


def _cluster_without_names(context: RequestContext, response: Any) -> None:
    response.cluster_id, response.controller_id = None, -1
    for broker in response.brokers:
        broker.rack = broker.rack or ""
    for partition in _partitions(response.topics):
        partition.isr_nodes, partition.offline_replicas = [], []


# Some servers derive broker ids from hashes: streamnative/kop#1698 shows node 1599868786.
_FIRST_ID = 1_599_868_786


def _large_ids_of_brokers(context: RequestContext, response: Any) -> None:
    for broker in response.brokers:
        broker.node_id += _FIRST_ID
    for partition in _partitions(response.topics):
        partition.leader_id += _FIRST_ID if partition.leader_id >= 0 else 0
        partition.replica_nodes = [node + _FIRST_ID for node in partition.replica_nodes]


def _large_id_of_a_coordinator(context: RequestContext, response: Any) -> None:
    for found in response.coordinators or [response]:
        found.node_id += _FIRST_ID if found.node_id >= 0 else 0


def _large_ids_of_leaders(context: RequestContext, response: Any) -> None:
    partitions = _fetched if context.api_key == _FETCH else _produced
    for partition in partitions(response):
        leader = partition.current_leader
        leader.leader_id += _FIRST_ID if leader.leader_id >= 0 else 0
    for endpoint in response.node_endpoints:
        endpoint.node_id += _FIRST_ID


# -- servers ---------------------------------------------------------------------------------------

_WITHOUT_EPOCHS: tuple[tuple[int, Change], ...] = (
    (_METADATA, _sets(_of_topics, "leader_epoch", -1)),
    (_LIST_OFFSETS, _sets(_of_topics, "leader_epoch", -1)),
    (_OFFSET_FETCH, _sets(_offsets, "committed_leader_epoch", -1)),
    (_FETCH, _records_without_epochs),
)

SERVERS: dict[str, Server] = {
    # Sources for the APIs: oliveigah/klife#13; twmb/franz-go#1312 (newer versions of Fetch and
    # Metadata); Azure/azure-event-hubs-for-kafka#69 and #209 (API keys from 15 on).
    # Source for the settings: "Apache Kafka client configurations for Azure Event Hubs".
    "event-hubs": Server(
        apis="""
            0:0-7 1:4-12 2:0-8 3:0-9 8:0-8 9:0-8 10:0-4 11:0-9 12:0-4 13:0-5 14:0-5 15:0-1 16:0-1
            17:0-1 18:0-3 19:0-2 20:0-2 22:0-1 23:0-0 32:0-2 36:0-1 37:0-1 42:0-0
        """,
        settings={
            "connections.max.idle.ms": "240000",
            "socket.request.max.bytes": "1046528",
        },
        changes=(
            # Event Hubs sends leader epoch -1 in all versions (changelog of franz-go 1.20.6).
            *_WITHOUT_EPOCHS,
            # The last stable offset is one too low: in Azure/azure-event-hubs-for-kafka#188 it is
            # 146, the maximum offset is 147, and the consumer can read nothing.
            (_FETCH, _end_before_the_last_record),
        ),
        traits={
            # Sources: dpkp/kafka-python#2602, and pkg/kgo/broker.go of franz-go.
            "closes_on_newer_clients": True,
            # Source: pkg/kgo/broker.go of franz-go, "it does reply to ack-0 produce requests".
            "answers_without_acks": True,
            # Sources: twmb/franz-go#144 for the error, goldsky-io/streamling#24 for the types.
            "compressions": frozenset({1}),
        },
    ),
    # Sources: src/v/kafka/server/handlers/*.h of Redpanda 24.3, and "Kafka Compatibility" in
    # Redpanda's documentation.
    "redpanda": Server(
        apis="""
            0:0-7 1:4-11 2:0-4 3:0-8 8:1-8 9:1-7 10:0-3 11:0-6 12:0-4 13:0-4 14:0-4 15:0-5 16:0-4
            17:0-1 18:0-3 19:0-6 20:0-5 21:0-2 22:0-3 23:0-4 24:0-3 25:0-1 26:0-3 28:0-3 29:0-2
            30:0-2 31:0-2 32:0-4 33:0-2 35:0-2 36:0-2 37:0-3 42:0-2 44:0-1 45 46 47 48:0-1 49:0-1
            61 65 66:0-0
        """,
        changes=(
            # ListOffsets returns the current leader epoch for every offset, not the epoch of the
            # record at this offset (redpanda#30101).
            (_LIST_OFFSETS, _current_epoch),
            # Aborted transactions in Fetch responses are not sorted by offset: those in the memory
            # of the broker precede those on its disk (franz-go, pkg/kgo/source.go).
            (_FETCH, _aborted_newest_first),
        ),
    ),
    # Source: tchiotludo/akhq#1113. MSK Serverless supports neither the newest nor the oldest
    # versions.
    "msk-serverless": Server(
        apis="""
            0:7-9 1:10-12 2:5-6 3:7-11 8:6-8 9:5-7 10:2-3 11:4-7 12:2-4 13:2-4 14:2-5 15:2-5 16:2-4
            17:1-1 18:2-3 19:3-7 20:3-6 22:1-4 23:2-4 24:1-3 25:1-3 26:1-3 28:2-3 32:2-4 36:0-2
            37:1-3 42:1-2 44:0-1 47
        """,
    ),
    # Source: "Protocol and Feature Support" in WarpStream's documentation, which names the APIs
    # but no versions.
    "warpstream": Server(
        apis="0 1 2 3 8 9 10 11 12 13 14 15 16 17 18 19 20 22 24 25 26 28 29 30 31 32 33 36 37 42 "
        "47 60 65 66",
        # "Partitions do not have assigned leaders", and "since Agents are stateless, it is possible
        # to direct your reads or your writes to any Agent".
        changes=((_METADATA, _another_leader_each_time),),
        traits={"any_broker_leads": True},
    ),
    # AutoMQ/automq#3546: the current leader in responses (KIP-951) has the address of a proxy.
    "automq": Server(
        apis="",
        changes=((_FETCH, _this_broker_for_the_leader), (_PRODUCE, _this_broker_for_the_leader)),
    ),
    # Not a real server. Its responses have the least that the protocol allows: -1, null and empty
    # lists for unknown values; large broker ids; and UNKNOWN_TOPIC_OR_PARTITION for partitions
    # without a committed offset, as in version 0 of OffsetFetch.
    "bare": Server(
        apis="0:0-9 1:4-12 2:0-7 3:0-9 8 9 10 11 12 13 14 15 16 17 18 19 20 22:0-4 24:0-3 25:0-3 "
        "26:0-3 28:0-3 36 37 42 60:0-0",
        changes=(
            *_WITHOUT_EPOCHS,
            (_FETCH, _unknown_log_offsets),
            (_PRODUCE, _sets(_produced, "log_start_offset", -1)),
            (_OFFSET_FETCH, _unknown_without_offset),
            (_METADATA, _cluster_without_names),
            (_METADATA, _large_ids_of_brokers),
            (_FIND_COORDINATOR, _large_id_of_a_coordinator),
            (_FETCH, _large_ids_of_leaders),
            (_PRODUCE, _large_ids_of_leaders),
        ),
    ),
}

PROFILES = (APACHE, *SERVERS)
"""The values of ``FakeCluster(profile=...)``."""


def server_profile(name: str, as_version: str) -> BrokerProfile:
    """Return the profile of a release of Apache Kafka, or of another server.

    Raises:
        ValueError: there is no such profile.
    """
    if name not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, not {name!r}")
    if name == APACHE:
        return profile(as_version)
    server, base = SERVERS[name], profile(_RELEASE)
    changes: dict[int, list[Change]] = {}
    for key, change in server.changes:
        changes.setdefault(key, []).append(change)
    ranges = dict(_ranges(server.apis, base.ranges)) or base.ranges
    return replace(base, ranges=ranges, features={}, changes=changes, **server.traits)


def _ranges(
    apis: str, known: Mapping[int, tuple[int, int]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    for api in apis.split():
        key, _, versions = api.partition(":")
        low, _, high = versions.partition("-")
        yield int(key), (int(low), int(high)) if versions else known[int(key)]
