"""Requests and answers on one stream."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aiokafka.errors import CorrelationIdError, KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.exchange import (
    Exchange,
    InFlightRequest,
    decode_request_header,
    encode_response_header,
    peek_request_header,
)
from aiokafka.protocol.messages.group_members import HeartbeatRequest, HeartbeatResponse
from aiokafka.protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aiokafka.protocol.schema import Request

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def sent(buffers: list[Any]) -> bytes:
    """The frame in the buffers, after a look at its length."""
    stream = b"".join(buffers)
    assert struct.unpack(">i", stream[:4]) == (len(stream) - 4,)
    return stream[4:]


def answer(request: type[Request[Any]], version: int, correlation_id: int, response: Any) -> bytes:
    """The frame a broker sends."""
    body = codec(type(response), version).encode_bytes(response)
    return encode_response_header(request, version, correlation_id) + body


def send(
    exchange: Exchange, request: Request[Any], version: int, token: Any, deadline: float = 0.0
) -> list[Any]:
    """Send a request as a connection does; return its buffers."""
    expected = InFlightRequest(token, deadline) if request.expects_response else None
    return exchange.send(request, version, expected)


def receive(exchange: Exchange, frame: bytes) -> tuple[Any, Any]:
    """Return the token of the request, and the response."""
    request, response = exchange.receive(frame)
    return request.token, response


@pytest.mark.parametrize("version", range(5))
def test_a_request_and_its_answer(version: int) -> None:
    exchange = Exchange("client")
    frame = sent(send(exchange, HEARTBEAT, version, "token", deadline=5.0))

    header = decode_request_header(HeartbeatRequest, version, frame)
    assert (
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
    ) == (12, version, 1, "client")
    assert codec(HeartbeatRequest, version).decode(frame, header.body_offset) == HEARTBEAT

    response = HeartbeatResponse(error_code=27)
    assert len(exchange.in_flight) == 1
    assert receive(exchange, answer(HeartbeatRequest, version, 1, response)) == ("token", response)
    assert len(exchange.in_flight) == 0


@pytest.mark.parametrize("client_id", [None, "", "é" * 20])
def test_client_ids(client_id: str | None) -> None:
    frame = sent(send(Exchange(client_id), HEARTBEAT, 4, None))
    assert decode_request_header(HeartbeatRequest, 4, frame).client_id == client_id


def test_answers_come_in_order_and_ids_count_up() -> None:
    exchange = Exchange("c")
    frames = [sent(send(exchange, HEARTBEAT, 4, i)) for i in range(5)]
    assert [peek_request_header(f)[2] for f in frames] == [1, 2, 3, 4, 5]
    response = HeartbeatResponse()
    for i in range(5):
        assert receive(exchange, answer(HeartbeatRequest, 4, i + 1, response)) == (i, response)


def test_an_answer_out_of_order_is_an_error() -> None:
    exchange = Exchange("c")
    for i in range(2):
        send(exchange, HEARTBEAT, 4, i)
    with pytest.raises(CorrelationIdError, match=r"to request 1 \(HeartbeatRequest v4\).* 2"):
        receive(exchange, answer(HeartbeatRequest, 4, 2, HeartbeatResponse()))


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(CorrelationIdError, match="without a request"):
        receive(Exchange("c"), answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\xff", bytes(3)])
def test_an_answer_without_a_header_is_an_error(frame: bytes) -> None:
    exchange = Exchange("c")
    send(exchange, HEARTBEAT, 4, None)
    with pytest.raises(KafkaProtocolError):
        receive(exchange, frame)


def test_a_malformed_answer_is_an_error() -> None:
    exchange = Exchange("c")
    send(exchange, MetadataRequest(topics=None), 12, None)
    with pytest.raises(KafkaProtocolError, match="MetadataResponse v12"):
        receive(exchange, encode_response_header(MetadataRequest, 12, 1) + b"\xff" * 20)


def test_tagged_fields_in_the_header_of_an_answer_are_skipped() -> None:
    exchange = Exchange("c")
    send(exchange, HEARTBEAT, 4, "t")
    body = codec(HeartbeatResponse, 4).encode_bytes(HeartbeatResponse())
    assert receive(exchange, b"\0\0\0\x01\x01\x07\x02ab" + body) == ("t", HeartbeatResponse())


def test_produce_without_acks_takes_no_place() -> None:
    exchange = Exchange("c")
    data = [PartitionProduceData(index=0, records=b"r" * 5000)]
    topic = TopicProduceData(name="t", partition_data=data)
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic])
    frame = sent(send(exchange, silent, 9, "silent"))
    assert codec(ProduceRequest, 9).decode(frame, 12) == silent
    assert len(exchange.in_flight) == 0
    send(exchange, HEARTBEAT, 4, "next")
    assert receive(exchange, answer(HeartbeatRequest, 4, 2, HeartbeatResponse())) == (
        "next",
        HeartbeatResponse(),
    )


def test_a_response_to_a_request_without_acks_is_skipped() -> None:
    """Azure Event Hubs sends them."""
    exchange = Exchange("c")
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    for request in (HEARTBEAT, silent, silent, HEARTBEAT, silent):
        send(exchange, request, 4, "token")
    response = HeartbeatResponse()
    frames = [answer(HeartbeatRequest, 4, i, response) for i in range(1, 6)]
    skipped = []
    for i, frame in enumerate(frames, 1):
        if exchange.maybe_skip(frame):
            skipped.append(i)
        else:
            assert receive(exchange, frame) == ("token", response)
    assert skipped == [2, 3, 5]
    assert len(exchange.in_flight) == 0


def test_a_response_to_no_request_without_acks_is_not_skipped() -> None:
    exchange = Exchange("c")
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    first = answer(HeartbeatRequest, 4, 1, HeartbeatResponse())
    assert not exchange.maybe_skip(first)
    send(exchange, silent, 4, "silent")
    assert exchange.maybe_skip(first)
    send(exchange, HEARTBEAT, 4, "token")
    send(exchange, silent, 4, "silent")
    # Again, out of order, and not sent yet.
    for correlation_id in (1, 2, 3, 4, -1):
        assert not exchange.maybe_skip(struct.pack(">i", correlation_id))
    assert not exchange.maybe_skip(b"\0\0\0")


def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    exchange = Exchange("c")
    bad = HeartbeatRequest(group_id=7, generation_id=1, member_id="m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="group_id"):
        send(exchange, bad, 4, "bad")
    assert len(exchange.in_flight) == 0
    assert peek_request_header(sent(send(exchange, HEARTBEAT, 4, "good")))[2] == 1


def test_deadlines() -> None:
    assert Exchange("c").next_deadline is None
    assert Exchange("c").overdue(1e9) == []
    exchange = Exchange("c")
    send(exchange, HEARTBEAT, 4, "slow", deadline=30.0)
    send(exchange, MetadataRequest(topics=None), 1, "fast", deadline=10.0)
    assert exchange.next_deadline == 10.0
    assert exchange.overdue(9.9) == []
    assert [request.name for request in exchange.overdue(10.0)] == ["MetadataRequest v1"]
    assert [request.token for request in exchange.overdue(30.0)] == ["slow", "fast"]
    receive(exchange, answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))
    assert exchange.next_deadline == 10.0


def test_a_malformed_answer_leaves_its_request_to_be_drained() -> None:
    exchange = Exchange("c")
    send(exchange, HEARTBEAT, 4, "waits")
    with pytest.raises(KafkaProtocolError):
        receive(exchange, encode_response_header(HeartbeatRequest, 4, 1) + b"\xff")
    assert [request.token for request in exchange.drain()] == ["waits"]


def test_drain_gives_back_who_waits() -> None:
    exchange = Exchange("c")
    tokens = ["a", "b", "c"]
    for token in tokens:
        send(exchange, HEARTBEAT, 4, token)
    assert [request.token for request in exchange.drain()] == tokens
    assert not exchange.in_flight


def test_a_raw_token_and_its_answer() -> None:
    exchange = Exchange("c")
    assert sent(exchange.send_raw(b"token", InFlightRequest("sasl", 3.0))) == b"token"
    assert exchange.next_deadline == 3.0
    assert [request.name for request in exchange.overdue(3.0)] == ["SASL token"]
    assert receive(exchange, b"challenge") == ("sasl", b"challenge")


# -- ApiVersions (KIP-511)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_without_tagged_fields_in_the_header(version: int) -> None:
    exchange = Exchange("c")
    hello = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    send(exchange, hello, version, "t")
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=9)])
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, version).encode_bytes(response)
    assert receive(exchange, frame) == ("t", response)


@pytest.mark.parametrize("keys", [0, 1, 3])
@pytest.mark.parametrize("version", range(1, 5))
def test_an_old_broker_answers_api_versions_in_version_0(version: int, keys: int) -> None:
    exchange = Exchange("c")
    send(exchange, ApiVersionsRequest(), version, "t")
    key = ApiVersion(api_key=18, min_version=0, max_version=2)
    response = ApiVersionsResponse(error_code=35, api_keys=[key] * keys)
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, 0).encode_bytes(response)
    assert receive(exchange, frame) == ("t", response)


@pytest.mark.parametrize("version", range(1, 5))
def test_an_old_broker_behind_a_gateway_answers_in_the_version_that_was_asked(version: int) -> None:
    """Kroxylicious put the response in version 0 into that one, and no connection was ever made."""
    exchange = Exchange("c")
    send(exchange, ApiVersionsRequest(), version, "t")
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, version).encode_bytes(response)
    assert receive(exchange, frame) == ("t", response)


# -- headers, as the broker reads them


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x0c\0\x04\0\0\0\x01",
        b"\0\x0c\0\x04\0\0\0\x01\0\x09abc",
        b"\0\x0c\0\x04\0\0\0\1\x80\0",
    ],
)
def test_malformed_request_headers(frame: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        decode_request_header(HeartbeatRequest, 4, frame)


def test_a_request_too_short_to_have_a_header() -> None:
    with pytest.raises(KafkaProtocolError, match="7 bytes"):
        peek_request_header(bytes(7))


def test_metadata_of_two_exchanges_do_not_mix() -> None:
    one, two = Exchange("one"), Exchange("two")
    send(one, MetadataRequest(topics=None), 9, 1)
    send(two, HEARTBEAT, 4, 2)
    response = MetadataResponse(brokers=[], topics=[])
    assert receive(one, answer(MetadataRequest, 9, 1, response)) == (1, response)
    assert receive(two, answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))[0] == 2
