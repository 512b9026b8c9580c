"""The metrics of clients as OpenTelemetry instruments."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import _clock
from aiokafka._version import __version__
from aiokafka.metrics import Distribution, Metric, MetricKind
from aiokafka.metrics._clients import MeasuredClient, as_clients, clients
from aiokafka.metrics._values import LastingSums, Value, added
from aiokafka.otel import _names
from aiokafka.otel._names import metrics

__all__ = ["Count", "MessageCounter", "observe_clients"]

_FRESH = 0.2
"""Seconds for which all instruments share one reading of the clients."""


class _Seen(NamedTuple):
    """A metric to observe: its group, its name, and the tag of its series."""

    group: str
    name: str
    tag: str = ""


_ROLES = ("producer", "consumer", "admin-client")
_COUNTED = (
    *(
        _Seen(f"{role}-metrics", name)
        for role in _ROLES
        for name in (
            "connection-creation-total",
            "connection-failure-total",
            "request-total",
            "incoming-byte-total",
            "outgoing-byte-total",
        )
    ),
    *(_Seen(f"{role}-node-metrics", "throttle-time-total", "node-id") for role in _ROLES),
    _Seen("producer-metrics", "bufferpool-wait-time-ns-total"),
    _Seen("producer-metrics", "buffer-exhausted-total"),
    _Seen("producer-metrics", "batch-split-total"),
    _Seen("producer-topic-metrics", "record-send-total", "topic"),
    _Seen("producer-topic-metrics", "record-retry-total", "topic"),
    _Seen("producer-topic-metrics", "record-error-total", "topic"),
    _Seen("producer-topic-metrics", "byte-total", "topic"),
    _Seen("consumer-fetch-manager-metrics", "records-consumed-total", "topic"),
    _Seen("consumer-fetch-manager-metrics", "bytes-consumed-total", "topic"),
    _Seen("consumer-coordinator-metrics", "rebalance-total"),
    _Seen("consumer-coordinator-metrics", "commit-total"),
    _Seen("consumer-coordinator-metrics", "commit-failed-total"),
    _Seen("parallel-consumer-metrics", "records-finished-total"),
    _Seen("parallel-consumer-metrics", "records-failed-total"),
    _Seen("parallel-consumer-metrics", "process-time-total"),
    _Seen("retry-topics-metrics", "record-retry-total", "topic"),
    _Seen("retry-topics-metrics", "record-dead-letter-total", "topic"),
)
_GAUGES = (
    *(_Seen(f"{role}-metrics", "connection-count") for role in _ROLES),
    _Seen("producer-metrics", "buffer-available-bytes"),
    _Seen("producer-metrics", "waiting-threads"),
    _Seen("producer-metrics", "batches-pending"),
    _Seen("producer-metrics", "requests-in-flight"),
    _Seen("consumer-fetch-manager-metrics", "records-lag-max"),
    _Seen("consumer-fetch-manager-metrics", "records-lag", "partition"),
    _Seen("consumer-fetch-manager-metrics", "position", "partition"),
    _Seen("consumer-coordinator-metrics", "assigned-partitions"),
    _Seen("consumer-coordinator-metrics", "generation"),
    _Seen("consumer-coordinator-metrics", "last-rebalance-seconds-ago"),
    _Seen("consumer-coordinator-metrics", "last-heartbeat-seconds-ago"),
    _Seen("parallel-consumer-metrics", "records-running"),
    _Seen("parallel-consumer-metrics", "records-unfinished"),
    _Seen("retry-topics-metrics", "records-waiting"),
)
_OBSERVED = frozenset((*_COUNTED, *_GAUGES))
_TAGS = ("partition", "topic", "node-id")
_UNIT_OF = {"byte": "By", "bytes": "By", "records": "{record}", "record": "{record}"}


Tags = tuple[tuple[str, str], ...]


class _Look:
    """Reads the metrics of the clients once for all instruments of a collection.

    Clients with the same tags share a series: the sum of their counters, or the maximum of their
    gauges.
    """

    def __init__(self, only: Iterable[MeasuredClient], partitions: bool) -> None:
        self._only = tuple(only)
        self._partitions = partitions
        self._found: dict[_Seen, dict[Tags, Any]] = {}
        self._ended = LastingSums()
        self._read_at = float("-inf")
        # Readers of the provider may collect in several threads.
        self._lock = threading.Lock()

    def of(self, seen: _Seen) -> list[tuple[Tags, Value]]:
        """Return the observations of one instrument."""
        with self._lock:
            # The age is negative if a simulated clock, which begins at 0, was started since.
            if not 0 <= _clock.running_time() - self._read_at < _FRESH:
                self._read()
                self._read_at = _clock.running_time()
            return list(self._found.get(seen, {}).items())

    def _read(self) -> None:
        self._found = {}
        counted = []
        for client in self._only or clients():
            counts: dict[tuple[_Seen, Tags], Value] = {}
            snapshot = client.metrics()
            for metric in snapshot if self._partitions else snapshot.without_partitions():
                seen = _Seen(metric.group, metric.name, _tag_of(metric))
                if seen not in _OBSERVED or isinstance(metric.value, Distribution):
                    continue
                tags = tuple((tag.replace("-", "_"), text) for tag, text in metric.tags.items())
                values = self._found.setdefault(seen, {})
                if metric.kind is MetricKind.COUNTER:
                    counts[seen, tags] = metric.value
                    values[tags] = added(values.get(tags), metric.value)
                else:
                    values[tags] = max(values.get(tags, metric.value), metric.value)
            counted.append((client, counts))
        for (seen, tags), value in self._ended.look(counted).items():
            self._found[seen][tags] = added(self._found[seen][tags], value)


def _tag_of(metric: Metric) -> str:
    return next((tag for tag in _TAGS if tag in metric.tags), "")


def observe_clients(
    *only: MeasuredClient, meter_provider: Any = None, partitions: bool = True
) -> None:
    """Export the most important metrics of every client, or of `only`, to OpenTelemetry.

    Call it once, when the program starts: without `only`, clients that are created later are
    included. The instruments have the names of `metrics()`, as in
    ``kafka.producer.record_send_total``, and the tags as attributes. `partitions=False` omits the
    metrics per partition. Reading the metrics sends nothing to a broker.
    """
    meter = metrics.get_meter("aiokafka", __version__, meter_provider)
    look = _Look(as_clients("only", only), partitions)
    for kind, all_seen in ((MetricKind.COUNTER, _COUNTED), (MetricKind.GAUGE, _GAUGES)):
        is_counter = kind is MetricKind.COUNTER
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        for seen in all_seen:
            if partitions or seen.tag != "partition":
                make(_instrument(seen), [_Reader(look, seen)], _unit(seen.name), _text(seen))


class _Reader:
    """The callback of one instrument."""

    def __init__(self, look: _Look, seen: _Seen) -> None:
        self._look = look
        self._seen = seen

    def __call__(self, _: Any) -> Iterator[Any]:
        for tags, value in self._look.of(self._seen):
            yield metrics.Observation(value, dict(tags))


def _instrument(seen: _Seen) -> str:
    role = seen.group.removesuffix("-metrics")
    for part in ("-fetch-manager", "-coordinator", "-topic", "-node"):
        role = role.removesuffix(part)
    return f"kafka.{role}.{seen.name}".replace("-", "_")


def _unit(name: str) -> str:
    if name.endswith("-ns-total"):
        return "ns"
    if name.endswith("-time-total"):
        return "ms"
    if name.endswith("-seconds-ago"):
        return "s"
    return next((unit for word, unit in _UNIT_OF.items() if word in name.split("-")), "1")


def _text(seen: _Seen) -> str:
    return f"{seen.name} of {seen.group}: see the manual of aiokafka"


# -- Observable counters of messages: counting a message costs one addition


class Count:
    """The number of messages with one set of attributes."""

    __slots__ = ("attributes", "value")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.value = 0


class MessageCounter:
    """One counter for all clients of a provider.

    A provider calls only the first callback of an instrument name, so all clients share the counts.
    """

    _made: weakref.WeakKeyDictionary[Any, dict[str, MessageCounter]] = weakref.WeakKeyDictionary()
    _of_process: dict[str, MessageCounter] = {}

    def __init__(self, name: str, description: str, meter_provider: Any) -> None:
        meter = metrics.get_meter("aiokafka", __version__, meter_provider, _names.SCHEMA)
        self._counts: dict[frozenset[tuple[str, Any]], Count] = {}
        meter.create_observable_counter(name, [self._read], "{message}", description)

    @classmethod
    def of(cls, name: str, description: str, meter_provider: Any) -> MessageCounter:
        """Return the counter of this name for the provider; None: the provider of the process."""
        if meter_provider is None:
            known = cls._of_process
        else:
            known = cls._made.setdefault(meter_provider, {})
        if name not in known:
            known[name] = cls(name, description, meter_provider)
        return known[name]

    def count_of(self, attributes: Mapping[str, Any]) -> Count:
        """Return the Count of messages with these attributes; the caller adds to its `value`."""
        key = frozenset(attributes.items())
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count(dict(attributes))
        return count

    def _read(self, _: Any) -> Iterator[Any]:
        for count in list(self._counts.values()):
            yield metrics.Observation(count.value, count.attributes)
