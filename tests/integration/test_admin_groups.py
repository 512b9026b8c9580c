"""The room for groups against a real Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.admin import (
    AclOperation,
    AIOKafkaAdminClient,
    GroupState,
    GroupType,
    ListedOffset,
    OffsetSpec,
)
from aiokafka.errors import GroupIdNotFound
from aiokafka.structs import OffsetAndMetadata
from tests.integration.support import START, filled, member, new_group
from tests.kafka.fixtures import Kafka, MakeTopic

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_is_listed_and_described(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic, protocol: str
) -> None:
    group = new_group()
    tps = await filled(kafka, make_topic, [3, 4])
    async with member(kafka, tps[0].topic, group, protocol) as consumer:
        while len(consumer.assignment()) < 2:
            await asyncio.sleep(0.05)
        await consumer.getmany(timeout_ms=5000, max_records=1)
        await consumer.commit({tps[0]: OffsetAndMetadata(1, "note")})
        listed = await admin.groups.list(
            states=[GroupState.STABLE], types=[protocol], prefix="group-"
        )
        assert listed[group].type is GroupType(protocol)
        assert listed[group].protocol_type == "consumer"
        assert group not in await admin.groups.list(states=[GroupState.EMPTY])

        found = (await admin.groups.describe([group], include_authorized_operations=True))[group]
        assert (found.type, found.state) == (GroupType(protocol), GroupState.STABLE)
        assert found.authorized_operations is not None
        assert AclOperation.DESCRIBE in found.authorized_operations
        (one,) = found.members
        assert one.assignment == tuple(tps)
        assert (one.instance_id, one.topics) == ("one", (tps[0].topic,))
        assert (one.target == one.assignment) is (protocol == "consumer")
        offsets = await admin.groups.offsets({group: tps, "missing": None})
        assert offsets == {
            group: {tps[0]: OffsetAndMetadata(1, "note"), tps[1]: None},
            "missing": {},
        }
    with pytest.raises(GroupIdNotFound, match="missing"):
        await admin.groups.describe(["missing"])


async def test_offsets_of_every_place(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    tps = await filled(kafka, make_topic, [5] * 6)
    await admin.records.delete({tps[1]: 2})
    # A broker that is not configured for tiered storage has nothing there, and all of it locally.
    places = dict(zip(tps, OffsetSpec, strict=True))
    found = await admin.offsets.list(places)
    by_place = {places[tp]: each.offset for tp, each in found.items()}
    assert by_place[OffsetSpec.LATEST] == 5
    assert by_place[OffsetSpec.EARLIEST] == 2
    assert by_place[OffsetSpec.MAX_TIMESTAMP] == 4
    assert by_place[OffsetSpec.EARLIEST_LOCAL] == 0
    assert by_place[OffsetSpec.LATEST_TIERED] is None
    again = await admin.offsets.list({tps[0]: START + 2500, tps[2]: START + 99_000})
    assert again[tps[0]] == ListedOffset(3, START + 3000, 0)
    assert again[tps[2]].offset is None


async def test_the_lag_of_a_group(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    group = new_group()
    tps = await filled(kafka, make_topic, [5, 5, 0])
    async with member(kafka, tps[0].topic, group, "consumer") as consumer:
        while len(consumer.assignment()) < 3:
            await asyncio.sleep(0.05)
        await consumer.commit({tps[0]: 1, tps[2]: 0})
        found = (await admin.groups.lag([group]))[group]
        first, second, third = (found.partitions[tp] for tp in tps)
        assert (first.committed, first.lag, first.stable_lag) == (1, 4, 4)
        assert first.unread_since == START + 1000
        assert first.time_lag_ms == found.time_lag_ms
        assert (second.committed, second.end_offset, second.lag) == (None, 5, None)
        assert (third.lag, third.time_lag_ms) == (0, 0)
        assert {each.owner for each in found.partitions.values()} == {first.owner}
        assert first.owner is not None
        assert first.owner.instance_id == "one"
