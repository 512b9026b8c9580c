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
from aiokafka.protocol.messages.metadata import (MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = False
pack_16s = packing('16s').pack
pack_BBx = packing('BBx').pack
unpack_iB = packing('iB').unpack_from
unpack_hB = packing('hB').unpack_from
unpack_16sBB = packing('16sBB').unpack_from
unpack_hiiiB = packing('hiiiB').unpack_from
unpackers_i_B = _Unpackers('i', 'B')


def encode_MetadataRequest_v13(o, out):
    chunks = []
    if o.include_cluster_authorized_operations is not default0 and o.include_cluster_authorized_operations != default0:
        raise unsupported(o, 'include_cluster_authorized_operations', 13)
    if o.topics is None:
        out.append(0)
    else:
        v1 = o.topics
        if type(v1) is not list:
            v1 = as_list(v1)
        n2 = len(v1) + 1
        if n2 < 128:
            out.append(n2)
        else:
            put_uvarint(out, n2)
        for o3 in v1:
            out += pack_16s(as_uuid(o3.topic_id))
            if o3.name is None:
                out.append(0)
            else:
                v4 = o3.name
                v4 = v4.encode()
                n5 = len(v4) + 1
                if n5 < 128:
                    out.append(n5)
                else:
                    put_long_length(out, n5)
                out += v4
            out += b'\x00'
    out += pack_BBx(flags[o.allow_auto_topic_creation], flags[o.include_topic_authorized_operations])
    chunks.append(out)
    return chunks


def decode_MetadataResponse_v13(buf, pos):
    size = len(buf)
    o1 = new(MetadataResponse)
    (o1.throttle_time_ms, n2,) = unpack_iB(buf, pos)
    pos += 5
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 11:
        raise bad_length('brokers[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(MetadataResponseBroker)
        (o4.node_id, n5,) = unpack_iB(buf, pos)
        pos += 5
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        e6 = pos + n5
        if not pos <= e6 <= size:
            raise bad_length('brokers[].host', n5, size - pos)
        o4.host = buf[pos:e6].decode()
        pos = e6
        (o4.port, n7,) = unpack_iB(buf, pos)
        pos += 5
        if n7 > 127:
            n7, pos = uvarint(buf, pos - 1)
        n7 -= 1
        if n7 == -1:
            o4.rack = None
        else:
            e8 = pos + n7
            if not pos <= e8 <= size:
                raise bad_length('brokers[].rack', n7, size - pos)
            o4.rack = buf[pos:e8].decode()
            pos = e8
        n9 = buf[pos]
        pos += 1
        if n9:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.brokers = a3
    n10 = buf[pos]
    pos += 1
    if n10 > 127:
        n10, pos = uvarint(buf, pos - 1)
    n10 -= 1
    if n10 == -1:
        o1.cluster_id = None
    else:
        e11 = pos + n10
        if not pos <= e11 <= size:
            raise bad_length('cluster_id', n10, size - pos)
        o1.cluster_id = buf[pos:e11].decode()
        pos = e11
    (o1.controller_id, n12,) = unpack_iB(buf, pos)
    pos += 5
    if n12 > 127:
        n12, pos = uvarint(buf, pos - 1)
    n12 -= 1
    if not 0 <= n12 <= (size - pos) // 26:
        raise bad_length('topics[]', n12, size - pos)
    a13 = []
    for _ in range(n12):
        o14 = new(MetadataResponseTopic)
        (o14.error_code, n15,) = unpack_hB(buf, pos)
        pos += 3
        if n15 > 127:
            n15, pos = uvarint(buf, pos - 1)
        n15 -= 1
        if n15 == -1:
            o14.name = None
        else:
            e16 = pos + n15
            if not pos <= e16 <= size:
                raise bad_length('topics[].name', n15, size - pos)
            o14.name = buf[pos:e16].decode()
            pos = e16
        (o14.topic_id, b17, n18,) = unpack_16sBB(buf, pos)
        pos += 18
        o14.is_internal = bools[b17]
        if n18 > 127:
            n18, pos = uvarint(buf, pos - 1)
        n18 -= 1
        if not 0 <= n18 <= (size - pos) // 18:
            raise bad_length('topics[].partitions[]', n18, size - pos)
        a19 = []
        for _ in range(n18):
            o20 = new(MetadataResponsePartition)
            (o20.error_code, o20.partition_index, o20.leader_id, o20.leader_epoch, n21,) = unpack_hiiiB(buf, pos)
            pos += 15
            if n21 > 127:
                n21, pos = uvarint(buf, pos - 1)
            n21 -= 1
            if n21 < 0:
                raise bad_length('topics[].partitions[].replica_nodes[]', n21, size - pos)
            (*o20.replica_nodes, n22,) = unpackers_i_B[n21](buf, pos)
            pos += 4 * n21 + 1
            if n22 > 127:
                n22, pos = uvarint(buf, pos - 1)
            n22 -= 1
            if n22 < 0:
                raise bad_length('topics[].partitions[].isr_nodes[]', n22, size - pos)
            (*o20.isr_nodes, n23,) = unpackers_i_B[n22](buf, pos)
            pos += 4 * n22 + 1
            if n23 > 127:
                n23, pos = uvarint(buf, pos - 1)
            n23 -= 1
            if n23 < 0:
                raise bad_length('topics[].partitions[].offline_replicas[]', n23, size - pos)
            (*o20.offline_replicas, n24,) = unpackers_i_B[n23](buf, pos)
            pos += 4 * n23 + 1
            if n24:
                pos = skip_tags(buf, pos - 1, size)
            a19.append(o20)
        o14.partitions = a19
        (o14.topic_authorized_operations, n25,) = unpack_iB(buf, pos)
        pos += 5
        if n25:
            pos = skip_tags(buf, pos - 1, size)
        a13.append(o14)
    o1.topics = a13
    (o1.error_code, n26,) = unpack_hB(buf, pos)
    pos += 3
    if n26:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
