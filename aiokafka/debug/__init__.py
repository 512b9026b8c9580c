"""The current state of clients: `snapshot` returns it, and `DebugApp` serves it over HTTP.

`LoopLag` measures the lag of the event loop.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import datetime, timezone
from typing import Any

from aiokafka import _clock
from aiokafka._version import __version__
from aiokafka.debug._loop_lag import LoopLag
from aiokafka.metrics import Distribution, Metric
from aiokafka.metrics._clients import as_clients, clients
from aiokafka.metrics.prometheus import KafkaCollector

__all__ = ["DebugApp", "LoopLag", "snapshot"]


# -- Snapshots


# The kind of a client, by the group of metrics that only this kind has.
_KINDS = {
    "consumer-metrics": "consumer",
    "consumer-share-metrics": "share consumer",
    "producer-metrics": "producer",
    "admin-client-metrics": "admin client",
}
_BUFFERS = {
    "buffer-total-bytes",
    "buffer-available-bytes",
    "fetch-buffer-bytes",
    "waiting-threads",
    "batches-pending",
    "requests-in-flight",
}
_PARALLEL = ("running", "unfinished", "unfinished_bytes", "waiting")


def snapshot(client: Any) -> dict[str, Any]:
    """Return the current state of a producer, consumer, share consumer, admin client or
    `ParallelConsumer`.

    The result is JSON data: `json.dumps(snapshot(client))` works at any time, even before `start()`
    and after `stop()`. The call sends no request and changes no state. Times are in seconds, or in
    milliseconds if their names end with `_ms`; unknown values are None or omitted. The result
    contains no passwords and no contents of records. Call it in the event loop of the client.
    """
    if hasattr(client, "unfinished"):
        return _parallel_state(client)
    metrics = list(client.metrics())
    groups = {metric.group for metric in metrics}
    own, kind = next(pair for pair in _KINDS.items() if pair[0] in groups)
    taken = datetime.fromtimestamp(_clock.wall_time(), timezone.utc).isoformat()
    found: dict[str, Any] = {
        "kind": kind,
        "client_id": next((m.tags["client-id"] for m in metrics if "client-id" in m.tags), None),
        "taken_at": taken,
        "version": __version__,
    }
    if hasattr(client, "health"):
        found["health"] = client.health().as_dict()
    found["metadata_age"] = _value_of(metrics, own, "metadata-age")
    if kind == "consumer":
        found.update(_consumer_state(client, metrics))
    if kind == "share consumer":
        found["subscription"] = sorted(client.subscription())
        found["assignment"] = [f"{tp.topic}-{tp.partition}" for tp in sorted(client.assignment())]
    if kind == "producer":
        found["transactional_id"] = client.transactional_id
        found["topics"] = _by_tag(metrics, "producer-topic-metrics", "topic")
    found["buffers"] = {_key(m.name): m.value for m in metrics if m.name in _BUFFERS}
    found["connections"] = {
        "all": {
            _key(m.name): m.value
            for m in metrics
            if m.group == own and m.name.startswith(("connection-", "request-", "response-"))
            if not isinstance(m.value, Distribution)
        },
        "nodes": _by_tag(metrics, own.replace("-metrics", "-node-metrics"), "node-id"),
    }
    return found


def _parallel_state(parallel: Any) -> dict[str, Any]:
    failure = parallel.failure
    return {
        "kind": "parallel consumer",
        **{name: getattr(parallel, name) for name in _PARALLEL},
        "failure": None if failure is None else repr(failure),
        "consumer": snapshot(parallel.consumer),
    }


def _consumer_state(consumer: Any, metrics: list[Metric]) -> dict[str, Any]:
    """Return the subscription, the assigned partitions and the group of a consumer."""
    partitions = [
        {"topic": topic, "partition": int(number), **values}
        for (topic, number), values in sorted(_partition_values(metrics).items())
    ]
    group = {
        _key(metric.name): _plain(metric)
        for metric in metrics
        if metric.group == "consumer-coordinator-metrics"
    }
    return {
        "subscription": sorted(consumer.subscription()),
        "assignment": partitions,
        "group": {"group_id": consumer.group_id, **group} if consumer.group_id else None,
    }


def _partition_values(metrics: list[Metric]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the position, the lag and other values of each assigned partition."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in metrics:
        if metric.group == "consumer-fetch-manager-metrics" and "partition" in metric.tags:
            partition = (metric.tags["topic"], metric.tags["partition"])
            unknown = {"position": None, "lag": None, "lead": None}
            values = found.setdefault(partition, unknown)
            name = _key(metric.name).removeprefix("records_")
            values[name] = bool(metric.value) if name == "paused" else metric.value
    return found


def _by_tag(metrics: list[Metric], group: str, tag: str) -> list[dict[str, Any]]:
    """Return the metrics of a group: for each value of `tag` a dict of the metrics by name."""
    found: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        if metric.group == group and tag in metric.tags:
            one = found.setdefault(metric.tags[tag], {_key(tag): metric.tags[tag]})
            one[_key(metric.name)] = _plain(metric)
    return list(found.values())


def _value_of(metrics: list[Metric], group: str, name: str) -> Any:
    return next((m.value for m in metrics if m.group == group and m.name == name), None)


def _plain(metric: Metric) -> Any:
    value = metric.value
    if isinstance(value, Distribution):
        return {"count": value.count, "mean": value.mean, "max": value.max}
    return value


def _key(name: str) -> str:
    return name.replace("-", "_")


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Response = tuple[int, str, bytes]

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_READY = {"running", "rebalancing", "unsubscribed"}
"""Health states in which `/health/ready` returns 200: the client works, or will work without
intervention."""


class DebugApp:
    """Serves the state of the clients of a process. It is an ASGI application without a framework.

    ================== ==================================================================
    ``/health/live``   503 if a client has failed and needs a restart
    ``/health/ready``  503 if a client does not work at the moment
    ``/metrics``       metrics for Prometheus (needs prometheus-client)
    ``/debug``         `snapshot` of each client
    ================== ==================================================================

    Run the application with any ASGI server, in the event loop of the clients, or mount it::

        app = FastAPI(lifespan=...)
        app.mount("/kafka", DebugApp())

    The application has no access control: do not make it accessible to the public.
    """

    def __init__(self, *only: Any) -> None:
        """Serve the clients in `only`; by default all clients of the process.

        By default, clients that are created later are included, and stopped clients are omitted.
        The clients in `only` are included even after they were stopped.
        """
        self._only = as_clients("only", only)
        self._registry: Any = None
        self._routes: dict[str, Callable[[], Response]] = {
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/metrics": self._metrics,
            "/debug": self._debug,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Respond to an ASGI request."""
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1003})
        status, kind, body = await self._respond(scope)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.body", "body": b"" if is_head else body})

    async def _respond(self, scope: Message) -> Response:
        # Some frameworks do not remove the mount point from the path.
        root = scope.get("root_path", "").rstrip("/")
        path = scope["path"].removeprefix(root).rstrip("/")
        route = self._routes.get(path)
        if route is None:
            return 404, _TEXT, f"There are {', '.join(self._routes)}\n".encode()
        if scope["method"] not in ("GET", "HEAD"):
            return 405, _TEXT, b"GET it\n"
        if path == "/metrics":
            # Formatting may take a second (tens of thousands of series), so do it in a thread.
            return await asyncio.to_thread(route)
        return route()

    def _clients(self) -> list[Any]:
        return list(self._only) if self._only else list(clients())

    def _states(self) -> list[dict[str, str]]:
        """Return the health state and its reason of each client that has the method `health`.
        Closed clients are omitted, unless they are in `only`."""
        found = []
        for client in self._clients():
            if not hasattr(client, "health"):
                continue
            health = client.health()
            if health.state != "closed" or self._only:
                state = {"state": str(health.state), "reason": health.reason}
                found.append({"client": repr(client), **state})
        return found

    def _probe(self, states: list[dict[str, str]], is_good: bool) -> Response:
        body = {"ok": is_good, "clients": states}
        return 200 if is_good else 503, _JSON, json.dumps(body).encode()

    def _live(self) -> Response:
        states = self._states()
        return self._probe(states, all(state["state"] != "failed" for state in states))

    def _ready(self) -> Response:
        states = self._states()
        return self._probe(states, all(state["state"] in _READY for state in states))

    def _metrics(self) -> Response:
        try:
            prometheus: Any = importlib.import_module("prometheus_client")
        except ImportError:
            text = b'prometheus-client is not installed: pip install "aiokafka[prometheus]"\n'
            return 501, _TEXT, text
        if self._registry is None:
            registry = prometheus.CollectorRegistry()
            registry.register(KafkaCollector(self._only or None))
            self._registry = registry
        return 200, prometheus.CONTENT_TYPE_LATEST, prometheus.generate_latest(self._registry)

    def _debug(self) -> Response:
        found = [snapshot(each) for each in self._clients() if not isinstance(each, LoopLag)]
        return 200, _JSON, json.dumps({"clients": found}).encode()


async def _lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge the start-up and shutdown events of the server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
