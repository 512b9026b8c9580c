"""Brokers that fall silent during a call, and whose work others take over within its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, OffsetSpec
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.groups import DescribeGroupsRequest
from aiokafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
)
from aiokafka.protocol.schema import Request
from aiokafka.testing import FakeCluster
from tests.admin.support import FIRST, commit, make_admin, simulated

CALLS: dict[str, tuple[type[Request[Any]], Callable[..., Awaitable[Any]]]] = {
    "groups.describe": (DescribeGroupsRequest, lambda a, **to: a.groups.describe(["g"], **to)),
    "groups.offsets": (OffsetFetchRequest, lambda a, **to: a.groups.offsets(["g"], **to)),
    "offsets.list": (
        ListOffsetsRequest,
        lambda a, **to: a.offsets.list({FIRST: OffsetSpec.LATEST}, **to),
    ),
    "transactions.describe": (
        DescribeTransactionsRequest,
        lambda a, **to: a.transactions.describe(["x"], **to),
    ),
    "transactions.producers": (
        DescribeProducersRequest,
        lambda a, **to: a.transactions.producers([FIRST], **to),
    ),
}
"""What each call asks, and the call."""


def move(cluster: FakeCluster, broker: int) -> None:
    cluster.move_leader(FIRST, broker)
    cluster.move_coordinator("group", "g", broker)
    cluster.move_coordinator("transaction", "x", broker)


@asynccontextmanager
async def silent_broker() -> AsyncIterator[tuple[FakeCluster, AIOKafkaAdminClient]]:
    """A cluster in which broker 2, which is to be asked, has fallen silent."""
    async with (
        FakeCluster(brokers=3) as cluster,
        make_admin(cluster, request_timeout_ms=40_000) as admin,
    ):
        await cluster.create_topic("t", replication_factor=3)
        await commit(cluster, "g", {FIRST: 0})
        await admin.transactions.fence(["x"])
        move(cluster, 2)
        cluster.forget_requests()
        cluster.faults.hang(2)
        yield cluster, admin


@pytest.mark.parametrize("name", CALLS)
@simulated
async def test_another_broker_takes_over(name: str) -> None:
    _, ask = CALLS[name]
    async with silent_broker() as (cluster, admin):
        call = asyncio.ensure_future(ask(admin))
        await asyncio.sleep(9)
        move(cluster, 1)
        await call


@pytest.mark.parametrize("name", CALLS)
@simulated
async def test_a_slow_broker_that_has_taken_over_is_heard_to_the_end(name: str) -> None:
    """The silent one is left in half of the time. The other one gets the rest for one response,
    though it is less than a request may take."""
    request, ask = CALLS[name]
    async with silent_broker() as (cluster, admin):
        call = asyncio.ensure_future(ask(admin, timeout_ms=60_000))
        await asyncio.sleep(9)
        cluster.faults.slow(1, 25.0, [request])
        move(cluster, 1)
        await call
        assert len([seen for seen in cluster.requests(request) if seen.broker_id == 1]) == 1
