"""The import paths and constructors that other projects use."""

from __future__ import annotations

import importlib

import pytest

from aiokafka.protocol import messages
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.exchange import Exchange
from aiokafka.protocol.messages.metadata import MetadataRequest as PlainMetadataRequest
from aiokafka.protocol.messages.metadata import MetadataRequestTopic
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v1, MetadataRequest_v4
from aiokafka.protocol.versions import BrokerVersions

MODULES = (
    "admin",
    "api",
    "commit",
    "coordination",
    "fetch",
    "group",
    "metadata",
    "offset",
    "produce",
    "transaction",
)


@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str) -> None:
    old = importlib.import_module(f"aiokafka.protocol.{module}")
    for name in old.__all__:
        assert getattr(old, name) is not None


def test_most_names_are_the_messages_themselves() -> None:
    from aiokafka.protocol.offset import OffsetRequest
    from aiokafka.protocol.produce import ProduceRequest

    assert ProduceRequest is messages.ProduceRequest
    assert OffsetRequest is messages.ListOffsetsRequest


def test_metadata_request_from_names() -> None:
    request = MetadataRequest(["a"], allow_auto_topic_creation=False)
    plain = PlainMetadataRequest(
        topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False
    )
    assert codec(MetadataRequest, 12).encode(request) == codec(PlainMetadataRequest, 12).encode(
        plain
    )
    assert MetadataRequest().topics is None
    assert MetadataRequest(topics=[]).topics == []
    assert MetadataRequest().allow_auto_topic_creation is True


def test_pinned_versions() -> None:
    broker = BrokerVersions({3: (0, 13)})
    assert broker.pick(MetadataRequest) == 13
    assert broker.pick(MetadataRequest_v1) == 1
    assert broker.pick(MetadataRequest_v4) == 4
    assert codec(MetadataRequest_v1, 1).encode_bytes(MetadataRequest_v1([])) == bytes(4)


def test_create_topics_from_tuples() -> None:
    request = CreateTopicsRequest([("t", 1, 1, [], [("k", "v")])], 500, False)
    other = CreateTopicsRequest([("t", -1, -1, {0: [1, 2]}, {"k": "v"})], 500)
    assert request.topics[0].configs == other.topics[0].configs
    assert other.topics[0].assignments[0].broker_ids == [1, 2]

    exchange: Exchange[None] = Exchange("c")
    exchange.send(request, 4, 0.0, None)
    result = CreatableTopicResult(name="t", error_code=36, error_message="exists")
    body = codec(CreateTopicsResponse, 4).encode_bytes(CreateTopicsResponse(topics=[result]))
    received = exchange.receive(b"\0\0\0\x01" + body)
    assert received is not None
    assert received[1].topic_errors == [("t", 36, "exists")]


def test_default_generation_id() -> None:
    assert OffsetCommitRequest.DEFAULT_GENERATION_ID == -1
