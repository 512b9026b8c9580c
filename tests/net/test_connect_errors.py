"""Who shares an attempt to connect learns why it failed, and which address did answer."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aiokafka.errors import KafkaConnectionError, renewed
from aiokafka.net.connector import Connector
from aiokafka.testing import FakeCluster
from tests.net.support import config, free_port, now, pooled, split


async def test_each_of_those_who_wait_learns_the_cause() -> None:
    async with pooled(f"127.0.0.1:{free_port()}") as pool:
        found = await asyncio.gather(*(pool.get(0) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, KafkaConnectionError) for error in found)
    assert len({id(error) for error in found}) == 3
    for error in found:
        assert isinstance(error, KafkaConnectionError)
        assert isinstance(error.__cause__, ConnectionRefusedError)


def test_a_copy_keeps_the_cause_and_not_the_traceback() -> None:
    try:
        try:
            raise OSError("why")
        except OSError as reason:
            raise KafkaConnectionError("what") from reason
    except KafkaConnectionError as error:
        twin = renewed(error)
    assert (type(twin), str(twin)) == (KafkaConnectionError, "KafkaConnectionError: what")
    assert isinstance(twin.__cause__, OSError)
    assert twin.__traceback__ is None


async def test_the_address_that_answered_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one that is silent each connection would else wait for it."""
    loop = asyncio.get_running_loop()
    connect, tried = loop.create_connection, list[str]()

    async def getaddrinfo(host: str, port: int, **kwargs: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1", "127.0.0.3")
        ]

    async def create_connection(factory: Any, host: str, port: int, **kwargs: Any) -> Any:
        tried.append(host)
        return await connect(factory, host, port, **kwargs)

    async with FakeCluster() as cluster:
        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        monkeypatch.setattr(loop, "create_connection", create_connection)
        connector = Connector(config(), "kafka.example", split(cluster.bootstrap_servers)[1], "")
        for _ in range(3):
            connection = await connector.open(now() + 5)
            connection.close()
            await connection.closed
    assert tried == ["127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"]
