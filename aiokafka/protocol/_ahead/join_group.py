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
from aiokafka.protocol.messages.join_group import (JoinGroupResponse, JoinGroupResponseMember)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_ii = packing('ii').pack
unpack_ihiB = packing('ihiB').unpack_from
unpack_BB = packing('BB').unpack_from


def encode_JoinGroupRequest_v9(o, out):
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
    out += pack_ii(o.session_timeout_ms, o.rebalance_timeout_ms)
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
    v7 = o.protocol_type
    v7 = v7.encode()
    n8 = len(v7) + 1
    if n8 < 128:
        out.append(n8)
    else:
        put_long_length(out, n8)
    out += v7
    v9 = o.protocols
    if type(v9) is not list:
        v9 = as_list(v9)
    n10 = len(v9) + 1
    if n10 < 128:
        out.append(n10)
    else:
        put_uvarint(out, n10)
    for o11 in v9:
        v12 = o11.name
        v12 = v12.encode()
        n13 = len(v12) + 1
        if n13 < 128:
            out.append(n13)
        else:
            put_long_length(out, n13)
        out += v12
        v14 = o11.metadata
        if type(v14) is not bytes:
            v14 = as_bytes(v14)
        n15 = len(v14) + 1
        if n15 < 128:
            out.append(n15)
        else:
            put_uvarint(out, n15)
        out += v14
        out += b'\x00'
    if o.reason is None:
        out.append(0)
    else:
        v16 = o.reason
        v16 = v16.encode()
        n17 = len(v16) + 1
        if n17 < 128:
            out.append(n17)
        else:
            put_long_length(out, n17)
        out += v16
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_JoinGroupResponse_v9(buf, pos):
    size = len(buf)
    o1 = new(JoinGroupResponse)
    (o1.throttle_time_ms, o1.error_code, o1.generation_id, n2,) = unpack_ihiB(buf, pos)
    pos += 11
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
    e7 = pos + n6
    if not pos <= e7 <= size:
        raise bad_length('leader', n6, size - pos)
    o1.leader = buf[pos:e7].decode()
    pos = e7
    (b8, n9,) = unpack_BB(buf, pos)
    pos += 2
    o1.skip_assignment = bools[b8]
    if n9 > 127:
        n9, pos = uvarint(buf, pos - 1)
    n9 -= 1
    e10 = pos + n9
    if not pos <= e10 <= size:
        raise bad_length('member_id', n9, size - pos)
    o1.member_id = buf[pos:e10].decode()
    pos = e10
    n11 = buf[pos]
    pos += 1
    if n11 > 127:
        n11, pos = uvarint(buf, pos - 1)
    n11 -= 1
    if not 0 <= n11 <= (size - pos) // 4:
        raise bad_length('members[]', n11, size - pos)
    a12 = []
    for _ in range(n11):
        o13 = new(JoinGroupResponseMember)
        n14 = buf[pos]
        pos += 1
        if n14 > 127:
            n14, pos = uvarint(buf, pos - 1)
        n14 -= 1
        e15 = pos + n14
        if not pos <= e15 <= size:
            raise bad_length('members[].member_id', n14, size - pos)
        o13.member_id = buf[pos:e15].decode()
        pos = e15
        n16 = buf[pos]
        pos += 1
        if n16 > 127:
            n16, pos = uvarint(buf, pos - 1)
        n16 -= 1
        if n16 == -1:
            o13.group_instance_id = None
        else:
            e17 = pos + n16
            if not pos <= e17 <= size:
                raise bad_length('members[].group_instance_id', n16, size - pos)
            o13.group_instance_id = buf[pos:e17].decode()
            pos = e17
        n18 = buf[pos]
        pos += 1
        if n18 > 127:
            n18, pos = uvarint(buf, pos - 1)
        n18 -= 1
        if n18 == -1:
            n18 = 0
        e19 = pos + n18
        if not pos <= e19 <= size:
            raise bad_length('members[].metadata', n18, size - pos)
        o13.metadata = bytes(buf[pos:e19])
        pos = e19
        n20 = buf[pos]
        pos += 1
        if n20:
            pos = skip_tags(buf, pos - 1, size)
        a12.append(o13)
    o1.members = a12
    n21 = buf[pos]
    pos += 1
    if n21:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
