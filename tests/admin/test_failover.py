"""Brokers that fall silent during a call, and whose work others take over within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, OffsetSpec
from aiokafka.testing import FakeCluster
from tests.admin.support import FIRST, commit, make_admin, simulated

CALLS: dict[str, Callable[[AIOKafkaAdminClient], Awaitable[Any]]] = {
    "groups.describe": lambda a: a.groups.describe(["g"]),
    "groups.offsets": lambda a: a.groups.offsets(["g"]),
    "offsets.list": lambda a: a.offsets.list({FIRST: OffsetSpec.LATEST}),
    "transactions.describe": lambda a: a.transactions.describe(["x"]),
    "transactions.producers": lambda a: a.transactions.producers([FIRST]),
}


@pytest.mark.parametrize("name", CALLS)
@simulated
async def test_another_broker_takes_over(name: str) -> None:
    async with (
        FakeCluster(brokers=3) as cluster,
        make_admin(cluster, request_timeout_ms=40_000) as admin,
    ):
        await cluster.create_topic("t", replication_factor=3)
        await commit(cluster, "g", {FIRST: 0})
        await admin.transactions.fence(["x"])

        def move(broker: int) -> None:
            cluster.move_leader(FIRST, broker)
            cluster.move_coordinator("group", "g", broker)
            cluster.move_coordinator("transaction", "x", broker)

        move(2)
        cluster.faults.hang(2)
        call = asyncio.ensure_future(CALLS[name](admin))
        await asyncio.sleep(9)
        move(1)
        await call
