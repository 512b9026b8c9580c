"""What the system is told about connections."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aiokafka.net.connector import Connector
from aiokafka.testing import FakeCluster
from tests.net.support import config, now, split


async def test_the_system_looks_after_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that has forgotten one would else swallow the next request without a word."""
    loop = asyncio.get_running_loop()
    connect, transports = loop.create_connection, list[asyncio.Transport]()

    async def create_connection(*args: Any, **kwargs: Any) -> Any:
        made = await connect(*args, **kwargs)
        transports.append(made[0])
        return made

    async with FakeCluster() as cluster:
        monkeypatch.setattr(loop, "create_connection", create_connection)
        connector = Connector(config(), *split(cluster.bootstrap_servers), "")
        connection = await connector.open(now() + 5)
        (transport,) = transports
        sock = transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        connection.close()
        await connection.closed
