"""Texts and names of errors that programs match, and hints for options that do not exist."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.codec import gzip_decode, gzip_encode, snappy_decode, snappy_encode
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    for_code,
)
from aiokafka.testing import FakeCluster

CLIENTS = [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaClient, AIOKafkaAdminClient]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (0, "NO_ERROR"),
        (2, "CORRUPT_MESSAGE"),
        (4, "INVALID_FETCH_SIZE"),
        (14, "COORDINATOR_LOAD_IN_PROGRESS"),
        (15, "COORDINATOR_NOT_AVAILABLE"),
        (16, "NOT_COORDINATOR"),
        (40, "INVALID_CONFIG"),
        (56, "KAFKA_STORAGE_ERROR"),
        (6, "NOT_LEADER_FOR_PARTITION"),
        (74, "FENCED_LEADER_EPOCH"),
    ],
)
def test_names_of_codes_are_kafkas(code: int, message: str) -> None:
    assert for_code(code).message == message


@pytest.mark.parametrize("cls", CLIENTS)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("bootstrap_server", "bootstrap_servers"),
        ("bootstrap.servers", "bootstrap_servers"),
        ("request_timeout", "request_timeout_ms"),
        ("security.protocol", "security_protocol"),
        ("sasl.username", "sasl_plain_username"),
        ("ssl_cafile", "ssl_context"),
    ],
)
async def test_unknown_options(cls: type[Any], given: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        cls(**{given: 1})
    text = str(caught.value)
    # As Python says it of any function.
    assert text.startswith(
        f"{cls.__name__}.__init__() got an unexpected keyword argument '{given}'"
    )
    assert f"did you mean {meant}" in text


@pytest.mark.parametrize(
    ("cls", "given", "meant"),
    [
        (AIOKafkaProducer, "batch_size", "max_batch_size"),
        (AIOKafkaProducer, "batch.size", "max_batch_size"),
        (AIOKafkaProducer, "retries", "delivery_timeout_ms"),
        (AIOKafkaProducer, "compression", "compression_type"),
        (AIOKafkaConsumer, "group.id", "group_id"),
        (AIOKafkaConsumer, "enable.auto.commit", "enable_auto_commit"),
        (AIOKafkaConsumer, "max.poll.interval.ms", "max_poll_interval_ms"),
    ],
)
async def test_unknown_options_of_a_role(cls: type[Any], given: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"unknown option; did you mean {meant}\?"):
        cls(**{given: 1})


async def test_an_option_like_no_other() -> None:
    with pytest.raises(TypeError, match=r"unknown option$"):
        AIOKafkaProducer(xyzzy=1)


async def test_the_class_of_a_subclass_is_named() -> None:
    class Mine(AIOKafkaProducer):
        pass

    with pytest.raises(TypeError, match=r"^Mine\.__init__"):
        Mine(batch_size=1)


@pytest.mark.parametrize(
    ("cls", "options", "opening"),
    [
        (AIOKafkaClient, {"security_protocol": "X"}, "`security_protocol` should be SSL or PLAIN"),
        (AIOKafkaClient, {"security_protocol": "SSL"}, "`ssl_context` is mandatory if security_"),
        (
            AIOKafkaClient,
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "X"},
            "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`",
        ),
        (AIOKafkaProducer, {"acks": 7}, "Invalid ACKS parameter"),
        (AIOKafkaProducer, {"compression_type": "X"}, "Invalid compression type!"),
        (
            AIOKafkaConsumer,
            {"max_poll_records": 0},
            "`max_poll_records` should be positive Integer",
        ),
    ],
)
async def test_errors_begin_as_programs_match_them(
    cls: type[Any], options: dict[str, Any], opening: str
) -> None:
    with pytest.raises(ValueError) as caught:
        cls(**options)
    assert str(caught.value).startswith(opening)
    # And then say which option it is.
    assert f"{list(options)[-1]}=" in str(caught.value)


def openings_of_consumer_calls() -> list[Any]:
    """Calls of a consumer without a group, that has partition 0 of "t"."""
    tp, other = TopicPartition("t", 0), TopicPartition("t", 7)
    listener: Any = object()
    return [
        (lambda c: c.seek(tp, -1), ValueError, "Offset must be a positive integer"),
        (
            lambda c: c.seek(other, 1),
            IllegalStateError,
            f"No current assignment for partition {other}",
        ),
        (
            lambda c: c.pause(other),
            IllegalStateError,
            f"No current assignment for partition {other}",
        ),
        (lambda c: c.pause("t"), TypeError, "partitions must be TopicPartition namedtuples"),
        (lambda c: c.resume("t"), TypeError, "partitions must be TopicPartition namedtuples"),
        (lambda c: c.position(other), IllegalStateError, f"Partition {other} is not assigned"),
        (
            lambda c: c.seek_to_beginning("t"),
            TypeError,
            "partitions must be TopicPartition instances",
        ),
        (
            lambda c: c.seek_to_beginning(other),
            IllegalStateError,
            f"Partitions {{{other}}} are not assigned",
        ),
        (
            lambda c: c.seek_to_end(other),
            IllegalStateError,
            f"Partitions {{{other}}} are not assigned",
        ),
        (lambda c: c.seek_to_end("t"), TypeError, "partitions must be TopicPartition instances"),
        (lambda c: c.highwater(other), AssertionError, "Partition is not assigned"),
        (lambda c: c.commit(), IllegalOperation, "Requires group_id"),
        (lambda c: c.committed(tp), IllegalOperation, "Requires group_id"),
        (
            lambda c: c.offsets_for_times({tp: -1}),
            ValueError,
            f"The target time for partition {tp} is -1.",
        ),
        (
            lambda c: c.getmany(max_records=0),
            ValueError,
            "`max_records` must be a positive Integer",
        ),
        (lambda c: c.subscribe(), TypeError, "You should provide either `topics` or `pattern`"),
        (
            lambda c: c.subscribe(pattern=""),
            TypeError,
            "You should provide either `topics` or `pattern`",
        ),
        (
            lambda c: c.subscribe(["t"], pattern="t"),
            TypeError,
            "You can't provide both `topics` and `pattern`",
        ),
        (lambda c: c.subscribe("t"), TypeError, "Topics should be list of strings"),
        (lambda c: c.subscribe([1]), TypeError, "Topics should be list of strings"),
        (lambda _: AIOKafkaConsumer(["t", "u"]), TypeError, "unhashable type: 'list'"),  # type: ignore[arg-type]
        (lambda c: c.subscribe(pattern="("), ValueError, "'(' is not a valid pattern: "),
        (
            lambda c: c.subscribe(["t"], listener=listener),
            TypeError,
            "listener should be an instance of ConsumerRebalanceListener",
        ),
        (
            lambda c: c.subscribe(["t"]),
            IllegalStateError,
            "Subscription to topics, partitions and pattern are mutually exclusive",
        ),
    ]


async def outcome(call: Any, client: Any) -> tuple[type[BaseException], str]:
    try:
        found = call(client)
        if inspect.isawaitable(found):
            await found
    except Exception as error:
        # What KafkaError puts before the text is its own.
        return type(error), str(error).removeprefix(f"{type(error).__name__}: ")
    raise AssertionError("the call did not fail")


async def test_errors_of_a_consumers_calls_begin_as_programs_match_them() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for call, kind, opening in openings_of_consumer_calls():
                found, text = await outcome(call, consumer)
                assert issubclass(found, kind), text
                assert text.startswith(opening)


async def test_errors_of_commits_begin_as_programs_match_them() -> None:
    tp = TopicPartition("t", 0)
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        servers = {"bootstrap_servers": cluster.bootstrap_servers}
        async with AIOKafkaConsumer(group_id="g", **servers) as consumer:
            for offsets, kind, opening in (
                ({}, IllegalStateError, "Not subscribed to any topics"),
                ({"t": 1}, TypeError, "Key should be TopicPartition instance"),
                ({tp: (1, 2)}, TypeError, "Metadata should be a string"),
                ({TopicPartition("t", 7): 1}, IllegalStateError, "Partition TopicPartition("),
            ):
                found, text = await outcome(lambda c, given=offsets: c.commit(given), consumer)
                assert issubclass(found, kind), text
                assert text.startswith(opening)
                consumer.assign([tp])


async def test_errors_of_a_producers_calls_begin_as_programs_match_them() -> None:
    tp = TopicPartition("t", 0)
    not_in = "Can't send messages while not in transaction"
    plain: list[Any] = [
        (lambda p: p.send("t"), AssertionError, "Need at least one: key or value"),
        (lambda p: p.send("t", b"v", partition=7), AssertionError, "Unrecognized partition"),
        (lambda p: p.send("t", b"x" * 2**21), MessageSizeTooLargeError, "The message is 20"),
        (lambda p: p.begin_transaction(), IllegalOperation, "You need to configure transaction_id"),
    ]
    offsets = {tp: 1}
    closed: list[Any] = [
        (lambda p: p.send("t", b"v"), IllegalOperation, not_in),
        (lambda p: p.send_batch(p.create_batch(), "t", partition=0), IllegalOperation, not_in),
        (
            lambda p: p.send_offsets_to_transaction(offsets, "g"),
            IllegalOperation,
            "Not in the middle of a transaction",
        ),
    ]
    is_open: list[Any] = [
        (
            lambda p: p.send_offsets_to_transaction({"t": 1}, "g"),
            TypeError,
            "Key should be TopicPartition instance",
        ),
        (
            lambda p: p.send_offsets_to_transaction({tp: (1, 2)}, "g"),
            TypeError,
            "Metadata should be a string",
        ),
    ]
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        servers = {"bootstrap_servers": cluster.bootstrap_servers}
        async with AIOKafkaProducer(**servers) as producer:
            await check_openings(plain, producer)
        async with AIOKafkaProducer(transactional_id="id", **servers) as producer:
            await check_openings(closed, producer)
            async with producer.transaction():
                await check_openings(is_open, producer)


async def check_openings(calls: list[Any], client: Any) -> None:
    for call, kind, opening in calls:
        found, text = await outcome(call, client)
        text = re.sub(r"^\[Error \d+\] \w+: ", "", text)
        assert issubclass(found, kind), text
        assert text.startswith(opening)


async def test_what_health_checks_look_for_when_there_is_no_broker() -> None:
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1", request_timeout_ms=1000)
    with pytest.raises(KafkaConnectionError, match=r"Unable to bootstrap from 127\.0\.0\.1:1"):
        await producer.start()
    await producer.stop()


# -- codecs


def test_snappy_without_framing() -> None:
    data = b"a" * 1000 + b"b" * 1000
    framed = snappy_encode(data)
    assert framed.startswith(b"\x82SNAPPY\0")
    assert snappy_decode(framed) == data
    small = snappy_encode(data, xerial_compatible=True, xerial_blocksize=100)
    assert len(small) > len(framed)
    assert snappy_decode(small) == data
    bare = snappy_encode(data, xerial_compatible=False)
    assert len(bare) < len(framed)
    assert not bare.startswith(b"\x82SNAPPY")
    assert snappy_decode(bare) == data
    with pytest.raises(ValueError, match="xerial_blocksize"):
        snappy_encode(data, xerial_blocksize=0)


def test_levels() -> None:
    data = bytes(range(256)) * 100
    assert len(gzip_encode(data, compresslevel=9)) <= len(gzip_encode(data, 1))
    assert gzip_decode(gzip_encode(data)) == data


async def test_warnings_begin_as_programs_have_filters_for_them() -> None:
    loop = asyncio.get_running_loop()
    with pytest.warns(
        DeprecationWarning, match=r"^The loop argument is deprecated since 0\.7\.1, "
    ):
        AIOKafkaConsumer(loop=loop)
    opening = r"^The `loop` parameter has been deprecated since 0\.7\.1 and will be removed"
    with pytest.warns(DeprecationWarning, match=opening):
        AIOKafkaProducer(loop=loop)
    for cls in (AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient):
        opening = (
            r"^The `api_version` parameter has been deprecated since 0\.13\.0\. It is now a no-op"
        )
        with pytest.warns(DeprecationWarning, match=opening):
            cls(api_version="2.4.1")
