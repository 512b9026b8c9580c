"""Counters of messages that OpenTelemetry reads when it wants to: counting is an addition."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from aiokafka._version import __version__
from aiokafka.otel import _names
from aiokafka.otel._api import metrics

__all__ = ["Count", "MessageCounter"]


class Count:
    """How many messages there were with one set of attributes."""

    __slots__ = ("attributes", "value")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self.attributes = attributes
        self.value = 0


class MessageCounter:
    """One counter, for all clients that use one provider.

    A provider calls only those who were first to make a counter of a name, so the counts of all
    are together.
    """

    _made: weakref.WeakKeyDictionary[Any, dict[str, MessageCounter]] = weakref.WeakKeyDictionary()
    _of_process: dict[str, MessageCounter] = {}

    def __init__(self, name: str, description: str, meter_provider: Any) -> None:
        meter = metrics.get_meter("aiokafka", __version__, meter_provider, _names.SCHEMA)
        self._counts: dict[frozenset[tuple[str, Any]], Count] = {}
        meter.create_observable_counter(name, [self._read], "{message}", description)

    @classmethod
    def of(cls, name: str, description: str, meter_provider: Any) -> MessageCounter:
        """Return the counter of this name; without a provider, that of the process has it."""
        if meter_provider is None:
            known = cls._of_process
        else:
            known = cls._made.setdefault(meter_provider, {})
        if name not in known:
            known[name] = cls(name, description, meter_provider)
        return known[name]

    def count_of(self, attributes: Mapping[str, Any]) -> Count:
        """Return the count of messages with these attributes, which the caller adds to."""
        key = frozenset(attributes.items())
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count(dict(attributes))
        return count

    def _read(self, _: Any) -> Iterator[Any]:
        for count in list(self._counts.values()):
            yield metrics.Observation(count.value, count.attributes)
