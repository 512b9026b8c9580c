"""Messages of `aiokafka.protocol`, as the tests of aiokafka and of other projects handle them."""

from __future__ import annotations

import io
import struct

import pytest

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.fetch import FetchResponse_v0
from aiokafka.protocol.group import JoinGroupRequest, JoinGroupRequest_v5
from aiokafka.protocol.metadata import MetadataResponse_v1, MetadataResponse_v5
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v0, ProduceRequest_v3

RECORDS = [("t", [(0, b"records")])]


def test_a_request_that_the_broker_lacks() -> None:
    request = ProduceRequest(None, 1, 100, RECORDS)
    for broker in ({}, {1: (0, 17)}, {0: (9, 12)}):
        with pytest.raises(IncompatibleBrokerVersion, match="ProduceRequest"):
            request.prepare(broker)
    with pytest.raises(IncompatibleBrokerVersion, match="ProduceRequest_v3"):
        ProduceRequest_v3(None, 1, 100, RECORDS).prepare({0: (0, 2)})
    with pytest.raises(IncompatibleBrokerVersion, match="OffsetRequest"):
        OffsetRequest(-1, 0, [("t", [(0, -1)])]).prepare({})


def test_versions_with_the_same_fields_are_equal() -> None:
    built = ProduceRequest(None, 1, 100, RECORDS).prepare({0: (0, 2)})
    assert built.API_VERSION == 2
    assert built == ProduceRequest_v0(1, 100, RECORDS)
    assert built != ProduceRequest_v0(-1, 100, RECORDS)
    assert built != ProduceRequest_v3(None, 1, 100, RECORDS)
    assert built != RECORDS


def test_fields_by_name() -> None:
    request = JoinGroupRequest_v5("g", 1000, 2000, "m", "i", "consumer", [("range", b"x")])
    assert request.get_item("session_timeout") == 1000
    assert request.get_item("group_protocols") == [("range", b"x")]
    with pytest.raises(KeyError, match="JoinGroupRequest_v5 has no session"):
        request.get_item("session")


def test_messages_as_bytes() -> None:
    response = MetadataResponse_v5(
        0,
        [(0, "a", 9092, "r0"), (1, "b", 9093, None)],
        "id",
        1,
        [(0, "t", False, [(0, 0, 1, [1, 0], [1], [0])])],
    )
    assert MetadataResponse_v5.decode(response.encode()) == response
    request = JoinGroupRequest("g", 1000, 2000, "", "i", "consumer", [("range", b"x")])
    encoded = request.prepare({11: (0, 0)}).encode()
    assert encoded == b"\0\x01g\0\0\x03\xe8\0\0\0\x08consumer\0\0\0\x01\0\x05range\0\0\0\x01x"
    with pytest.raises(TypeError, match="host"):
        MetadataResponse_v1([(0, 5, 9092, None)], 0, []).encode()


def test_a_response_in_a_stream() -> None:
    records = struct.pack(">qi", 0, 99) + b"cut off"
    answer = FetchResponse_v0([("t", [(0, 0, 1234, records), (1, 3, -1, b"")])])
    stream = io.BytesIO(b"head" + answer.encode() + b"tail")
    stream.seek(4)
    assert FetchResponse_v0.decode(stream) == answer
    assert stream.read() == b"tail"
