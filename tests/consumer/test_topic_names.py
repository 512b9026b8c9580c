"""Names of topics that a coordinator calls by their ids."""

from __future__ import annotations

from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group.kip848 import TopicNames
from aiokafka.testing import FakeCluster


async def test_a_name_is_kept_while_it_is_needed(cluster: FakeCluster) -> None:
    """What was read of a deleted topic has to be given up by its name."""
    for name in ("t", "u"):
        await cluster.create_topic(name)
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10)
    async with timeout(20), client:
        await client.set_topics(["t", "u"])
        ids = {name: client.cluster.topic_id(name) or b"" for name in ("t", "u")}
        names = TopicNames(client)
        assert await names.learn(ids.values()) == set()
        assert names.get(ids["t"]) == "t"
        await cluster.delete_topic("t")
        while client.cluster.topic_name(ids["t"]) is not None:
            await client.force_metadata_update()
        assert await names.learn(ids.values()) == set()
        assert [names.get(ids[name]) for name in ("t", "u")] == ["t", "u"]
        # Of no use any more, so it is forgotten, and cannot be learned any more.
        assert await names.learn([ids["u"]]) == set()
        assert await names.learn(ids.values()) == {ids["t"]}
