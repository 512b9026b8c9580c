"""Dialogues about settings, and requests that are refused for what they ask; see `scenarios`."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.protocol.messages import configs as wire
from aiokafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from aiokafka.protocol.messages.group_members import JoinGroupRequest
from aiokafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from .group_scenarios import (
    NextMember,
    commit,
    describe,
    fetched,
    join,
    join_request,
    leave,
    new_group,
    sync,
    with_partitions,
)
from .group_scenarios import beat as heartbeat
from .scenarios import Seen, Side, create, scenario
from .support import batch, fetch_request
from .transaction_scenarios import new_session

BAD_SETTINGS = [
    {"retention_ms": "-5"},
    {"retention_ms": "-1"},
    {"max_message_bytes": "-1"},
    {"min_insync_replicas": "0"},
    {"min_cleanable_dirty_ratio": "2.0"},
    {"min_cleanable_dirty_ratio": "1.0"},
    {"cleanup_policy": ""},
    {"compression_type": "best"},
    {"segment_ms": "0"},
    {"flush_messages": "0"},
    {"index_interval_bytes": "-1"},
    {"delete_retention_ms": "-1"},
    {"max_compaction_lag_ms": "0"},
    {"preallocate": "yes"},
    {"max_message_bytes": "2147483648"},
    {"segment_bytes": "1000000"},
]


@scenario
async def settings_out_of_range(side: Side) -> Seen:
    seen: Seen = []
    for settings in BAD_SETTINGS:
        answer = await side.client.call(create(side.name(), **settings), 7)
        seen.append((settings, answer.topics[0].error_code))
    return seen


SET, APPEND, SUBTRACT = 0, 2, 3
THROTTLED = "leader.replication.throttled.replicas"
CHANGES = [
    [("min.insync.replicas", SET, "1.5")],
    [("min.cleanable.dirty.ratio", SET, "0.25")],
    [("compression.gzip.level", SET, "11")],
    [(THROTTLED, SET, "abc")],
    [(THROTTLED, SET, "*")],
    [(THROTTLED, SET, "")],
    [(THROTTLED, APPEND, "0:1")],
    [(THROTTLED, SUBTRACT, "0:1")],
    [("retention.ms", APPEND, "5")],
    [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
]


@scenario
async def single_settings(side: Side) -> Seen:
    topic = await side.topic()
    seen: Seen = []
    for kind, name, changes in (
        *((2, topic, each) for each in CHANGES),
        (4, "", [("message.max.bytes", SET, "abc")]),
        (4, "", [("message.max.bytes", SET, "-1")]),
    ):
        configs = [
            wire.IncrementalAlterableConfig(name=key, config_operation=how, value=value)
            for key, how, value in changes
        ]
        resource = wire.IncrementalAlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        request = wire.IncrementalAlterConfigsRequest(validate_only=False, resources=[resource])
        answer = await side.client.call(request, 1)
        seen.append((changes, answer.responses[0].error_code))
    return seen


@scenario
async def names_that_collide(side: Side) -> Seen:
    name = await side.topic()
    seen: Seen = []
    for other in (f"{name}.a_b", f"{name}.a.b", f"{name}_a.b", f"{name}.a-b"):
        answer = await side.client.call(create(other), 7)
        seen.append(answer.topics[0].error_code)
    return seen


@scenario
async def compacted_topics_keep_their_start(side: Side) -> Seen:
    seen: Seen = []
    for policy in ("compact", "compact,delete"):
        topic = await side.topic(cleanup_policy=policy)
        await side.produce(topic, batch(b"x", key=b"k"))
        part = DeleteRecordsPartition(partition_index=0, offset=1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5000
        )
        seen.append((await side.client.call(request, 2)).topics[0].partitions[0].error_code)
    return seen


@scenario
async def settings_without_value(side: Side) -> Seen:
    topic = await side.topic(retention_ms="1000")
    config = AlterableConfig(name="retention.ms", value=None)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    return [(await side.client.call(request, 2)).responses[0].error_code]


@scenario
async def compression_by_topic(side: Side) -> Seen:
    """The codec of what is stored: producer's codec by topic's setting."""
    seen: Seen = []
    for setting in ("producer", "uncompressed", "gzip"):
        topic = await side.topic(compression_type=setting)
        for codec in (0, 1):
            values = [b"x" * 100, b"y" * 100]
            await side.produce(topic, batch(*values, compression=codec))
            offset = 2 * codec
            answer = await side.client.call(fetch_request(topic, offset), 12)
            records = bytes(answer.responses[0].partitions[0].records)
            seen.append((setting, codec, records[22] & 7, int.from_bytes(records[57:61], "big")))
    return seen


@scenario
async def producers_of_open_transactions_write_nothing_else(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 2)
    await one.init()
    seen: Seen = [await one.produce(topic, 0)]
    plain = batch(b"y", pid=one.pid, epoch=one.epoch, sequence=1)
    seen.append(await side.produce(topic, plain))
    seen.append(await one.end_stable(True, topic))
    return seen


@scenario
async def groups_that_are_only_asked_about(side: Side) -> Seen:
    group = await new_group(side)
    seen: Seen = [await fetched(side, group, version) for version in (2, 7, 8)]
    seen.append(await describe(side.client, group))
    return seen


@scenario
async def commits_into_empty_groups(side: Side) -> Seen:
    group, client, topic = await new_group(side), side.client, await side.topic()
    seen: Seen = []
    one = (await join(client, group)).member_id
    await sync(client, group, one, 1, {one: b"x"})
    await leave(client, group, (one, None))
    for member, generation in ((one, 1), ("", 1), (one, 2), ("", -1)):
        seen.append(await commit(client, group, topic, member, generation))
    simple = await new_group(side)
    seen.append(await commit(client, simple, topic))
    seen.append(await commit(client, simple, topic, "member", 3))
    seen.append(await heartbeat(client, "", "member", 3))
    return seen


@scenario
async def next_generation_wrongly(side: Side) -> Seen:
    topic = await side.topic(2)
    names: dict[str, Any] = {"subscribed_topic_names": [topic]}

    async def begin(member: NextMember) -> Seen:
        return [
            await member.beat(0, topic_partitions=[], **names),
            await member.beat(0, rebalance_timeout_ms=5000, **names),
            await member.beat(-3),
            await member.join(topic),
        ]

    member, seen = await with_partitions(side, begin)
    request = join_request(member.group, metadata=b"")
    assert isinstance(request, JoinGroupRequest)
    seen.append((await side.client.call(request, 7)).error_code)
    return seen


SPACED = {
    "cleanup_policy": "compact , delete",
    "compression_type": " gzip",
    "preallocate": "False ",
    "retention_ms": " 5 ",
    "unclean_leader_election_enable": "TRUE",
}


@scenario
async def settings_with_spaces_and_capitals(side: Side) -> Seen:
    """They are taken, and told as Kafka reads them."""
    name = side.name()
    seen: Seen = [(await side.client.call(create(name, **SPACED), 7)).topics[0].error_code]
    keys = [key.replace("_", ".") for key in SPACED]
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource])
    while (found := (await side.client.call(request, 4)).results[0]).error_code:
        await asyncio.sleep(0.02)
    return seen + sorted((entry.name, entry.value) for entry in found.configs)
