"""What producers, consumers and admin clients have in common: their metrics are pushed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from aiokafka._telemetry.reporter import TelemetryReporter
from aiokafka._typing import later
from aiokafka.metrics._clients import register

if TYPE_CHECKING:
    from uuid import UUID

    from aiokafka.metrics import MetricsSnapshot
else:
    UUID = later("uuid.UUID")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")

__all__ = ["Reporting"]


C = TypeVar("C", bound="Reporting")


class Reporting:
    """A client whose metrics are collected, and pushed to brokers that ask for them."""

    _telemetry: TelemetryReporter

    if TYPE_CHECKING:

        def metrics(self) -> MetricsSnapshot: ...  # of each of them

    def _report(
        self: C,
        read: Callable[[C], MetricsSnapshot],
        telemetry: TelemetryReporter,
        labels: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Begin to. `read` is the `metrics` of our class: a program's subclass may have something
        else of that name. `labels` describe the client; those that are empty do not."""
        register(self)
        self._telemetry = telemetry
        # What is in the background must not keep a client from being missed.
        client = weakref.ref(self)
        telemetry.watch(lambda: _read(client, read), labels)

    async def client_instance_id(self, timeout_ms: float = 60_000) -> UUID:
        """Return the id that the brokers have given to this client, by which they name the metrics
        that it pushes (KIP-714). Waits for it for `timeout_ms`, from `start()` on.

        Raises ValueError for a negative time, KafkaTimeoutError, UnsupportedVersionError if no
        broker takes metrics, IllegalStateError with `enable_metrics_push=False`, and for a client
        that does not run.
        """
        if not timeout_ms >= 0:  # NaN is neither
            raise ValueError(f"timeout_ms={timeout_ms!r}: must not be negative")
        return await self._telemetry.instance_id(timeout_ms / 1000)


def _read(client: weakref.ref[C], read: Callable[[C], MetricsSnapshot]) -> MetricsSnapshot | None:
    found = client()
    return None if found is None else read(found)
