"""What every test stands on: the broker that was chosen, and that nothing goes wrong unseen."""

from __future__ import annotations

import gc
import logging
import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.integration.spark_session import why_no_spark
from tests.kafka.docker_broker import DockerError, chosen_version, engine
from tests.kafka.fixtures import is_long_run, kafka, kafka3, make_topic, scale, topic
from tests.kafka.jars import MissingToolsError, missing_tools

__all__ = ["kafka", "kafka3", "make_topic", "scale", "topic"]

pytest_plugins = ["tests.watchdog"]

# No property test is timed: how long an example takes, also to draw, is the machine's affair.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

_INTEGRATION = Path(__file__).parent / "integration"
_LOST = ("never retrieved", "was destroyed but it is pending", "Exception in callback")
# Seconds. The start of a broker, and on a new machine the fetch of its jars, is part of a test.
_BROKER_TIMEOUT = 240
_LONG_TIMEOUT = 3600


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        default="maven",
        metavar="maven|docker[:VERSION]|HOST:PORT",
        help="where the real Kafka comes from: Apache's jars (default), a docker image, or running",
    )
    parser.addoption(
        "--real-time",
        action="store_true",
        help="run tests on the fake cluster in asyncio's own loop, not in virtual time",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"aiokafka: {build_mode()}; Kafka: {config.getoption('--kafka')}"


def build_mode() -> str:
    """Which form of the code the tests run on."""
    try:
        from aiokafka.record import batch
    except ImportError as error:
        return f"cannot be imported ({error})"
    return "pure Python" if str(batch.__file__).endswith(".py") else "compiled"


# -- tests that need a broker


# The longest of all files, first: what is begun last decides when the run ends.
_LONGEST = (
    "test_broker_versions.py",
    "test_producer.py",
    "test_outages.py",
    "test_etl_chain.py",
    "test_codecs_with_peers.py",
    "test_transactions.py",
    "test_consumer_protocol.py",
    "test_examples.py",
)
# Every version has a broker of its own, so the versions need not be one worker's.
_SPLIT_BY_VERSION = "test_broker_versions.py"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run the tests of a file together: they share its brokers."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, test = nodeid.partition("::")
            return file + test.partition("[")[2] if file.endswith(_SPLIT_BY_VERSION) else file

    return Files(config, log)


def _place(item: pytest.Item) -> tuple[int, int]:
    if not item.path.is_relative_to(_INTEGRATION):
        return (1, 0)
    name = item.path.name
    return (0, _LONGEST.index(name) if name in _LONGEST else len(_LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    for item in items:
        if item.path.is_relative_to(_INTEGRATION):
            item.add_marker(pytest.mark.integration)
            if item.path.name.startswith("test_spark"):
                item.add_marker(pytest.mark.spark)
        set_timeout(item)
    missing = why_no_broker(config)
    if not missing:
        return
    without = [item for item in items if needs_tools(item)]
    if without and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"CI must run the tests on a real Kafka: {missing}")
    for item in without:
        item.add_marker(pytest.mark.skip(reason=missing))
    config.stash[_SKIPPED] = len(without)


def pytest_configure(config: pytest.Config) -> None:
    """Tests of Spark are skipped without it, but not where it is known to be there. Without an
    engine, ``--kafka docker`` is an error at once, not in each test."""
    # Workers have to find the same tests in the same order, also where these come from a set: they
    # have one hash between them, and each run has another.
    os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(2**32)))
    try:
        if chosen_version(config.getoption("--kafka")):
            engine()
    except DockerError as error:
        raise pytest.UsageError(str(error)) from None
    if os.environ.get("AIOKAFKA_SPARK") != "required":
        return
    if missing := why_no_spark() or missing_tools():
        raise pytest.UsageError(f"AIOKAFKA_SPARK=required, but {missing}")


def set_timeout(item: pytest.Item) -> None:
    """More time than usual for tests on brokers, and much more for their long forms."""
    if item.get_closest_marker("long") and is_long_run():
        item.add_marker(pytest.mark.timeout(_LONG_TIMEOUT), append=False)
    elif needs_tools(item) and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(_BROKER_TIMEOUT))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, Any, Any]:
    """Skip what needs Java where the shared broker is not from Apache's jars."""
    try:
        return (yield)
    except MissingToolsError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except MissingToolsError as error:
        pytest.skip(str(error))


_SKIPPED = pytest.StashKey[int]()


def why_no_broker(config: pytest.Config) -> str:
    return missing_tools() if config.getoption("--kafka") == "maven" else ""


def needs_tools(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("integration", "conformance"))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    skipped = config.stash.get(_SKIPPED, 0)
    if skipped:
        terminalreporter.write_line(
            f"{skipped} tests on a real Kafka were skipped: {why_no_broker(config)}.", yellow=True
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show what the brokers wrote when a test on them fails."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed:
        return
    for name in ("kafka", "kafka3"):
        broker = getattr(item, "funcargs", {}).get(name)  # a parameter may have the name, too
        if hasattr(broker, "logs"):
            report.sections.append((f"Logs of {name}", broker.logs()))


# -- errors that asyncio can only log


class _AsyncioErrors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = self.format(record)
        if any(sign in message for sign in _LOST):
            self.messages.append(message)

    def fail_if_any(self) -> None:
        messages, self.messages = self.messages, []
        if messages:
            pytest.fail("asyncio logged: " + "\n".join(messages), pytrace=False)


@pytest.fixture(scope="session")
def _asyncio_log() -> Iterator[_AsyncioErrors]:
    handler = _AsyncioErrors()
    logging.getLogger("asyncio").addHandler(handler)
    yield handler
    logging.getLogger("asyncio").removeHandler(handler)


@pytest.fixture(autouse=True)
def _nothing_lost(_asyncio_log: _AsyncioErrors) -> Iterator[None]:
    """A task or future that was never looked at fails the test in which that came out."""
    yield
    _asyncio_log.fail_if_any()


@pytest.fixture(autouse=True, scope="module")
def _nothing_lost_in_cycles(_asyncio_log: _AsyncioErrors) -> Iterator[None]:
    yield
    gc.collect()
    _asyncio_log.fail_if_any()
