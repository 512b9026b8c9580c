"""Counts of bytes, requests and connects, by broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiokafka import _clock
from aiokafka._version import __version__
from aiokafka.metrics._clients import LATENCY_MS, Histogram

if TYPE_CHECKING:
    from aiokafka.metrics._values import GroupWriter, Metric, MetricsSnapshot

__all__ = ["NodeTraffic", "Traffic"]

_MOST_NODES = 1000
"""Maximum number of node ids with separate counts. Without a limit, the ids of replaced brokers
would accumulate."""


class NodeTraffic:
    """The counts of all connections to one broker, including requests of the handshakes."""

    __slots__ = ("bytes_in", "bytes_out", "latency", "requests", "responses", "throttle_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.throttle_ms = 0
        """Total throttle time in milliseconds."""
        self.latency = Histogram(LATENCY_MS)

    def absorb(self, other: NodeTraffic) -> None:
        """Add the counts of `other` to these counts."""
        self.requests += other.requests
        self.responses += other.responses
        self.bytes_out += other.bytes_out
        self.bytes_in += other.bytes_in
        self.throttle_ms += other.throttle_ms
        self.latency.absorb(other.latency)


class Traffic:
    """The counts of a client by node id; bootstrap servers have negative ids.

    Owns the NodeTraffic of each node, and the numbers of connects. Each connection updates the
    NodeTraffic of its node.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, NodeTraffic] = {}
        # The sum of the counts of brokers that were removed from `nodes` (see `_MOST_NODES`).
        self._gone = NodeTraffic()
        self._started_ms = int(_clock.wall_time() * 1000)
        self.connects = 0
        """Successful connects, with handshake and authentication."""
        self.failures = 0
        """Failed connects."""

    def of(self, node_id: int) -> NodeTraffic:
        """Return the counts of one broker, created on first use."""
        node = self.nodes.get(node_id)
        return self.join(node_id, NodeTraffic()) if node is None else node

    def join(self, node_id: int, counts: NodeTraffic) -> NodeTraffic:
        """Add the `counts` of a new connection to the counts of its broker. Return the object that
        holds the sum: the connection must use it from then on. With too many brokers, the oldest
        one loses its separate counts."""
        node = self.nodes.get(node_id)
        if node is not None:
            node.absorb(counts)
            return node
        if len(self.nodes) >= _MOST_NODES:
            self._gone.absorb(self.nodes.pop(next(iter(self.nodes))))
        self.nodes[node_id] = counts
        return counts

    def read(
        self, client_id: str, role: str, open_now: int, metadata_age: float | None
    ) -> MetricsSnapshot:
        """Return the metrics of all connections, and of each broker.

        Args:
            role: The prefix of the metric groups, such as `"producer"`.
            open_now: The number of open connections.
            metadata_age: The age of the metadata in seconds, None without any.
        """
        from aiokafka.metrics._values import GroupWriter, MetricsSnapshot

        writer = GroupWriter(f"{role}-metrics", {"client-id": client_id})
        app = writer.tagged("app-info", version=__version__)
        metrics = [*app.gauges(start_time_ms=self._started_ms)]
        metrics += writer.gauges(metadata_age=metadata_age)
        return MetricsSnapshot([*metrics, *self._each(writer, f"{role}-node-metrics", open_now)])

    def _each(self, writer: GroupWriter, node_group: str, open_now: int) -> Iterator[Metric]:
        nodes = dict(self.nodes)
        every = (*nodes.values(), self._gone)
        yield from writer.gauges(connection_count=open_now)
        yield from writer.counters(
            connection_creation_total=self.connects,
            connection_close_total=self.connects - open_now,
            connection_failure_total=self.failures,
            request_total=sum(node.requests for node in every),
            response_total=sum(node.responses for node in every),
            outgoing_byte_total=sum(node.bytes_out for node in every),
            incoming_byte_total=sum(node.bytes_in for node in every),
        )
        for node_id, node in nodes.items():
            one = writer.tagged(node_group, node_id=node_id)
            yield from one.counters(
                request_total=node.requests,
                response_total=node.responses,
                outgoing_byte_total=node.bytes_out,
                incoming_byte_total=node.bytes_in,
                throttle_time_total=node.throttle_ms,
            )
            yield from one.histograms(request_latency=node.latency)
