"""The broker's subscription to metrics, and the contents of PushTelemetry requests (KIP-714)."""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from aiokafka._version import __version__
from aiokafka.errors import UnsupportedCodecError
from aiokafka.metrics import Distribution, Metric, MetricKind
from aiokafka.protocol.messages.telemetry import GetTelemetrySubscriptionsResponse
from aiokafka.record import compression

__all__ = [
    "DEFAULT_INTERVAL",
    "Entry",
    "Point",
    "PushPayload",
    "PushedCounts",
    "Series",
    "Subscription",
    "chunks",
    "encode_metrics",
    "encode_series",
    "entries",
    "make_payload",
    "series",
    "with_application_metrics",
]

log = logging.getLogger("aiokafka")


# -- Encode metrics as OpenTelemetry messages: only those parts that KIP-714 needs

# The messages are protocol buffers (opentelemetry/proto/metrics/v1/metrics.proto, version 1).


_DELTA, _CUMULATIVE = 1, 2
_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INT64_MAX = 2**63 - 1

_fixed = struct.Struct("<Q").pack
_signed = struct.Struct("<q").pack
_double = struct.Struct("<d").pack


class Point(NamedTuple):
    """One value of a metric, with its labels and the time since which it was counted."""

    labels: tuple[tuple[str, str], ...]
    """The tags of the metric as (name, value) pairs."""
    since_ns: int
    """The time since which the value was counted, in nanoseconds since 1970."""
    value: float | Distribution


class Series(NamedTuple):
    """Values of one metric, to be encoded in one `Metric` message."""

    name: str
    unit: str
    kind: MetricKind
    points: tuple[Point, ...]


def encode_metrics(
    resource: Mapping[str, str], scope: tuple[str, str], series: Iterable[bytes]
) -> bytes:
    """Return a MetricsData message that contains `series`, results of `encode_series`.

    `resource` has the attributes of the client; `scope` is the name and version of this library.
    """
    name, version = scope
    attributes = b"".join(_field(1, _attribute(*pair)) for pair in resource.items())
    scoped = _field(1, _text(1, name) + _text(2, version))
    scoped += b"".join(_field(2, metric) for metric in series)
    return _field(1, _field(1, attributes) + _field(2, scoped))


def encode_series(series: Series, at_ns: int, *, is_delta: bool) -> bytes:
    """Return an encoded `Metric` message with the values at the time `at_ns` (nanoseconds since
    1970). `is_delta` declares the values of counters and histograms as differences from the last
    push."""
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
    return _times(point, at_ns) + number + _encode_labels(7, point)


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
            _encode_labels(9, point),
        )
    )


def _times(point: Point, at_ns: int) -> bytes:
    return _tag(2, _FIXED64) + _fixed(point.since_ns) + _tag(3, _FIXED64) + _fixed(at_ns)


def _encode_labels(number: int, point: Point) -> bytes:
    return b"".join(_field(number, _attribute(*pair)) for pair in point.labels)


def _attribute(key: str, value: str) -> bytes:
    return _text(1, key) + _field(2, _text(1, value))


def _text(number: int, text: str) -> bytes:
    # A name from a malicious broker may contain lone surrogates: replace them.
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


DEFAULT_INTERVAL = 300.0
"""Default interval of pushes in seconds. Also the wait for the next request for the subscription,
if a broker rejects the request with THROTTLING_QUOTA_EXCEEDED."""

_MOST_NAMES = 1000
"""Maximum number of subscribed prefixes, because each metric is compared with all of them. Further
prefixes are ignored."""

_SHORTEST, _LONGEST = 0.1, 24 * 3600.0
"""Minimum and maximum of the interval between pushes, in seconds. A broker's interval outside of
these limits is replaced by the nearer limit."""


class Subscription(NamedTuple):
    """The contents of a GetTelemetrySubscriptions response, limited to reasonable values."""

    id: int
    interval: float
    """Seconds between two pushes."""
    most_bytes: int
    """Maximum compressed size of a push in bytes."""
    is_delta: bool
    """Whether counters are pushed as differences from the last push, or (False) as totals."""
    prefixes: tuple[str, ...]
    """Prefixes of the subscribed metric names."""
    codecs: tuple[int, ...]
    """Numbers of the codecs that the broker accepts, in its order of preference."""

    @classmethod
    def of(cls, response: GetTelemetrySubscriptionsResponse) -> Subscription:
        """Return the subscription in a response. The response must have no error code."""
        names = response.requested_metrics[:_MOST_NAMES]
        return cls(
            id=response.subscription_id,
            interval=min(max(response.push_interval_ms / 1000, _SHORTEST), _LONGEST),
            most_bytes=max(0, response.telemetry_max_bytes),
            is_delta=response.delta_temporality,
            # Brokers send "*" to subscribe to all metrics; KIP-714 specifies an empty prefix.
            prefixes=tuple("" if name == "*" else name for name in names),
            codecs=tuple(response.accepted_compression_types),
        )

    def wants(self, name: str) -> bool:
        """Return whether the subscription includes a metric with this telemetry name."""
        return name.startswith(self.prefixes)

    def codec(self, refused: Collection[int]) -> int:
        """Return the id of the codec to use: the first of `codecs` that is installed here and not
        in `refused`; without such a codec, the id of "no compression"."""
        for codec in self.codecs:
            if codec not in refused and _is_usable(codec):
                return codec
        return compression.NONE


