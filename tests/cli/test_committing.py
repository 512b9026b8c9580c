"""What `aiokafka consume` commits in a group."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.cli.consuming import Committer
from aiokafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.testing import Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate

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


@pytest.mark.parametrize("error", [UnknownMemberIdError, UnknownTopicOrPartitionError])
def test_what_cannot_be_committed_for_now_does_not_end_the_command(
    error: type[BrokerResponseError], capsys: pytest.CaptureFixture[str]
) -> None:
    """The member was away for so long that the group went on without it, or a topic is deleted."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            cluster.log("t", 0).extend([(None, b"value", ())] * 4)
            async with AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer:
                committer = Committer(consumer, every=0.0)
                committer.wrote(await consumer.getmany(timeout_ms=10_000))
                with cluster.intercept(OffsetCommitRequest, Fail(error)):
                    await committer.commit_if_due()
                assert "will be printed again" in capsys.readouterr().err
                await consumer.seek_to_beginning()
                committer.wrote(await consumer.getmany(timeout_ms=10_000))
                await committer.commit_if_due()
                assert cluster.groups.committed("g", "t") == 4
                with cluster.intercept(OffsetCommitRequest, Fail(GroupAuthorizationFailedError)):
                    await consumer.seek_to_beginning()
                    committer.wrote(await consumer.getmany(timeout_ms=10_000))
                    with pytest.raises(GroupAuthorizationFailedError):
                        await committer.commit_if_due()

    simulate(main)
