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
from aiokafka.protocol.messages.fetch import (AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData, SnapshotId)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
default0 = -1
default1 = b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00'
default2 = 9223372036854775807
default3 = FetchRequest.replica_state
pack_iiibii = packing('iiibii').pack
pack_16s = packing('16s').pack
pack_iiqiqi = packing('iiqiqi').pack
packers_i = _Packers('i')
pack_iqx = packing('iqx').pack
pack_q = packing('q').pack
unpack_ihiB = packing('ihiB').unpack_from
unpack_16sB = packing('16sB').unpack_from
unpack_ihqqqB = packing('ihqqqB').unpack_from
unpack_qqB = packing('qqB').unpack_from
unpack_iB = packing('iB').unpack_from
unpack_iqB = packing('iqB').unpack_from
unpack_iiB = packing('iiB').unpack_from
unpack_qiB = packing('qiB').unpack_from


def encode_FetchRequest_v18(o, out):
    chunks = []
    if o.replica_id is not default0 and o.replica_id != default0:
        raise unsupported(o, 'replica_id', 18)
    v1 = o.topics
    if type(v1) is not list:
        v1 = as_list(v1)
    out += pack_iiibii(o.max_wait_ms, o.min_bytes, o.max_bytes, o.isolation_level, o.session_id, o.session_epoch)
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_uvarint(out, n2)
    for o3 in v1:
        v4 = o3.partitions
        if type(v4) is not list:
            v4 = as_list(v4)
        out += pack_16s(as_uuid(o3.topic_id))
        n5 = len(v4) + 1
        if n5 < 128:
            out.append(n5)
        else:
            put_uvarint(out, n5)
        for o6 in v4:
            out += pack_iiqiqi(o6.partition, o6.current_leader_epoch, o6.fetch_offset, o6.last_fetched_epoch, o6.log_start_offset, o6.partition_max_bytes)
            if o6.replica_directory_id is default1 and o6.high_watermark is default2:
                out.append(0)
            else:
                tags_0_0(o6, out)
        out += b'\x00'
    v7 = o.forgotten_topics_data
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
        out += packers_i[len(v10)](*v10)
        out += b'\x00'
    v12 = o.rack_id
    v12 = v12.encode()
    n13 = len(v12) + 1
    if n13 < 128:
        out.append(n13)
    else:
        put_long_length(out, n13)
    out += v12
    if o.cluster_id is None and o.replica_state is default3:
        out.append(0)
    else:
        tags_0_1(o, out)
    chunks.append(out)
    return chunks


def tags_0_1(o, sink):
    found = []
    if o.cluster_id is not None and o.cluster_id != None:
        out = bytearray()
        if o.cluster_id is None:
            out.append(0)
        else:
            v14 = o.cluster_id
            v14 = v14.encode()
            n15 = len(v14) + 1
            if n15 < 128:
                out.append(n15)
            else:
                put_long_length(out, n15)
            out += v14
        found.append((0, out))
    if o.replica_state is not default3 and o.replica_state != default3:
        out = bytearray()
        v16 = o.replica_state
        out += pack_iqx(v16.replica_id, v16.replica_epoch)
        found.append((1, out))
    put_uvarint(sink, len(found))
    for tag, out in found:
        put_uvarint(sink, tag)
        put_uvarint(sink, len(out))
        sink += out


def tags_0_0(o, sink):
    found = []
    if o.replica_directory_id is not default1 and o.replica_directory_id != default1:
        out = bytearray()
        out += pack_16s(as_uuid(o.replica_directory_id))
        found.append((0, out))
    if o.high_watermark is not default2 and o.high_watermark != default2:
        out = bytearray()
        out += pack_q(o.high_watermark)
        found.append((1, out))
    put_uvarint(sink, len(found))
    for tag, out in found:
        put_uvarint(sink, tag)
        put_uvarint(sink, len(out))
        sink += out