def _is_usable(codec: int) -> bool:
    try:
        compression.require_codec(codec)
    except UnsupportedCodecError:
        return False
    return True


# -- Select the subscribed values of a snapshot, and keep track of pushed counts


_MOST_POINTS = 50
"""Maximum number of values of a metric that are encoded before the size is checked."""

_VALUES_PER_YIELD = 250
"""Number of values that are processed before the task yields to the event loop."""

Labels = tuple[tuple[str, str], ...]
Value = float | Distribution
LastPushed = dict[tuple[str, Labels], tuple[Value, int]]
"""By (name, labels): the last pushed value, and the time of that push in nanoseconds since
1970."""


class Entry(NamedTuple):
    """One value of a metrics snapshot that the broker has subscribed to."""

    name: str
    labels: Labels
    metric: Metric

    @property
    def key(self) -> tuple[str, Labels]:
        """The name and labels, which identify the value in several snapshots."""
        return self.name, self.labels


Entries = list[list[Entry]]
"""All subscribed values of a snapshot, in one list for each name and number of labels."""


class PushedCounts:
    """The last pushed value of each counter and histogram, and the time of that push.

    To push differences, these values are subtracted. A value that is not in the newest snapshot is
    dropped.
    """

    def __init__(self, began_ns: int) -> None:
        """`began_ns` is the time at which counting began, in nanoseconds since 1970."""
        self._began_ns = began_ns
        self._last_pushed: LastPushed = {}

    def point(self, entry: Entry, *, is_delta: bool) -> Point:
        """Return the point to push for `entry`. With `is_delta`, the value of a counter or
        histogram is the difference from its last pushed value; otherwise it is the current
        value."""
        value = entry.metric.value
        if not is_delta or entry.metric.kind is MetricKind.GAUGE:
            return Point(entry.labels, self._began_ns, value)
        before, since = self._last_pushed.get(entry.key, (None, self._began_ns))
        return Point(entry.labels, since, _difference(value, before))

    async def after_push(self, every: Entries, pushed: Iterable[Entry], at_ns: int) -> LastPushed:
        """Return the last pushed values as they are after a push of `pushed` at `at_ns`
        (nanoseconds since 1970).

        `every` has all values of the snapshot, including those that did not fit into the push.
        Yields to the event loop regularly, because there may be many thousands of values.
        """
        kept: LastPushed = {}
        for number, entry in enumerate(chain.from_iterable(every), 1):
            if (before := self._last_pushed.get(entry.key)) is not None:
                kept[entry.key] = before
            await _maybe_yield(number)
        for number, entry in enumerate(pushed, 1):
            if entry.metric.kind is not MetricKind.GAUGE:
                kept[entry.key] = (entry.metric.value, at_ns)
            await _maybe_yield(number)
        return kept

    def set_last_pushed(self, values: LastPushed) -> None:
        """Replace the last pushed values by a result of `after_push`, when the push was sent."""
        self._last_pushed = values


def with_application_metrics(
    own: Iterable[Metric], sources: Iterable[Callable[[], Iterable[Metric]]]
) -> Iterator[Metric]:
    """Yield the client's own metrics, and then those of the application (KIP-1076)."""
    names: dict[tuple[str, str], Metric] = {}
    for metric in own:
        names.setdefault((metric.group, metric.name), metric)
        yield metric
    taken = {metric.telemetry_name for metric in names.values()}
    for source in sources:
        try:
            found = list(source())
            for metric in found:
                _check(metric)
        except Exception as error:
            # The pushes go on without the metrics of this source.
            log.warning("the metrics function %r failed: %r", source, error)
        else:
            yield from (metric for metric in found if metric.telemetry_name not in taken)


def _check(metric: Metric) -> None:
    """Raise TypeError, ValueError or OverflowError if a metric of the application cannot be pushed,
    because it is not a counter or gauge with a number."""
    if not isinstance(metric, Metric):
        raise TypeError(f"{metric!r} is not a Metric")
    if metric.kind not in (MetricKind.COUNTER, MetricKind.GAUGE):
        raise ValueError(f"{metric!r} is neither a counter nor a gauge")
    if not isinstance(metric.value, (int, float)):
        raise TypeError(f"the value of {metric!r} is not a number")
    float(metric.value)  # raises OverflowError for an integer that is too large
    for text in (metric.group, metric.name, metric.unit, *chain.from_iterable(metric.tags.items())):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} in {metric!r} is not a str")


