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
from aiokafka.protocol.messages.init_producer_id import (InitProducerIdResponse)
from aiokafka.protocol.primitives import get_uvarint as uvarint
from aiokafka.protocol.primitives import put_uvarint, skip_tags
from aiokafka.protocol.schema import EMPTY

new = object.__new__
bools = (False, True)
flags = {False: 0, True: 1}
pack_iqhBBx = packing('iqhBBx').pack
unpack_ihqhqhB = packing('ihqhqhB').unpack_from


def encode_InitProducerIdRequest_v6(o, out):
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
    out += pack_iqhBBx(o.transaction_timeout_ms, o.producer_id, o.producer_epoch, flags[o.enable2_pc], flags[o.keep_prepared_txn])
    chunks.append(out)
    return chunks


def decode_InitProducerIdResponse_v6(buf, pos):
    size = len(buf)
    o1 = new(InitProducerIdResponse)
    (o1.throttle_time_ms, o1.error_code, o1.producer_id, o1.producer_epoch, o1.ongoing_txn_producer_id, o1.ongoing_txn_producer_epoch, n2,) = unpack_ihqhqhB(buf, pos)
    pos += 27
    if n2:
        pos = skip_tags(buf, pos - 1, size)
    return o1, pos
