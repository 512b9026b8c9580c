"""The programs that copy a topic into files and tables: each record once."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka.testing.simulation import Simulation
from tests.examples.scripts import EXAMPLES

pytest.importorskip("pyarrow")

TP = TopicPartition("orders", 0)
PROGRAMS = ("to_delta", "to_iceberg", "to_parquet")


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs import each other as neighbours do."""
    monkeypatch.syspath_prepend(EXAMPLES / "guides")
    yield
    for name in PROGRAMS:
        sys.modules.pop(name, None)


def parquet(folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    import pyarrow.dataset as dataset

    table = importlib.import_module("to_parquet").ParquetFiles(str(folder))

    def offsets() -> list[int]:
        if not (folder / "orders").exists():
            return []
        rows = dataset.dataset(folder / "orders", partitioning="hive").to_table()
        return sorted(rows["offset"].to_pylist())

    return table, offsets


def delta(folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    import deltalake

    place = str(folder / "delta")
    table = importlib.import_module("to_delta").Delta(place)

    def offsets() -> list[int]:
        rows = deltalake.DeltaTable(place).to_pyarrow_table()
        return sorted(rows["offset"].to_pylist())

    return table, offsets


def iceberg(folder: Path) -> tuple[Any, Callable[[], list[int]]]:
    from pyiceberg.catalog import load_catalog

    folder.mkdir(exist_ok=True)
    catalog = load_catalog(
        "test", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
    )
    table = importlib.import_module("to_iceberg").Iceberg(catalog, "lake.records")

    def offsets() -> list[int]:
        return sorted(catalog.load_table("lake.records").scan().to_arrow()["offset"].to_pylist())

    return table, offsets


once = pytest.mark.simulated(seeds=1, limit_s=300)


def with_package(kind: Any, package: str) -> Any:
    """Leave a kind of table out where its package is not installed."""
    is_missing = find_spec(package) is None
    return pytest.param(kind, marks=pytest.mark.skipif(is_missing, reason=f"no {package}"))


KINDS = pytest.mark.parametrize(
    "kind", [parquet, with_package(delta, "deltalake"), with_package(iceberg, "pyiceberg")]
)


@once
@KINDS
async def test_a_copy_goes_on_where_the_table_is(
    kind: Any, tmp_path: Path, simulation: Simulation
) -> None:
    table, offsets = kind(tmp_path / "lake")
    copy = importlib.import_module("to_parquet").copy
    async with simulation.cluster(brokers=1) as cluster:
        await cluster.create_topic("orders")
        for total in (3, 5):
            cluster.log("orders").extend([(b"k", b"v", ())] * (total - len(offsets())))
            await copy(cluster.bootstrap_servers, "orders", table, 20, until_quiet=True)
            assert offsets() == list(range(total))
            assert table.next_offset(TP) == total


@KINDS
def test_of_two_that_begin_at_one_offset_one_writes(kind: Any, tmp_path: Path) -> None:
    old, offsets = kind(tmp_path / "lake")
    new, _ = kind(tmp_path / "lake")
    module = importlib.import_module("to_parquet")
    new.append(TP, 0, 2, rows(module, 0, 1))
    with pytest.raises(module.MovedError):
        old.append(TP, 0, 3, rows(module, 0, 1, 2))
    # Offsets may be missing, where markers of transactions were.
    old.append(TopicPartition("orders", 1), 0, 8, rows(module, 7))
    new.append(TP, 2, 6, rows(module, 5))
    assert offsets() == [0, 1, 5, 7]
    assert (old.next_offset(TP), new.next_offset(TP)) == (6, 6)


def rows(module: ModuleType, *offsets: int) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "partition": [0] * len(offsets),
            "offset": list(offsets),
            "timestamp": [0] * len(offsets),
            "key": [b"k"] * len(offsets),
            "value": [b"v"] * len(offsets),
        },
        schema=module.SCHEMA,
    )


@once
async def test_members_share_the_work(tmp_path: Path, simulation: Simulation) -> None:
    table, offsets = parquet(tmp_path / "lake")
    copy = importlib.import_module("to_parquet").copy
    async with simulation.cluster(brokers=1) as cluster:
        await cluster.create_topic("orders", partitions=2)
        for partition in (0, 1):
            cluster.log("orders", partition).extend([(b"k", b"v", ())] * 4)
        servers = cluster.bootstrap_servers
        members = [copy(servers, "orders", table, 20, until_quiet=True) for _ in range(2)]
        await asyncio.gather(*members)
    assert offsets() == [0, 0, 1, 1, 2, 2, 3, 3]
