"""Topics that are not there: said soon, and not waited for where nothing creates them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.cli.session import Session
from aiokafka.cli.streams import find_to_send, wait_for_topics
from aiokafka.errors import ClusterAuthorizationFailedError, UnknownTopicOrPartitionError
from aiokafka.protocol.messages.configs import DescribeConfigsRequest
from aiokafka.testing import Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.cli.support import Cli

# The call would take an hour.
PATIENT = ("-X", "request_timeout_ms=3600000")


def test_calls_of_leaders_end_soon(cli: Cli) -> None:
    """tests/admin/test_unknown_topics.py has all of them."""
    done = cli.run("records", "delete", "nope-0:5", "--yes", *PATIENT)
    assert done.code == 5
    assert "nope" in done.err and "may not see it" in done.err and len(done.err.splitlines()) == 1


def test_nothing_creates_the_topic(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text("a\n")
    never = ("-X", "allow_auto_create_topics=false", *PATIENT)
    done = cli.run("produce", "nope", str(file), *never)
    assert done.code == 5
    waits, fails = done.err.splitlines()
    assert "nope" in waits and waits.endswith("waiting for it")
    assert "no topic 'nope' (or this user may not see it)" in fails
    empty = tmp_path / "empty"
    empty.touch()
    assert cli("produce", "nope", str(empty), *never).err == ""


def test_a_member_of_a_group_does_not_look_for_the_end_of_nothing(cli: Cli) -> None:
    done = cli.run("consume", "nope", "--group", "g", "--exit-at-end", *PATIENT)
    assert done.code == 5
    assert "waiting for it" in done.err
    assert cli.served.cluster.groups.state_of("g") in ("Empty", "Dead")


def session_of(cluster: FakeCluster, **options: Any) -> Session:
    texts = tuple(f"{name}={value}" for name, value in options.items())
    flags = {"bootstrap_servers": cluster.bootstrap_servers, "options": texts}
    return Session({"config": "/dev/null", **flags})


async def found_after(cluster: FakeCluster, **options: Any) -> None:
    session = session_of(cluster, **options)
    async with session.producer() as producer:
        await find_to_send(session, producer, "t")


def test_a_topic_that_was_made_a_moment_ago_turns_up(capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            asyncio.get_running_loop().call_later(
                1.5, lambda: asyncio.ensure_future(cluster.create_topic("t"))
            )
            await found_after(cluster, allow_auto_create_topics="false")

    simulate(main)
    assert capsys.readouterr().err.count("waiting for it") == 1


@pytest.mark.parametrize("settings", [{}, {"auto.create.topics.enable": "false"}])
def test_it_is_asked_whether_brokers_create_topics(
    settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster(config=settings) as cluster:
            await found_after(cluster)

    if settings:
        with pytest.raises(UnknownTopicOrPartitionError):
            simulate(main)
    else:
        simulate(main)
    assert ("waiting" in capsys.readouterr().err) == bool(settings)


def test_what_may_not_be_asked_is_waited_for() -> None:
    """Until the request timeout, which tells."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster:
            cluster.intercept(DescribeConfigsRequest, Fail(ClusterAuthorizationFailedError))
            began = simulation_time()
            with pytest.raises(UnknownTopicOrPartitionError):
                await found_after(cluster, request_timeout_ms=9000)
            assert 9 <= simulation_time() - began < 10

    simulate(main)


def simulation_time() -> float:
    return asyncio.get_running_loop().time()


def test_the_wait_ends_with_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it fails or is cancelled; and nothing is left open."""

    async def fails() -> None:
        await asyncio.sleep(5)
        raise ValueError("late")

    async def waits(_: AIOKafkaAdminClient) -> bool:
        return True

    def run(work: Coroutine[Any, Any, None], within: float) -> None:
        async def main(_: Simulation) -> None:
            async with FakeCluster() as cluster:
                doing = wait_for_topics(session_of(cluster), ("t",), work, waits)
                await asyncio.wait_for(doing, within)

        simulate(main)

    with pytest.raises(ValueError, match="late"):
        run(fails(), 10)
    for within in (0.5, 1.0005, 1.01, 3):
        with pytest.raises(asyncio.TimeoutError):
            run(fails(), within)
    assert "waiting" in capsys.readouterr().err
