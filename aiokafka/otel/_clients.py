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

_MAX_AGE = 0.2
"""Seconds for which all instruments use the same snapshots of the clients. After that, the clients
are read again."""


class _ObservedMetric(NamedTuple):
    """A metric to export. `tag`, one of `_TAGS`, is the tag that distinguishes the values of a
    client, such as "topic"; "" for a metric with one value per client."""

    group: str
    name: str
    tag: str = ""


_ROLES = ("producer", "consumer", "consumer-share", "admin-client")
_COUNTERS = (
    *(
        _ObservedMetric(f"{role}-metrics", name)
        for role in _ROLES
        for name in (
            "connection-creation-total",
            "connection-failure-total",
            "request-total",
            "incoming-byte-total",
            "outgoing-byte-total",
        )
    ),
    *(_ObservedMetric(f"{role}-node-metrics", "throttle-time-total", "node-id") for role in _ROLES),
    _ObservedMetric("producer-metrics", "bufferpool-wait-time-ns-total"),
    _ObservedMetric("producer-metrics", "buffer-exhausted-total"),
    _ObservedMetric("producer-metrics", "batch-split-total"),
    _ObservedMetric("producer-topic-metrics", "record-send-total", "topic"),
    _ObservedMetric("producer-topic-metrics", "record-retry-total", "topic"),
    _ObservedMetric("producer-topic-metrics", "record-error-total", "topic"),
    _ObservedMetric("producer-topic-metrics", "byte-total", "topic"),
    _ObservedMetric("consumer-fetch-manager-metrics", "records-consumed-total", "topic"),
    _ObservedMetric("consumer-fetch-manager-metrics", "bytes-consumed-total", "topic"),
    _ObservedMetric("consumer-coordinator-metrics", "rebalance-total"),
    _ObservedMetric("consumer-coordinator-metrics", "commit-total"),
    _ObservedMetric("consumer-coordinator-metrics", "commit-failed-total"),
    *(
        _ObservedMetric("consumer-share-fetch-manager-metrics", name)
        for name in (
            "records-consumed-total",
            "bytes-consumed-total",
            "records-accepted-total",
            "records-released-total",
            "records-rejected-total",
            "records-renewed-total",
            "records-expired-total",
            "acknowledgements-error-total",
        )
    ),
    _ObservedMetric("parallel-consumer-metrics", "records-finished-total"),
    _ObservedMetric("parallel-consumer-metrics", "records-failed-total"),
    _ObservedMetric("parallel-consumer-metrics", "process-time-total"),
    _ObservedMetric("retry-topics-metrics", "record-retry-total", "topic"),
    _ObservedMetric("retry-topics-metrics", "record-dead-letter-total", "topic"),
)
_GAUGES = (
    *(_ObservedMetric(f"{role}-metrics", "connection-count") for role in _ROLES),
    _ObservedMetric("producer-metrics", "buffer-available-bytes"),
    _ObservedMetric("producer-metrics", "waiting-threads"),
    _ObservedMetric("producer-metrics", "batches-pending"),
    _ObservedMetric("producer-metrics", "requests-in-flight"),
    _ObservedMetric("consumer-fetch-manager-metrics", "records-lag-max"),
    _ObservedMetric("consumer-fetch-manager-metrics", "records-lag", "partition"),
    _ObservedMetric("consumer-fetch-manager-metrics", "position", "partition"),
    _ObservedMetric("consumer-coordinator-metrics", "assigned-partitions"),
    _ObservedMetric("consumer-coordinator-metrics", "generation"),
    _ObservedMetric("consumer-coordinator-metrics", "last-rebalance-seconds-ago"),
    _ObservedMetric("consumer-coordinator-metrics", "last-heartbeat-seconds-ago"),
    _ObservedMetric("consumer-share-fetch-manager-metrics", "acknowledgements-pending"),
    _ObservedMetric("consumer-share-coordinator-metrics", "assigned-partitions"),
    _ObservedMetric("consumer-share-coordinator-metrics", "last-heartbeat-seconds-ago"),
    _ObservedMetric("parallel-consumer-metrics", "records-running"),
    _ObservedMetric("parallel-consumer-metrics", "records-unfinished"),
    _ObservedMetric("retry-topics-metrics", "records-waiting"),
)
_OBSERVED = frozenset((*_COUNTERS, *_GAUGES))
_TAGS = ("partition", "topic", "node-id")
_UNIT_OF = {"byte": "By", "bytes": "By", "records": "{record}", "record": "{record}"}


Tags = tuple[tuple[str, str], ...]


