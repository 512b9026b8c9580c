"""The programs of the page about schemas, on the fake cluster and the fake schema registry."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator

import pytest

from aiokafka.testing import FakeCluster, FakeSchemaRegistry
from tests.examples.scripts import EXAMPLES

PROGRAMS = {
    "schemas_avro": ["ada 150 EUR", "grace 700 USD"],
    "schemas_json": ["ada 150", "grace 700"],
    "schemas_protobuf": ["ada 150", "grace 700"],
    "schemas_dataclass": [
        "Order(customer='ada', cents=150, currency='EUR')",
        "Order(customer='grace', cents=700, currency='USD')",
    ],
    "schemas_pydantic": [
        "customer='ada' cents=150 currency='EUR'",
        "customer='grace' cents=700 currency='USD'",
    ],
}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        for topic in ("orders", "bills"):
            await fake.create_topic(topic)
        yield fake


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program(
    cluster: FakeCluster,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "guides")
    program = importlib.import_module(name)
    async with FakeSchemaRegistry() as registry:
        await program.run(cluster.bootstrap_servers, registry.url, "orders")
        assert registry.subjects() == {"orders-value": [1]}
    assert capsys.readouterr().out.splitlines() == PROGRAMS[name]
    sys.modules.pop(name)


async def test_faststream(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "guides")
    async with FakeSchemaRegistry() as registry:
        monkeypatch.setenv("REGISTRY", registry.url)
        monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
        program = importlib.import_module("schemas_faststream")
        running = asyncio.create_task(program.app.run())
        while not cluster.log("bills").records():
            assert not running.done()
            await asyncio.sleep(0.01)
        program.app.exit()
        await running
        assert registry.subjects() == {"bills-value": [1], "orders-value": [1]}
    (bill,) = cluster.log("bills").records()
    assert bill.value is not None and bill.value.endswith(b"\x06ada\xd8\x04")
    sys.modules.pop("schemas_faststream")
