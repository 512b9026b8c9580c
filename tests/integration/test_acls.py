"""Rights that are missing on a real Kafka: each error at once, on the call that needed it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Set
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, NewTopic, RecordsToDelete
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
from aiokafka.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.integration.secured import SOON, login_module, new_topic
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
READ, WRITE, CREATE, DESCRIBE, IDEMPOTENT_WRITE = 3, 4, 5, 8, 12
LITERAL, ALLOW = 3, 3
ANY = 1
USERS = ("bob", "nobody")

Entry = tuple[str, int]
"""Who may do what."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    need_own_brokers()
    logins = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": login_module(
            "plain.PlainLoginModule", logins
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": "0",
    }
    with KafkaCluster(config=properties, extras=Extras(listeners={"USERS": "SASL_PLAINTEXT"})) as c:
        yield c


def as_user(kafka: KafkaCluster, user: str = "bob", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses("USERS"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-secret",
        **more,
    }


class Rights:
    """What the user may do; changes reach the broker before the call returns."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client

    async def give(self, kind: int, name: str, *operations: int, user: str = "bob") -> None:
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=operation,
                permission_type=ALLOW,
            )
            for operation in operations
        ]
        response = await self._client.send(1, CreateAclsRequest(creations=creations))
        assert [result.error_code for result in response.results] == [0] * len(operations)
        await self._known({(f"User:{user}", operation) for operation in operations}, kind, name)

    async def take(self, kind: int, name: str, operation: int) -> None:
        response = await self._client.send(
            1,
            DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=kind,
                        resource_name_filter=name,
                        pattern_type_filter=LITERAL,
                        principal_filter=None,
                        host_filter=None,
                        operation=operation,
                        permission_type=ALLOW,
                    )
                ]
            ),
        )
        (gone,) = response.filter_results[0].matching_acls
        await self._known(set(), kind, name, without={(gone.principal, gone.operation)})

    async def _known(
        self, there: set[Entry], kind: int, name: str, *, without: Set[Entry] = frozenset()
    ) -> None:
        """Until the broker has learned what the controller decided."""
        question = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=LITERAL,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        async with timeout(10):
            while True:
                response = await self._client.send(1, question)
                assert response.error_code == 0, response.error_message
                acls = [acl for resource in response.resources for acl in resource.acls]
                found = {(acl.principal, acl.operation) for acl in acls}
                if there <= found and not without & found:
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def rights(kafka: KafkaCluster) -> AsyncIterator[Rights]:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.bootstrap()
    yield Rights(client)
    await client.close()


@asynccontextmanager
async def denied(error: type[KafkaError], name: str) -> AsyncIterator[None]:
    """What is inside fails with this error, which names the resource, and soon."""
    async with timeout(SOON):
        with pytest.raises(error, match=name):
            yield


def unique() -> str:
    return f"r-{uuid.uuid4().hex[:10]}"


async def fill(kafka: KafkaCluster, topic: str, count: int = 10) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for i in range(count):
            await producer.send_and_wait(topic, b"%d" % i)


# ---------------------------------------------------------------- producer


@pytest.mark.parametrize("given", [(), (DESCRIBE,), (READ,)])
async def test_send_without_the_right_to_write(
    kafka: KafkaCluster, rights: Rights, given: tuple[int, ...]
) -> None:
    topic, other = await new_topic(kafka), await new_topic(kafka)
    await rights.give(TOPIC, topic, *given)
    await rights.give(TOPIC, other, WRITE)
    async with AIOKafkaProducer(**as_user(kafka)) as producer:
        for _ in range(2):
            async with denied(TopicAuthorizationFailedError, topic):
                await producer.send_and_wait(topic, b"1")
        assert (await producer.send_and_wait(other, b"1")).offset == 0
        await rights.give(TOPIC, topic, WRITE)
        assert (await producer.send_and_wait(topic, b"2")).offset == 0


@pytest.mark.parametrize("given", [(), (DESCRIBE,)])
async def test_a_topic_that_is_denied_does_not_stop_the_others(
    kafka: KafkaCluster, rights: Rights, given: tuple[int, ...]
) -> None:
    topic, other = await new_topic(kafka), await new_topic(kafka)
    await rights.give(TOPIC, topic, *given)
    await rights.give(TOPIC, other, WRITE)
    async with AIOKafkaProducer(**as_user(kafka, linger_ms=5)) as producer:

        async def send(to: str, value: bytes) -> int:
            return (await producer.send_and_wait(to, value)).offset

        work = [send(to, b"%d" % i) for i in range(100) for to in (topic, other)]
        results = await asyncio.gather(*work, return_exceptions=True)
    assert all(isinstance(found, TopicAuthorizationFailedError) for found in results[::2])
    assert results[1::2] == list(range(100))


async def test_an_idempotent_producer_without_any_right_to_write(
    kafka: KafkaCluster, rights: Rights
) -> None:
    topic = await new_topic(kafka)
    await rights.give(TOPIC, topic, DESCRIBE, user="nobody")
    options = as_user(kafka, "nobody")
    producer = AIOKafkaProducer(enable_idempotence=True, **options)
    async with denied(ClusterAuthorizationFailedError, "producer id"):
        await producer.start()
    await producer.stop()
    # One that does not insist goes on without.
    async with AIOKafkaProducer(**options) as producer:
        async with denied(TopicAuthorizationFailedError, topic):
            await producer.send_and_wait(topic, b"1")


async def test_a_transactional_id_that_is_denied(kafka: KafkaCluster, rights: Rights) -> None:
    name = unique()
    producer = AIOKafkaProducer(transactional_id=name, **as_user(kafka))
    async with denied(TransactionalIdAuthorizationFailed, name):
        await producer.start()
    await producer.stop()
    await rights.give(TRANSACTIONAL_ID, name, DESCRIBE)
    producer = AIOKafkaProducer(transactional_id=name, **as_user(kafka))
    async with denied(TransactionalIdAuthorizationFailed, name):
        await producer.start()
    await producer.stop()


@pytest.mark.parametrize("given", [(), (DESCRIBE,)])
async def test_a_topic_that_is_denied_in_a_transaction(
    kafka: KafkaCluster, rights: Rights, given: tuple[int, ...]
) -> None:
    topic, other, name = await new_topic(kafka), await new_topic(kafka), unique()
    await rights.give(TRANSACTIONAL_ID, name, WRITE)
    await rights.give(TOPIC, topic, *given)
    await rights.give(TOPIC, other, WRITE)
    async with AIOKafkaProducer(transactional_id=name, **as_user(kafka)) as producer:
        async with denied(TopicAuthorizationFailedError, topic):
            async with producer.transaction():
                await producer.send_and_wait(other, b"lost")
                await producer.send_and_wait(topic, b"1")
        await producer.begin_transaction()
        future = None
        async with denied(TopicAuthorizationFailedError, topic):
            future = await producer.send(topic, b"1")
            await producer.commit_transaction()
        await producer.abort_transaction()
        if future is not None:
            async with denied(TopicAuthorizationFailedError, topic):
                await future
        async with producer.transaction():
            await producer.send_and_wait(other, b"kept")
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    servers = kafka.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, **options) as consumer:
        consumer.assign([TopicPartition(other, 0)])
        assert (await consumer.getone()).value == b"kept"


async def test_a_group_that_is_denied_in_a_transaction(kafka: KafkaCluster, rights: Rights) -> None:
    topic, name, group = await new_topic(kafka), unique(), unique()
    await rights.give(TRANSACTIONAL_ID, name, WRITE)
    await rights.give(TOPIC, topic, WRITE, READ)
    async with AIOKafkaProducer(transactional_id=name, **as_user(kafka)) as producer:
        async with denied(GroupAuthorizationFailedError, group):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"lost")
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, group)
        async with producer.transaction():
            await producer.send_and_wait(topic, b"kept")


# ---------------------------------------------------------------- consumer


@pytest.mark.parametrize("given", [(), (DESCRIBE,)])
@pytest.mark.parametrize("how", ["assign", "subscribe", "group", "next-group"])
async def test_read_without_the_right_to(
    kafka: KafkaCluster, rights: Rights, how: str, given: tuple[int, ...]
) -> None:
    topic, group = await new_topic(kafka), unique()
    await fill(kafka, topic)
    await rights.give(TOPIC, topic, *given)
    await rights.give(GROUP, group, READ)
    options = as_user(kafka, auto_offset_reset="earliest")
    if "group" in how:
        options["group_id"] = group
        options["group_protocol"] = "consumer" if how == "next-group" else "classic"
    consumer = AIOKafkaConsumer(*([] if how == "assign" else [topic]), **options)
    if how != "assign" and not given:
        # There is nothing else to read.
        async with denied(TopicAuthorizationFailedError, topic):
            await consumer.start()
        await consumer.stop()
        return
    async with consumer:
        if how == "assign":
            consumer.assign([TopicPartition(topic, 0)])
        async with denied(TopicAuthorizationFailedError, topic):
            await consumer.getone()
        async with denied(TopicAuthorizationFailedError, topic):
            await consumer.getmany(timeout_ms=1500)
        await rights.give(TOPIC, topic, READ)
        assert await eventually(consumer) == b"0"


async def eventually(consumer: AIOKafkaConsumer) -> bytes | None:
    """The first record after errors of rights that were missing."""
    async with timeout(10):
        while True:
            try:
                return (await consumer.getone()).value
            except (TopicAuthorizationFailedError, GroupAuthorizationFailedError):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("given", [(), (DESCRIBE,)])
@pytest.mark.parametrize("how", ["assign", "subscribe", "group", "next-group"])
async def test_a_denied_topic_does_not_stop_the_reading_of_others(
    kafka: KafkaCluster, rights: Rights, how: str, given: tuple[int, ...]
) -> None:
    topic, other, group = await new_topic(kafka), await new_topic(kafka), unique()
    await fill(kafka, topic)
    await fill(kafka, other)
    await rights.give(TOPIC, topic, *given)
    await rights.give(TOPIC, other, READ)
    await rights.give(GROUP, group, READ)
    options = as_user(kafka, auto_offset_reset="earliest")
    if "group" in how:
        options["group_id"] = group
        options["group_protocol"] = "consumer" if how == "next-group" else "classic"
    consumer = AIOKafkaConsumer(*([] if how == "assign" else [topic, other]), **options)
    values, errors = [], []
    await consumer.start()
    if how == "assign":
        consumer.assign([TopicPartition(topic, 0), TopicPartition(other, 0)])
    ends = time.monotonic() + 60
    while (len(values) < 10 or not errors) and time.monotonic() < ends:
        try:
            async with timeout(60):
                record = await consumer.getone()
            assert record.topic == other
            values.append(record.value)
        except TopicAuthorizationFailedError as error:
            errors.append(error)
    await consumer.stop()
    assert values == [b"%d" % i for i in range(10)]
    assert errors and all(topic in str(error) and other not in str(error) for error in errors)


@pytest.mark.parametrize("given", [(), (DESCRIBE,)])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_that_is_denied(
    kafka: KafkaCluster, rights: Rights, protocol: str, given: tuple[int, ...]
) -> None:
    topic, group = await new_topic(kafka), unique()
    await fill(kafka, topic)
    await rights.give(TOPIC, topic, READ)
    await rights.give(GROUP, group, *given)
    options = as_user(kafka, group_id=group, group_protocol=protocol, auto_offset_reset="earliest")
    consumer = AIOKafkaConsumer(topic, **options)
    async with denied(GroupAuthorizationFailedError, group):
        await consumer.start()
        await consumer.getone()
    await consumer.stop()
    async with AIOKafkaConsumer(**options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        if not given:
            async with denied(GroupAuthorizationFailedError, group):
                await consumer.committed(TopicPartition(topic, 0))
        async with denied(GroupAuthorizationFailedError, group):
            await consumer.commit({TopicPartition(topic, 0): 1})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_whose_right_is_taken_and_given_back(
    kafka: KafkaCluster, rights: Rights, protocol: str
) -> None:
    topic, group = await new_topic(kafka), unique()
    await fill(kafka, topic)
    await rights.give(TOPIC, topic, READ)
    await rights.give(GROUP, group, READ)
    options = as_user(
        kafka,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **({"heartbeat_interval_ms": 100} if protocol == "classic" else {}),
    )
    async with AIOKafkaConsumer(topic, **options) as consumer:
        for i in range(10):
            assert (await consumer.getone()).value == b"%d" % i
        await rights.take(GROUP, group, READ)
        async with denied(GroupAuthorizationFailedError, group):
            await consumer.commit()
        async with denied(GroupAuthorizationFailedError, group):
            await consumer.getone()
        await rights.give(GROUP, group, READ)
        await fill(kafka, topic, 1)
        assert await eventually(consumer) in (b"0", b"1")
        ends = time.monotonic() + 60
        while True:
            try:
                await consumer.commit({TopicPartition(topic, 0): 5})
                break
            except KafkaError:
                assert time.monotonic() < ends
                await asyncio.sleep(0.1)
        assert await consumer.committed(TopicPartition(topic, 0)) == 5


async def test_questions_about_a_topic_that_is_denied(kafka: KafkaCluster, rights: Rights) -> None:
    topic, other = await new_topic(kafka), await new_topic(kafka)
    await rights.give(TOPIC, other, READ)
    tp = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(**as_user(kafka)) as consumer:
        for call in (
            lambda: consumer.beginning_offsets([tp]),
            lambda: consumer.end_offsets([tp]),
            lambda: consumer.offsets_for_times({tp: 0}),
        ):
            async with denied(TopicAuthorizationFailedError, topic):
                await call()
        consumer.assign([tp])
        async with denied(TopicAuthorizationFailedError, topic):
            await consumer.position(tp)
        async with denied(TopicAuthorizationFailedError, topic):
            await consumer.seek_to_end(tp)
            await consumer.position(tp)
        assert topic not in await consumer.topics()
        assert other in await consumer.topics()


# ---------------------------------------------------------------- admin


async def test_what_an_administrator_may_not(kafka: KafkaCluster, rights: Rights) -> None:
    topic = await new_topic(kafka)
    await rights.give(TOPIC, topic, DESCRIBE)
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        created = await admin.create_topics([NewTopic(unique(), 1, 1)])
        assert created.topic_errors[0].error_code == TopicAuthorizationFailedError.errno
        removed = await admin.delete_topics([topic])
        assert removed.topic_errors[0].error_code == TopicAuthorizationFailedError.errno
        (found,) = await admin.describe_configs([ConfigResource("topic", topic)])
        assert found.resources[0].error_code == TopicAuthorizationFailedError.errno
        async with denied(TopicAuthorizationFailedError, topic):
            await admin.create_partitions({topic: 3})
        async with denied(TopicAuthorizationFailedError, topic):
            await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(0)})
        async with denied(GroupAuthorizationFailedError, "my-group"):
            await admin.list_consumer_group_offsets("my-group")
        async with denied(GroupAuthorizationFailedError, "my-group"):
            await admin.describe_consumer_groups(["my-group"])
        assert topic in await admin.list_topics()