class _Readings:
    """Reads the metrics of the clients once for all instruments that are collected together.

    Clients with the same tags have one series: the sum of their counters, and the maximum of their
    gauges.
    """

    def __init__(self, only: Iterable[MeasuredClient], partitions: bool) -> None:
        self._only = tuple(only)
        self._partitions = partitions
        self._found: dict[_ObservedMetric, dict[Tags, Any]] = {}
        self._ended = LastingSums()
        self._read_at = float("-inf")
        # A meter provider may have several metric readers, which collect in different threads.
        self._lock = threading.Lock()

    def of(self, observed: _ObservedMetric) -> list[tuple[Tags, Value]]:
        """Return the (tags, value) pairs of one instrument. Read the clients again if necessary."""
        with self._lock:
            # The age is negative if a test has switched to a simulated clock, which begins at 0.
            if not 0 <= _clock.running_time() - self._read_at < _MAX_AGE:
                self._read()
                self._read_at = _clock.running_time()
            return list(self._found.get(observed, {}).items())

    def _read(self) -> None:
        self._found = {}
        counted = []
        for client in self._only or clients():
            counts: dict[tuple[_ObservedMetric, Tags], Value] = {}
            snapshot = client.metrics()
            for metric in snapshot if self._partitions else snapshot.without_partitions():
                observed = _ObservedMetric(metric.group, metric.name, _tag_of(metric))
                if observed not in _OBSERVED or isinstance(metric.value, Distribution):
                    continue
                tags = tuple((tag.replace("-", "_"), text) for tag, text in metric.tags.items())
                values = self._found.setdefault(observed, {})
                if metric.kind is MetricKind.COUNTER:
                    counts[observed, tags] = metric.value
                    values[tags] = added(values.get(tags), metric.value)
                else:
                    values[tags] = max(values.get(tags, metric.value), metric.value)
            counted.append((client, counts))
        for (observed, tags), value in self._ended.update(counted).items():
            self._found[observed][tags] = added(self._found[observed][tags], value)


def _tag_of(metric: Metric) -> str:
    return next((tag for tag in _TAGS if tag in metric.tags), "")


def observe_clients(
    *only: MeasuredClient, meter_provider: Any = None, partitions: bool = True
) -> None:
    """Export the most important metrics of every client, or of `only`, to OpenTelemetry.

    Call it once, when the program starts: without `only`, it includes clients that are created
    later. The names of the instruments are those of `metrics()` with a prefix, such as
    ``kafka.producer.record_send_total``; tags become attributes. `partitions=False` omits the
    metrics of single partitions. Reading the metrics sends no request to brokers.
    """
    meter = metrics.get_meter("aiokafka", __version__, meter_provider)
    readings = _Readings(as_clients("only", only), partitions)
    for kind, metrics_of_kind in ((MetricKind.COUNTER, _COUNTERS), (MetricKind.GAUGE, _GAUGES)):
        is_counter = kind is MetricKind.COUNTER
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        for observed in metrics_of_kind:
            if partitions or observed.tag != "partition":
                make(
                    _instrument(observed),
                    [_InstrumentCallback(readings, observed)],
                    _unit(observed.name),
                    _text(observed),
                )


class _InstrumentCallback:
    """The callback of one instrument. It yields the observations of that instrument."""

    def __init__(self, readings: _Readings, observed: _ObservedMetric) -> None:
        self._readings = readings
        self._observed = observed

    def __call__(self, _: Any) -> Iterator[Any]:
        for tags, value in self._readings.of(self._observed):
            yield metrics.Observation(value, dict(tags))


def _instrument(observed: _ObservedMetric) -> str:
    role = observed.group.removesuffix("-metrics")
    for part in ("-fetch-manager", "-coordinator", "-topic", "-node"):
        role = role.removesuffix(part)
    return f"kafka.{role}.{observed.name}".replace("-", "_")


def _unit(name: str) -> str:
    if name.endswith("-ns-total"):
        return "ns"
    if name.endswith("-time-total"):
        return "ms"
    if name.endswith("-seconds-ago"):
        return "s"
    return next((unit for word, unit in _UNIT_OF.items() if word in name.split("-")), "1")


def _text(observed: _ObservedMetric) -> str:
    return f"{observed.name} of {observed.group}: see the manual of aiokafka"


# -- Observable counters of messages: to count a message costs one addition


class Count:
    """A number of messages with the same attributes."""

    __slots__ = ("attributes", "value")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.value = 0


class MessageCounter:
    """One counter, shared by all clients that use the same meter provider.

    A provider calls only the first callback that was registered for an instrument name, so the
    clients cannot have callbacks of their own.
    """

    _of_provider: weakref.WeakKeyDictionary[Any, dict[str, MessageCounter]] = (
        weakref.WeakKeyDictionary()
    )
    _of_process: dict[str, MessageCounter] = {}

    def __init__(self, name: str, description: str, meter_provider: Any) -> None:
        meter = metrics.get_meter("aiokafka", __version__, meter_provider, _names.SCHEMA)
        self._counts: dict[frozenset[tuple[str, Any]], Count] = {}
        meter.create_observable_counter(name, [self._read], "{message}", description)

    @classmethod
    def of(cls, name: str, description: str, meter_provider: Any) -> MessageCounter:
        """Return the counter with this name of a provider; create it if necessary. None stands for
        the global provider of the process."""
        if meter_provider is None:
            known = cls._of_process
        else:
            known = cls._of_provider.setdefault(meter_provider, {})
        if name not in known:
            known[name] = cls(name, description, meter_provider)
        return known[name]

    def count_of(self, attributes: Mapping[str, Any]) -> Count:
        """Return the Count for messages with these attributes. To count messages, increase its
        `value`."""
        key = frozenset(attributes.items())
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count(dict(attributes))
        return count

    def _read(self, _: Any) -> Iterator[Any]:
        for count in list(self._counts.values()):
            yield metrics.Observation(count.value, count.attributes)
