"""A cluster in a thread, which commands in this process and in others talk to."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Iterator

import pytest

from aiokafka.testing import FakeCluster
from tests.cli.support import Cli, Served

collect_ignore_glob = [] if importlib.util.find_spec("click") else ["test_*.py"]

# Entries of access control lists can be made, and our connections may do everything.
RIGHTS = {"authorizer.class.name": "an.Authorizer", "super.users": "User:ANONYMOUS"}


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands neither read nor write the profiles of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """Yield a cluster of two brokers that runs beside the test; of an older release of Kafka, if
    the test names one as the parameter."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake cluster")
    thread.start()

    async def make() -> FakeCluster:
        cluster = FakeCluster(2, config=RIGHTS, as_version=getattr(request, "param", "4.4"))
        await cluster.start()
        return cluster

    try:
        served = Served(loop)
        served.cluster = served.run(make())
        yield served
        served.run(served.cluster.stop())
        assert not served.cluster.failures
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def cli(
    served: Served, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    """Yield what runs commands against the cluster in this process."""
    monkeypatch.setenv("AIOKAFKA_BOOTSTRAP_SERVERS", served.cluster.bootstrap_servers)
    monkeypatch.delenv("AIOKAFKA_DEBUG", raising=False)
    yield Cli(served, capfd, monkeypatch)
