"""Requests and answers on one stream."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aiokafka.errors import CorrelationIdError, KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.exchange import (
    Exchange,
    decode_request_header,
    encode_response_header,
    peek_request_header,
)
from aiokafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
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


@pytest.mark.parametrize("version", range(5))
def test_a_request_and_its_answer(version: int) -> None:
    exchange: Exchange[str] = Exchange("client")
    frame = sent(exchange.send(HEARTBEAT, version, 5.0, "token"))

    header = decode_request_header(HeartbeatRequest, version, frame)
    assert (
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
    ) == (12, version, 1, "client")
    assert codec(HeartbeatRequest, version).decode(frame, header.body_offset) == HEARTBEAT

    response = HeartbeatResponse(error_code=27)
    assert len(exchange) == 1
    assert exchange.receive(answer(HeartbeatRequest, version, 1, response)) == ("token", response)
    assert len(exchange) == 0


@pytest.mark.parametrize("client_id", [None, "", "é" * 20])
def test_client_ids(client_id: str | None) -> None:
    frame = sent(Exchange[None](client_id).send(HEARTBEAT, 4, 0.0, None))
    assert decode_request_header(HeartbeatRequest, 4, frame).client_id == client_id


def test_answers_come_in_order_and_ids_count_up() -> None:
    exchange: Exchange[int] = Exchange("c")
    frames = [sent(exchange.send(HEARTBEAT, 4, 0.0, i)) for i in range(5)]
    assert [peek_request_header(f)[2] for f in frames] == [1, 2, 3, 4, 5]
    response = HeartbeatResponse()
    for i in range(5):
        assert exchange.receive(answer(HeartbeatRequest, 4, i + 1, response)) == (i, response)


def test_an_answer_out_of_order_is_an_error() -> None:
    exchange: Exchange[int] = Exchange("c")
    for i in range(2):
        exchange.send(HEARTBEAT, 4, 0.0, i)
    with pytest.raises(CorrelationIdError, match=r"to request 1 \(HeartbeatRequest v4\).* 2"):
        exchange.receive(answer(HeartbeatRequest, 4, 2, HeartbeatResponse()))


def test_an_answer_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(CorrelationIdError, match="without a request"):
        Exchange[None]("c").receive(answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\xff", bytes(3)])
def test_an_answer_without_a_header_is_an_error(frame: bytes) -> None:
    exchange: Exchange[None] = Exchange("c")
    exchange.send(HEARTBEAT, 4, 0.0, None)
    with pytest.raises(KafkaProtocolError):
        exchange.receive(frame)


def test_a_malformed_answer_is_an_error() -> None:
    exchange: Exchange[None] = Exchange("c")
    exchange.send(MetadataRequest(topics=None), 12, 0.0, None)
    with pytest.raises(KafkaProtocolError, match="MetadataResponse v12"):
        exchange.receive(encode_response_header(MetadataRequest, 12, 1) + b"\xff" * 20)


def test_tagged_fields_in_the_header_of_an_answer_are_skipped() -> None:
    exchange: Exchange[str] = Exchange("c")
    exchange.send(HEARTBEAT, 4, 0.0, "t")
    body = codec(HeartbeatResponse, 4).encode_bytes(HeartbeatResponse())
    assert exchange.receive(b"\0\0\0\x01\x01\x07\x02ab" + body) == ("t", HeartbeatResponse())


def test_a_cancelled_request_keeps_its_place() -> None:
    exchange: Exchange[str] = Exchange("c")
    tokens = ["a", "b", "c"]
    for token in tokens:
        exchange.send(HEARTBEAT, 4, 0.0, token)
    exchange.cancel(tokens[1])
    assert len(exchange) == 3
    answers = [answer(HeartbeatRequest, 4, i, HeartbeatResponse()) for i in (1, 3)]
    assert exchange.receive(answers[0]) == ("a", HeartbeatResponse())
    # Not even decoded: the content does not matter.
    assert exchange.receive(encode_response_header(HeartbeatRequest, 4, 2) + b"\xff") is None
    assert exchange.receive(answers[1]) == ("c", HeartbeatResponse())


def test_produce_without_acks_takes_no_place() -> None:
    exchange: Exchange[str] = Exchange("c")
    data = [PartitionProduceData(index=0, records=b"r" * 5000)]
    topic = TopicProduceData(name="t", partition_data=data)
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic])
    frame = sent(exchange.send(silent, 9, 0.0, "silent"))
    assert codec(ProduceRequest, 9).decode(frame, 12) == silent
    assert len(exchange) == 0
    exchange.send(HEARTBEAT, 4, 0.0, "next")
    assert exchange.receive(answer(HeartbeatRequest, 4, 2, HeartbeatResponse())) == (
        "next",
        HeartbeatResponse(),
    )


def test_a_response_to_a_request_without_acks_is_skipped() -> None:
    """Azure Event Hubs sends them."""
    exchange: Exchange[str] = Exchange("c")
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    for request in (HEARTBEAT, silent, silent, HEARTBEAT, silent):
        exchange.send(request, 4, 0.0, "token")
    response = HeartbeatResponse()
    frames = [answer(HeartbeatRequest, 4, i, response) for i in range(1, 6)]
    skipped = []
    for i, frame in enumerate(frames, 1):
        if exchange.maybe_skip(frame):
            skipped.append(i)
        else:
            assert exchange.receive(frame) == ("token", response)
    assert skipped == [2, 3, 5]
    assert len(exchange) == 0


def test_a_response_to_no_request_without_acks_is_not_skipped() -> None:
    exchange: Exchange[str] = Exchange("c")
    silent = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    first = answer(HeartbeatRequest, 4, 1, HeartbeatResponse())
    assert not exchange.maybe_skip(first)
    exchange.send(silent, 4, 0.0, "silent")
    assert exchange.maybe_skip(first)
    exchange.send(HEARTBEAT, 4, 0.0, "token")
    exchange.send(silent, 4, 0.0, "silent")
    # Again, out of order, and not sent yet.
    for correlation_id in (1, 2, 3, 4, -1):
        assert not exchange.maybe_skip(struct.pack(">i", correlation_id))
    assert not exchange.maybe_skip(b"\0\0\0")


def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    exchange: Exchange[str] = Exchange("c")
    bad = HeartbeatRequest(group_id=7, generation_id=1, member_id="m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="group_id"):
        exchange.send(bad, 4, 0.0, "bad")
    assert len(exchange) == 0
    assert peek_request_header(sent(exchange.send(HEARTBEAT, 4, 0.0, "good")))[2] == 1


def test_deadlines() -> None:
    assert Exchange[str]("c").next_deadline is None
    assert Exchange[str]("c").overdue(1e9) is None
    exchange: Exchange[str] = Exchange("c")
    exchange.send(HEARTBEAT, 4, 30.0, "slow")
    exchange.send(MetadataRequest(topics=None), 1, 10.0, "fast")
    assert exchange.next_deadline == 10.0
    assert exchange.overdue(9.9) is None
    assert exchange.overdue(10.0) == "MetadataRequest v1"
    assert exchange.overdue_tokens(10.0) == ["fast"]
    assert exchange.overdue_tokens(30.0) == ["slow", "fast"]
    exchange.receive(answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))
    exchange.cancel("fast")
    assert exchange.next_deadline == 10.0  # its response is still owed


def test_a_malformed_answer_leaves_its_request_to_be_drained() -> None:
    exchange: Exchange[str] = Exchange("c")
    exchange.send(HEARTBEAT, 4, 0.0, "waits")
    with pytest.raises(KafkaProtocolError):
        exchange.receive(encode_response_header(HeartbeatRequest, 4, 1) + b"\xff")
    assert exchange.drain() == ["waits"]


def test_drain_gives_back_who_waits() -> None:
    exchange: Exchange[str] = Exchange("c")
    tokens = ["a", "b", "c"]
    for token in tokens:
        exchange.send(HEARTBEAT, 4, 0.0, token)
    exchange.cancel(tokens[0])
    assert exchange.drain() == ["b", "c"]
    assert len(exchange) == 0


def test_a_raw_token_and_its_answer() -> None:
    exchange: Exchange[str] = Exchange("c")
    assert sent(exchange.send_raw(b"token", 3.0, "sasl")) == b"token"
    assert exchange.next_deadline == 3.0
    assert exchange.overdue(3.0) == "SASL token"
    assert exchange.receive(b"challenge") == ("sasl", b"challenge")


# -- ApiVersions (KIP-511)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_without_tagged_fields_in_the_header(version: int) -> None:
    exchange: Exchange[str] = Exchange("c")
    hello = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    exchange.send(hello, version, 0.0, "t")
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=9)])
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, version).encode_bytes(response)
    assert exchange.receive(frame) == ("t", response)


@pytest.mark.parametrize("keys", [0, 1, 3])
@pytest.mark.parametrize("version", range(1, 5))
def test_an_old_broker_answers_api_versions_in_version_0(version: int, keys: int) -> None:
    exchange: Exchange[str] = Exchange("c")
    exchange.send(ApiVersionsRequest(), version, 0.0, "t")
    key = ApiVersion(api_key=18, min_version=0, max_version=2)
    response = ApiVersionsResponse(error_code=35, api_keys=[key] * keys)
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, 0).encode_bytes(response)
    assert exchange.receive(frame) == ("t", response)


@pytest.mark.parametrize("version", range(1, 5))
def test_an_old_broker_behind_a_gateway_answers_in_the_version_that_was_asked(version: int) -> None:
    """Kroxylicious put the response in version 0 into that one, and no connection was ever made."""
    exchange: Exchange[str] = Exchange("c")
    exchange.send(ApiVersionsRequest(), version, 0.0, "t")
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    frame = b"\0\0\0\x01" + codec(ApiVersionsResponse, version).encode_bytes(response)
    assert exchange.receive(frame) == ("t", response)


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
    one, two = Exchange[int]("one"), Exchange[int]("two")
    one.send(MetadataRequest(topics=None), 9, 0.0, 1)
    two.send(HEARTBEAT, 4, 0.0, 2)
    response = MetadataResponse(brokers=[], topics=[])
    assert one.receive(answer(MetadataRequest, 9, 1, response)) == (1, response)
    assert two.receive(answer(HeartbeatRequest, 4, 1, HeartbeatResponse()))[0] == 2  # type: ignore[index]
