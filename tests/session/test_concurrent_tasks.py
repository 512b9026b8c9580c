"""Two tasks at one session: one transaction follows the other, so the second is refused."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import TransactionalSession
from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError
from aiokafka.protocol.messages.transactions import EndTxnRequest
from aiokafka.testing import FakeCluster, Hold
from tests.support.consumers import fill
from tests.support.producers import numbers
from tests.support.sessions import copy, session_of
from tests.support.transactions import committed_values, stored, until


async def refused(session: TransactionalSession) -> None:
    async with timeout(5):
        with pytest.raises(IllegalStateError, match="another task"):
            async for _ in session:
                pass


async def test_while_one_waits_for_records(cluster: FakeCluster) -> None:
    """Else both would take records, and the second would commit positions behind those of the
    first, whose transaction it had given up."""
    async with session_of(cluster) as session:
        first = asyncio.ensure_future(copy(session, 3))
        await asyncio.sleep(0)
        await refused(session)
        for _ in range(3):
            fill(cluster, 0, 1)
            await asyncio.sleep(0.01)
        await first
    assert committed_values(cluster) == numbers(3)
    assert stored(cluster) == [3, None]


async def test_while_one_commits(cluster: FakeCluster) -> None:
    fill(cluster, 0, 3)
    go = asyncio.Event()
    ending = cluster.intercept(EndTxnRequest, Hold(go))
    async with session_of(cluster) as session:
        first = asyncio.ensure_future(copy(session, 3))
        await until(lambda: ending.hits)
        await refused(session)
        go.set()
        assert await first == [numbers(3)]
    assert committed_values(cluster) == numbers(3)


async def test_one_after_the_other(cluster: FakeCluster) -> None:
    """A task that was cancelled leaves the session to the next."""
    async with session_of(cluster) as session:
        first = asyncio.ensure_future(copy(session, 3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        fill(cluster, 0, 3)
        assert await copy(session, 3) == [numbers(3)]
