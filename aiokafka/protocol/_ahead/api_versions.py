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
from aiokafka.protocol.messages.api_versions import (ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
unpack_hB = packing('hB').unpack_from
unpack_hhhB = packing('hhhB').unpack_from
unpack_iB = packing('iB').unpack_from
unpack_hhB = packing('hhB').unpack_from
unpack_q = packing('q').unpack_from


def encode_ApiVersionsRequest_v4(o, out):
    chunks = []
    v1 = o.client_software_name
    v1 = v1.encode()
    n2 = len(v1) + 1
    if n2 < 128:
        out.append(n2)
    else:
        put_long_length(out, n2)
    out += v1
    v3 = o.client_software_version
    v3 = v3.encode()
    n4 = len(v3) + 1
    if n4 < 128:
        out.append(n4)
    else:
        put_long_length(out, n4)
    out += v3
    out += b'\x00'
    chunks.append(out)
    return chunks


def decode_ApiVersionsResponse_v4(buf, pos):
    size = len(buf)
    o1 = new(ApiVersionsResponse)
    (o1.error_code, n2,) = unpack_hB(buf, pos)
    pos += 3
    if n2 > 127:
        n2, pos = uvarint(buf, pos - 1)
    n2 -= 1
    if not 0 <= n2 <= (size - pos) // 7:
        raise bad_length('api_keys[]', n2, size - pos)
    a3 = []
    for _ in range(n2):
        o4 = new(ApiVersion)
        (o4.api_key, o4.min_version, o4.max_version, n5,) = unpack_hhhB(buf, pos)
        pos += 7
        if n5:
            pos = skip_tags(buf, pos - 1, size)
        a3.append(o4)
    o1.api_keys = a3
    (o1.throttle_time_ms, n6,) = unpack_iB(buf, pos)
    pos += 5
    if n6:
        pos = tags_1_0(buf, pos - 1, size, o1)
    return o1, pos


def tags_1_0(buf, pos, limit, o):
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
            n7 = buf[pos]
            pos += 1
            if n7 > 127:
                n7, pos = uvarint(buf, pos - 1)
            n7 -= 1
            if not 0 <= n7 <= (size - pos) // 6:
                raise bad_length('supported_features[]', n7, size - pos)
            a8 = []
            for _ in range(n7):
                o9 = new(SupportedFeatureKey)
                n10 = buf[pos]
                pos += 1
                if n10 > 127:
                    n10, pos = uvarint(buf, pos - 1)
                n10 -= 1
                e11 = pos + n10
                if not pos <= e11 <= size:
                    raise bad_length('supported_features[].name', n10, size - pos)
                o9.name = buf[pos:e11].decode()
                pos = e11
                (o9.min_version, o9.max_version, n12,) = unpack_hhB(buf, pos)
                pos += 5
                if n12:
                    pos = skip_tags(buf, pos - 1, size)
                a8.append(o9)
            o.supported_features = a8
            if pos != size:
                raise bad_length('supported_features', length, size - pos)
        elif tag == 1:
            (o.finalized_features_epoch,) = unpack_q(buf, pos)
            pos += 8
            if pos != size:
                raise bad_length('finalized_features_epoch', length, size - pos)
        elif tag == 2:
            n13 = buf[pos]
            pos += 1
            if n13 > 127:
                n13, pos = uvarint(buf, pos - 1)
            n13 -= 1
            if not 0 <= n13 <= (size - pos) // 6:
                raise bad_length('finalized_features[]', n13, size - pos)
            a14 = []
            for _ in range(n13):
                o15 = new(FinalizedFeatureKey)
                n16 = buf[pos]
                pos += 1
                if n16 > 127:
                    n16, pos = uvarint(buf, pos - 1)
                n16 -= 1
                e17 = pos + n16
                if not pos <= e17 <= size:
                    raise bad_length('finalized_features[].name', n16, size - pos)
                o15.name = buf[pos:e17].decode()
                pos = e17
                (o15.max_version_level, o15.min_version_level, n18,) = unpack_hhB(buf, pos)
                pos += 5
                if n18:
                    pos = skip_tags(buf, pos - 1, size)
                a14.append(o15)
            o.finalized_features = a14
            if pos != size:
                raise bad_length('finalized_features', length, size - pos)
        elif tag == 3:
            b19 = buf[pos]
            pos += 1
            o.zk_migration_ready = bools[b19]
            if pos != size:
                raise bad_length('zk_migration_ready', length, size - pos)
        pos = size
    return pos
