"""Bytes of subscriptions and assignments: round trips, other codecs, hostile input."""

from __future__ import annotations

import io
import random

import pytest

from aiokafka.coordinator.protocol import (
    ConsumerProtocol,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
    read_partitions,
    write_partitions,
)
from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.group_members import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from aiokafka.structs import TopicPartition


def make_metadata(version: int) -> ConsumerProtocolMemberMetadata:
    metadata = ConsumerProtocolMemberMetadata(version, ["a", "ü"], b"data")
    if version >= 1:
        metadata.owned_partitions = [("a", [0, 2])]
    if version >= 2:
        metadata.generation = 7
    if version >= 3:
        metadata.rack = "r1"
    return metadata


@pytest.mark.parametrize("version", range(4))
def test_metadata_round_trip(version: int) -> None:
    metadata = make_metadata(version)
    assert ConsumerProtocolMemberMetadata.decode(metadata.encode()) == metadata


@pytest.mark.parametrize("version", range(4))
def test_metadata_is_what_the_message_definition_says(version: int) -> None:
    metadata = make_metadata(version)
    body = metadata.encode()
    assert body[:2] == version.to_bytes(2, "big")
    read = codec(ConsumerProtocolSubscription, version).decode(body[2:])
    assert read.topics == metadata.subscription
    assert read.user_data == metadata.user_data
    assert [(o.topic, o.partitions) for o in read.owned_partitions] == metadata.owned_partitions
    assert read.generation_id == metadata.generation
    assert read.rack_id == metadata.rack


@pytest.mark.parametrize("version", range(4))
def test_assignment_is_what_the_message_definition_says(version: int) -> None:
    assignment = ConsumerProtocolMemberAssignment(version, [("a", [0, 2]), ("b", [])], None)
    body = assignment.encode()
    assert ConsumerProtocolMemberAssignment.decode(body) == assignment
    read = codec(ConsumerProtocolAssignment, version).decode(body[2:])
    assert [(o.topic, o.partitions) for o in read.assigned_partitions] == assignment.assignment
    assert read.user_data is None
    assert assignment.partitions() == [TopicPartition("a", 0), TopicPartition("a", 2)]


def test_old_bytes() -> None:
    metadata = ConsumerProtocolMemberMetadata(0, ["t"], b"")
    assert metadata.encode() == b"\0\0\0\0\0\1\0\1t\0\0\0\0"
    assignment = ConsumerProtocolMemberAssignment(0, [("t", [1])], b"")
    assert assignment.encode() == (b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\1\0\0\0\0")


def test_newer_version_is_read_as_the_newest_known() -> None:
    body = b"\0\4" + make_metadata(3).encode()[2:] + b"more"
    assert ConsumerProtocolMemberMetadata.decode(body) == make_metadata(3)


@pytest.mark.parametrize("version", range(4))
def test_metadata_that_end_before_what_their_version_has(version: int) -> None:
    """Older releases of kafka-go say version 1, and own nothing: not even an empty array."""
    body = version.to_bytes(2, "big") + make_metadata(0).encode()[2:]
    read = ConsumerProtocolMemberMetadata.decode(body)
    assert read == ConsumerProtocolMemberMetadata(version, ["a", "ü"], b"data")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_metadata_that_end_in_the_middle(version: int) -> None:
    with pytest.raises(KafkaProtocolError):
        ConsumerProtocolMemberMetadata.decode(make_metadata(version).encode()[:-1])


def test_files_of_bytes() -> None:
    metadata = ConsumerProtocolMemberMetadata(0, ["t"], b"data")
    assert ConsumerProtocolMemberMetadata.decode(io.BytesIO(metadata.encode())) == metadata
    assignment = ConsumerProtocolMemberAssignment(0, [("t", [0, 1])], b"data")
    assert ConsumerProtocolMemberAssignment.decode(io.BytesIO(assignment.encode())) == assignment
    nothing = ConsumerProtocolMemberAssignment.decode(io.BytesIO(b""))
    assert nothing.partitions() == []


def test_empty_assignment() -> None:
    assert ConsumerProtocolMemberAssignment.decode(b"").partitions() == []


def test_partitions_with_what_follows() -> None:
    data = write_partitions([("t", [3, 4])]) + b"rest"
    assert read_partitions(data) == ([("t", [3, 4])], b"rest")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\1\0\1\xff\0\0\0\0",
        b"\0\0\0\0\0\0\x7f\xff\xff\xff",
    ],
)
def test_malformed_metadata(data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        ConsumerProtocolMemberMetadata.decode(data)


def test_damage_is_an_error_or_a_value() -> None:
    chance = random.Random(1)
    bodies = [make_metadata(3).encode(), write_partitions([("t", list(range(9)))])]
    for _ in range(5_000):
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        del body[chance.randrange(len(body)) :]
        for read in (
            ConsumerProtocolMemberMetadata.decode,
            ConsumerProtocolMemberAssignment.decode,
            read_partitions,
        ):
            try:
                read(bytes(body))
            except KafkaProtocolError:
                pass


def test_names_of_the_protocol() -> None:
    assert ConsumerProtocol.PROTOCOL_TYPE == "consumer"
    assert ConsumerProtocol.METADATA is ConsumerProtocolMemberMetadata
    assert ConsumerProtocol.ASSIGNMENT is ConsumerProtocolMemberAssignment
