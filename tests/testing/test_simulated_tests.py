"""The plugin's simulated tests, in a pytest of their own; and what they are given."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import logging
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.testing.simulation import Simulation, VirtualTimeError

pytest_plugins = ["pytester"]

ROOT = Path(aiokafka.__file__).parent.parent

PASSING = """
    import asyncio
    import pytest

    seen = []

    @pytest.fixture
    def number():
        return 5

    @pytest.mark.simulated(seeds=3)
    async def test_plain(simulation, number):
        await asyncio.sleep(3000)
        seen.append((simulation.seed, number))

    class TestMore:
        @pytest.mark.simulated(2, first=7)
        @pytest.mark.parametrize("what", ["a", "b"])
        async def test_method(self, simulation, what):
            seen.append((simulation.seed, what))

    @pytest.mark.simulated(seeds=1)
    async def test_without_the_fixture():
        await asyncio.sleep(3000)

    def test_all_of_them_ran():
        assert seen == [
            (0, 5), (1, 5), (2, 5), (7, "a"), (8, "a"), (7, "b"), (8, "b"),
        ]
"""

PLUGINS = {
    "asyncio, auto": ["--asyncio-mode=auto"],
    "asyncio, strict": ["--asyncio-mode=strict"],
    "anyio": ["-p", "no:asyncio", "-p", "anyio"],
    "none": ["-p", "no:asyncio", "-p", "no:anyio"],
}


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        ours = ["-p", "aiokafka.testing.pytest_plugin", "--strict-markers"]
        if not any("asyncio" in option for option in options):
            options = ("-p", "no:asyncio", *options)
        elif "no:asyncio" not in options:
            options = ("-p", "pytest_asyncio.plugin", *options)
        return pytester.runpytest_subprocess(*ours, *options)

    return run


@pytest.mark.parametrize("plugin", PLUGINS)
def test_simulated_tests_run_with_any_plugin_and_with_none(run: Any, plugin: str) -> None:
    if plugin == "anyio" and importlib.util.find_spec("anyio") is None:
        pytest.skip("anyio is not installed")
    options = [
        option.replace("anyio", "anyio.pytest_plugin") if option == "anyio" else option
        for option in PLUGINS[plugin]
    ]
    run(PASSING, *options).assert_outcomes(passed=5)


DECORATED = """
    import functools
    import pytest
    from unittest.mock import patch

    class Shop:
        limit = 1
        orders = []

    def with_an_order(test):
        @functools.wraps(test)
        async def decorated(*args, **options):
            Shop.orders.append(1)
            await test(*args, **options)
        return decorated

    @pytest.mark.simulated(seeds=2)
    @patch.object(Shop, "limit", 5)
    async def test_patched(simulation):
        assert Shop.limit == 5

    class TestMore:
        @pytest.mark.simulated(seeds=2)
        @with_an_order
        async def test_method(self, simulation):
            assert Shop.orders
"""


@pytest.mark.parametrize("plugin", ["asyncio, auto", "none"])
def test_decorators_of_a_test_are_kept(run: Any, plugin: str) -> None:
    run(DECORATED, *PLUGINS[plugin]).assert_outcomes(passed=2)


def test_anyio_in_its_own_auto_mode(run: Any) -> None:
    if importlib.util.find_spec("anyio") is None:
        pytest.skip("anyio is not installed")
    text = "\n    pytestmark = pytest.mark.anyio\n".join(PASSING.split("\n    seen = []\n", 1))
    text = text.replace("pytestmark", "seen = []\n    pytestmark")
    # Twice, as anyio would run them under each of its backends, or once where it has one.
    result = run(text, "-p", "anyio.pytest_plugin", "-k", "plain and not trio")
    assert result.ret == 0


FAILING = """
    import asyncio, logging
    import pytest

    @pytest.mark.simulated(seeds=50)
    async def test_fails(simulation):
        await asyncio.sleep(0.5)
        simulation.note("about to fail")
        await asyncio.sleep(1)
        logging.getLogger("shop").warning("no stock")
        assert simulation.seed != 3, "the third"
