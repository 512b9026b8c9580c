"""Interceptions: what a test can make of single requests, and what it can see of them."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from aiokafka.protocol.schema import fields
from aiokafka.testing import (
    Cut,
    Delay,
    Edit,
    Fail,
    FakeCluster,
    Hold,
    RawBytes,
    RequestContext,
    Silence,
)
from aiokafka.testing.handlers import load
from aiokafka.testing.versions import profile

from .examples import example_request
from .support import RawClient, batch, produce, produce_request


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(2) as started:
        await started.create_topic("t", assignment={0: [0]})
        yield started


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[RawClient]:
    async with RawClient(cluster.address(0)) as connected:
        yield connected


ASK = MetadataRequest(topics=[])


async def test_fail_answers_in_the_shape_of_the_api(
    cluster: FakeCluster, client: RawClient
) -> None:
    script = cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=2)
    for _ in range(2):
        assert (await produce(client, "t", batch(b"x"))).error_code == 6
    assert (await produce(client, "t", batch(b"x"))).base_offset == 0
    assert script.hits == 2


@pytest.mark.parametrize("api_key", sorted(profile("4.3").ranges))
async def test_every_api_can_be_made_to_fail(cluster: FakeCluster, api_key: int) -> None:
    """At its oldest and newest version, with a response that can be decoded."""
    low, high = profile("4.3").ranges[api_key]
    cluster.intercept(api_key, Fail(7))
    for version in {max(low, 3) if api_key == 0 else low, high}:
        request: Any = example_request(load(api_key).request_class, version)
        if isinstance(request, ProduceRequest):
            request.acks = 1
        async with RawClient(cluster.address(0)) as client:
            assert "7" in repr(await client.call(request, version))
    assert cluster.failures == []


@pytest.mark.parametrize("api_key", sorted(profile("4.3").ranges))
async def test_every_api_has_an_answer_to_odd_requests(cluster: FakeCluster, api_key: int) -> None:
    """To names and numbers that mean nothing, and to lists that are empty."""
    cls = load(api_key).request_class
    low, high = profile("4.3").ranges[api_key]
    for version in {max(low, 3) if api_key == 0 else low, high}:
        lists = [f.name for f in fields(cls) if f.type.element is not None and f.tag is None]
        for emptied in (None, *lists):
            request: Any = example_request(cls, version)
            if emptied is not None:
                setattr(request, emptied, [])
            if isinstance(request, ProduceRequest):
                request.acks = 1
            async with RawClient(cluster.address(0)) as client:
                assert await client.call(request, version)
    assert cluster.failures == []


async def test_a_producer_without_acks_gets_no_response(
    cluster: FakeCluster, client: RawClient
) -> None:
    changed: list[Any] = []
    request = produce_request("t", batch(b"x"), acks=0)
    with cluster.intercept(ProduceRequest, Edit(changed.append), times=1):
        client.send(request, 9)
        assert (await produce(client, "t", batch(b"y"))).base_offset == 1
    cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=1)
    client.send(request, 9)
    assert await client.receive_frame() == b""
    assert (changed, cluster.failures) == ([], [])


async def test_delay_and_what_follows(cluster: FakeCluster, client: RawClient) -> None:
    loop = asyncio.get_running_loop()
    cluster.intercept(MetadataRequest, Delay(0.05), times=1)
    cluster.intercept(MetadataRequest, Delay(0.0, then=Cut()), times=1)
    began = loop.time()
    assert (await client.call(ASK, 9)).brokers
    assert loop.time() - began >= 0.05
    with pytest.raises(ConnectionError):
        await client.call(ASK, 9)


async def test_hold_until_the_test_lets_go(cluster: FakeCluster, client: RawClient) -> None:
    let_go = asyncio.Event()
    script = cluster.intercept(ProduceRequest, Hold(let_go))
    held = asyncio.create_task(produce(client, "t", batch(b"x")))
    await script.wait(1)
    assert cluster.log("t").end_offset == 0
    async with RawClient(cluster.address(0)) as other:
        assert (await other.call(ASK, 9)).brokers  # other connections go on
    let_go.set()
    assert (await held).base_offset == 0


@pytest.mark.parametrize("handled", [False, True])
async def test_cut_before_and_after_handling(
    cluster: FakeCluster, client: RawClient, handled: bool
) -> None:
    cluster.intercept(ProduceRequest, Cut(handled=handled), times=1)
    with pytest.raises(ConnectionError):
        await produce(client, "t", batch(b"x"))
    assert cluster.log("t").end_offset == int(handled)


@pytest.mark.parametrize("handled", [False, True])
async def test_silence(cluster: FakeCluster, client: RawClient, handled: bool) -> None:
    cluster.intercept(ProduceRequest, Silence(handled=handled), times=1)
    waiting = asyncio.create_task(produce(client, "t", batch(b"x")))
    await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
    done, _ = await asyncio.wait([waiting], timeout=0.02)
    assert not done
    waiting.cancel()
    await asyncio.wait([waiting])
    assert cluster.log("t").end_offset == int(handled)
    assert (await client.call(ASK, 9)).brokers  # the connection serves on


async def test_raw_bytes(cluster: FakeCluster, client: RawClient) -> None:
    cluster.intercept(MetadataRequest, RawBytes(b"\x00\x00\x00\x03abc"), times=1)
    client.send(ASK, 9)
    assert await client.receive_frame() == b"abc"


async def test_edit_changes_the_brokers_answer(cluster: FakeCluster, client: RawClient) -> None:
    def time_out(response: ProduceResponse) -> None:
        response.responses[0].partition_responses[0].error_code = 7

    cluster.intercept(ProduceRequest, Edit(time_out), times=1)
    assert (await produce(client, "t", batch(b"x"))).error_code == 7
    assert cluster.log("t").end_offset == 1


async def test_a_handler_may_answer_itself(cluster: FakeCluster, client: RawClient) -> None:
    seen: list[tuple[str | None, int]] = []

    async def handler(request: MetadataRequest, context: RequestContext) -> Any:
        seen.append((context.client_id, context.api_version))
        await asyncio.sleep(0)
        if len(seen) == 1:
            return None
        return MetadataResponse(brokers=[], topics=[], cluster_id="mine")

    with cluster.intercept(MetadataRequest, handler):
        assert (await client.call(ASK, 9)).cluster_id == cluster.state.cluster_id
        assert (await client.call(ASK, 8)).cluster_id == "mine"
    assert (await client.call(ASK, 9)).cluster_id == cluster.state.cluster_id
    assert seen == [("raw", 9), ("raw", 8)]


async def test_the_first_answer_counts_and_one_broker_can_be_meant(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.intercept(MetadataRequest, lambda *_: None)
    cluster.intercept(MetadataRequest, Cut(), broker=1)
    cluster.intercept(None, Fail(3), times=1)
    async with RawClient(cluster.address(1)) as other:
        with pytest.raises(ConnectionError):
            await other.call(ASK, 9)
    named = MetadataRequest(topics=None)
    assert (await client.call(named, 13)).error_code == 3
    assert (await client.call(named, 13)).error_code == 0


async def test_requests_are_seen_and_counted(cluster: FakeCluster, client: RawClient) -> None:
    await client.call(ASK, 9)
    await produce(client, "t", batch(b"x"), version=8)
    [seen] = cluster.requests(ProduceRequest)
    assert (seen.version, seen.broker_id, seen.context.client_id) == (8, 0, "raw")
    assert seen.request.acks == -1
    assert [s.context.api_key for s in cluster.requests()] == [3, 0]
    assert cluster.count(MetadataRequest) == cluster.count(3) == 1
    cluster.forget_requests()
    assert cluster.requests() == [] and cluster.count(3) == 0


async def test_waiting_ends_with_an_error_in_time(cluster: FakeCluster) -> None:
    with pytest.raises(TimeoutError):
        await cluster.wait_for(lambda: False, timeout_s=0.01)
    with pytest.raises(TimeoutError):
        await cluster.intercept(3, Fail(1)).wait(1, timeout_s=0.01)


async def test_waiting_for_an_async_condition_is_refused(cluster: FakeCluster) -> None:
    async def condition() -> bool:
        return False

    with pytest.raises(TypeError, match="plain function"):
        await cluster.wait_for(condition)


async def test_an_error_in_a_handler_is_kept(
    cluster: FakeCluster, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: Any, context: Any) -> None:
        raise LookupError("a mistake in the test")

    cluster.intercept(MetadataRequest, broken, times=1)
    with pytest.raises(ConnectionError):
        await client.call(ASK, 9)
    assert [str(exc) for exc in cluster.failures] == ["a mistake in the test"]
    assert "failed on a request" in caplog.text
    caplog.clear()


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (lambda request, context: NotLeaderForPartitionError, "interception.*give Fail.NotLeader"),
        (lambda request, context: Cut, "interception.*give Cut"),
        (lambda request, context: {"brokers": []}, "interception.*an action or a response, not"),
        (Edit(lambda response: "changed"), "Edit.*an action or a response, not 'changed'"),
    ],
)
async def test_what_is_no_answer_is_called_so(
    cluster: FakeCluster,
    client: RawClient,
    caplog: pytest.LogCaptureFixture,
    handler: Any,
    said: str,
) -> None:
    cluster.intercept(MetadataRequest, handler, times=1)
    with pytest.raises(ConnectionError):
        await client.call(ASK, 9)
    assert [type(exc) for exc in cluster.failures] == [TypeError]
    assert re.search(said, str(cluster.failures[0]))
    caplog.clear()


async def test_held_requests_do_not_outlive_the_cluster() -> None:
    before = asyncio.all_tasks()
    async with FakeCluster() as cluster:
        async with RawClient(cluster.address(0)) as client:
            cluster.intercept(MetadataRequest, Hold(asyncio.Event()))
            client.send(ASK, 9)
            await cluster.wait_for(lambda: cluster.count(3) == 1)
            await cluster.stop()
            assert await client.receive_frame() == b""
    assert asyncio.all_tasks() == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has no eager tasks yet")
async def test_eager_tasks(cluster: FakeCluster, client: RawClient) -> None:
    """The task of a request that waits for nothing is over before it is kept. The connection
    answered nothing after it.
    """

    async def at_once(_: MetadataRequest, __: RequestContext) -> None:
        return None

    factory: Any = vars(asyncio)["eager_task_factory"]
    asyncio.get_running_loop().set_task_factory(factory)
    with cluster.intercept(MetadataRequest, at_once, times=2) as seen:
        async with timeout(10):
            for _ in range(3):
                await client.call(ASK, 9)
    assert seen.hits == 2
