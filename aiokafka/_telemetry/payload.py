"""Make the bytes of one push, as large as the broker takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from aiokafka._telemetry.subscription import Subscription
from aiokafka._telemetry.tally import CountsTold, Entry, Wanted, pieces, series
from aiokafka._version import __version__
from aiokafka.protocol.otlp import encode_metrics, encode_series
from aiokafka.record import compression

__all__ = ["PushPayload", "make_payload"]

_SCOPE = ("aiokafka", __version__)
_LARGE = 64 * 1024
"""Bytes from which on they are compressed in a thread."""
_RATIO = 10
"""How many times smaller compression makes them at the very best."""
_SPARE = 0.9
_TURN = 5
"""Pieces that are encoded before other tasks get a turn."""


class PushPayload(NamedTuple):
    """Metrics that are ready to be pushed."""

    data: bytes
    codec: int
    told: list[Entry]
    """What is in it."""


async def make_payload(
    wanted: Wanted,
    tally: CountsTold,
    subscription: Subscription,
    resource: Mapping[str, str],
    at_ns: int,
    *,
    codec: int,
    most_bytes: int,
) -> PushPayload | None:
    """Return as much of `wanted`, from its beginning, as fits into `most_bytes`; None if nothing
    does."""
    parts: list[tuple[bytes, list[Entry]]] = []
    size = 0
    room = most_bytes * (_RATIO if codec else 1)
    for number, piece in enumerate(pieces(wanted), 1):
        one = series(piece, tally, is_delta=subscription.is_delta)
        encoded = encode_series(one, at_ns, is_delta=subscription.is_delta)
        parts.append((encoded, piece))
        size += len(encoded)
        if size > room:
            break
        if number % _TURN == 0:
            await asyncio.sleep(0)
    while parts:
        data = encode_metrics(resource, _SCOPE, (encoded for encoded, _ in parts))
        data = await _compressed(codec, data)
        if len(data) <= most_bytes:
            return PushPayload(data, codec, [entry for _, piece in parts for entry in piece])
        del parts[int(len(parts) * _SPARE * most_bytes / len(data)) :]
    return None


async def _compressed(codec: int, data: bytes) -> bytes:
    if codec == compression.NONE:
        return data
    if len(data) < _LARGE:
        return compression.compress(codec, data)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, compression.compress, codec, data)