"""


def test_a_failure_names_its_seed_and_shows_what_happened(run: Any) -> None:
    result = run(FAILING)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r".*AssertionError: the third.*",
            r".*seed 3 \(4 of 50\) failed; to run it again: pytest '?test_\S+::test_fails'? "
            r"--simulation-seed=3",
            r"   0\.500\d+  about to fail",
            r"   1\.500\d+  WARNING shop: no stock",
        ]
    )


def test_a_seed_of_the_command_line(run: Any) -> None:
    run(FAILING, "--simulation-seed=4").assert_outcomes(passed=1)
    run(FAILING, "--simulation-seeds=3").assert_outcomes(passed=1)


WRONG = {
    """
    import pytest
    async def test_it(): ...
    def test_wrong(simulation): ...
    """: "needs @pytest.mark.simulated",
    """
    import pytest
    @pytest.mark.simulated(seeds=2)
    def test_wrong(simulation): ...
    """: "must be an async function",
    """
    import pytest
    @pytest.mark.simulated(sets=2)
    async def test_wrong(simulation): ...
    """: "test_wrong: the marker simulated takes seeds=10, first=0, * argument 'sets'",
    """
    import pytest
    @pytest.fixture
    def kafka_cluster(): ...
    @pytest.mark.simulated
    async def test_wrong(simulation, kafka_cluster): ...
    """: "use simulation.cluster",
    """
    import pytest
    @pytest.mark.simulated
    async def test_wrong(simulation, kafka_server): ...
    """: "kafka_server runs in another loop",
    """
    import pytest
    @pytest.mark.simulated(seeds="many")
    async def test_wrong(simulation): ...
    """: "test_wrong: the marker simulated takes seeds=10, *: seeds must be a whole number",
    """
    import pytest
    @pytest.mark.simulated(seeds=0)
    async def test_wrong(simulation): ...
    """: "seeds must be at least 1",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_wrong_use_is_told(run: Any, text: str) -> None:
    result = run(text, "-k", "wrong")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*{WRONG[text]}*"])


def test_a_test_that_is_skipped_has_not_failed(run: Any) -> None:
    text = """
    import pytest
    @pytest.mark.simulated(seeds=2)
    async def test_later(simulation):
        pytest.skip("not today")
    """
    result = run(text, "-rA")
    result.assert_outcomes(skipped=1)
    result.stdout.no_fnmatch_line("*seed 0*")


def test_the_first_example_of_the_manual_runs_as_it_stands(run: Any) -> None:
    page = (ROOT / "docs" / "simulation.rst").read_text()
    # The first literal block: its lines are indented or empty.
    lines = page.partition("::\n\n")[2].splitlines()
    example = "\n".join(itertools.takewhile(lambda line: not line or line[0] == " ", lines))
    service = "async def my_service(servers): await asyncio.Event().wait()"
    run(f"{textwrap.dedent(example)}\n{service}", "--simulation-seeds=1").assert_outcomes(passed=1)


@pytest.mark.parametrize("count", [0, -4])
def test_no_seeds_are_no_success(run: Any, count: int) -> None:
    result = run(FAILING, f"--simulation-seeds={count}")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*seeds must be at least 1*"])


# -- what a simulated test is given


@pytest.mark.simulated(seeds=2)
async def test_a_service_goes_on_through_chaos(simulation: Simulation) -> None:
    """Nothing that was acknowledged is missing, whatever the schedule breaks."""
    sent: list[bytes] = []
    seen: set[bytes | None] = set()
    async with simulation.cluster(brokers=3) as cluster:
        await cluster.create_topic("orders", 2, 3)
        servers = cluster.bootstrap_servers

        async def produce() -> None:
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                for number in range(40):
                    await asyncio.sleep(simulation.random.random() * 6)
                    await producer.send_and_wait("orders", b"%d" % number)
                    sent.append(b"%d" % number)

        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            async with simulation.chaos(cluster, every_s=5, lasting_s=5) as chaos:
                await asyncio.gather(produce(), chaos.happened(12))
            assert chaos.count >= 12
            while len(seen) < len(sent):
                try:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        seen.update(record.value for record in records)
                except KafkaError:
                    pass
    assert seen == set(sent)


def test_the_schedule_is_the_seeds_and_reads_well() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", 3, 3)
            async with simulation.chaos(cluster, every_s=1, lasting_s=1) as chaos:
                await chaos.happened(20)

    def lines(seed: int) -> list[str]:
        simulation = Simulation(seed)
        simulation.run(main(simulation))
        return simulation.timeline.lines()

    one, other = lines(1), lines(2)
    assert one == lines(1) != other
    text = "\n".join(one + other)
    assert "FAULT broker" in text
    assert "is well again" in text
    assert text.count("FAULT all is well again") == 2


def test_only_the_kinds_that_were_asked_for() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            with pytest.raises(ValueError, match=r"unknown kinds \['fire'\]; known are kill"):
                simulation.chaos(cluster, kinds=["fire"])
            with pytest.raises(ValueError, match="one kind"):
                simulation.chaos(cluster, kinds=[])
            async with simulation.chaos(cluster, kinds=["kill"], every_s=1) as chaos:
                await chaos.happened(5)
            assert all(node.alive for node in cluster.state.nodes.values())

    simulation = Simulation()
    simulation.run(main(simulation))
    faults = [line.split("FAULT ")[1].split()[-1] for line in simulation.timeline.lines()]
    assert set(faults) == {"killed", "starts", "again"}


def test_chaos_goes_on_beside_what_a_test_breaks_itself() -> None:
    """It moves a leader only to a broker that can lead."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            await cluster.create_topic("t", 1, 2)
            cluster.faults.isolate(0)
            async with simulation.chaos(cluster, every_s=1, kinds=["leader"]) as chaos:
                await chaos.happened(10)
            assert cluster.partition("t").leader == 1

    simulation = Simulation()
    simulation.run(main(simulation))


