"""What is encoded comes back, in every message at every version."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import Codec, codec
from aiokafka.protocol.schema import Message
from tests.protocol.catalogue import all_messages, draw_for_versions

QUICK = settings(
    max_examples=5,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
every_message = pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)


@every_message
@QUICK
@given(data=st.data())
def test_every_version_round_trips(cls: type[Message], data: st.DataObject) -> None:
    for version, message in draw_for_versions(data, cls):
        wire = codec(cls, version)
        encoded = wire.encode_bytes(message)
        assert wire.decode(encoded) == message
        assert wire.decode(memoryview(b"head" + encoded), 4) == message
        assert wire.encode_bytes(wire.decode(bytearray(encoded))) == encoded
        assert_only_the_whole_is_accepted(wire, encoded, data.draw(st.integers(0, 2**16)))


def assert_only_the_whole_is_accepted(wire: Codec[Message], encoded: bytes, cut: int) -> None:
    parts = [encoded + b"\0"]
    if encoded:
        parts += [encoded[: cut % len(encoded)], encoded[:-1]]
    for part in parts:
        with pytest.raises(KafkaProtocolError):
            wire.decode(part)


@every_message
@QUICK
@given(data=st.data())
def test_damaged_bytes_raise_nothing_but_a_protocol_error(
    cls: type[Message], data: st.DataObject
) -> None:
    for version, message in draw_for_versions(data, cls):
        wire = codec(cls, version)
        damaged = bytearray(wire.encode_bytes(message))
        for position, byte in data.draw(st.lists(st.tuples(st.integers(0), st.integers(0, 255)))):
            if damaged:
                damaged[position % len(damaged)] = byte
        for hostile in (damaged, data.draw(st.binary(max_size=64))):
            try:
                wire.decode(hostile)
            except KafkaProtocolError:
                pass