def decode_FetchResponse_v18(buf, pos):
    size = len(buf)
    view = memoryview(buf)
    o1 = new(FetchResponse)
    (o1.throttle_time_ms, o1.error_code, o1.session_id, n2,) = unpack_ihiB(buf, pos)
    pos += 11
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 18:
        raise bad_length('responses[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(FetchableTopicResponse)
        (o4.topic_id, n5,) = unpack_16sB(buf, pos)
        pos += 17
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        if not 0 <= n5 <= (size - pos) // 37:
            raise bad_length('responses[].partitions[]', n5, size - pos)
        a6 = []
        for _ in range(n5):
            o7 = new(PartitionData)
            (o7.partition_index, o7.error_code, o7.high_watermark, o7.last_stable_offset, o7.log_start_offset, n8,) = unpack_ihqqqB(buf, pos)
            pos += 31
            if n8 > 127:
                n8, pos = uvarint(buf, pos - 1)
            n8 -= 1
            if n8 == -1:
                o7.aborted_transactions = None
            else:
                if not 0 <= n8 <= (size - pos) // 17:
                    raise bad_length('responses[].partitions[].aborted_transactions[]', n8, size - pos)
                a9 = []
                for _ in range(n8):
                    o10 = new(AbortedTransaction)
                    (o10.producer_id, o10.first_offset, n11,) = unpack_qqB(buf, pos)
                    pos += 17
                    if n11:
                        pos = skip_tags(buf, pos - 1, size)
                    a9.append(o10)
                o7.aborted_transactions = a9
            (o7.preferred_read_replica, n12,) = unpack_iB(buf, pos)
            pos += 5
            if n12 > 127:
                n12, pos = uvarint(buf, pos - 1)
            n12 -= 1
            if n12 == -1:
                o7.records = None
            else:
                e13 = pos + n12
                if not pos <= e13 <= size:
                    raise bad_length('responses[].partitions[].records', n12, size - pos)
                o7.records = view[pos:e13]
                pos = e13
            n14 = buf[pos]
            pos += 1
            if n14:
                pos = tags_3_0(buf, pos - 1, size, o7)
            a6.append(o7)
        o4.partitions = a6
        n15 = buf[pos]
        pos += 1
        if n15:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.responses = a3
    n16 = buf[pos]
    pos += 1
    if n16:
        pos = tags_3_1(buf, pos - 1, size, o1)
    return o1, pos


def tags_3_1(buf, pos, limit, o):
    count, pos = uvarint(buf, pos)
    previous = -1
    while count > 0:
        count -= 1
        tag, pos = uvarint(buf, pos)
        if tag <= previous:
            raise bad_value(' tag', tag)
        previous = tag
        length, pos = uvarint(buf, pos)
        size = pos + length
        if size > limit:
            raise bad_length(' tagged field', length, limit - pos)
        if tag == 0:
            n17 = buf[pos]
            pos += 1
            if n17 > 127:
                n17, pos = uvarint(buf, pos - 1)
            n17 -= 1
            if not 0 <= n17 <= (size - pos) // 11:
                raise bad_length('node_endpoints[]', n17, size - pos)
            a18 = []
            for _ in range(n17):
                o19 = new(NodeEndpoint)
                (o19.node_id, n20,) = unpack_iB(buf, pos)
                pos += 5
                if n20 > 127:
                    n20, pos = uvarint(buf, pos - 1)
                n20 -= 1
                e21 = pos + n20
                if not pos <= e21 <= size:
                    raise bad_length('node_endpoints[].host', n20, size - pos)
                o19.host = buf[pos:e21].decode()
                pos = e21
                (o19.port, n22,) = unpack_iB(buf, pos)
                pos += 5
                if n22 > 127:
                    n22, pos = uvarint(buf, pos - 1)
                n22 -= 1
                if n22 == -1:
                    o19.rack = None
                else:
                    e23 = pos + n22
                    if not pos <= e23 <= size:
                        raise bad_length('node_endpoints[].rack', n22, size - pos)
                    o19.rack = buf[pos:e23].decode()
                    pos = e23
                n24 = buf[pos]
                pos += 1
                if n24:
                    pos = skip_tags(buf, pos - 1, size)
                a18.append(o19)
            o.node_endpoints = a18
            if pos != size:
                raise bad_length('node_endpoints', length, size - pos)
        pos = size
    return pos


def tags_3_0(buf, pos, limit, o):
    count, pos = uvarint(buf, pos)
    previous = -1
    while count > 0:
        count -= 1
        tag, pos = uvarint(buf, pos)
        if tag <= previous:
            raise bad_value('responses[].partitions[] tag', tag)
        previous = tag
        length, pos = uvarint(buf, pos)
        size = pos + length
        if size > limit:
            raise bad_length('responses[].partitions[] tagged field', length, limit - pos)
        if tag == 0:
            o25 = new(EpochEndOffset)
            (o25.epoch, o25.end_offset, n26,) = unpack_iqB(buf, pos)
            pos += 13
            if n26:
                pos = skip_tags(buf, pos - 1, size)
            o.diverging_epoch = o25
            if pos != size:
                raise bad_length('responses[].partitions[].diverging_epoch', length, size - pos)
        elif tag == 1:
            o27 = new(LeaderIdAndEpoch)
            (o27.leader_id, o27.leader_epoch, n28,) = unpack_iiB(buf, pos)
            pos += 9
            if n28:
                pos = skip_tags(buf, pos - 1, size)
            o.current_leader = o27
            if pos != size:
                raise bad_length('responses[].partitions[].current_leader', length, size - pos)
        elif tag == 2:
            o29 = new(SnapshotId)
            (o29.end_offset, o29.epoch, n30,) = unpack_qiB(buf, pos)
            pos += 13
            if n30:
                pos = skip_tags(buf, pos - 1, size)
            o.snapshot_id = o29
            if pos != size:
                raise bad_length('responses[].partitions[].snapshot_id', length, size - pos)
        pos = size
    return pos
