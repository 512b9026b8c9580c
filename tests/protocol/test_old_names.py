"""The requests that other projects build: 0.14's constructors, versions, tuples and answers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from aiokafka._upstream.messages import Request
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    SaslHandShakeRequest,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.messages import topics as topic_messages
from aiokafka.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    PartitionData,
)
from aiokafka.protocol.messages.fetch import FetchResponse as FetchMessage
from aiokafka.protocol.messages.group_members import JoinGroupResponse as JoinMessage
from aiokafka.protocol.messages.group_members import JoinGroupResponseMember
from aiokafka.protocol.messages.metadata import MetadataResponse as MetadataMessage
from aiokafka.protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from aiokafka.protocol.messages.topics import DeleteRecordsResponse as DeleteRecordsMessage
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest

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

T = ("t", [(0, 5, "m")])


def encoded(request: Any, version: int) -> bytes:
    """What goes to a broker that has this version only."""
    message = request.prepare({request.API_KEY: (version, version)}).message()
    return codec(type(message), version).encode_bytes(message)


def builders() -> list[type[Request]]:
    modules = [importlib.import_module(f"aiokafka.protocol.{name}") for name in MODULES]
    return [getattr(m, n) for m in modules[:1] + modules[2:] for n in m.__all__ if "Request" in n]


@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str) -> None:
    old = importlib.import_module(f"aiokafka.protocol.{module}")
    for name in old.__all__:
        assert getattr(old, name) is not None
    with pytest.raises(AttributeError, match="NoSuchRequest_v1"):
        _ = old.NoSuchRequest_v1


def test_every_version_has_a_name() -> None:
    assert len(builders()) == 34
    for builder in builders():
        module = importlib.import_module(builder.__module__)
        for version in builder.FAMILY.all_versions:
            request = getattr(module, f"{builder.__name__}_v{version}")
            answer = builder.__name__.removesuffix("Request") + f"Response_v{version}"
            assert request.RESPONSE_TYPE is getattr(module, answer)
            assert (builder.API_KEY, version) == (request.API_KEY, request.API_VERSION)
            assert request.__name__ == f"{builder.__name__}_v{version}"


# -- requests


def test_versions_by_name_and_by_number() -> None:
    from aiokafka.protocol.commit import OffsetCommitRequest_v2
    from aiokafka.protocol.group import JoinGroupRequest_v5, JoinGroupResponse

    assert JoinGroupRequest[3] is JoinGroupRequest_v5
    assert JoinGroupResponse[3] is JoinGroupRequest_v5.RESPONSE_TYPE
    assert JoinGroupRequest[0].UNKNOWN_MEMBER_ID == ""  # type: ignore[attr-defined]
    assert OffsetCommitRequest_v2.DEFAULT_GENERATION_ID == -1
    assert OffsetCommitRequest.DEFAULT_RETENTION_TIME == -1
    by_position = OffsetCommitRequest_v2("g", 1, "m", -1, [T])
    by_name = OffsetCommitRequest_v2(
        consumer_group="g",
        consumer_group_generation_id=1,
        consumer_id="m",
        retention_time=-1,
        topics=[T],
    )
    assert by_position == by_name
    assert by_position != OffsetCommitRequest_v2("g", 2, "m", -1, [T])
    assert encoded(by_position, 2) == encoded(OffsetCommitRequest("g", 1, "m", -1, [T]), 2)
    assert repr(by_position).startswith("OffsetCommitRequest_v2(consumer_group='g', ")
    with pytest.raises(ValueError, match="consumer_group"):
        OffsetCommitRequest_v2("g", 1)
    with pytest.raises(ValueError, match="no nonsense"):
        OffsetCommitRequest_v2(nonsense=1)


def test_the_newest_common_version_is_sent() -> None:
    request = JoinGroupRequest("g", 1000, 2000, "m", "i", "consumer", [("range", b"x")])
    for broker, expected in [((0, 9), 5), ((2, 9), 5), ((0, 4), 2), ((0, 1), 1), ((0, 0), 0)]:
        assert expected == request.prepare({11: broker}).API_VERSION
    with pytest.raises(IncompatibleBrokerVersion, match=r"JoinGroupRequest.*6 to 9"):
        request.prepare({11: (6, 9)})
    with pytest.raises(IncompatibleBrokerVersion, match="does not support JoinGroupRequest"):
        request.prepare({})
    with pytest.raises(IncompatibleBrokerVersion, match="JoinGroupRequest_v0"):
        JoinGroupRequest[0]("g", 1000, "m", "consumer", []).prepare({11: (2, 9)})


def test_what_an_old_version_cannot_say() -> None:
    create = CreateTopicsRequest([("t", 1, 1, {}, {})], 500, True)
    assert create.prepare({19: (1, 7)}).API_VERSION == 3
    for request, key, name in [
        (create, 19, "validate_only"),
        (FindCoordinatorRequest("id", 1), 10, "coordinator_type"),
        (OffsetRequest(-1, 1, []), 2, "isolation_level"),
        (OffsetRequest(-1, 0, [("t", [(0, 1_700_000_000_000)])]), 2, "timestamp"),
        (FetchRequest(1, 1, 1, 1, []), 1, "isolation_level"),
        (ProduceRequest("id", -1, 1, []), 0, "transactional_id"),
        (DescribeConfigsRequest([], True), 32, "include_synonyms"),
        (DescribeGroupsRequest(["g"], True), 15, "include_authorized_operations"),
        (DeleteRecordsRequest([], 1, {1: b""}), 21, "tags"),
    ]:
        with pytest.raises(IncompatibleBrokerVersion, match=name):
            request.prepare({key: (0, 1 if key == 1 else 0)})
    with pytest.raises(IncompatibleBrokerVersion, match="partitions"):
        OffsetFetchRequest("g", None).prepare({9: (0, 1)})


def test_metadata_request_from_names() -> None:
    assert encoded(MetadataRequest(["a"]), 1) == b"\0\0\0\x01\0\x01a"
    assert encoded(MetadataRequest(["a"], allow_auto_topic_creation=False), 4)[-1] == 0
    assert encoded(MetadataRequest(["a"]), 4)[-1] == 1
    assert encoded(MetadataRequest(), 1) == b"\xff\xff\xff\xff"
    assert encoded(MetadataRequest(topics=[]), 1) == bytes(4)
    assert encoded(MetadataRequest(), 0) == bytes(4)
    assert MetadataRequest().prepare({3: (0, 13)}).API_VERSION == 5


def test_create_topics_from_tuples() -> None:
    pairs = CreateTopicsRequest([("t", -1, -1, [(0, [1, 2])], [("k", "v")])], 500, False)
    mappings = CreateTopicsRequest([("t", -1, -1, {0: [1, 2]}, {"k": "v"})], 500)
    assert encoded(pairs, 3) == encoded(mappings, 3)
    (topic,) = pairs.prepare({19: (2, 7)}).message().topics  # type: ignore[attr-defined]
    assert topic.assignments[0].broker_ids == [1, 2]
    assert topic.configs[0].name == "k"


def test_tuples_in_requests() -> None:
    (topic,) = (
        CreatePartitionsRequest([("t", (3, [[1], [2]]))], 5, False)
        .prepare({37: (0, 3)})
        .message()
        .topics
    )  # type: ignore[attr-defined]
    assert topic.count == 3
    assert [new.broker_ids for new in topic.assignments] == [[1], [2]]
    topics = [("t", [(0, 7, 100)])]
    for version in range(12):
        if version:
            request = FetchRequest(5, 1, 1000, 0, topics).prepare({1: (version, version)})
            (partition,) = request.message().topics[0].partitions  # type: ignore[attr-defined]
            assert (partition.fetch_offset, partition.partition_max_bytes) == (7, 100)
    acl = CreateAclsRequest(2, "t", 3, "User:a", "*", 4, 3)
    assert len(encoded(acl, 0)) == len(encoded(acl, 1)) - 1
    moved = AlterPartitionReassignmentsRequest(9, [("t", [(0, [1], {})], {})], {})
    assert moved.prepare({45: (0, 1)}).message().topics[0].partitions[0].replicas == [1]  # type: ignore[attr-defined]
    deleted = DeleteRecordsRequest([("t", [(0, 9)])], 5)
    for version in range(3):
        message = deleted.prepare({21: (version, version)}).message()
        assert message.topics[0].partitions[0].offset == 9  # type: ignore[attr-defined]
    assert encoded(SaslHandShakeRequest("PLAIN"), 1) == b"\0\x05PLAIN"


def test_wrong_tuples_are_told() -> None:
    request = SyncGroupRequest[0]("g", 1, "m", [("m", b"", "more")])
    with pytest.raises(ValueError, match=r"SyncGroupRequest_v0.*member_id, member_metadata"):
        request.message()
    used = DeleteRecordsRequest([], 5, {1: b"x"}).prepare({21: (2, 2)})
    with pytest.raises(ValueError, match="tagged fields"):
        used.message()


# -- answers


def test_answers_have_tuples_and_names() -> None:
    join = JoinGroupRequest[3]("g", 1, 1, "", None, "consumer", [])
    answer = join.answer(
        JoinMessage(
            generation_id=4,
            protocol_name="range",
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=b"d")],
        )
    )
    assert (answer.generation_id, answer.group_protocol, answer.leader_id) == (4, "range", "m")
    assert answer.members == [("m", None, b"d")]
    assert answer.API_VERSION == 5
    assert answer.to_object() == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "generation_id": 4,
        "group_protocol": "range",
        "leader_id": "m",
        "member_id": "m",
        "members": [{"member_id": "m", "group_instance_id": None, "member_metadata": b"d"}],
    }
    older = JoinGroupRequest[0]("g", 1, "", "consumer", [])
    assert "throttle_time_ms" not in older.RESPONSE_TYPE(0, 1, "p", "l", "m", []).to_object()


def test_errors_of_topics() -> None:
    request = CreateTopicsRequest([("t", 1, 1, [], [])], 500).prepare({19: (2, 7)})
    result = topic_messages.CreatableTopicResult(name="t", error_code=36, error_message="exists")
    answer = request.answer(topic_messages.CreateTopicsResponse(topics=[result]))
    assert answer.topic_errors == [("t", 36, "exists")]
    assert answer.to_object()["topic_errors"] == [
        {"topic": "t", "error_code": 36, "error_message": "exists"}
    ]


def test_records_and_missing_lists_in_answers() -> None:
    buffer = memoryview(b"records")
    partition = PartitionData(
        partition_index=0,
        high_watermark=9,
        records=buffer,
        aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=2)],
    )
    response = FetchMessage(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    request = FetchRequest(5, 1, 1000, 1, []).prepare({1: (4, 4)})
    (topic,) = request.answer(response).topics
    assert topic == ("t", [(0, 0, 9, -1, [(1, 2)], b"records")])
    assert type(topic[1][0][-1]) is bytes
    partition.aborted_transactions = None
    (topic,) = request.answer(response).topics
    assert topic[1][0][4] is None
    assert (
        request.answer(response).to_object()["topics"][0]["partitions"][0]["highwater_offset"] == 9
    )


def test_tagged_fields_in_answers() -> None:
    partition = DeleteRecordsPartitionResult(partition_index=0, low_watermark=3)
    response = DeleteRecordsMessage(
        topics=[DeleteRecordsTopicResult(name="t", partitions=[partition])]
    )
    answer = DeleteRecordsRequest([], 5).prepare({21: (0, 2)}).answer(response)
    assert answer.topics == [("t", [(0, 3, 0, {})], {})]
    assert answer.tags == {}
    assert answer.to_object()["topics"][0]["partitions"][0] == {
        "partition_index": 0,
        "low_watermark": 3,
        "error_code": 0,
        "tags": {},
    }


def test_no_answer_is_none() -> None:
    assert ProduceRequest(None, 0, 1, []).prepare({0: (3, 9)}).answer(None) is None
    assert (
        MetadataRequest([])
        .prepare({3: (0, 5)})
        .answer(MetadataMessage(brokers=[], controller_id=3, topics=[], cluster_id="c"))
        .controller_id
        == 3
    )