def test_a_cluster_that_has_no_addresses_cannot_be_broken() -> None:
    async def main(simulation: Simulation) -> None:
        cluster = simulation.cluster()
        for break_it in (simulation.faults, simulation.chaos):
            with pytest.raises(RuntimeError, match="was not started"):
                break_it(cluster)
        async with cluster:
            pass
        simulation.faults(cluster).silence(0)  # it keeps its addresses

    simulation = Simulation()
    simulation.run(main(simulation))


def test_faults_by_hand_and_requests_in_the_timeline() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=2) as cluster:
            await cluster.create_topic("t", 1, 2)
            faults = simulation.faults(cluster)
            assert faults.brokers == [0, 1]
            servers = cluster.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait("t", b"1")
                leader = cluster.partition("t").leader
                faults.move_leader("t", 0, 1 - leader)
                await producer.send_and_wait("t", b"2")
                faults.silence(leader, to_broker=False)
                faults.slow(1 - leader, 0.5, 0.6)
                faults.cut_at(leader, 10)
                faults.reset(leader)
                faults.stall(1.0, 0.01)
                faults.move_group("g", 0)
                with pytest.raises(KeyError):
                    faults.rebalance("g")
                await producer.send_and_wait("t", b"3")
                await faults.heal(leader)
                await faults.kill(leader)
                await producer.send_and_wait("t", b"4")
                await faults.heal()
                await producer.send_and_wait("t", b"5")
            assert len(cluster.log("t").records()) == 5

    simulation = Simulation(recording=True)
    simulation.run(main(simulation))
    text = "\n".join(simulation.timeline.lines())
    for wanted in (
        "<- ApiVersions v",
        "-> Metadata #",
        "<- Produce v",
        " t-0 ",
        "-> Produce #",
        "t-0: NotLeaderForPartitionError",
        "leads t-0",
        "gets lost",
        "is killed",
        "waits last up to 0.01 s more",
    ):
        assert wanted in text, wanted
    assert simulation.timeline.lines(3) == text.splitlines()[-3:]
    assert simulation.timeline.lines(3)


def test_logs_and_notes_are_in_the_timeline_and_the_handler_goes() -> None:
    async def main(simulation: Simulation) -> None:
        simulation.note("first")
        await asyncio.sleep(61.5)
        logging.getLogger("mine").error("second\nline", exc_info=ValueError("third"))

    handlers = list(logging.getLogger().handlers)
    simulation = Simulation(recording=True)
    simulation.run(main(simulation))
    first, second = simulation.timeline.lines()
    assert first.endswith("  first")
    assert second.strip().startswith("61.5000")
    assert second.endswith("ERROR mine: second | line (ValueError: third)")
    assert logging.getLogger().handlers == handlers


def test_the_timeline_of_other_protocols() -> None:
    async def main(simulation: Simulation) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            writer.close()

        server: Any = await asyncio.start_server(serve, "127.0.0.1", 80)
        reader, writer = await asyncio.open_connection("127.0.0.1", 80)
        writer.write(b"GET / HTTP/1.1\r\n")
        await reader.read()
        writer.close()
        server.close()

    simulation = Simulation(recording=True)
    simulation.run(main(simulation))
    lines = simulation.timeline.lines()
    assert [line.split("] ")[1] for line in lines] == ["<- 16 bytes", "-> 19 bytes"]


def test_who_waits_is_told_by_lines_of_the_program() -> None:
    """Not by those of asyncio, which are the same for all."""

    async def consume(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=1) as cluster:
            await cluster.create_topic("t")
            servers = cluster.bootstrap_servers
            async with AIOKafkaConsumer("t", bootstrap_servers=servers) as consumer:
                await consumer.getone()

    async def main(simulation: Simulation) -> None:
        async def shut() -> None:
            await asyncio.Event().wait()

        waiting = asyncio.create_task(shut(), name="mine")
        await consume(simulation)
        await waiting

    simulation = Simulation(limit_s=10)
    with pytest.raises(VirtualTimeError) as failure:
        simulation.run(main(simulation))
    text = str(failure.value)
    assert re.search(r"main: consume, test_simulated_tests\.py:\d+ in \w+, \w+\.py:\d+\n", text)
    assert re.search(r"mine: shut, test_simulated_tests\.py:\d+\n", text)


def test_a_limit_that_is_over() -> None:
    async def main() -> None:
        await asyncio.sleep(100)

    with pytest.raises(VirtualTimeError):
        Simulation(limit_s=10).run(main())
