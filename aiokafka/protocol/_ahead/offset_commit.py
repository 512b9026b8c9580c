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
from aiokafka.protocol.messages.offset_commit import (OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = -1
pack_i = packing('i').pack
pack_16s = packing('16s').pack
pack_iqi = packing('iqi').pack
unpack_iB = packing('iB').unpack_from
unpack_16sB = packing('16sB').unpack_from
unpack_ihB = packing('ihB').unpack_from


def encode_OffsetCommitRequest_v10(o, out):
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
    out += pack_i(o.generation_id_or_member_epoch)
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
    v7 = o.topics
    if type(v7) is not list:
        v7 = as_list(v7)
    n8 = len(v7) + 1
    if n8 < 128:
        out.append(n8)
    else:
        put_uvarint(out, n8)
    for o9 in v7:
        v10 = o9.partitions
        if type(v10) is not list:
            v10 = as_list(v10)
        out += pack_16s(as_uuid(o9.topic_id))
        n11 = len(v10) + 1
        if n11 < 128:
            out.append(n11)
        else:
            put_uvarint(out, n11)
        for o12 in v10:
            if o12.commit_timestamp is not default0 and o12.commit_timestamp != default0:
                raise unsupported(o12, 'commit_timestamp', 10)
            out += pack_iqi(o12.partition_index, o12.committed_offset, o12.committed_leader_epoch)
            if o12.committed_metadata is None:
                out.append(0)
            else:
                v13 = o12.committed_metadata
                v13 = v13.encode()
                n14 = len(v13) + 1
                if n14 < 128:
                    out.append(n14)
                else:
                    put_long_length(out, n14)
                out += v13
            out += b'\x00'
        out += b'\x00'
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_OffsetCommitResponse_v10(buf, pos):
    size = len(buf)
    o1 = new(OffsetCommitResponse)
    (o1.throttle_time_ms, n2,) = unpack_iB(buf, pos)
    pos += 5
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 18:
        raise bad_length('topics[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(OffsetCommitResponseTopic)
        (o4.topic_id, n5,) = unpack_16sB(buf, pos)
        pos += 17
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        if not 0 <= n5 <= (size - pos) // 7:
            raise bad_length('topics[].partitions[]', n5, size - pos)
        a6 = []
        for _ in range(n5):
            o7 = new(OffsetCommitResponsePartition)
            (o7.partition_index, o7.error_code, n8,) = unpack_ihB(buf, pos)
            pos += 7
            if n8:
                pos = skip_tags(buf, pos - 1, size)
            a6.append(o7)
        o4.partitions = a6
        n9 = buf[pos]
        pos += 1
        if n9:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.topics = a3
    n10 = buf[pos]
    pos += 1
    if n10:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
