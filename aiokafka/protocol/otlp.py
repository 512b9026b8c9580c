"""Metrics as bytes of OpenTelemetry's protocol: the few messages of it that KIP-714 needs.

The form is that of protocol buffers (opentelemetry/proto/metrics/v1/metrics.proto, version 1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aiokafka.metrics import Distribution, MetricKind

__all__ = ["Point", "Series", "encode_metrics", "encode_series"]

_DELTA, _CUMULATIVE = 1, 2
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INT64_MAX = 2**63 - 1

_fixed = struct.Struct("<Q").pack
_signed = struct.Struct("<q").pack
_double = struct.Struct("<d").pack


class Point(NamedTuple):
    """One value of a metric."""

    labels: tuple[tuple[str, str], ...]
    """What the value is about."""
    since_ns: int
    """When counting began, in nanoseconds since 1970."""
    value: float | Distribution


class Series(NamedTuple):
    """The values of one metric."""

    name: str
    unit: str
    kind: MetricKind
    points: tuple[Point, ...]


def encode_metrics(
    resource: Mapping[str, str], scope: tuple[str, str], series: Iterable[bytes]
) -> bytes:
    """Return the bytes of a MetricsData message with what `encode_series` has returned.

    `resource` describes the client, `scope` is the name and version of what has counted.
    """
    name, version = scope
    attributes = b"".join(_field(1, _attribute(*pair)) for pair in resource.items())
    scoped = _field(1, _text(1, name) + _text(2, version))
    scoped += b"".join(_field(2, metric) for metric in series)
    return _field(1, _field(1, attributes) + _field(2, scoped))


def encode_series(series: Series, at_ns: int, *, is_delta: bool) -> bytes:
    """Return a `Metric` with values as of `at_ns`, which count from the last push on if
    `is_delta`."""
    head = _text(1, series.name) + _text(3, series.unit)
    temporality = _tag(2, _VARINT) + bytes((_DELTA if is_delta else _CUMULATIVE,))
    if series.kind is MetricKind.HISTOGRAM:
        points = b"".join(_field(1, _histogram(point, at_ns)) for point in series.points)
        return head + _field(9, points + temporality)
    points = b"".join(_field(1, _number(point, at_ns)) for point in series.points)
    if series.kind is MetricKind.COUNTER:
        return head + _field(7, points + temporality + _tag(3, _VARINT) + b"\x01")
    return head + _field(5, points)


def _number(point: Point, at_ns: int) -> bytes:
    value = point.value
    assert not isinstance(value, Distribution)
    if isinstance(value, int) and abs(value) <= _INT64_MAX:
        number = _tag(6, _FIXED64) + _signed(value)
    else:
        number = _tag(4, _FIXED64) + _double(value)
    return _times(point, at_ns) + number + _labels(7, point)


def _histogram(point: Point, at_ns: int) -> bytes:
    value = point.value
    assert isinstance(value, Distribution)
    counts, before = [], 0
    for _, count in value.buckets:
        counts.append(count - before)
        before = count
    return b"".join(
        (
            _times(point, at_ns),
            _tag(4, _FIXED64) + _fixed(value.count),
            _tag(5, _FIXED64) + _double(value.sum),
            _field(6, struct.pack(f"<{len(counts)}Q", *counts)),
            _field(7, struct.pack(f"<{len(counts) - 1}d", *(b for b, _ in value.buckets[:-1]))),
            _labels(9, point),
        )
    )


def _times(point: Point, at_ns: int) -> bytes:
    return _tag(2, _FIXED64) + _fixed(point.since_ns) + _tag(3, _FIXED64) + _fixed(at_ns)


def _labels(number: int, point: Point) -> bytes:
    return b"".join(_field(number, _attribute(*pair)) for pair in point.labels)


def _attribute(key: str, value: str) -> bytes:
    return _text(1, key) + _field(2, _text(1, value))


def _text(number: int, text: str) -> bytes:
    # Lone surrogates, which a name from a hostile broker cannot have, would end the push.
    return _field(number, text.encode("utf-8", "replace")) if text else b""


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(content)) + content


def _tag(number: int, kind: int) -> bytes:
    return bytes((number << 3 | kind,))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
