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
from aiokafka.protocol.messages.produce import (BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse, TopicProduceResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_hi = packing('hi').pack
pack_16s = packing('16s').pack
pack_i = packing('i').pack
unpack_16sB = packing('16sB').unpack_from
unpack_ihqqqB = packing('ihqqqB').unpack_from
unpack_iB = packing('iB').unpack_from
unpack_iiB = packing('iiB').unpack_from


def encode_ProduceRequest_v13(o, out):
    chunks = []
    if o.transactional_id is None:
        out.append(0)
    else:
        v1 = o.transactional_id
        v1 = v1.encode()
        n2 = len(v1) + 1
        if n2 < 128:
            out.append(n2)
        else:
            put_long_length(out, n2)
        out += v1
    v3 = o.topic_data
    if type(v3) is not list:
        v3 = as_list(v3)
    out += pack_hi(o.acks, o.timeout_ms)
    n4 = len(v3) + 1
    if n4 < 128:
        out.append(n4)
    else:
        put_uvarint(out, n4)
    for o5 in v3:
        v6 = o5.partition_data
        if type(v6) is not list:
            v6 = as_list(v6)
        out += pack_16s(as_uuid(o5.topic_id))
        n7 = len(v6) + 1
        if n7 < 128:
            out.append(n7)
        else:
            put_uvarint(out, n7)
        for o8 in v6:
            out += pack_i(o8.index)
            if o8.records is None:
                out.append(0)
            else:
                v9 = o8.records
                if type(v9) is not bytes:
                    v9 = as_bytes(v9)
                n10 = len(v9) + 1
                if n10 < 128:
                    out.append(n10)
                else:
                    put_uvarint(out, n10)
                if len(v9) < 1024:
                    out += v9
                else:
                    chunks.append(out)
                    chunks.append(v9)
                    out = bytearray()
            out += b'\x00'
        out += b'\x00'
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_ProduceResponse_v13(buf, pos):
    size = len(buf)
    o1 = new(ProduceResponse)
    n2 = buf[pos]
    pos += 1
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 18:
        raise bad_length('responses[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(TopicProduceResponse)
        (o4.topic_id, n5,) = unpack_16sB(buf, pos)
        pos += 17
        if n5 > 127:
            n5, pos = uvarint(buf, pos - 1)
        n5 -= 1
        if not 0 <= n5 <= (size - pos) // 33:
            raise bad_length('responses[].partition_responses[]', n5, size - pos)
        a6 = []
        for _ in range(n5):
            o7 = new(PartitionProduceResponse)
            (o7.index, o7.error_code, o7.base_offset, o7.log_append_time_ms, o7.log_start_offset, n8,) = unpack_ihqqqB(buf, pos)
            pos += 31
            if n8 > 127:
                n8, pos = uvarint(buf, pos - 1)
            n8 -= 1
            if not 0 <= n8 <= (size - pos) // 6:
                raise bad_length('responses[].partition_responses[].record_errors[]', n8, size - pos)
            a9 = []
            for _ in range(n8):
                o10 = new(BatchIndexAndErrorMessage)
                (o10.batch_index, n11,) = unpack_iB(buf, pos)
                pos += 5
                if n11 > 127:
                    n11, pos = uvarint(buf, pos - 1)
                n11 -= 1
                if n11 == -1:
                    o10.batch_index_error_message = None
                else:
                    e12 = pos + n11
                    if not pos <= e12 <= size:
                        raise bad_length('responses[].partition_responses[].record_errors[].batch_index_error_message', n11, size - pos)
                    o10.batch_index_error_message = buf[pos:e12].decode()
                    pos = e12
                n13 = buf[pos]
                pos += 1
                if n13:
                    pos = skip_tags(buf, pos - 1, size)
                a9.append(o10)
            o7.record_errors = a9
            n14 = buf[pos]
            pos += 1
            if n14 > 127:
                n14, pos = uvarint(buf, pos - 1)
            n14 -= 1
            if n14 == -1:
                o7.error_message = None
            else:
                e15 = pos + n14
                if not pos <= e15 <= size:
                    raise bad_length('responses[].partition_responses[].error_message', n14, size - pos)
                o7.error_message = buf[pos:e15].decode()
                pos = e15
            n16 = buf[pos]
            pos += 1
            if n16:
                pos = tags_1_0(buf, pos - 1, size, o7)
            a6.append(o7)
        o4.partition_responses = a6
        n17 = buf[pos]
        pos += 1
        if n17:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.responses = a3
    (o1.throttle_time_ms, n18,) = unpack_iB(buf, pos)
    pos += 5
    if n18:
        pos = tags_1_1(buf, pos - 1, size, o1)
    return o1, pos


def tags_1_1(buf, pos, limit, o):
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
            n19 = buf[pos]
            pos += 1
            if n19 > 127:
                n19, pos = uvarint(buf, pos - 1)
            n19 -= 1
            if not 0 <= n19 <= (size - pos) // 11:
                raise bad_length('node_endpoints[]', n19, size - pos)
            a20 = []
            for _ in range(n19):
                o21 = new(NodeEndpoint)
                (o21.node_id, n22,) = unpack_iB(buf, pos)
                pos += 5
                if n22 > 127:
                    n22, pos = uvarint(buf, pos - 1)
                n22 -= 1
                e23 = pos + n22
                if not pos <= e23 <= size:
                    raise bad_length('node_endpoints[].host', n22, size - pos)
                o21.host = buf[pos:e23].decode()
                pos = e23
                (o21.port, n24,) = unpack_iB(buf, pos)
                pos += 5
                if n24 > 127:
                    n24, pos = uvarint(buf, pos - 1)
                n24 -= 1
                if n24 == -1:
                    o21.rack = None
                else:
                    e25 = pos + n24
                    if not pos <= e25 <= size:
                        raise bad_length('node_endpoints[].rack', n24, size - pos)
                    o21.rack = buf[pos:e25].decode()
                    pos = e25
                n26 = buf[pos]
                pos += 1
                if n26:
                    pos = skip_tags(buf, pos - 1, size)
                a20.append(o21)
            o.node_endpoints = a20
            if pos != size:
                raise bad_length('node_endpoints', length, size - pos)
        pos = size
    return pos


def tags_1_0(buf, pos, limit, o):
    count, pos = uvarint(buf, pos)
    previous = -1
    while count > 0:
        count -= 1
        tag, pos = uvarint(buf, pos)
        if tag <= previous:
            raise bad_value('responses[].partition_responses[] tag', tag)
        previous = tag
        length, pos = uvarint(buf, pos)
        size = pos + length
        if size > limit:
            raise bad_length('responses[].partition_responses[] tagged field', length, limit - pos)
        if tag == 0:
            o27 = new(LeaderIdAndEpoch)
            (o27.leader_id, o27.leader_epoch, n28,) = unpack_iiB(buf, pos)
            pos += 9
            if n28:
                pos = skip_tags(buf, pos - 1, size)
            o.current_leader = o27
            if pos != size:
                raise bad_length('responses[].partition_responses[].current_leader', length, size - pos)
        pos = size
    return pos
