"""Bootstrap servers that answer when another one has already."""

from __future__ import annotations

import asyncio

from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.testing import FakeCluster, FaultProxy


async def test_a_connection_that_comes_too_late_is_closed() -> None:
    """Else it would be open for minutes, of no use to anything."""
    async with FakeCluster() as cluster, FaultProxy(cluster.bootstrap_servers) as slow:
        slow.stall("responses")
        servers = [slow.address, cluster.bootstrap_servers]
        client = AIOKafkaClient(bootstrap_servers=servers)
        async with timeout(30), client:
            assert client.cluster.node_ids == (0,)
            assert slow.connections == 1
            slow.restore()
            while slow.connections:
                await asyncio.sleep(0.01)
            assert slow.forwarded["responses"] > 0
