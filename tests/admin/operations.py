"""One call of every operation of the admin client, for tests that concern all of them."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AIOKafkaAdminClient,
    ConfigKey,
    ConfigResource,
    NewScramCredential,
    NewTopic,
    OffsetSpec,
    QuotaEntity,
    RecordsToDelete,
    ResetRule,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
)
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster
from tests.admin.support import commit, make_admin

Call = Callable[[AIOKafkaAdminClient], Awaitable[Any]]

TP = TopicPartition("t", 0)
TOPIC = ConfigKey.topic("t")
ALICE = AclBinding(ResourcePattern(ResourceType.TOPIC, "t"), "User:alice", AclOperation.READ)
CREDENTIAL = NewScramCredential("alice", "secret", ScramMechanism.SCRAM_SHA_256, iterations=4096)
QUOTA = QuotaEntity(user="alice")
NO_ID = uuid.UUID(int=7)

CALLS: dict[str, Call] = {
    "acls.create": lambda a: a.acls.create([ALICE]),
    "acls.describe": lambda a: a.acls.describe(),
    "acls.delete": lambda a: a.acls.delete([AclFilter()]),
    "brokers.add_voter": lambda a: a.brokers.add_voter(9, NO_ID, [("C", "localhost", 9093)]),
    "brokers.describe_cluster": lambda a: a.brokers.describe_cluster(),
    "brokers.features": lambda a: a.brokers.features(),
    "brokers.log_dirs": lambda a: a.brokers.log_dirs(),
    "brokers.move_replicas": lambda a: a.brokers.move_replicas(1, {TP: "/elsewhere"}),
    "brokers.quorum": lambda a: a.brokers.quorum(),
    "brokers.remove_voter": lambda a: a.brokers.remove_voter(9, NO_ID),
    "brokers.unregister": lambda a: a.brokers.unregister(9),
    "brokers.unregister_controller": lambda a: a.brokers.unregister_controller(9),
    "brokers.update_features": lambda a: a.brokers.update_features({"none.of.these": 1}),
    "configs.alter": lambda a: a.configs.alter({TOPIC: {"retention.ms": 60_000}}),
    "configs.describe": lambda a: a.configs.describe([TOPIC]),
    "configs.list_resources": lambda a: a.configs.list_resources(["client_metrics"]),
    "configs.set_exactly": lambda a: a.configs.set_exactly(TOPIC, {"retention.ms": 50_000}),
    "groups.alter_offsets": lambda a: a.groups.alter_offsets("g", {TP: 1}),
    "groups.alter_share_offsets": lambda a: a.groups.alter_share_offsets("s", {TP: 1}),
    "groups.delete_offsets": lambda a: a.groups.delete_offsets("g", [TP]),
    "groups.delete_share_offsets": lambda a: a.groups.delete_share_offsets("s", ["t"]),
    "groups.describe": lambda a: a.groups.describe(["g"]),
    "groups.lag": lambda a: a.groups.lag(["g"]),
    "groups.list": lambda a: a.groups.list(),
    "groups.offsets": lambda a: a.groups.offsets({"g": [TP]}),
    "groups.remove_members": lambda a: a.groups.remove_members("g", member_ids=["m"]),
    "groups.reset_offsets": lambda a: a.groups.reset_offsets(
        "g", ResetRule.earliest(), partitions=[TP]
    ),
    "groups.share_offsets": lambda a: a.groups.share_offsets(["s"]),
    "groups.delete": lambda a: a.groups.delete(["old"]),
    "offsets.list": lambda a: a.offsets.list({TP: OffsetSpec.LATEST}),
    "quotas.alter": lambda a: a.quotas.alter(QUOTA, {"producer_byte_rate": 1e6}),
    "quotas.alter_all": lambda a: a.quotas.alter_all({QUOTA: {"producer_byte_rate": 2e6}}),
    "quotas.describe": lambda a: a.quotas.describe(),
    "records.delete": lambda a: a.records.delete({TP: 1}),
    "tokens.create": lambda a: a.tokens.create(),
    "tokens.describe": lambda a: a.tokens.describe(),
    "tokens.expire": lambda a: a.tokens.expire(b"hmac"),
    "tokens.renew": lambda a: a.tokens.renew(b"hmac"),
    "topics.apply": lambda a: a.topics.apply(
        {"declared": {"partitions": 2, "replication_factor": 1}}
    ),
    "topics.cancel_reassignments": lambda a: a.topics.cancel_reassignments([TP]),
    "topics.create": lambda a: a.topics.create([NewTopic("new", 1, 1)]),
    "topics.create_partitions": lambda a: a.topics.create_partitions({"grown": 3}),
    "topics.delete": lambda a: a.topics.delete(["old"]),
    "topics.describe": lambda a: a.topics.describe(["t"]),
    "topics.elect_leaders": lambda a: a.topics.elect_leaders([TP]),
    "topics.list": lambda a: a.topics.list(),
    "topics.reassign": lambda a: a.topics.reassign({TP: [1]}),
    "topics.reassignments": lambda a: a.topics.reassignments(),
    "topics.wait_until_ready": lambda a: a.topics.wait_until_ready(["t"]),
    "transactions.abort": lambda a: a.transactions.abort(TP, 7, 0),
    "transactions.describe": lambda a: a.transactions.describe(["x"]),
    "transactions.fence": lambda a: a.transactions.fence(["x"]),
    "transactions.find_hanging": lambda a: a.transactions.find_hanging(),
    "transactions.force_terminate": lambda a: a.transactions.force_terminate("x"),
    "transactions.list": lambda a: a.transactions.list(),
    "transactions.producers": lambda a: a.transactions.producers([TP]),
    "users.upsert": lambda a: a.users.upsert([CREDENTIAL]),
    "users.describe": lambda a: a.users.describe(),
    "users.delete": lambda a: a.users.delete([("alice", ScramMechanism.SCRAM_SHA_256)]),
    "send": lambda a: a.send(ListGroupsRequest()),
    "send_to_all": lambda a: a.send_to_all(ListGroupsRequest()),
    # aiokafka's own
    "alter_configs": lambda a: a.alter_configs([ConfigResource("topic", "t", {})]),
    "create_delegation_token": lambda a: a.create_delegation_token(),
    "create_partitions": lambda a: a.create_partitions({"grown": 5}),
    "create_topics": lambda a: a.create_topics([NewTopic("newer", 1, 1)]),
    "delete_records": lambda a: a.delete_records({TP: RecordsToDelete(1)}),
    "delete_topics": lambda a: a.delete_topics(["older"]),
    "describe_cluster": lambda a: a.describe_cluster(),
    "describe_configs": lambda a: a.describe_configs([ConfigResource("topic", "t")]),
    "describe_consumer_groups": lambda a: a.describe_consumer_groups(["g"]),
    "describe_delegation_tokens": lambda a: a.describe_delegation_tokens(),
    "describe_topics": lambda a: a.describe_topics(["t"]),
    "expire_delegation_token": lambda a: a.expire_delegation_token(b"hmac"),
    "find_coordinator": lambda a: a.find_coordinator("g"),
    "list_consumer_group_offsets": lambda a: a.list_consumer_group_offsets("g", partitions=[TP]),
    "list_consumer_groups": lambda a: a.list_consumer_groups(),
    "list_topics": lambda a: a.list_topics(),
    "remove_members_from_consumer_group": lambda a: a.remove_members_from_consumer_group(
        "g", ["m"]
    ),
    "renew_delegation_token": lambda a: a.renew_delegation_token(b"hmac"),
}
# About the client itself.
_NO_OPERATIONS = {"start", "stop", "close", "client_instance_id"}


def operations_of(admin: AIOKafkaAdminClient) -> set[str]:
    """Return all operations that the client has."""
    found: set[str] = set()
    for name in dir(admin):
        if name.startswith("_") or name in _NO_OPERATIONS:
            continue
        value = getattr(admin, name)
        if inspect.iscoroutinefunction(value):
            found.add(name)
        elif type(value).__module__.startswith("aiokafka.admin"):
            calls = inspect.getmembers(value, inspect.iscoroutinefunction)
            found |= {f"{name}.{call}" for call, _ in calls if not call.startswith("_")}
    return found


@asynccontextmanager
async def prepared(**options: Any) -> AsyncIterator[tuple[FakeCluster, AIOKafkaAdminClient]]:
    """Yield a cluster that has what the calls are about, and an admin client."""
    config = {"authorizer.class.name": "an.Authorizer", "super.users": "User:ANONYMOUS"}
    async with FakeCluster(2, config=config, **options) as cluster, make_admin(cluster) as admin:
        for name in ("t", "grown", "old", "older"):
            await cluster.create_topic(name, partitions=2)
        cluster.log("t", 0).extend([(None, b"value", ())] * 5)
        for group in ("g", "old"):
            await commit(cluster, group, {TP: 2})
        yield cluster, admin
        assert cluster.failures == []
