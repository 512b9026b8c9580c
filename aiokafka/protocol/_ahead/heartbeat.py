# mypy: ignore-errors
"""Codecs of the newest version. Written by `python -m tests.house.codecs`."""

from aiokafka.protocol._decoder import _bad_length as bad_length
from aiokafka.protocol._decoder import _bad_value as bad_value
from aiokafka.protocol._decoder import _Unpackers
from aiokafka.protocol._encoder import _as_bytes as as_bytes
from aiokafka.protocol._encoder import _as_list as as_list
from aiokafka.protocol._encoder import _as_uuid as as_uuid
from aiokafka.protocol._encoder import _Packers
from aiokafka.protocol._encoder import _put_long_length as put_long_length
from aiokafka.protocol._encoder import _unsupported as unsupported
from aiokafka.protocol._source import packing
from aiokafka.protocol.messages.heartbeat import (HeartbeatResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_i = packing('i').pack
unpack_ihB = packing('ihB').unpack_from


def encode_HeartbeatRequest_v4(o, out):
    chunks = []
    v1 = o.group_id
    v1 = v1.encode()
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_long_length(out, n2)
    out += v1
    v3 = o.member_id
    v3 = v3.encode()
    out += pack_i(o.generation_id)
    n4 = len(v3) + 1
    if n4 < 128:
        out.append(n4)
    else:
        put_long_length(out, n4)
    out += v3
    if o.group_instance_id is None:
        out.append(0)
    else:
        v5 = o.group_instance_id
        v5 = v5.encode()
        n6 = len(v5) + 1
        if n6 < 128:
            out.append(n6)
        else:
            put_long_length(out, n6)
        out += v5
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_HeartbeatResponse_v4(buf, pos):
    size = len(buf)
    o1 = new(HeartbeatResponse)
    (o1.throttle_time_ms, o1.error_code, n2,) = unpack_ihB(buf, pos)
    pos += 7
    if n2:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
