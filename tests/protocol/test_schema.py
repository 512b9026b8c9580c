"""The declaration language: constructors, defaults, comparison, and what type checkers see."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol import messages
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest
from aiokafka.protocol.schema import Request
from tests.protocol.catalogue import all_messages


def produce(**changed: object) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=b"batch")]
    values = {
        "acks": 1,
        "timeout_ms": 100,
        "topic_data": [TopicProduceData(name="t", partition_data=data)],
    }
    return ProduceRequest(**{**values, **changed})  # type: ignore[arg-type]


def test_constructor_takes_keywords_only() -> None:
    with pytest.raises(TypeError, match="topicz"):
        MetadataRequest(topicz=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="topics"):
        MetadataRequest()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataRequest([])  # type: ignore[call-arg]


def test_a_field_the_version_lacks_reads_as_its_default() -> None:
    wire = codec(ProduceRequest, 0)
    assert wire.decode(wire.encode_bytes(produce())).transactional_id is None


def test_constructed_lists_are_not_shared_and_defaults_cannot_grow() -> None:
    first, second = FetchResponse(responses=[]), FetchResponse(responses=[])
    first.node_endpoints.append("x")  # type: ignore[arg-type]
    assert second.node_endpoints == []
    decoded = codec(FetchResponse, 4).decode(codec(FetchResponse, 4).encode_bytes(second))
    with pytest.raises(TypeError, match="shared"):
        decoded.node_endpoints.append("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shared"):
        decoded.node_endpoints += ["x"]  # type: ignore[list-item]


def test_equality_copy_and_pickle() -> None:
    request = produce()
    assert request == produce()
    assert request != produce(acks=-1)
    assert request != object()
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request
    empty = codec(FetchResponse, 4).decode(bytes(8))
    assert pickle.loads(pickle.dumps(empty)) == empty
    with pytest.raises(TypeError):
        hash(request)


def test_repr_shows_what_differs_but_no_payload_and_no_secret() -> None:
    data = PartitionProduceData(index=3, records=b"r" * 1000)
    assert repr(data) == "PartitionProduceData(index=3, records=<1000 bytes>)"
    assert repr(MetadataRequest(topics=None)) == "MetadataRequest(topics=None)"
    assert "letmein" not in repr(SaslAuthenticateRequest(auth_bytes=b"letmein"))


def test_request_knows_its_response_and_keys() -> None:
    assert ProduceRequest.API_KEY == ProduceResponse.API_KEY == 0
    assert ProduceRequest.RESPONSE is ProduceResponse
    assert ProduceResponse.VERSIONS == ProduceRequest.VERSIONS
    assert ProduceResponse.FLEXIBLE == ProduceRequest.FLEXIBLE == 9


def test_only_produce_without_acks_expects_no_answer() -> None:
    assert not produce(acks=0).expects_response
    assert produce(acks=-1).expects_response
    assert MetadataRequest(topics=None).expects_response


def test_subclass_may_have_another_constructor() -> None:
    class ByName(MetadataRequest):
        def __init__(self, *names: str) -> None:
            super().__init__(topics=[MetadataRequestTopic(name=n) for n in names])

    request = ByName("a", "b")
    assert request.topics is not None
    assert [topic.name for topic in request.topics] == ["a", "b"]
    assert codec(ByName, 1).encode_bytes(request) == codec(MetadataRequest, 1).encode_bytes(
        MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in "ab"])
    )


# -- the package of messages


def test_messages_are_found_by_name_and_by_key() -> None:
    assert messages.ProduceRequest is ProduceRequest
    assert messages.request_class(0) is ProduceRequest
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # noqa: B018
    with pytest.raises(KeyError):
        messages.request_class(4)
    for cls in all_messages():
        assert getattr(messages, cls.__name__) is cls
        if issubclass(cls, Request):
            assert messages.request_class(cls.API_KEY) is cls
    assert {cls.__name__ for cls in all_messages()} <= set(dir(messages))


def test_importing_one_message_does_not_import_the_others() -> None:
    code = (
        "import sys, aiokafka.protocol.messages.group_members;"
        "print(sorted(m for m in sys.modules if m.startswith('aiokafka.protocol.messages.')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['aiokafka.protocol.messages.group_members']"


# -- what cannot be encoded


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"acks": "all"}, TypeError, "ProduceRequest.acks: expected int16, got str 'all'"),
        ({"acks": 40000}, ValueError, "ProduceRequest.acks: 40000 is out of range for int16"),
        ({"timeout_ms": 1.5}, TypeError, "ProduceRequest.timeout_ms: expected int32, got float"),
        ({"topic_data": None}, ValueError, "ProduceRequest.topic_data must not be None"),
        ({"topic_data": "t"}, TypeError, "ProduceRequest.topic_data: expected array, got str"),
        ({"topic_data": ["t"]}, TypeError, "topic_data.0.: expected TopicProduceData, got str"),
        ({"transactional_id": b"t"}, TypeError, "transactional_id: expected string, got bytes"),
        ({"transactional_id": "\ud800"}, ValueError, "transactional_id cannot be encoded"),
        ({"transactional_id": "x" * 32768}, ValueError, "transactional_id: 32768 bytes are more"),
    ],
)
@pytest.mark.parametrize("version", [8, 9], ids=["plain", "flexible"])
def test_a_bad_value_is_named(
    version: int, changed: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        codec(ProduceRequest, version).encode(produce(**changed))


@pytest.mark.parametrize("version", [8, 9])
def test_the_longest_string(version: int) -> None:
    encoded = codec(ProduceRequest, version).encode_bytes(produce(transactional_id="x" * 32767))
    assert codec(ProduceRequest, version).decode(encoded).transactional_id == "x" * 32767


def test_a_bad_value_deep_inside_is_named() -> None:
    topic = TopicProduceData(topic_id=b"short", partition_data=[])
    with pytest.raises(ValueError, match=r"ProduceRequest.topic_data\[0\].topic_id: a uuid has 16"):
        codec(ProduceRequest, 13).encode(produce(topic_data=[topic]))
    data = PartitionProduceData(index=0, records="text")  # type: ignore[arg-type]
    topic = TopicProduceData(name="t", partition_data=[data])
    with pytest.raises(TypeError, match=r"partition_data\[0\].records: expected records, got str"):
        codec(ProduceRequest, 3).encode(produce(topic_data=[topic]))


def test_a_bad_secret_is_not_shown() -> None:
    request = SaslAuthenticateRequest(auth_bytes="letmein")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="auth_bytes") as caught:
        codec(SaslAuthenticateRequest, 0).encode(request)
    assert "letmein" not in str(caught.value)


def test_a_bool_is_a_bool() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="allow_auto_topic_creation: expected bool, got str"):
        codec(MetadataRequest, 4).encode(request)


def test_a_value_the_version_cannot_carry_is_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersionError, match="transactional_id is set to 'tx', but ver"):
        codec(ProduceRequest, 2).encode(produce(transactional_id="tx"))
    ignorable = PartitionData(partition_index=0, high_watermark=0, log_start_offset=5)
    wire = codec(FetchResponse, 0)
    response = FetchResponse(responses=[])
    response.throttle_time_ms = 7
    assert wire.decode(wire.encode_bytes(response)).throttle_time_ms == 0
    assert ignorable.log_start_offset == 5


def test_a_version_that_does_not_exist_is_refused() -> None:
    for version in (-1, 14):
        with pytest.raises(UnsupportedVersionError, match="ProduceRequest has versions 0 to 13"):
            codec(ProduceRequest, version)


# -- types

SNIPPET = """
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.produce import ProduceRequest
request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
reveal_type(request.acks)
reveal_type(request.transactional_id)
ProduceRequest(ack=1, acks=1, timeout_ms=1, topic_data=[])
ProduceRequest(acks="1", timeout_ms=1, topic_data=[])
ProduceRequest(acks=1, timeout_ms=1)
def show(response: MetadataResponse) -> None:
    response.controller_idd
    reveal_type(response.brokers[0].host)
