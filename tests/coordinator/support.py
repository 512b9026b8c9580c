"""A cluster for tests of assignors, and what every sharing has to fulfil."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka.structs import TopicPartition


def make_cluster(**topics: int) -> ClusterMetadata:
    """A cluster with these topics, by name and number of partitions."""
    cluster = ClusterMetadata()
    cluster.update_metadata(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="localhost", port=9092)],
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number, leader_id=0, replica_nodes=[0], isr_nodes=[0]
                        )
                        for number in range(count)
                    ],
                )
                for name, count in topics.items()
            ],
        )
    )
    return cluster


def subscribe(**members: Iterable[str]) -> dict[str, ConsumerProtocolMemberMetadata]:
    """Members that have nothing yet, by id and topics."""
    return {
        member: ConsumerProtocolMemberMetadata(0, topics, b"") for member, topics in members.items()
    }


def shares(
    assignment: Mapping[str, ConsumerProtocolMemberAssignment],
) -> dict[str, list[TopicPartition]]:
    return {member: found.partitions() for member, found in assignment.items()}


def assign(
    assignor: type[AbstractPartitionAssignor] | AbstractPartitionAssignor,
    cluster: ClusterMetadata,
    members: Mapping[str, ConsumerProtocolMemberMetadata],
) -> dict[str, list[TopicPartition]]:
    """Run an assignor as a group does, its bytes included, and check what always holds."""
    maker = assignor() if isinstance(assignor, type) else assignor
    heard = {
        member: ConsumerProtocolMemberMetadata.decode(metadata.encode())
        for member, metadata in members.items()
    }
    told = {
        member: ConsumerProtocolMemberAssignment.decode(found.encode())
        for member, found in maker.assign(cluster, heard).items()
    }
    result = shares(told)
    assert result.keys() == members.keys()
    given = [tp for share in result.values() for tp in share]
    assert len(given) == len(set(given)), "a partition was given to two members"
    for member, share in result.items():
        assert {tp.topic for tp in share} <= set(members[member].subscription)
    return result


def existing(
    cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
) -> set[TopicPartition]:
    """Every partition that a member wants."""
    topics = {topic for metadata in members.values() for topic in metadata.subscription}
    return {
        TopicPartition(topic, number)
        for topic in topics
        for number in cluster.partitions_for_topic(topic) or ()
    }
