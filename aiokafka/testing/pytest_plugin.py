"""The pytest plugin, which pytest loads automatically if aiokafka is installed.

It provides three fixtures. The first is ``kafka_cluster``: a started
:class:`~aiokafka.testing.FakeCluster`, new for each test. A marker passes arguments to it::

    async def test_order_is_sent(kafka_cluster):
        await shop.order(bootstrap_servers=kafka_cluster.bootstrap_servers)
        assert len(kafka_cluster.log("orders").records()) == 1

    @pytest.mark.kafka_cluster(brokers=3, as_version="2.8")
    async def test_survives_a_broker(kafka_cluster):
        await kafka_cluster.stop_broker(0)
        ...

The fixture works with pytest-asyncio in both modes and with any `loop_scope`, and with anyio's
plugin if pytest-asyncio is not installed. The cluster runs in the loop of the test.

The second is ``kafka_server``, for blocking tests and clients: a started
:class:`~aiokafka.testing.ServedCluster`, whose brokers run in a thread. The marker is the same::

    def test_order_is_sent(kafka_server):
        shop.order(kafka_server.bootstrap_servers)
        assert kafka_server.call(lambda cluster: len(cluster.log("orders").records())) == 1

The report of a failed test lists the last requests to the cluster.

The third is ``simulation``, for tests that run in virtual time, once for each of many seeds::

    @pytest.mark.simulated(seeds=50)
    async def test_nothing_is_lost(simulation):
        async with simulation.cluster(brokers=3) as cluster:
            async with simulation.chaos(cluster) as chaos:
                ...

The fixture ``simulation`` needs neither pytest-asyncio nor anyio, and works with either.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aiokafka.testing.cluster import FakeCluster, ServedCluster

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
    """Declare the options of simulated tests."""
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
    """Replace the coroutine function of a simulated test by a plain function, which runs the
    simulations: other plugins then do not run the coroutine."""
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
    """Add the last requests to the report of a failed test."""
    outcome: Any = yield
    report = outcome.get_result()
    given = getattr(item, "funcargs", {})
    if report.failed and report.when == "call":
        for name in ("kafka_cluster", "kafka_server"):
            if name in given:
                with suppress(Exception):  # an error here must not hide the failure of the test
                    report.sections.append((f"Requests to {name}", _seen(given[name])))


def _seen(given: Any) -> str:
    """Return the last requests, one per line; consecutive equal lines become one line with a
    count."""
    from aiokafka.testing.cluster import ServedCluster

    in_thread = isinstance(given, ServedCluster)
    requests = given.call(lambda cluster: cluster.requests()) if in_thread else given.requests()
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
    """Start a fake Kafka cluster in a thread, with the arguments of the marker
    ``kafka_cluster``.
    """
    from aiokafka.testing.cluster import ServedCluster

    marker = request.node.get_closest_marker("kafka_cluster")
    arguments, options = (marker.args, marker.kwargs) if marker is not None else ((), {})
    with ServedCluster(*arguments, **options) as server:
        yield server


@pytest.fixture
def simulation(request: pytest.FixtureRequest) -> None:
    """The simulation in which a test with the marker ``simulated`` runs, once for each seed. This
    fixture returns None: the plugin calls the test with the Simulation of each seed."""
    if request.node.get_closest_marker("simulated") is None:
        raise pytest.UsageError(
            f"{request.node.nodeid}: the fixture simulation needs @pytest.mark.simulated(seeds=...)"
        )


def _cluster_fixture() -> Any:
    """Return a new fixture function. Each loop scope needs another function, because
    pytest-asyncio stores the loop scope on the function.
    """

    async def kafka_cluster(request: pytest.FixtureRequest) -> AsyncIterator[FakeCluster]:
        """Start a fake Kafka cluster, with the arguments of the marker ``kafka_cluster``."""
        from aiokafka.testing.cluster import FakeCluster  # imported on demand: slow to import

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
        with suppress(ValueError):  # a release of pytest-asyncio without this setting
            named = request.config.getini("asyncio_default_test_loop_scope")
    return str(named or "function")


def _any_kafka_cluster(request: pytest.FixtureRequest) -> FakeCluster:
    """Start a fake Kafka cluster, with the arguments of the marker ``kafka_cluster``."""
    # The brokers must run in the loop of the test. The loop scope of an async fixture is fixed, so
    # there is one async fixture for each scope.
    cluster: FakeCluster = request.getfixturevalue(f"_kafka_cluster_in_{_scope_of_loop(request)}")
    return cluster


def _define() -> dict[str, Any]:
    """Return the fixtures by name. If pytest-asyncio is installed, async fixtures need its
    decorator, otherwise the decorator of pytest.
    """
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
    except TypeError:  # a release of pytest-asyncio without loop scopes
        return {"kafka_cluster": fixture(_cluster_fixture(), name="kafka_cluster")}
    return {**inner, "kafka_cluster": pytest.fixture(_any_kafka_cluster, name="kafka_cluster")}


globals().update(_define())
