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
from aiokafka.protocol.messages.sync_group import (SyncGroupResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_i = packing('i').pack
unpack_ihB = packing('ihB').unpack_from


def encode_SyncGroupRequest_v5(o, out):
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
    if o.protocol_type is None:
        out.append(0)
    else:
        v7 = o.protocol_type
        v7 = v7.encode()
        n8 = len(v7) + 1
        if n8 < 128:
            out.append(n8)
        else:
            put_long_length(out, n8)
        out += v7
    if o.protocol_name is None:
        out.append(0)
    else:
        v9 = o.protocol_name
        v9 = v9.encode()
        n10 = len(v9) + 1
        if n10 < 128:
            out.append(n10)
        else:
            put_long_length(out, n10)
        out += v9
    v11 = o.assignments
    if type(v11) is not list:
        v11 = as_list(v11)
    n12 = len(v11) + 1
    if n12 < 128:
        out.append(n12)
    else:
        put_uvarint(out, n12)
    for o13 in v11:
        v14 = o13.member_id
        v14 = v14.encode()
        n15 = len(v14) + 1
        if n15 < 128:
            out.append(n15)
        else:
            put_long_length(out, n15)
        out += v14
        v16 = o13.assignment
        if type(v16) is not bytes:
            v16 = as_bytes(v16)
        n17 = len(v16) + 1
        if n17 < 128:
            out.append(n17)
        else:
            put_uvarint(out, n17)
        out += v16
        out += b'\x00'
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_SyncGroupResponse_v5(buf, pos):
    size = len(buf)
    o1 = new(SyncGroupResponse)
    (o1.throttle_time_ms, o1.error_code, n2,) = unpack_ihB(buf, pos)
    pos += 7
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if n2 == -1:
        o1.protocol_type = None
    else:
        e3 = pos + n2
        if not pos <= e3 <= size:
            raise bad_length('protocol_type', n2, size - pos)
        o1.protocol_type = buf[pos:e3].decode()
        pos = e3
    n4 = buf[pos]
    pos += 1
    if n4 > 127:
        n4, pos = uvarint(buf, pos - 1)
    n4 -= 1
    if n4 == -1:
        o1.protocol_name = None
    else:
        e5 = pos + n4
        if not pos <= e5 <= size:
            raise bad_length('protocol_name', n4, size - pos)
        o1.protocol_name = buf[pos:e5].decode()
        pos = e5
    n6 = buf[pos]
    pos += 1
    if n6 > 127:
        n6, pos = uvarint(buf, pos - 1)
    n6 -= 1
    if n6 == -1:
        n6 = 0
    e7 = pos + n6
    if not pos <= e7 <= size:
        raise bad_length('assignment', n6, size - pos)
    o1.assignment = bytes(buf[pos:e7])
    pos = e7
    n8 = buf[pos]
    pos += 1
    if n8:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
