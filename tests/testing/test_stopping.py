"""A client that connects while a fake broker, or a proxy, stops learns that nothing is there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokafka.testing import FakeCluster, FaultProxy


@pytest.fixture(params=range(6))
def turns(request: pytest.FixtureRequest) -> int:
    """Turns of the loop between the client's connect() and the stop: it is accepted in one."""
    return int(request.param)


async def heard(client: socket.socket) -> bytes:
    """Return what comes before the connection ends; a reset is an end as well."""
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.sock_recv(client, 1), 10)
    except ConnectionResetError:
        return b""


async def test_a_broker_that_stops_leaves_no_client_behind(turns: int) -> None:
    async with FakeCluster() as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port))) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await cluster.stop_broker(0)
            assert await heard(client) == b""


async def test_a_proxy_that_stops_leaves_no_client_behind(turns: int) -> None:
    async with FakeCluster() as cluster:
        proxy = FaultProxy(cluster.bootstrap_servers)
        await proxy.start()
        with socket.create_connection((proxy.host, proxy.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.stop()
            assert await heard(client) == b""


async def cancelled(work: Coroutine[Any, Any, None], turns: int) -> None:
    """Cancel it after so many turns of the loop."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_a_stop_that_is_cancelled_leaves_the_port_free(turns: int) -> None:
    async with FakeCluster(proxied=True) as cluster:
        broker, proxy = cluster.broker(0), cluster.proxies[0]
        for port in (broker.port, proxy.port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
        await cancelled(cluster.stop_broker(0), turns)
        await cluster.start_broker(0)
        assert broker.is_listening
        await cancelled(proxy.stop(), turns)
        await proxy.start()
        assert cluster.address(0) == proxy.address


async def test_a_broker_that_stops_can_start_at_the_same_port() -> None:
    async with FakeCluster() as cluster:
        address = cluster.bootstrap_servers
        for _ in range(3):
            await cluster.stop_broker(0)
            await cluster.start_broker(0)
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()
