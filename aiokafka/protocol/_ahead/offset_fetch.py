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
from aiokafka.protocol.messages.offset_fetch import (OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = ''
pack_i = packing('i').pack
pack_16s = packing('16s').pack
packers_i = _Packers('i')
pack_Bx = packing('Bx').pack
unpack_iB = packing('iB').unpack_from
unpack_16sB = packing('16sB').unpack_from
unpack_iqiB = packing('iqiB').unpack_from
unpack_hB = packing('hB').unpack_from


def encode_OffsetFetchRequest_v10(o, out):
    chunks = []
    if o.group_id is not default0 and o.group_id != default0:
        raise unsupported(o, 'group_id', 10)
    if o.topics is not EMPTY and o.topics != EMPTY:
        raise unsupported(o, 'topics', 10)
    v1 = o.groups
    if type(v1) is not list:
        v1 = as_list(v1)
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_uvarint(out, n2)
    for o3 in v1:
        v4 = o3.group_id
        v4 = v4.encode()
        n5 = len(v4) + 1
        if n5 < 128:
            out.append(n5)
        else:
            put_long_length(out, n5)
        out += v4
        if o3.member_id is None:
            out.append(0)
        else:
            v6 = o3.member_id
            v6 = v6.encode()
            n7 = len(v6) + 1
            if n7 < 128:
                out.append(n7)
            else:
                put_long_length(out, n7)
            out += v6
        out += pack_i(o3.member_epoch)
        if o3.topics is None:
            out.append(0)
        else:
            v8 = o3.topics
            if type(v8) is not list:
                v8 = as_list(v8)
            n9 = len(v8) + 1
            if n9 < 128:
                out.append(n9)
            else:
                put_uvarint(out, n9)
            for o10 in v8:
                v11 = o10.partition_indexes
                if type(v11) is not list:
                    v11 = as_list(v11)
                out += pack_16s(as_uuid(o10.topic_id))
                n12 = len(v11) + 1
                if n12 < 128:
                    out.append(n12)
                else:
                    put_uvarint(out, n12)
                out += packers_i[len(v11)](*v11)
                out += b'\x00'
        out += b'\x00'
    out += pack_Bx(flags[o.require_stable])
    chunks.append(out)
    return chunks


def decode_OffsetFetchResponse_v10(buf, pos):
    size = len(buf)
    o1 = new(OffsetFetchResponse)
    (o1.throttle_time_ms, n2,) = unpack_iB(buf, pos)
    pos += 5
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 5:
        raise bad_length('groups[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(OffsetFetchResponseGroup)
        n5 = buf[pos]
        pos += 1
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        e6 = pos + n5
        if not pos <= e6 <= size:
            raise bad_length('groups[].group_id', n5, size - pos)
        o4.group_id = buf[pos:e6].decode()
        pos = e6
        n7 = buf[pos]
        pos += 1
        if n7 > 127:
            n7, pos = uvarint(buf, pos - 1)
        n7 -= 1
        if not 0 <= n7 <= (size - pos) // 18:
            raise bad_length('groups[].topics[]', n7, size - pos)
        a8 = []
        for _ in range(n7):
            o9 = new(OffsetFetchResponseTopics)
            (o9.topic_id, n10,) = unpack_16sB(buf, pos)
            pos += 17
            if n10 > 127:
                n10, pos = uvarint(buf, pos - 1)
            n10 -= 1
            if not 0 <= n10 <= (size - pos) // 20:
                raise bad_length('groups[].topics[].partitions[]', n10, size - pos)
            a11 = []
            for _ in range(n10):
                o12 = new(OffsetFetchResponsePartitions)
                (o12.partition_index, o12.committed_offset, o12.committed_leader_epoch, n13,) = unpack_iqiB(buf, pos)
                pos += 17
                if n13 > 127:
                    n13, pos = uvarint(buf, pos - 1)
                n13 -= 1
                if n13 == -1:
                    o12.metadata = None
                else:
                    e14 = pos + n13
                    if not pos <= e14 <= size:
                        raise bad_length('groups[].topics[].partitions[].metadata', n13, size - pos)
                    o12.metadata = buf[pos:e14].decode()
                    pos = e14
                (o12.error_code, n15,) = unpack_hB(buf, pos)
                pos += 3
                if n15:
                    pos = skip_tags(buf, pos - 1, size)
                a11.append(o12)
            o9.partitions = a11
            n16 = buf[pos]
            pos += 1
            if n16:
                pos = skip_tags(buf, pos - 1, size)
            a8.append(o9)
        o4.topics = a8
        (o4.error_code, n17,) = unpack_hB(buf, pos)
        pos += 3
        if n17:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.groups = a3
    n18 = buf[pos]
    pos += 1
    if n18:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
