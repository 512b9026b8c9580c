"""The task that pushes the metrics of a client to the brokers (KIP-714)."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import _clock
from aiokafka._arguments import as_milliseconds
from aiokafka._compat import timeout
from aiokafka._config import ClientConfig
from aiokafka._retry import Backoff
from aiokafka._typing import later
from aiokafka.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
    UnsupportedVersionError,
    for_code,
    renewed,
)
from aiokafka.metrics._clients import register
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.pool import ConnectionPool
from aiokafka.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    import uuid

    from aiokafka._metadata.loop import MetadataLoop
    from aiokafka._telemetry.push import PushedCounts, PushPayload, Subscription
    from aiokafka.metrics import Metric, MetricsSnapshot
    from aiokafka.protocol.messages.telemetry import PushTelemetryRequest

__all__ = ["Reporting", "TelemetryReporter"]

log = logging.getLogger("aiokafka")

_SEARCH_INTERVAL = 300.0
"""Seconds between two checks for a broker that supports telemetry."""
_LONGEST_BACKOFF = 30.0
_KEY_OF_SUBSCRIPTIONS = 71
"""API key of GetTelemetrySubscriptions, which brokers without telemetry do not support."""
_LAST_PUSH_TIMEOUT = 1.0
"""Seconds after which the last push, sent when the client is stopped, is given up."""


class TelemetryReporter:
    """Pushes the metrics of one client to brokers as long as they subscribe to metrics.

    Owns: the client instance id, the subscription, and the last pushed values. It has no strong
    reference to the client, so that a client that was not closed can be garbage-collected.
    """

    def __init__(self, config: ClientConfig, metadata: MetadataLoop) -> None:
        self._config = config
        self._metadata = metadata
        self._read: Callable[[], Iterable[Metric] | None] = _nothing
        self._labels: Callable[[], Mapping[str, str]] = dict
        self._began_at_ns = _now_ns()
        self._pushed_counts: PushedCounts | None = None
        self._id = ZERO_UUID
        self._is_settled = asyncio.Event()
        self._failure: KafkaError = IllegalStateError("the client is not started")
        self._is_running = False
        self._subscription: Subscription | None = None
        self._node_id: int | None = None
        self._refused: set[int] = set()
        self._most_bytes = 0
        self._backoff = Backoff(config.retry_backoff, _LONGEST_BACKOFF)

    def watch(
        self, read: Callable[[], Iterable[Metric] | None], labels: Callable[[], Mapping[str, str]]
    ) -> None:
        """Set what to push. `read` returns the metrics, or None after the client was
        garbage-collected; `labels` returns attributes of the client, such as its group id."""
        self._read = read
        self._labels = labels

    async def instance_id(self, timeout_s: float) -> uuid.UUID:
        """Return the client instance id. Waits up to `timeout_s` seconds until a broker assigns it.

        Raises KafkaTimeoutError after this time; IllegalStateError with
        `enable_metrics_push=False`, or if the client is not running; UnsupportedVersionError if no
        broker supports telemetry.
        """
        if not self._config.enable_metrics_push:
            raise IllegalStateError("there is no client instance id: enable_metrics_push is False")
        if not self._is_running:
            raise renewed(self._failure)
        try:
            async with timeout(timeout_s):
                await self._is_settled.wait()
        except asyncio.TimeoutError:
            raise KafkaTimeoutError(
                f"no broker returned a client instance id within {timeout_s:g} s"
            ) from None
        if self._id == ZERO_UUID:
            raise renewed(self._failure)
        from uuid import UUID

        return UUID(bytes=self._id)

    # -- the background task

    def run(self, pool: ConnectionPool) -> Coroutine[Any, Any, None]:
        """Return the coroutine of the background task. It requests a subscription and pushes
        metrics, until it is cancelled, the client is garbage-collected, or an error is not
        retriable. It logs errors, and raises none."""
        self._is_running = self._read is not _nothing and self._config.enable_metrics_push
        self._is_settled.clear()
        return self._run(pool)

    async def _run(self, pool: ConnectionPool) -> None:
        pause: float | None = 0.0 if self._is_running else None
        try:
            while pause is not None:
                await asyncio.sleep(pause)
                pause = await self._step(pool)
        except Exception as error:
            name = self._config.client_id
            log.exception("%s pushes no metrics any more", name, extra={"client_id": name})
            self._give_up(KafkaError(f"pushing metrics has failed: {error!r}"))

    async def finish(self, pool: ConnectionPool) -> None:
        """If there are a subscription and an open connection, push once more with the terminating
        flag, within `_LAST_PUSH_TIMEOUT`. The task of `run()` must have ended."""
        subscription = self._subscription
        if subscription is not None:
            try:
                connection = self._open_connection(pool)
                if connection is not None:
                    async with timeout(_LAST_PUSH_TIMEOUT):
                        await self._push(connection, subscription, is_last=True)
            except (KafkaError, asyncio.TimeoutError) as error:
                log.debug("%s: the last push has failed: %r", self._config.client_id, error)
        self._give_up(IllegalStateError("the client is stopped"))
        self._is_running = False

    def _give_up(self, error: KafkaError) -> None:
        self._subscription = None
        self._failure = error
        self._is_settled.set()

    async def _step(self, pool: ConnectionPool) -> float | None:
        """Request a subscription, or, if there is one, push once. Return the seconds until the next
        call; None ends the task."""
        subscription = self._subscription
        try:
            connection = await self._connection(pool)
            if connection is None:
                self._give_up(
                    UnsupportedVersionError(
                        "no broker accepts metrics: this needs Kafka 3.7 with a metrics plug-in"
                    )
                )
                return _SEARCH_INTERVAL
            if subscription is None:
                return await self._subscribe(connection)
            return await self._push(connection, subscription)
        except KafkaError as error:
            log.debug("%s: pushing metrics: %s", self._config.client_id, error)
            if error.retriable:
                return self._backoff.next() if subscription is None else subscription.interval
            name = self._config.client_id
            log.warning("%s pushes no metrics any more: %s", name, error, extra={"client_id": name})
            self._give_up(error)
            return None

    async def _connection(self, pool: ConnectionPool) -> BrokerConnection | None:
        """Return a connection to a broker that supports telemetry, if possible an open one; None if
        no broker supports telemetry.

        Before a broker has assigned the client instance id, opens connections only to brokers that
        are known to support telemetry. Raises NodeNotReadyError if no connection is possible now.
        """
        connection = self._open_connection(pool)
        if connection is not None:
            return connection
        nodes = self._metadata.cluster.node_ids
        if all(pool.versions(node) is None for node in nodes):
            # There is only a connection to a bootstrap server. Do not use it for telemetry, because
            # the server may be a load balancer.
            raise NodeNotReadyError("no broker was connected to yet")
        able = [node for node in nodes if _takes_metrics(pool, node)]
        if self._id != ZERO_UUID:
            # A broker has assigned the id, so brokers of unknown versions may support telemetry
            # too.
            able += [node for node in nodes if pool.versions(node) is None]
        elif not able:
            return None
        ready = [node for node in able if not pool.retry_delay(node)]
        if not ready:
            raise NodeNotReadyError("no broker can be connected to at the moment")
        self._node_id = random.choice(ready)
        connection = await pool.get(self._node_id)
        if not _takes_metrics(pool, self._node_id):
            raise NodeNotReadyError(f"node {self._node_id} does not accept metrics")
        return connection

    def _open_connection(self, pool: ConnectionPool) -> BrokerConnection | None:
        """Return an open connection to a broker that supports telemetry, if possible to the broker
        of the last push; None without such a connection."""
        found = {
            node_id: connection
            for node_id in self._metadata.cluster.node_ids
            if (connection := pool.find(node_id)) and _takes_metrics(pool, node_id)
        }
        if found and self._node_id not in found:
            self._node_id = random.choice(list(found))
        return None if self._node_id is None else found.get(self._node_id)

    async def _subscribe(self, connection: BrokerConnection) -> float:
        # Import these modules only if a broker supports telemetry.
        from aiokafka._telemetry.push import DEFAULT_INTERVAL, Subscription
        from aiokafka.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest

        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._id)
        response = await connection.request(request)
        error = for_code(response.error_code)
        if error is ThrottlingQuotaExceeded:
            return DEFAULT_INTERVAL
        if response.error_code:
            raise error("GetTelemetrySubscriptions")
        if self._id == ZERO_UUID:
            if response.client_instance_id == ZERO_UUID:
                raise KafkaError("GetTelemetrySubscriptions: there is no client instance id")
            self._id = response.client_instance_id
        self._is_settled.set()
        self._backoff.reset()
        subscription = Subscription.of(response)
        if not subscription.prefixes:
            return subscription.interval
        self._subscription = subscription
        self._most_bytes = subscription.most_bytes
        # Push for the first time at a random moment, so that clients that were started together do
        # not push at the same time.
        return subscription.interval * random.uniform(0.5, 1.5)

    # -- a push

    async def _push(
        self, connection: BrokerConnection, subscription: Subscription, *, is_last: bool = False
    ) -> float | None:
        """Push once, if there is something to push, or if this is the last push. Return the seconds
        until the next call of `_step`; None if the client was garbage-collected."""
        # Import these modules only if a broker subscribes to metrics.
        from aiokafka._telemetry.push import PushedCounts, PushPayload, entries, make_payload
        from aiokafka.protocol.messages.telemetry import PushTelemetryRequest

        snapshot = self._read()
        if snapshot is None:
            return None
        at_ns = _now_ns()
        every = await entries(snapshot, subscription.wants)
        counts = self._pushed_counts = self._pushed_counts or PushedCounts(self._began_at_ns)
        payload = await make_payload(
            every,
            counts,
            subscription,
            {name: value for name, value in self._labels().items() if value},
            at_ns,
            codec=subscription.codec(self._refused),
            most_bytes=self._most_bytes,
        )
        if payload is None and not is_last:
            return subscription.interval
        payload = payload or PushPayload(b"", 0, [])
        request = PushTelemetryRequest(
            client_instance_id=self._id,
            subscription_id=subscription.id,
            terminating=is_last,
            compression_type=payload.codec,
            metrics=payload.data,
        )
        after_push = await counts.after_push(every, payload.entries, at_ns)
        code = await _send(connection, request, partial(counts.set_last_pushed, after_push))
        return self._after_push(code, payload, subscription)

    def _after_push(self, code: int, payload: PushPayload, subscription: Subscription) -> float:
        """Evaluate the error code of a PushTelemetry response; return the seconds until the next
        call of `_step`. Raises all errors except the four that this method handles."""
        error = for_code(code)
        # The broker does not know the subscription, or rejects the codec: request a subscription
        # at once.
        if error is UnknownSubscriptionId or error is UnsupportedCompressionType:
            if error is UnsupportedCompressionType:
                self._refused.add(payload.codec)
            self._subscription = None
            return 0.0
        if error is TelemetryTooLarge:
            # Limit the next push to half of the size of this push. A new subscription resets this
            # limit.
            self._most_bytes = len(payload.data) // 2
        # After THROTTLING_QUOTA_EXCEEDED, only wait: the push was too early, and the broker has
        # dropped it. Raise any other error.
        elif code and error is not ThrottlingQuotaExceeded:
            raise error("PushTelemetry")
        return subscription.interval


async def _send(
    connection: BrokerConnection, request: PushTelemetryRequest, mark_pushed: Callable[[], None]
) -> int:
    """Send a push; return the error code of the response.

    Calls `mark_pushed` if the broker has accepted the values, and also if there is no response: the
    broker may have accepted them, and to push the same differences again would count them twice.
    """
    answer = connection.send_nowait(request)
    try:
        code = (await answer).error_code
    except BaseException:
        mark_pushed()
        raise
    if code == 0:
        mark_pushed()
    return code


def _now_ns() -> int:
    return int(_clock.wall_time() * 1e9)


def _nothing() -> None:
    """Return None. The initial `TelemetryReporter._read`, until `watch` replaces it."""


def _takes_metrics(pool: ConnectionPool, node_id: int) -> bool:
    versions = pool.versions(node_id)
    if versions is None or _KEY_OF_SUBSCRIPTIONS not in versions.api_versions:
        return False
    from aiokafka.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest

    return versions.has(GetTelemetrySubscriptionsRequest)


# -- The base class of producers, consumers and admin clients


if TYPE_CHECKING:
    from uuid import UUID

    from aiokafka.metrics import Metric, MetricsSnapshot
else:
    UUID = later("uuid.UUID")
    Metric = later("aiokafka.metrics.Metric")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")


C = TypeVar("C", bound="Reporting")
Source = Callable[[], Iterable[Metric]]
"""Returns metrics of the application."""


class Reporting:
    """Base class of producers, consumers and admin clients. Exporters include their metrics, and
    brokers that subscribe to metrics get them (KIP-714)."""

    _telemetry: TelemetryReporter
    _sources: tuple[Source, ...] = ()
    """The sources of the application's own metrics. The reporter has no reference to them, because
    they may refer to this client."""

    if TYPE_CHECKING:

        def metrics(self) -> MetricsSnapshot: ...  # every subclass defines this method

    def _report(
        self: C,
        read: Callable[[C], MetricsSnapshot],
        telemetry: TelemetryReporter,
        labels: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Register the client for exporters, and for pushes by `telemetry`.

        Args:
            read: The method `metrics` of the class in this package, because a subclass of the
                application may override `metrics`.
            telemetry: Pushes the metrics of this client.
            labels: Returns attributes of the client, such as its group id; attributes without a
                value are omitted.
        """
        register(self)
        self._telemetry = telemetry
        # With a strong reference, a client that was not closed could not be garbage-collected.
        client = weakref.ref(self)
        telemetry.watch(lambda: _read(client, read), labels)

    async def client_instance_id(self, timeout_ms: float = 60_000) -> UUID:
        """Return the client instance id, which a broker assigns and which identifies the metrics
        that this client pushes (KIP-714). Waits up to `timeout_ms` milliseconds for the id.

        Raises TypeError or ValueError unless `timeout_ms` is a number, at least 0;
        KafkaTimeoutError after this time; UnsupportedVersionError if no broker supports telemetry;
        IllegalStateError with `enable_metrics_push=False`, or if the client is not running.
        """
        limit = as_milliseconds("timeout_ms", timeout_ms) / 1000
        return await self._telemetry.instance_id(limit)

    def register_metric_for_subscription(self, source: Source) -> None:
        """Push metrics of the application with those of this client (KIP-1076), if the brokers
        subscribe to them by their `telemetry_name`.

        `source` is called before each push and returns `Metric` objects: counters and gauges. It
        must not block. A metric is left out if the client has a metric with the same name. If
        `source` raises, or returns anything else, its metrics are missing from this push, and a
        warning is logged. The metrics are not in `metrics()`. A source that is already registered
        is not registered again.

        Raises TypeError if `source` is not callable.
        """
        if not callable(source):
            raise TypeError(f"source={source!r}: must be a function that returns metrics")
        if source not in self._sources:
            self._sources = (*self._sources, source)

    def unregister_metric_from_subscription(self, source: Source) -> None:
        """Stop pushing the metrics of `source` (KIP-1076). Does nothing if `source` is not
        registered."""
        self._sources = tuple(known for known in self._sources if known != source)


def _read(client: weakref.ref[C], read: Callable[[C], MetricsSnapshot]) -> Iterable[Metric] | None:
    found = client()
    if found is None:
        return None
    snapshot = read(found)
    if not found._sources:
        return snapshot
    from aiokafka._telemetry.push import with_application_metrics

    return with_application_metrics(snapshot, found._sources)
