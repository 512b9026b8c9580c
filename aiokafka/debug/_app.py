"""A small ASGI application: probes, metrics, and snapshots of clients."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aiokafka.debug._loop_lag import LoopLag
from aiokafka.debug._snapshot import snapshot
from aiokafka.metrics._clients import as_clients, clients
from aiokafka.metrics.prometheus import KafkaCollector

__all__ = ["DebugApp"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Response = tuple[int, str, bytes]

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_READY = {"running", "rebalancing", "unsubscribed"}
"""States in which a client does its work, or is about to without help."""


class DebugApp:
    """Serves what the clients of a process do. It is an ASGI application without a framework.

    ================== ==================================================================
    ``/health/live``   503 when a client has failed for good, which only a restart mends
    ``/health/ready``  503 when a client does not do its work at the moment
    ``/metrics``       what Prometheus reads (needs prometheus-client)
    ``/debug``         `snapshot` of each client
    ================== ==================================================================

    Run it with any ASGI server, in the event loop of the clients, or mount it in an application::

        app = FastAPI(lifespan=...)
        app.mount("/kafka", DebugApp())

    It has no access control: keep it from the public.
    """

    def __init__(self, *only: Any) -> None:
        """Serve `only` these producers, consumers and admin clients; without any: all of the
        process, those made later included.

        Of all, those that were stopped do not count; of those that are given, they do.
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
        """Answer a request, as ASGI has it."""
        if scope["type"] == "lifespan":
            return await _live_on(receive, send)
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
        # Where it is mounted; some frameworks leave that in the path.
        root = scope.get("root_path", "").rstrip("/")
        path = scope["path"].removeprefix(root).rstrip("/")
        route = self._routes.get(path)
        if route is None:
            return 404, _TEXT, f"There are {', '.join(self._routes)}\n".encode()
        if scope["method"] not in ("GET", "HEAD"):
            return 405, _TEXT, b"GET it\n"
        if path == "/metrics":
            # Text of tens of thousands of series takes a second.
            return await asyncio.to_thread(route)
        return route()

    def _clients(self) -> list[Any]:
        return list(self._only) if self._only else list(clients())

    def _states(self) -> list[dict[str, str]]:
        """Return how each client is doing that can tell."""
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
            text = b"Prometheus' client is missing: pip install aiokafka[prometheus]\n"
            return 501, _TEXT, text
        if self._registry is None:
            registry = prometheus.CollectorRegistry()
            registry.register(KafkaCollector(self._only or None))
            self._registry = registry
        return 200, prometheus.CONTENT_TYPE_LATEST, prometheus.generate_latest(self._registry)

    def _debug(self) -> Response:
        found = [snapshot(each) for each in self._clients() if not isinstance(each, LoopLag)]
        return 200, _JSON, json.dumps({"clients": found}).encode()


async def _live_on(receive: Receive, send: Send) -> None:
    """Tell the server that there is nothing to start or to stop."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