"""
FINDINGS = [
    'Revealed type is "int"',
    'Revealed type is "str | None"',
    'Unexpected keyword argument "ack"',
    'Argument "acks" to "ProduceRequest" has incompatible type "str"',
    'Missing named argument "topic_data"',
    '"MetadataResponse" has no attribute "controller_idd"',
    'Revealed type is "str"',
]


def test_type_checkers_see_the_fields(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    source = tmp_path / "snippet.py"
    source.write_text(SNIPPET)
    arguments = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "mypy", *arguments, str(source)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = [line for line in shown.splitlines() if "snippet.py" in line]
    assert len(found) == len(FINDINGS), shown
    for line, expected in zip(found, FINDINGS, strict=True):
        assert expected in line.replace("builtins.", "").replace("Union[str, None]", "str | None")


@pytest.mark.parametrize("api_key", messages.APIS)
def test_the_name_of_an_api_is_a_name_of_its_module(api_key: int) -> None:
    request = messages.request_class(api_key)
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", messages.APIS[api_key][1]).lower()
    named = importlib.import_module(f"aiokafka.protocol.messages.{words}")
    assert named is sys.modules[request.__module__]
    assert named.__name__ == request.__module__


def test_an_api_has_no_other_name() -> None:
    with pytest.raises(ModuleNotFoundError, match="offset_fetches"):
        importlib.import_module("aiokafka.protocol.messages.offset_fetches")
