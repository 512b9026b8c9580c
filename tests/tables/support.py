"""What tests of tables share: tables that retry soon, records, replays."""

from __future__ import annotations

from typing import Any

from aiokafka.tables import Change, ChangeStream, CompactedTable
from aiokafka.testing import FakeCluster

Entries = dict[bytes, bytes]


def make_table(cluster: FakeCluster, topic: str = "t", **options: Any) -> CompactedTable[Any, Any]:
    options.setdefault("retry_backoff_ms", 10)
    options.setdefault("fetch_max_wait_ms", 50)
    return CompactedTable(topic, bootstrap_servers=cluster.bootstrap_servers, **options)


def write(
    cluster: FakeCluster, key: bytes, value: bytes | None, partition: int = 0, topic: str = "t"
) -> None:
    cluster.log(topic, partition).append(value, key=key)


def replay(cluster: FakeCluster, topic: str = "t", partitions: int = 2) -> Entries:
    """The latest values of the keys, by the logs."""
    entries: Entries = {}
    for number in range(partitions):
        for record in cluster.log(topic, number).records():
            apply(entries, record.key, record.value)
    return entries


def apply(entries: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value


async def read(stream: ChangeStream[Any, Any], count: int) -> list[Change[Any, Any]]:
    return [await anext(stream) for _ in range(count)]


def brief(changes: list[Change[Any, Any]]) -> list[tuple[Any, Any, Any]]:
    return [(change.key, change.old, change.new) for change in changes]


class Copy:
    """A copy of a table, from a snapshot and the changes after it."""

    def __init__(self, table: CompactedTable[Any, Any]) -> None:
        snapshot, self._changes = table.snapshot_and_changes()
        self.entries = dict(snapshot)

    async def catch_up(self) -> None:
        while self._changes.pending:
            change = await anext(self._changes)
            assert self.entries.get(change.key) == change.old
            assert (change.old, change.new) != (None, None)
            apply(self.entries, change.key, change.new)