async def entries(metrics: Iterable[Metric], wants: Callable[[str], bool]) -> Entries:
    """Return the values of a snapshot whose names `wants` accepts.

    Values with few labels come first: these are the totals of the client. So a push that is limited
    in size contains the totals. Yields to the event loop regularly, because there may be many
    thousands of values.
    """
    wanted: dict[tuple[int, str], list[Entry]] = {}
    names: dict[tuple[str, str], str | None] = {}
    for number, metric in enumerate(metrics, 1):
        # Call `wants` once for each name, because a metric may have values for thousands of
        # partitions.
        key = metric.group, metric.name
        if key not in names:
            name = metric.telemetry_name
            names[key] = name if wants(name) else None
        known = names[key]
        if known is not None:
            entry = Entry(known, _labels(metric), metric)
            wanted.setdefault((len(entry.labels), known), []).append(entry)
        await _maybe_yield(number)
    return [wanted[rank] for rank in sorted(wanted)]


async def _maybe_yield(number: int) -> None:
    """Yield to the event loop if `number`, the count of processed values, is a multiple of
    `_VALUES_PER_YIELD`."""
    if number % _VALUES_PER_YIELD == 0:
        await asyncio.sleep(0)


def chunks(every: Entries) -> Iterator[list[Entry]]:
    """Yield all values, in lists of at most `_MOST_POINTS` values of the same metric."""
    for same in every:
        for start in range(0, len(same), _MOST_POINTS):
            yield same[start : start + _MOST_POINTS]


def series(chunk: list[Entry], counts: PushedCounts, *, is_delta: bool) -> Series:
    """Return the series with the values of one chunk, which are all of the same metric."""
    first = chunk[0].metric
    points = tuple(counts.point(entry, is_delta=is_delta) for entry in chunk)
    return Series(chunk[0].name, first.unit, first.kind, points)


def _labels(metric: Metric) -> Labels:
    # Omit the client id, because the broker adds it to the metrics.
    tags = metric.tags
    return tuple([(_label(name), tags[name]) for name in sorted(tags) if name != "client-id"])


@functools.cache
def _label(tag: str) -> str:
    return tag.replace("-", "_")


def _difference(value: Value, before: Value | None) -> Value:
    """Return `value` minus the last pushed value `before`. Return `value` itself if nothing was
    pushed before, or if the counter has restarted at 0 since then."""
    if isinstance(value, Distribution):
        if not isinstance(before, Distribution) or before.count > value.count:
            return value
        pairs = zip(value.buckets, before.buckets, strict=True)
        buckets = tuple((bound, count - less) for (bound, count), (_, less) in pairs)
        return Distribution(value.count - before.count, value.sum - before.sum, value.max, buckets)
    if before is None or isinstance(before, Distribution) or before > value:
        return value
    return value - before


# -- Encode a push, up to the size limit of the broker


_SCOPE = ("aiokafka", __version__)
_LARGE = 64 * 1024
"""A push of at least this number of bytes is compressed in a thread."""
_RATIO = 10
"""The highest expected compression ratio. For a push that will be compressed, encoding stops at
this multiple of the size limit."""
_SPARE = 0.9
"""If a push is too large, the next attempt has this fraction of the values that should fit."""
_CHUNKS_PER_YIELD = 5
"""Number of chunks that are encoded before the task yields to the event loop."""


class PushPayload(NamedTuple):
    """The contents of one PushTelemetry request."""

    data: bytes
    codec: int
    entries: list[Entry]
    """The values that `data` contains."""


async def make_payload(
    every: Entries,
    counts: PushedCounts,
    subscription: Subscription,
    resource: Mapping[str, str],
    at_ns: int,
    *,
    codec: int,
    most_bytes: int,
) -> PushPayload | None:
    """Encode and compress values, from the first of `every` on, as many as fit into `most_bytes`.
    Return None if the first chunk does not fit, or if there are no values."""
    parts: list[tuple[bytes, list[Entry]]] = []
    size = 0
    limit = most_bytes * (_RATIO if codec else 1)
    for number, chunk in enumerate(chunks(every), 1):
        one = series(chunk, counts, is_delta=subscription.is_delta)
        encoded = encode_series(one, at_ns, is_delta=subscription.is_delta)
        parts.append((encoded, chunk))
        size += len(encoded)
        if size > limit:
            break
        if number % _CHUNKS_PER_YIELD == 0:
            await asyncio.sleep(0)
    while parts:
        data = encode_metrics(resource, _SCOPE, (encoded for encoded, _ in parts))
        data = await _compressed(codec, data)
        if len(data) <= most_bytes:
            return PushPayload(data, codec, [entry for _, chunk in parts for entry in chunk])
        del parts[int(len(parts) * _SPARE * most_bytes / len(data)) :]
    return None


async def _compressed(codec: int, data: bytes) -> bytes:
    if codec == compression.NONE:
        return data
    if len(data) < _LARGE:
        return compression.compress(codec, data)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, compression.compress, codec, data)
