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
from aiokafka.protocol.messages.find_coordinator import (Coordinator, FindCoordinatorResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = ''
pack_b = packing('b').pack
unpack_iB = packing('iB').unpack_from
unpack_ihB = packing('ihB').unpack_from


def encode_FindCoordinatorRequest_v6(o, out):
    chunks = []
    if o.key is not default0 and o.key != default0:
        raise unsupported(o, 'key', 6)
    v1 = o.coordinator_keys
    if type(v1) is not list:
        v1 = as_list(v1)
    out += pack_b(o.key_type)
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_uvarint(out, n2)
    for o3 in v1:
        v4 = o3
        v4 = v4.encode()
        n5 = len(v4) + 1
        if n5 < 128:
            out.append(n5)
        else:
            put_long_length(out, n5)
        out += v4
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_FindCoordinatorResponse_v6(buf, pos):
    size = len(buf)
    o1 = new(FindCoordinatorResponse)
    (o1.throttle_time_ms, n2,) = unpack_iB(buf, pos)
    pos += 5
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 14:
        raise bad_length('coordinators[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(Coordinator)
        n5 = buf[pos]
        pos += 1
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        e6 = pos + n5
        if not pos <= e6 <= size:
            raise bad_length('coordinators[].key', n5, size - pos)
        o4.key = buf[pos:e6].decode()
        pos = e6
        (o4.node_id, n7,) = unpack_iB(buf, pos)
        pos += 5
        if n7 > 127:
            n7, pos = uvarint(buf, pos - 1)
        n7 -= 1
        e8 = pos + n7
        if not pos <= e8 <= size:
            raise bad_length('coordinators[].host', n7, size - pos)
        o4.host = buf[pos:e8].decode()
        pos = e8
        (o4.port, o4.error_code, n9,) = unpack_ihB(buf, pos)
        pos += 7
        if n9 > 127:
            n9, pos = uvarint(buf, pos - 1)
        n9 -= 1
        if n9 == -1:
            o4.error_message = None
        else:
            e10 = pos + n9
            if not pos <= e10 <= size:
                raise bad_length('coordinators[].error_message', n9, size - pos)
            o4.error_message = buf[pos:e10].decode()
            pos = e10
        n11 = buf[pos]
        pos += 1
        if n11:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.coordinators = a3
    n12 = buf[pos]
    pos += 1
    if n12:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
