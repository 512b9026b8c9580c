"""The pytest plugin, found by itself once aiokafka is installed.

It gives three fixtures. The first is ``kafka_cluster``: a started
:class:`~aiokafka.testing.FakeCluster`, new for each test. A marker passes arguments to it::

    async def test_order_is_sent(kafka_cluster):
        await shop.order(bootstrap_servers=kafka_cluster.bootstrap_servers)
        assert len(kafka_cluster.log("orders").records()) == 1

    @pytest.mark.kafka_cluster(brokers=3, as_version="2.8")
    async def test_survives_a_broker(kafka_cluster):
        await kafka_cluster.stop_broker(0)
        ...

It works with pytest-asyncio in both of its modes and with any `loop_scope`, and with the plugin of
anyio where that is the only one. The cluster runs in the loop of the test.

The second is ``kafka_server``, for tests and clients that block: a started
:class:`~aiokafka.testing.ServedCluster`, whose brokers run in a thread. It takes the same marker::

    def test_order_is_sent(kafka_server):
        shop.order(kafka_server.bootstrap_servers)
        assert kafka_server.call(lambda cluster: len(cluster.log("orders").records())) == 1

Under a test that fails stand the last requests that the cluster of either has got.

The third is ``simulation``, for tests that run many times in virtual time, each time under
another seed::

    @pytest.mark.simulated(seeds=50)
    async def test_nothing_is_lost(simulation):
        async with simulation.cluster(brokers=3) as cluster:
            async with simulation.chaos(cluster) as chaos:
                ...

It needs neither pytest-asyncio nor anyio, and goes with both.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokafka.testing.cluster import FakeCluster
    from aiokafka.testing.served import ServedCluster

_LOOP_SCOPES = ("function", "class", "module", "package", "session")
_MARKER = (
    "kafka_cluster(brokers=1, **options): arguments of the FakeCluster in the fixtures "
    "kafka_cluster and kafka_server"
)
_MOST_REQUESTS = 60


_SIMULATED = (
    "simulated(seeds=10, first=0, limit_s=3600): run this async test in virtual time, for at most "
    "limit_s virtual seconds, once for each seed"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how simulated tests are run."""
    group = parser.getgroup("aiokafka", "simulated tests (aiokafka)")
    group.addoption(
        "--simulation-seed", type=int, metavar="N", help="run simulated tests under this seed only"
    )
    group.addoption(
        "--simulation-seeds", type=int, metavar="COUNT", help="run them under so many seeds"
    )
    group.addoption(
        "--simulation-timeline", action="store_true", help="show all of the timeline of a failure"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _SIMULATED)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Put a plain function in place of a simulated test, so that no other plugin runs it."""
    marker = pyfuncitem.get_closest_marker("simulated")
    if marker is None:
        yield
        return
    from aiokafka.testing.simulation.pytest_runs import in_simulations

    test = pyfuncitem.obj
    pyfuncitem.obj = in_simulations(pyfuncitem, marker)
    try:
        yield
    finally:
        pyfuncitem.obj = test


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show under a test that failed what its cluster saw."""
    outcome: Any = yield
    report = outcome.get_result()
    given = getattr(item, "funcargs", {})
    if report.failed and report.when == "call":
        for name in ("kafka_cluster", "kafka_server"):
            if name in given:
                with suppress(Exception):  # the failure itself matters more
                    report.sections.append((f"Requests to {name}", _seen(given[name])))


def _seen(given: Any) -> str:
    """Return the last requests, a line each; equal ones that follow each other are counted."""
    from aiokafka.testing.served import ServedCluster

    served = isinstance(given, ServedCluster)
    requests = given.call(lambda cluster: cluster.requests()) if served else given.requests()
    lines = [
        f"broker {seen.broker_id} <- {type(seen.request).__name__} v{seen.version} "
        f"from {seen.context.client_id}"
        for seen in requests
    ]
    grouped = [(line, len([*same])) for line, same in groupby(lines)]
    shown = [f"{line}{f', {count} times' if count > 1 else ''}" for line, count in grouped]
    left_out = len(shown) - _MOST_REQUESTS
    first = [f"... {left_out} lines before"] if left_out > 0 else []
    return "\n".join([*first, *shown[-_MOST_REQUESTS:]])


@pytest.fixture
def kafka_server(request: pytest.FixtureRequest) -> Iterator[ServedCluster]:
    """Start a fake Kafka cluster in a thread; ``@pytest.mark.kafka_cluster(...)`` gives its
    arguments.
    """
    from aiokafka.testing.served import ServedCluster

    marker = request.node.get_closest_marker("kafka_cluster")
    arguments, options = (marker.args, marker.kwargs) if marker is not None else ((), {})
    with ServedCluster(*arguments, **options) as server:
        yield server


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> None:
    """The run of a test with ``@pytest.mark.simulated``: another one for each seed."""
    if request.node.get_closest_marker("simulated") is None:
        raise pytest.UsageError(
            f"{request.node.nodeid}: the fixture simulation needs @pytest.mark.simulated(seeds=...)"
        )


def _cluster_fixture() -> Any:
    """Make the function of a fixture: a new one each time, as pytest-asyncio notes the scope of its
    loop on it.
    """

    async def kafka_cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
        """Start a fake Kafka cluster; ``@pytest.mark.kafka_cluster(...)`` gives its arguments."""
        from aiokafka.testing.cluster import FakeCluster  # not at start-up: most runs do without

        marker = request.node.get_closest_marker("kafka_cluster")
        options = marker.kwargs if marker is not None else {}
        async with FakeCluster(*(marker.args if marker is not None else ()), **options) as cluster:
            yield cluster

    return kafka_cluster


def _scope_of_loop(request: pytest.FixtureRequest) -> str:
    """Return the scope of the loop in which pytest-asyncio runs the test."""
    marker = request.node.get_closest_marker("asyncio")
    named = marker.kwargs.get("loop_scope") or marker.kwargs.get("scope") if marker else None
    if named is None:
        with suppress(ValueError):  # a release without the setting
            named = request.config.getini("asyncio_default_test_loop_scope")
    return str(named or "function")


def _any_kafka_cluster(request: pytest.FixtureRequest) -> FakeCluster:
    """Start a fake Kafka cluster; ``@pytest.mark.kafka_cluster(...)`` gives its arguments."""
    # An async fixture runs in the loop of a scope that it names once and for all. In any other loop
    # than the test's the brokers would stand still while the test runs.
    cluster: FakeCluster = request.getfixturevalue(f"_kafka_cluster_in_{_scope_of_loop(request)}")
    return cluster


def _define() -> dict[str, Any]:
    """Make the fixtures, by name: pytest-asyncio wants its own decorator; others take pytest's."""
    try:
        fixture: Any = importlib.import_module("pytest_asyncio").fixture
        inner = {
            f"_kafka_cluster_in_{scope}": fixture(
                _cluster_fixture(), name=f"_kafka_cluster_in_{scope}", loop_scope=scope
            )
            for scope in _LOOP_SCOPES
        }
    except ImportError:
        return {"kafka_cluster": pytest.fixture(_cluster_fixture(), name="kafka_cluster")}
    except TypeError:  # a release that knows one loop for each test only
        return {"kafka_cluster": fixture(_cluster_fixture(), name="kafka_cluster")}
    return {**inner, "kafka_cluster": pytest.fixture(_any_kafka_cluster, name="kafka_cluster")}


globals().update(_define())
