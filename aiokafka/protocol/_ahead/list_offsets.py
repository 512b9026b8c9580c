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
from aiokafka.protocol.messages.list_offsets import (ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = 1
pack_ib = packing('ib').pack
pack_iiqx = packing('iiqx').pack
pack_ix = packing('ix').pack
unpack_iB = packing('iB').unpack_from
unpack_ihqqiB = packing('ihqqiB').unpack_from


def encode_ListOffsetsRequest_v11(o, out):
    chunks = []
    v1 = o.topics
    if type(v1) is not list:
        v1 = as_list(v1)
    out += pack_ib(o.replica_id, o.isolation_level)
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_uvarint(out, n2)
    for o3 in v1:
        v4 = o3.name
        v4 = v4.encode()
        n5 = len(v4) + 1
        if n5 < 128:
            out.append(n5)
        else:
            put_long_length(out, n5)
        out += v4
        v6 = o3.partitions
        if type(v6) is not list:
            v6 = as_list(v6)
        n7 = len(v6) + 1
        if n7 < 128:
            out.append(n7)
        else:
            put_uvarint(out, n7)
        for o8 in v6:
            if o8.max_num_offsets is not default0 and o8.max_num_offsets != default0:
                raise unsupported(o8, 'max_num_offsets', 11)
            out += pack_iiqx(o8.partition_index, o8.current_leader_epoch, o8.timestamp)
        out += b'\x00'
    out += pack_ix(o.timeout_ms)
    chunks.append(out)
    return chunks


def decode_ListOffsetsResponse_v11(buf, pos):
    size = len(buf)
    o1 = new(ListOffsetsResponse)
    (o1.throttle_time_ms, n2,) = unpack_iB(buf, pos)
    pos += 5
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 3:
        raise bad_length('topics[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(ListOffsetsTopicResponse)
        n5 = buf[pos]
        pos += 1
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        e6 = pos + n5
        if not pos <= e6 <= size:
            raise bad_length('topics[].name', n5, size - pos)
        o4.name = buf[pos:e6].decode()
        pos = e6
        n7 = buf[pos]
        pos += 1
        if n7 > 127:
            n7, pos = uvarint(buf, pos - 1)
        n7 -= 1
        if not 0 <= n7 <= (size - pos) // 27:
            raise bad_length('topics[].partitions[]', n7, size - pos)
        a8 = []
        for _ in range(n7):
            o9 = new(ListOffsetsPartitionResponse)
            (o9.partition_index, o9.error_code, o9.timestamp, o9.offset, o9.leader_epoch, n10,) = unpack_ihqqiB(buf, pos)
            pos += 27
            if n10:
                pos = skip_tags(buf, pos - 1, size)
            a8.append(o9)
        o4.partitions = a8
        n11 = buf[pos]
        pos += 1
        if n11:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.topics = a3
    n12 = buf[pos]
    pos += 1
    if n12:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
