"""An admin client that talks to controllers which are no brokers (KIP-919), and their quorum."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, ConfigKey, NewTopic, Quorum
from aiokafka.errors import (
    ControllerIdNotRegistered,
    DuplicateVoter,
    KafkaConnectionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointType,
    UnsupportedVersionError,
    VoterNotFound,
)
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import PATIENT

# Starting the nodes counts as part of the first test.
pytestmark = pytest.mark.timeout(240)

BROKER, FIRST, SECOND = 1, 2, 3


@pytest.fixture(scope="module")
def split() -> Iterator[KafkaCluster]:
    """Yield a broker and two controllers, of which the first is the only voter."""
    need_own_brokers()
    with KafkaCluster(
        "4.4.0", nodes=1, controllers=2, config=PATIENT
    ) as cluster:  # unregister_controller()
        yield cluster


def voters(quorum: Quorum) -> set[int]:
    return {voter.replica_id for voter in quorum.voters}


async def test_controllers_serve_without_brokers(split: KafkaCluster) -> None:
    addresses = split.bootstrap_controllers
    async with AIOKafkaAdminClient(bootstrap_controllers=addresses) as admin:
        async with timeout(60):
            # The second one registers itself a moment after it has begun to serve.
            while len((await admin.brokers.describe_cluster()).brokers) < 2:
                await asyncio.sleep(0.1)
        cluster = await admin.brokers.describe_cluster(include_authorized_operations=True)
        assert {each.id for each in cluster.brokers} == {FIRST, SECOND}
        assert cluster.controller_id == FIRST
        await admin.topics.create([NewTopic("made", 1, 1)])
        with pytest.raises(TopicAlreadyExistsError):
            await admin.topics.create([NewTopic("made", 1, 1)])
        async with AIOKafkaAdminClient(bootstrap_servers=split.bootstrap_servers) as other:
            await other.topics.wait_until_ready(["made"])

        logger = ConfigKey.broker_logger(SECOND)
        await admin.configs.alter({logger: {"root": "ERROR"}})
        assert (await admin.configs.describe([logger]))[logger]["root"].value == "ERROR"
        own = ConfigKey.broker(FIRST)
        assert (await admin.configs.describe([own]))[own]["node.id"].value == str(FIRST)
        await admin.configs.alter({ConfigKey.broker(BROKER): {"message.max.bytes": 2_000_000}})
        with pytest.raises(UnsupportedEndpointType):
            await admin.topics.list()

    with pytest.raises(KafkaConnectionError, match="is a broker, not a controller"):
        await AIOKafkaAdminClient(bootstrap_controllers=split.bootstrap_servers).start()
    with pytest.raises(UnsupportedVersionError, match="is a controller, not a broker"):
        await AIOKafkaAdminClient(bootstrap_servers=addresses).start()


async def test_voters_come_and_go(split: KafkaCluster) -> None:
    async with AIOKafkaAdminClient(bootstrap_controllers=split.bootstrap_controllers) as admin:
        quorum = await admin.brokers.quorum()
        assert (voters(quorum), quorum.leader_id) == ({FIRST}, FIRST)
        ids = {each.replica_id: each.directory_id for each in (*quorum.voters, *quorum.observers)}
        first, second = ids[FIRST], ids[SECOND]
        assert first is not None and second is not None
        host, _, port = split.bootstrap_controllers.split(",")[1].partition(":")
        listeners = [("CONTROLLER", host, int(port))]
        await admin.brokers.add_voter(SECOND, second, listeners)
        assert voters(await admin.brokers.quorum()) == {FIRST, SECOND}
        with pytest.raises(DuplicateVoter):
            await admin.brokers.add_voter(SECOND, second, listeners)
        with pytest.raises(VoterNotFound):
            await admin.brokers.remove_voter(SECOND, uuid.uuid4())

        # The active controller goes, and what follows goes to the other. The one that resigns may
        # do what it is asked for without a response; the other then says that it is done already.
        split.kill(BROKER)
        with suppress(VoterNotFound):
            await admin.brokers.remove_voter(FIRST, first)
        with suppress(UnknownTopicOrPartitionError):
            await admin.topics.delete(["made"])
        while (await admin.brokers.describe_cluster()).controller_id != SECOND:
            await asyncio.sleep(0.05)
        assert voters(await admin.brokers.quorum()) == {SECOND}
        split.kill(FIRST)
        await admin.brokers.unregister_controller(FIRST)
        with pytest.raises(ControllerIdNotRegistered):
            await admin.brokers.unregister_controller(FIRST)
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.topics.delete(["made"])
