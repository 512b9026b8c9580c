"""Topics are brought to a declared state."""

from __future__ import annotations

import json

import pytest

from aiokafka.admin import ConfigKey, DeclaredTopic, TopicAction, TopicStep
from aiokafka.errors import IllegalArgumentError, PolicyViolationError
from aiokafka.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from aiokafka.testing import Fail, FakeCluster
from tests.admin.support import make_admin

DECLARED = {
    "gone": None,
    "old": {"partitions": 3, "configs": {"retention.ms": 5, "preallocate": True}},
    "new": DeclaredTopic(2, 1, {"segment.ms": 7}),
    "same": {"partitions": 1, "replication_factor": 1, "configs": {}},
    "plain": {},
    "never": None,
}


async def prepared(cluster: FakeCluster) -> None:
    await cluster.create_topic("old", config={"retention.ms": 4, "segment.ms": 9})
    for name in ("gone", "same", "other"):
        await cluster.create_topic(name)


async def test_a_plan_is_made_and_carried_out() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await prepared(cluster)
        steps = await admin.topics.apply(DECLARED, dry_run=True)
        changes = {"retention.ms": "5", "preallocate": "true", "segment.ms": None}
        assert steps == [
            TopicStep("new", TopicAction.CREATE, 2, 1, {"segment.ms": "7"}),
            TopicStep("plain", TopicAction.CREATE),
            TopicStep("old", TopicAction.GROW, 3),
            TopicStep("old", TopicAction.CONFIGURE, configs=changes),
            TopicStep("gone", TopicAction.DELETE),
        ]
        assert json.dumps([step.as_dict() for step in steps])
        assert set(cluster.state.topics) == {"old", "gone", "same", "other"}
        assert await admin.topics.apply(DECLARED) == steps
        assert set(cluster.state.topics) == {"old", "new", "plain", "same", "other"}
        assert len(cluster.state.topics["old"].partitions) == 3
        found = (await admin.configs.describe([ConfigKey.topic("old")]))[ConfigKey.topic("old")]
        assert found["retention.ms"].value == "5"
        assert found["segment.ms"].is_default
        assert await admin.topics.apply(DECLARED) == []


@pytest.mark.parametrize(
    "wrong", [{"partitions": 1}, {"replication_factor": 2}], ids=["partitions", "replicas"]
)
async def test_what_cannot_be_done_is_said_before_anything_is(wrong: dict[str, int]) -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", partitions=2)
        with pytest.raises(IllegalArgumentError, match="t: it has"):
            await admin.topics.apply({"new": {}, "t": wrong})
        assert not cluster.requests(CreateTopicsRequest)


async def test_a_step_that_fails_ends_the_call() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await prepared(cluster)
        with (
            cluster.intercept(CreateTopicsRequest, Fail(PolicyViolationError)),
            pytest.raises(PolicyViolationError),
        ):
            await admin.topics.apply({"new": {}, "gone": None})
        assert not cluster.requests(DeleteTopicsRequest)


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        for number in (0, "3", True):
            error = ValueError if number == 0 else TypeError
            with pytest.raises(error, match="declared: t: partitions="):
                await admin.topics.apply({"t": {"partitions": number}})
        with pytest.raises(TypeError, match="partition"):
            await admin.topics.apply({"t": {"partition": 3}})
        with pytest.raises(TypeError, match=r"t: a=None: must be a str"):
            await admin.topics.apply({"t": {"configs": {"a": None}}})
