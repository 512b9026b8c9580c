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
from aiokafka.protocol.messages.consumer_group_heartbeat import (Assignment, ConsumerGroupHeartbeatResponse, TopicPartitions)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_i = packing('i').pack
pack_16s = packing('16s').pack
packers_i = _Packers('i')
unpack_ihB = packing('ihB').unpack_from
unpack_iib = packing('iib').unpack_from
unpack_16sB = packing('16sB').unpack_from
unpackers_i_B = _Unpackers('i', 'B')


def encode_ConsumerGroupHeartbeatRequest_v1(o, out):
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
    n4 = len(v3) + 1
    if n4 < 128:
        out.append(n4)
    else:
        put_long_length(out, n4)
    out += v3
    out += pack_i(o.member_epoch)
    if o.instance_id is None:
        out.append(0)
    else:
        v5 = o.instance_id
        v5 = v5.encode()
        n6 = len(v5) + 1
        if n6 < 128:
            out.append(n6)
        else:
            put_long_length(out, n6)
        out += v5
    if o.rack_id is None:
        out.append(0)
    else:
        v7 = o.rack_id
        v7 = v7.encode()
        n8 = len(v7) + 1
        if n8 < 128:
            out.append(n8)
        else:
            put_long_length(out, n8)
        out += v7
    out += pack_i(o.rebalance_timeout_ms)
    if o.subscribed_topic_names is None:
        out.append(0)
    else:
        v9 = o.subscribed_topic_names
        if type(v9) is not list:
            v9 = as_list(v9)
        n10 = len(v9) + 1
        if n10 < 128:
            out.append(n10)
        else:
            put_uvarint(out, n10)
        for o11 in v9:
            v12 = o11
            v12 = v12.encode()
            n13 = len(v12) + 1
            if n13 < 128:
                out.append(n13)
            else:
                put_long_length(out, n13)
            out += v12
    if o.subscribed_topic_regex is None:
        out.append(0)
    else:
        v14 = o.subscribed_topic_regex
        v14 = v14.encode()
        n15 = len(v14) + 1
        if n15 < 128:
            out.append(n15)
        else:
            put_long_length(out, n15)
        out += v14
    if o.server_assignor is None:
        out.append(0)
    else:
        v16 = o.server_assignor
        v16 = v16.encode()
        n17 = len(v16) + 1
        if n17 < 128:
            out.append(n17)
        else:
            put_long_length(out, n17)
        out += v16
    if o.topic_partitions is None:
        out.append(0)
    else:
        v18 = o.topic_partitions
        if type(v18) is not list:
            v18 = as_list(v18)
        n19 = len(v18) + 1
        if n19 < 128:
            out.append(n19)
        else:
            put_uvarint(out, n19)
        for o20 in v18:
            v21 = o20.partitions
            if type(v21) is not list:
                v21 = as_list(v21)
            out += pack_16s(as_uuid(o20.topic_id))
            n22 = len(v21) + 1
            if n22 < 128:
                out.append(n22)
            else:
                put_uvarint(out, n22)
            out += packers_i[len(v21)](*v21)
            out += b'\x00'
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_ConsumerGroupHeartbeatResponse_v1(buf, pos):
    size = len(buf)
    o1 = new(ConsumerGroupHeartbeatResponse)
    (o1.throttle_time_ms, o1.error_code, n2,) = unpack_ihB(buf, pos)
    pos += 7
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if n2 == -1:
        o1.error_message = None
    else:
        e3 = pos + n2
        if not pos <= e3 <= size:
            raise bad_length('error_message', n2, size - pos)
        o1.error_message = buf[pos:e3].decode()
        pos = e3
    n4 = buf[pos]
    pos += 1
    if n4 > 127:
        n4, pos = uvarint(buf, pos - 1)
    n4 -= 1
    if n4 == -1:
        o1.member_id = None
    else:
        e5 = pos + n4
        if not pos <= e5 <= size:
            raise bad_length('member_id', n4, size - pos)
        o1.member_id = buf[pos:e5].decode()
        pos = e5
    (o1.member_epoch, o1.heartbeat_interval_ms, n6,) = unpack_iib(buf, pos)
    pos += 9
    if n6 == 1:
        o7 = new(Assignment)
        n8 = buf[pos]
        pos += 1
        if n8 > 127:
            n8, pos = uvarint(buf, pos - 1)
        n8 -= 1
        if not 0 <= n8 <= (size - pos) // 18:
            raise bad_length('assignment.topic_partitions[]', n8, size - pos)
        a9 = []
        for _ in range(n8):
            o10 = new(TopicPartitions)
            (o10.topic_id, n11,) = unpack_16sB(buf, pos)
            pos += 17
            if n11 > 127:
                n11, pos = uvarint(buf, pos - 1)
            n11 -= 1
            if n11 < 0:
                raise bad_length('assignment.topic_partitions[].partitions[]', n11, size - pos)
            (*o10.partitions, n12,) = unpackers_i_B[n11](buf, pos)
            pos += 4 * n11 + 1
            if n12:
                pos = skip_tags(buf, pos - 1, size)
            a9.append(o10)
        o7.topic_partitions = a9
        n13 = buf[pos]
        pos += 1
        if n13:
            pos = skip_tags(buf, pos - 1, size)
        o1.assignment = o7
    elif n6 == -1:
        o1.assignment = None
    else:
        raise bad_value('assignment', n6)
    n14 = buf[pos]
    pos += 1
    if n14:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
