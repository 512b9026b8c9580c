"""What the application gives for credentials is asked once per backoff while it fails."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka.errors import KafkaConnectionError
from aiokafka.net.credential_sources import CredentialSource
from aiokafka.net.pool import ConnectionGroup
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import config, pooled


class Source:
    """Counts its calls, and fails as long as told."""

    def __init__(self) -> None:
        self.calls = 0
        self.works = False

    async def ask(self) -> int:
        self.calls += 1
        call = self.calls
        await asyncio.sleep(0)
        if not self.works:
            raise KafkaConnectionError(f"failure {call}")
        return call


async def outcome(source: CredentialSource, given: Source) -> str:
    try:
        return f"success {await source.call(given.ask)}"
    except KafkaConnectionError as error:
        return str(error.args[0])


def test_callers_that_wait_share_the_outcome_of_the_one_that_asks() -> None:
    async def main(simulation: Simulation) -> None:
        source, given = CredentialSource(config()), Source()
        assert await outcome(source, given) == "failure 1"
        found = await asyncio.gather(*(outcome(source, given) for _ in range(5)))
        assert found == ["failure 2"] * 5
        given.works = True
        found = await asyncio.gather(*(outcome(source, given) for _ in range(5)))
        assert found == [f"success {call}" for call in range(3, 8)]

    simulate(main)


def test_each_waiter_gets_an_exception_of_its_own() -> None:
    async def main(simulation: Simulation) -> None:
        source, given = CredentialSource(config()), Source()
        await outcome(source, given)
        calls = (source.call(given.ask) for _ in range(3))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert len({id(error) for error in errors}) == 3

    simulate(main)


def test_the_delay_grows_and_begins_anew_after_a_success() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        source, given = CredentialSource(config()), Source()
        for _ in range(20):
            await outcome(source, given)
        began = loop.time()
        await outcome(source, given)
        assert loop.time() - began >= 0.8
        given.works = True
        await outcome(source, given)
        began = loop.time()
        assert await outcome(source, given) == f"success {given.calls}"
        assert loop.time() - began < 0.01

    simulate(main)


def test_a_caller_that_is_cancelled_leaves_its_turn_to_others() -> None:
    async def main(simulation: Simulation) -> None:
        source, given = CredentialSource(config()), Source()
        await outcome(source, given)
        first, second = (asyncio.ensure_future(outcome(source, given)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "failure 2"
        with pytest.raises(asyncio.CancelledError):
            await first

    simulate(main)


async def test_a_function_for_certificates_is_shared_by_all_connections() -> None:
    calls: list[None] = []

    def make() -> object:
        calls.append(None)
        raise OSError("the files are being replaced")

    options = {"security_protocol": "SSL", "ssl_context": make, "reconnect_backoff_ms": 50}
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers, **options) as pool:
        for _ in range(2):
            connects = [pool.get(0, purpose) for purpose in ConnectionGroup]
            errors = await asyncio.gather(*connects, return_exceptions=True)
            assert all(isinstance(error, KafkaConnectionError) for error in errors)
            assert all("the files are being replaced" in str(error) for error in errors)
    # The first one at once, then one for the others, and one in the second round.
    assert len(calls) == 3
