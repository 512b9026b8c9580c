"""The table of names in the manual (docs/metric_names.csv): it has every metric, and no other."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.metrics import Metric, MetricKind, MetricsSnapshot
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start
from tests.support.metric_names import Key, metric_rows
from tests.support.producers import TOPIC, transactional


def row_of(metric: Metric, table: dict[Key, list[str]]) -> Key:
    """Return the row of a metric: that of its group, else that of the connections of any client."""
    group = metric.group
    own = (group, metric.name)
    if own in table:
        return own
    ending = "node-metrics" if group.endswith("-node-metrics") else "metrics"
    return f"{{client}}-{ending}", metric.name


async def seen(cluster: FakeCluster, start: Start) -> list[Metric]:
    """Return the metrics of clients of all kinds that have done all kinds of work."""
    async with transactional(cluster) as producer:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value", partition=0)
        found = [*producer.metrics()]
    consumer = await start(cluster, TOPIC, group_id="g")
    await consumer.getone()
    await consumer.getmany()
    await consumer.commit()
    found += consumer.metrics()
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.list_topics()
        found += admin.metrics()
    return found


async def test_the_table_has_every_metric_and_no_other(cluster: FakeCluster, start: Start) -> None:
    table = metric_rows()
    assert {row_of(metric, table) for metric in await seen(cluster, start)} == table.keys()


async def test_names_follow_those_of_java(cluster: FakeCluster, start: Start) -> None:
    """A counter is Java's total, a histogram its average and maximum, a gauge is itself."""
    table = metric_rows()
    for metric in await seen(cluster, start):
        java = table[row_of(metric, table)]
        if not java:
            continue
        if metric.kind is MetricKind.HISTOGRAM:
            assert f"{metric.name}-max" in java
        else:
            assert metric.name in java


async def test_of_a_total_that_was_not_counted_there_is_0(
    cluster: FakeCluster, start: Start
) -> None:
    """That is so for what clients count, with the tags that it has, and for nothing else."""
    counters: dict[Key, set[str]] = {}
    groups: set[str] = set()
    for one in await seen(cluster, start):
        groups.add(one.group)
        if one.kind is MetricKind.COUNTER:
            counters.setdefault((one.group, one.name), set()).update(one.tags)
    for group in groups:
        always = group.replace("-node-", "-").replace("-topic-", "-")
        nothing = MetricsSnapshot([Metric(always, "other", 1, MetricKind.GAUGE, "")])
        for _, name in metric_rows():
            tags = counters.get((group, name))
            assert is_zero(nothing, name, group) == (tags is not None)
            for tag in ("node-id", "topic", "partition"):
                has_it = tags is not None and tag in tags
                assert is_zero(nothing, name, group, **{tag.replace("-", "_"): "7"}) == has_it


def is_zero(snapshot: MetricsSnapshot, name: str, group: str, **tags: str) -> bool:
    """Tell whether there is a value, which must be 0."""
    try:
        return bool(snapshot.value(name, group, **tags) == 0)
    except KeyError:
        return False
