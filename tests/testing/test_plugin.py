"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
from pathlib import Path

import pytest

import aiokafka
from aiokafka.testing import ServedCluster

pytest_plugins = ["pytester"]

ROOT = Path(aiokafka.__file__).parent.parent
TEST = """
    import asyncio
    import pytest

    @pytest.fixture
    async def started(kafka_cluster):
        await kafka_cluster.create_topic("t")
        return kafka_cluster

    {mark}
    async def test_default(started):
        started.log("t").append(b"x")
        assert len(started.bootstrap_servers.split(",")) == 1

    {mark}
    @pytest.mark.kafka_cluster(brokers=3, as_version="2.8")
    async def test_with_arguments(kafka_cluster):
        assert len(kafka_cluster.bootstrap_servers.split(",")) == 3
        assert kafka_cluster.state.profile.name == "2.8"
        host, _, port = kafka_cluster.address(0).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))  # it serves in this loop
        writer.close()
        await writer.wait_closed()
"""


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_the_fixture_works_with_pytest_asyncio(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mode: str, mark: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    text = TEST.format(mark=mark)
    if mode == "strict":
        text = text.replace("    import pytest\n", "    import pytest\n    import pytest_asyncio\n")
        text = text.replace("@pytest.fixture", "@pytest_asyncio.fixture")
    pytester.makepyfile(text)
    by_hand = ["-p", "no:aiokafka", "-p", "aiokafka.testing.pytest_plugin"]
    result = pytester.runpytest_subprocess(*by_hand, f"--asyncio-mode={mode}", "--strict-markers")
    result.assert_outcomes(passed=2)


WIDER = """
    import asyncio
    import pytest

    {mark}
    class TestBoth:
        async def test_first(self, kafka_cluster):
            await self.connect(kafka_cluster)

        async def test_second(self, kafka_cluster):
            await self.connect(kafka_cluster)

        async def connect(self, kafka_cluster):
            host, _, port = kafka_cluster.address(0).rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            # ApiVersions, version 0
            writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            size = await asyncio.wait_for(reader.readexactly(4), 5)
            assert int.from_bytes(size, "big") > 10
            writer.close()
            await writer.wait_closed()
"""


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ('@pytest.mark.asyncio(loop_scope="class")', []),
        ('@pytest.mark.asyncio(loop_scope="module")', []),
        ('@pytest.mark.asyncio(loop_scope="session")', []),
        ("@pytest.mark.asyncio", ["-o", "asyncio_default_test_loop_scope=session"]),
        ("@pytest.mark.asyncio", ["-o", "asyncio_default_fixture_loop_scope=session"]),
    ],
)
def test_the_brokers_run_in_the_loop_of_the_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mark: str, options: list[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(WIDER.format(mark=mark))
    by_hand = ["-p", "no:aiokafka", "-p", "aiokafka.testing.pytest_plugin"]
    result = pytester.runpytest_subprocess(*by_hand, "--asyncio-mode=strict", *options)
    result.assert_outcomes(passed=2)


def test_the_plugin_costs_nothing_while_it_is_not_used() -> None:
    """pytest imports it at every start."""
    command = [
        sys.executable,
        "-c",
        "import aiokafka.testing.pytest_plugin, sys; print(*sys.modules)",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert "aiokafka.testing.pytest_plugin" in loaded
    assert not [name for name in loaded if name.startswith(("aiokafka.protocol", "aiokafka.net"))]
    assert "aiokafka.testing.cluster" not in loaded


SYNC = """
    import socket
    import pytest

    def test_default(kafka_server):
        kafka_server.call(lambda cluster: cluster.create_topic("t"))
        kafka_server.call(lambda cluster: cluster.log("t").append(b"x"))
        assert kafka_server.call(lambda cluster: len(cluster.log("t").records())) == 1
        with pytest.raises(KeyError):
            kafka_server.call(lambda cluster: {}["none"])

    @pytest.mark.kafka_cluster(brokers=3)
    def test_failing(kafka_server):
        servers = kafka_server.bootstrap_servers.split(",")
        assert len(servers) == 3
        host, _, port = servers[0].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            for _ in range(2):
                # ApiVersions, version 0, of the client "me"
                connection.sendall(bytes.fromhex("0000000c 0012 0000 00000001 0002 6d65"))
                assert connection.recv(4)
        assert False

    @pytest.mark.kafka_cluster(as_version="none")
    def test_wrong_argument(kafka_server):
        pass
"""


def test_the_server_runs_beside_tests_that_block(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(SYNC)
    by_hand = ["-p", "no:aiokafka", "-p", "aiokafka.testing.pytest_plugin"]
    result = pytester.runpytest_subprocess(*by_hand, "--strict-markers")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*Requests to kafka_server*", "broker 0 <- ApiVersionsRequest v0 from me, 2 times"]
    )
    result.stdout.fnmatch_lines(["*ValueError*as_version*"])


def test_a_server_that_does_not_run_says_so() -> None:
    server = ServedCluster()
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        server.call(lambda cluster: cluster)
    with server:
        with pytest.raises(concurrent.futures.TimeoutError, match=r"not ended after 0\.01 s"):
            server.call(lambda cluster: cluster.wait_for(lambda: False, 60), timeout_s=0.01)
        with pytest.raises(TimeoutError, match=r"the condition is not true after 0\.01 s"):
            server.call(lambda cluster: cluster.wait_for(lambda: False, 0.01))
        assert server.call(lambda cluster: cluster.bootstrap_servers) == server.bootstrap_servers
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = server.bootstrap_servers
    with pytest.raises(RuntimeError, match="runs once: make another one"):
        server.start()


def test_a_server_that_cannot_start_raises_why() -> None:
    with pytest.raises(ValueError, match="as_version"):
        ServedCluster(as_version="none").start()
