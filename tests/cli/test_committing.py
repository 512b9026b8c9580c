"""What `aiokafka consume` commits in a group."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.cli.consuming import Committer
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.testing import FakeCluster, Hold

TP = TopicPartition("t", 0)


async def test_what_is_written_while_a_commit_is_under_way_is_committed_after_it() -> None:
    """A rebalance commits beside the program, whose reader takes a batch that moment."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        cluster.log("t", 0).extend([(None, b"value", ())] * 4)
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([TP])
            committer = Committer(consumer)
            committer.wrote(await consumer.getmany(timeout_ms=10_000, max_records=2))
            answers = asyncio.Event()
            cluster.intercept(OffsetCommitRequest, Hold(answers), times=1)
            first = asyncio.create_task(committer.commit())
            await cluster.wait_for(lambda: cluster.count(OffsetCommitRequest))
            committer.wrote(await consumer.getmany(timeout_ms=10_000, max_records=2))
            answers.set()
            await first
            assert cluster.groups.committed("g", "t") == 2
            await committer.commit()
            assert cluster.groups.committed("g", "t") == 4
