"""Canonical names of bootstrap servers (KIP-235)."""

from __future__ import annotations

import socket

from aiokafka.net.dialing import canonical
from tests.net.support import now

NAME = socket.getnameinfo(("127.0.0.1", 1), socket.NI_NUMERICSERV)[0]


async def test_addresses_become_names_each_once() -> None:
    servers = [("127.0.0.1", 9092), ("127.0.0.1", 9093), (NAME, 9092)]
    found = await canonical(servers, now() + 10)
    assert found[:2] == ((NAME, 9092), (NAME, 9093))
    assert len(set(found)) == len(found)


async def test_what_the_resolver_does_not_know_stays() -> None:
    servers = [("no-such-host.invalid", 9092), ("\u3002\u3002", 9093)]
    assert await canonical(servers, now() + 10) == tuple(servers)


async def test_without_time_everything_stays() -> None:
    assert await canonical([("127.0.0.1", 9092)], now() - 1) == (("127.0.0.1", 9092),)
