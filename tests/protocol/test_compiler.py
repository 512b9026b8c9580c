"""The wire itself: known bytes, tagged fields, separate record sets, hostile input."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import Codec, codec
from aiokafka.protocol.messages.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolSubscription,
    HeartbeatResponse,
)
from aiokafka.protocol.messages.metadata import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from aiokafka.protocol.messages.sasl import SaslHandshakeRequest


def produce(records: bytes | memoryview | None) -> ProduceRequest:
    data = [PartitionProduceData(index=i, records=records) for i in range(2)]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])


def test_known_bytes() -> None:
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    assert codec(SaslHandshakeRequest, 1).encode_bytes(handshake) == b"\x00\x05PLAIN"
    every_topic = MetadataRequest(topics=None)
    assert codec(MetadataRequest, 1).encode_bytes(every_topic) == b"\xff\xff\xff\xff"
    assert codec(MetadataRequest, 12).encode_bytes(every_topic) == b"\x00\x01\x00\x00"


# -- record sets


def test_long_record_sets_are_neither_copied_nor_joined() -> None:
    records = memoryview(bytes(5000))
    out = bytearray(b"header")
    buffers = codec(ProduceRequest, 9).encode(produce(records), out)
    assert buffers[0] is out
    assert out.startswith(b"header")
    assert [buffer is records for buffer in buffers] == [False, True, False, True, False]
    assert codec(ProduceRequest, 9).decode(b"".join(buffers), 6) == produce(records)


def test_short_record_sets_are_joined() -> None:
    assert len(codec(ProduceRequest, 9).encode(produce(b"short"))) == 1


def test_decoded_record_sets_are_views_of_the_frame() -> None:
    frame = bytearray(codec(ProduceRequest, 9).encode_bytes(produce(b"batch" * 500)))
    records = codec(ProduceRequest, 9).decode(frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_wide_memoryviews_are_measured_in_bytes() -> None:
    wide = memoryview(bytes(4000)).cast("i")
    wire = codec(ProduceRequest, 9)
    assert wire.encode_bytes(produce(wide)) == wire.encode_bytes(produce(bytes(4000)))


# -- tagged fields


def partition(**tagged: object) -> FetchResponse:
    data = PartitionData(partition_index=1, high_watermark=2, **tagged)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


def test_tagged_fields_are_sent_only_if_they_differ_from_their_defaults() -> None:
    wire = codec(FetchResponse, 12)
    plain = wire.encode_bytes(partition())
    assert wire.encode_bytes(partition(diverging_epoch=DivergingEpoch())) == plain
    tagged = partition(diverging_epoch=DivergingEpoch(epoch=3, end_offset=9))
    assert len(wire.encode_bytes(tagged)) == len(plain) + 2 + 12 + 1
    assert wire.decode(wire.encode_bytes(tagged)) == tagged


def test_unknown_tagged_fields_are_skipped() -> None:
    wire = codec(HeartbeatResponse, 4)
    plain = wire.encode_bytes(HeartbeatResponse(error_code=27))
    assert plain.endswith(b"\0")
    extended = plain[:-1] + b"\x02\x05\x03abc\x80\x01\x00"
    assert wire.decode(extended) == HeartbeatResponse(error_code=27)
    assert wire.encode_bytes(wire.decode(extended)) == plain


def test_unknown_tags_stand_beside_known_ones() -> None:
    wire = codec(ApiVersionsResponse, 3)
    plain = wire.encode_bytes(ApiVersionsResponse(api_keys=[], finalized_features_epoch=7))
    assert plain.endswith(b"\x01\x01\x08" + struct.pack(">q", 7))
    extended = plain[:-11] + b"\x02" + plain[-10:] + b"\x63\x02zz"
    assert wire.decode(extended).finalized_features_epoch == 7


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (b"\x02\x01\x08" + bytes(8) + b"\x01\x08" + bytes(8), "tag"),  # twice the same
        (b"\x01\x01\x07" + bytes(7), "truncated"),  # too short for its type
        (b"\x01\x01\x09" + bytes(9), "length"),  # too long
        (b"\x01\x01\x7f" + bytes(8), "length"),  # beyond the end
        (b"\xff\xff\xff\xff\x0f", "truncated"),  # a count without fields
    ],
)
def test_malformed_tagged_fields(section: bytes, why: str) -> None:
    wire = codec(ApiVersionsResponse, 3)
    plain = wire.encode_bytes(ApiVersionsResponse(api_keys=[]))
    with pytest.raises(KafkaProtocolError, match=why):
        wire.decode(plain[:-1] + section)


# -- hostile input


@pytest.mark.parametrize("version", [0, 5, 9, 13])
def test_a_claimed_count_is_not_believed(version: int) -> None:
    """Two thousand million brokers in a few bytes: refused before memory is taken for them."""
    claim = b"\xff\xff\xff\xff\x07" if version >= 9 else b"\x7f\xff\xff\xff"
    hostile = (b"" if version < 3 else bytes(4)) + claim + bytes(64)
    wire = codec(MetadataResponse, version)
    with pytest.raises(KafkaProtocolError):
        wire.decode(b"\xff")  # compile first
    tracemalloc.start()
    try:
        with pytest.raises(KafkaProtocolError, match=r"brokers\[\]: length \d+ exceeds"):
            wire.decode(hostile)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_claimed_count_of_integers_is_not_believed() -> None:
    wire = codec(ConsumerProtocolSubscription, 0)
    for bad in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02\x00\x01a"):
        with pytest.raises(KafkaProtocolError):
            wire.decode(bad + b"\x00\x00")


def test_each_kind_of_malformed_value() -> None:
    cases: list[tuple[Codec[Any], bytes, str]] = [
        (codec(SaslHandshakeRequest, 0), b"\x00\x02\xc3\x28", "not UTF-8"),
        (codec(SaslHandshakeRequest, 0), b"\xff\xff", "null or a negative length"),
        (
            codec(SaslHandshakeRequest, 0),
            b"\x00\x05ab",
            "mechanism: length 5 exceeds the remaining 2 bytes",
        ),
        (codec(SaslHandshakeRequest, 0), b"\x00\x01ab", "1 bytes are left over"),
        (codec(SaslHandshakeRequest, 0), b"\x00", "truncated"),
        (codec(MetadataRequest, 4), b"\xff\xff\xff\xff\x02", "boolean"),
        (codec(MetadataRequest, 4), b"\xff\xff\xff\xfe\x01", "topics"),
        (codec(MetadataRequest, 9), b"\xff\xff\xff\xff\xff\x01", "varint"),
        (
            codec(ConsumerGroupHeartbeatResponse, 0),
            bytes(6) + b"\x00\x00" + bytes(8) + b"\x07" + bytes(4),
            "assignment: 7 is not a valid value",
        ),
    ]
    for wire, data, why in cases:
        with pytest.raises(KafkaProtocolError, match=why):
            wire.decode(data)


def test_decode_prefix_leaves_the_rest() -> None:
    wire = codec(SaslHandshakeRequest, 0)
    assert wire.decode_prefix(b"\x00\x01abc") == (SaslHandshakeRequest(mechanism="a"), 3)
