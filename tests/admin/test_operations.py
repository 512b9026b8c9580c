"""Every operation: with every release of Kafka, and cancelled in the middle."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokafka.errors import BrokerResponseError, KafkaError, UnsupportedVersionError
from aiokafka.testing import FakeCluster, Silence
from aiokafka.testing.versions import RELEASES
from docs._ext.admin_calls import operations
from tests.admin.operations import CALLS, operations_of, prepared
from tests.admin.support import make_admin

# An error that names the API, or what of it is lacking, and the release that has it.
NAMED = re.compile(r"\b[A-Z]\w+[a-z]\b.* \d\.\d")
# The brokers know the API, and say that their voters are those of a configuration file.
REFUSED = {"brokers.add_voter", "brokers.remove_voter"}
FIRST = {call.removeprefix("admin."): release for call, _, release, _ in operations()}


def number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split()[0].split("."))


def is_right(name: str, release: str, lacking: str | None) -> bool:
    """Say whether a call works, or lacks something, as the table says."""
    if name not in FIRST:
        return lacking is None or bool(NAMED.search(lacking))
    if number(release) < number(FIRST[name]):
        return lacking is not None and bool(NAMED.search(lacking))
    # At the side of ZooKeeper, 2.8 has none of KRaft's APIs.
    return lacking is None or name in REFUSED or (release == "2.8" and "KRaft" in FIRST[name])


async def test_the_list_is_complete() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        assert operations_of(admin) == set(CALLS)
    assert {name for name in CALLS if "." in name} == set(FIRST)


@pytest.mark.parametrize("release", RELEASES)
async def test_every_call_with_every_release(release: str) -> None:
    """It works, or names the API and the first Kafka that has it, as the table says."""
    wrong: dict[str, object] = {}
    async with prepared(as_version=release) as (_, admin):
        for name, call in CALLS.items():
            lacking = None
            try:
                await call(admin)
            except UnsupportedVersionError as error:
                lacking = str(error)
            except BrokerResponseError:
                pass  # a broker that knows the API has decided
            if not is_right(name, release, lacking):
                wrong[name] = lacking
    assert wrong == {}


@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_calls_that_are_cancelled_leave_nothing_behind(answered: int) -> None:
    """After so many responses all brokers are silent, and the call is cancelled."""
    left: dict[str, object] = {}
    async with prepared() as (cluster, _):
        for name, call in CALLS.items():
            async with make_admin(cluster) as admin:
                left[name] = await _tasks_after(cluster, call(admin), answered)
    assert {name: tasks for name, tasks in left.items() if tasks} == {}


async def _tasks_after(cluster: FakeCluster, work: Any, answered: int) -> list[object]:
    before = asyncio.all_tasks()
    seen = 0
    is_held = asyncio.Event()

    def hold(request: Any, context: Any) -> Silence | None:
        nonlocal seen
        seen += 1
        if seen <= answered:
            return None
        is_held.set()
        return Silence()

    silence = cluster.intercept(None, hold)
    task = asyncio.ensure_future(work)
    held = asyncio.ensure_future(is_held.wait())
    await asyncio.wait([task, held], return_when=asyncio.FIRST_COMPLETED)
    held.cancel()
    was_cancelled = task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        assert was_cancelled
    except KafkaError:
        pass  # it has ended before
    silence.remove()
    for _ in range(10):
        await asyncio.sleep(0)  # parts of a call that were cancelled with it take a few steps
    return [each for each in asyncio.all_tasks() - before if "aiokafka/admin" in repr(each)]
