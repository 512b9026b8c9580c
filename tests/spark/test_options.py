"""Options of queries: names, defaults, and errors that name what is wrong."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from aiokafka.spark._options import (
    READ_OPTIONS,
    WRITE_OPTIONS,
    Bound,
    ReadOptions,
    WriteOptions,
    parse_duration,
    parse_read,
    parse_write,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**options: Any) -> ReadOptions:
    return parse_read({**SERVERS, "subscribe": "t", **options}, streaming=False)


def stream(**options: Any) -> ReadOptions:
    return parse_read({**SERVERS, "subscribe": "t", **options}, streaming=True)


def write(streaming: bool = False, **options: Any) -> WriteOptions:
    return parse_write({**SERVERS, "topic": "t", **options}, streaming=streaming)


def test_defaults_of_reading_are_those_of_the_connector() -> None:
    options = batch()
    assert options.starting == Bound(word="earliest")
    assert stream().starting == Bound(word="latest")
    assert options.ending == Bound(word="latest")
    assert options.fail_on_data_loss and not options.no_match_is_latest
    assert (options.poll_timeout, options.retries, options.retry_interval) == (120, 3, 1)
    assert (options.max_offsets, options.min_offsets, options.max_delay) == (None, None, 900)
    assert (options.min_partitions, options.max_partitions, options.max_records) == (None,) * 3
    assert not options.include_headers and not options.commit_offsets and not options.pushdown
    assert (options.batch_rows, options.idle_timeout, options.latest_interval) == (16384, 300, 0.1)
    assert not options.read_committed


def test_names_come_in_any_case() -> None:
    lower = stream(startingoffsets="EARLIEST", maxoffsetspertrigger="7", includeheaders="True")
    assert lower.starting.word == "earliest"
    assert lower.max_offsets == 7
    assert lower.include_headers


@pytest.mark.parametrize("time", ["Timestamp", "OffsetsByTimestamp"])
def test_a_time_goes_before_offsets_that_have_no_meaning(time: str) -> None:
    """As in Spark's own source: jobs add a time to the options that they have."""
    when = "5" if time == "Timestamp" else '{"t": {"0": 5}}'
    for offsets in ("latest", '{"t": {"0": -1}}', "committed"):
        assert batch(startingOffsets=offsets, **{f"starting{time}": when}).starting.is_by_time
    for offsets in ("earliest", '{"t": {"0": -2}}'):
        assert batch(endingOffsets=offsets, **{f"ending{time}": when}).ending.is_by_time


@pytest.mark.parametrize(
    "name",
    [
        "startingOffsets",
        "endingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "endingTimestamp",
    ],
)
def test_numbers_that_no_broker_has(name: str) -> None:
    """What does not fit into int64 was found out by an error of a request, or read nothing."""
    text = str(2**63) if name.endswith("gTimestamp") else '{"t": {"0": 9223372036854775808}}'
    with pytest.raises(ValueError, match=f"^{name}.*(is not an offset|milliseconds since 1970)"):
        batch(**{name: text})


def test_options_that_do_not_exist() -> None:
    with pytest.raises(
        ValueError,
        match=r"batch query: maxoffsetpertrigger, zzz; is it maxOffsetsPerTrigger\?$",
    ):
        batch(maxOffsetPerTrigger="5", zzz="1")
    with pytest.raises(ValueError, match=r"unknown option for a batch write: zzz$"):
        write(zzz="1")
    with pytest.raises(ValueError, match=r"group\.id; is it kafka\.group\.id\?$"):
        batch(**{"group.id": "g"})
    hint = r"kafka\.linger: .* did you mean kafka\.linger\.ms\?; known: "
    with pytest.raises(ValueError, match=hint):
        write(**{"kafka.linger": "5"})


def test_offsets_by_partition() -> None:
    options = batch(startingOffsets='{"t": {"0": 23, "1": -2}}', endingOffsets='{"t":{"0":-1}}')
    assert options.starting.offsets == {"t": {0: 23, 1: -2}}
    assert options.ending.offsets == {"t": {0: -1}}


def test_what_is_subscribed_to() -> None:
    assert batch(subscribe=" b , a,,a").subscription.topics == ["a", "b"]
    given = {**SERVERS, "assign": '{"t": [1, 0, 1]}'}
    assert parse_read(given, streaming=False).subscription.assign == {"t": [0, 1]}
    for pattern in ("t.*", " t.*\n"):
        given = {**SERVERS, "subscribePattern": pattern}
        assert parse_read(given, streaming=False).subscription.pattern == "t.*"
    assert write(topic=" t ").topic == "t"


def test_settings_of_the_client() -> None:
    options = batch(
        **{
            "kafka.request.timeout.ms": "5000",
            "kafka.isolation.level": "read_committed",
            "kafka.group.id": "g",
            "kafka.sasl.username": "me",
        }
    )
    assert options.kafka.client == {
        "bootstrap_servers": "localhost:9092",
        "request_timeout_ms": 5000,
        "sasl_plain_username": "me",
    }
    assert options.read_committed
    assert options.group_id == "g"


def test_blanks_around_settings_do_not_count_in_java() -> None:
    options = batch(
        **{
            "kafka.isolation.level": "read_committed ",
            "kafka.sasl.mechanism": "PLAIN\n",
            "kafka.sasl.password": "se cret\n",
        }
    )
    assert options.read_committed
    assert options.kafka.client["sasl_mechanism"] == "PLAIN"
    assert options.kafka.client["sasl_plain_password"] == "se cret"


TUNING = {
    "kafka.default.api.timeout.ms": "60000",
    "kafka.max.poll.records": "10000",
    "kafka.auto.commit.interval.ms": "5000",
    "kafka.group.protocol": "classic",
    "kafka.security.providers": "x",
    "kafka.ssl.protocol": "TLSv1.3",
    "kafka.ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
    "kafka.ssl.truststore.password": "changeit",
    "kafka.ssl.keystore.password": "changeit",
    "kafka.sasl.login.refresh.window.factor": "0.8",
    "kafka.sasl.kerberos.ticket.renew.jitter": "0.05",
    "kafka.metadata.recovery.rebootstrap.trigger.ms": "300000",
    "kafka.compression.zstd.level": "3",
    "kafka.partitioner.ignore.keys": "false",
    "kafka.partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner",
}


def test_a_job_that_tunes_the_client_of_java_still_runs(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once in a process, though Spark asks many times."""
    for _ in range(3):
        batch(**TUNING)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == f"these options have no effect here: {', '.join(TUNING)}"


def test_levels_of_compression() -> None:
    levels = {"kafka.compression.zstd.level": "7", "kafka.compression.gzip.level": "2"}
    options = write(**levels, **{"kafka.compression.type": "zstd"})
    assert options.kafka.role == {"compression_type": "zstd", "compression_level": 7}
    assert write(**levels).kafka.role == {}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner", "column"),
        ("partitioner.ignore.keys", "true", "the key of a row determines its partition"),
        ("compression.zstd.level", "best", "must be a number"),
        ("config.providers", "file", "settings are taken as they are"),
        ("ssl.engine.factory.class", "x.Y", "cannot be run here"),
    ],
)
def test_settings_that_cannot_be_served(name: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"kafka.{name}.*{message}"):
        write(**{f"kafka.{name}": value})


def test_secrets_are_not_shown_and_do_travel() -> None:
    options = write(**{"kafka.sasl.password": "hush", "kafka.ssl.key.password": "hush2"})
    assert "hush" not in repr(options)
    copy = pickle.loads(pickle.dumps(options))
    assert copy.kafka.key() == options.kafka.key()
    assert copy.kafka.client["sasl_plain_password"] == "hush"


READ_ERRORS = [
    ({"subscribe": None}, "exactly one of assign, subscribe, subscribePattern"),
    ({"assign": '{"t": [0]}'}, "assign and subscribe"),
    ({"subscribe": " , "}, "subscribe="),
    ({"subscribe": None, "assign": "t"}, "assign='t'"),
    ({"subscribe": None, "assign": '{"t": ["0"]}'}, "assign="),
    ({"subscribe": None, "subscribePattern": "("}, "subscribePattern="),
    ({"subscribe": None, "subscribePattern": " "}, "subscribePattern: must not be empty"),
    ({"startingOffsets": "soon"}, "startingOffsets='soon'"),
    ({"startingOffsets": '{"t": 1}'}, "startingOffsets="),
    ({"startingOffsets": '{"t": {"0": true}}'}, "startingOffsets="),
    ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: -3"),
    ({"startingOffsets": "latest"}, "startingOffsets=latest"),
    ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets: -1"),
    ({"startingOffsets": "committed"}, "needs kafka.group.id"),
    ({"endingOffsets": "earliest"}, "endingOffsets='earliest'"),
    ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets: -2"),
    (
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
        "startingOffsets: 5 of t-0 comes after endingOffsets, 4",
    ),
    (
        {
            "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
            "endingOffsetsByTimestamp": '{"t": {"0": 4}}',
        },
        "startingOffsetsByTimestamp: 5 of t-0 comes after endingOffsetsByTimestamp, 4",
    ),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday'"),
    ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "startingOffsetsByTimestamp"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "startingOffsetsByTimestampStrategy='x'"),
    ({"startingOffsets": ""}, "startingOffsets='': must be earliest"),
    ({"endingOffsets": " "}, "endingOffsets='': must be latest"),
    ({"startingOffsets": '{"t": {"0": 1, "0": 2}}'}, "0 is given more than once"),
    ({"endingOffsets": '{"t": {"0": 1}, "t": {"1": 2}}'}, "t is given more than once"),
    ({"subscribe": None, "assign": '{"t": [0], "t": [1]}'}, "t is given more than once"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss='maybe'"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0'"),
    ({"maxTriggerDelay": "1 fortnight"}, "maxTriggerDelay='1 fortnight'"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger=9"),
    ({"minPartitions": "9", "maxPartitions": "8"}, "minPartitions=9"),
    ({"commitOffsets": "true"}, "commitOffsets: needs kafka.group.id"),
    ({"commitOffsets": "true", "kafka.group.id": "g"}, "commitOffsets: has no meaning"),
    ({"maxPartition": "8"}, "unknown option for a batch query: maxpartition"),
    ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers"),
    ({"kafka.fetch.max.byte": "1"}, "kafka.fetch.max.byte: unknown"),
    ({"kafka.fetch.max.bytes": "many"}, "kafka.fetch.max.bytes='many'"),
    ({"kafka.check.crcs": "1"}, "kafka.check.crcs='1'"),
    ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level='serializable'"),
    ({"kafka.auto.offset.reset": "x"}, "kafka.auto.offset.reset: not supported"),
    ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer: not supported"),
    ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer: not supported"),
    ({"kafka.key.serializer": "x"}, "kafka.key.serializer: not supported"),
    ({"kafka.value.serializer": "x"}, "kafka.value.serializer: not supported"),
    ({"kafka.enable.auto.commit": "x"}, "kafka.enable.auto.commit: not supported"),
    ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes: not supported"),
    ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config: must be as in Java"),
    ({"kafka.ssl.truststore.location": "a.jks"}, "only PEM"),
    ({"kafka.sasl.oauth.token.provider": "x"}, "package.module:function"),
]


@pytest.mark.parametrize(("given", "message"), READ_ERRORS, ids=lambda value: str(value)[:60])
def test_wrong_options_of_a_batch_query(given: dict[str, str | None], message: str) -> None:
    options = {**SERVERS, "subscribe": "t", **given}
    with pytest.raises(ValueError) as caught:
        parse_read({k: v for k, v in options.items() if v is not None}, streaming=False)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets: has no meaning for a streaming query"),
        ({"endingTimestamp": "1"}, "endingTimestamp: has no meaning"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "endingOffsetsByTimestamp: has no"),
        ({"pushdown": "true"}, "pushdown: has no meaning"),
    ],
)
def test_wrong_options_of_a_stream(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        stream(**given)
    assert message in str(caught.value)


def test_offsets_have_to_be_of_what_is_assigned() -> None:
    given = {**SERVERS, "assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"0": 1}}'}
    with pytest.raises(ValueError, match="startingOffsets: must name exactly"):
        parse_read(given, streaming=True)


def test_defaults_of_writing() -> None:
    options = write()
    assert options.topic == "t"
    assert not options.exactly_once and not options.add_batch_headers
    assert options.transactional_id_prefix == "aiokafka-spark"


def test_exactly_once() -> None:
    assert write(streaming=True, deliveryGuarantee="exactly-once").exactly_once
    options = write(txnAppId="app", txnVersion="7")
    assert options.exactly_once
    assert (options.app_id, options.version) == ("app", 7)


@pytest.mark.parametrize(
    ("streaming", "given", "message"),
    [
        (False, {"deliveryGuarantee": "exactly-once"}, "needs txnAppId and txnVersion"),
        (False, {"txnAppId": "a"}, "txnAppId and txnVersion"),
        (False, {"txnVersion": "1"}, "txnAppId and txnVersion"),
        (True, {"txnAppId": "a", "txnVersion": "1"}, "txnAppId: is for batch writes"),
        (
            False,
            {"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "at-least-once"},
            "contradicts txnAppId",
        ),
        (True, {"deliveryGuarantee": "most"}, "deliveryGuarantee='most'"),
        (True, {"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, "kafka.acks"),
        (
            True,
            {"deliveryGuarantee": "exactly-once", "kafka.enable.idempotence": "false"},
            "kafka.enable.idempotence",
        ),
        (True, {"transactionalIdPrefix": "x"}, "transactionalIdPrefix: needs"),
        (True, {"topic": " "}, "topic: must not be empty"),
        (True, {"kafka.transactional.id": "x"}, "kafka.transactional.id: not supported"),
        (True, {"kafka.value.serializer": "x"}, "kafka.value.serializer: not supported"),
        (False, {"mergeSchema": "true"}, "unknown option for a batch write: mergeschema"),
    ],
    ids=str,
)
def test_wrong_options_of_writing(streaming: bool, given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        write(streaming, **given)
    assert message in str(caught.value)


def test_a_topic_for_the_marker_is_needed() -> None:
    with pytest.raises(ValueError, match="markerTopic: must be given"):
        parse_write({**SERVERS, "deliveryGuarantee": "exactly-once"}, streaming=True)


def test_what_spark_adds_is_not_ours_to_refuse() -> None:
    assert write(streaming=True, checkpointlocation="/tmp/x", queryname="q").topic == "t"


def test_every_option_is_known_on_its_side(caplog: pytest.LogCaptureFixture) -> None:
    """What the guide lists and what is parsed are the same names. Those of the other side do no
    harm: jobs have one set of options for reading and writing."""
    to_read, to_write = (
        set(READ_OPTIONS) - set(WRITE_OPTIONS),
        set(WRITE_OPTIONS) - set(READ_OPTIONS),
    )
    for name in to_read:
        write(streaming=True, **{name: "true"})
    for name in to_write:
        stream(**{name: "true"})
    told = [record.getMessage() for record in caplog.records]
    assert sorted(told) == sorted(
        [f"these options have no effect: {name} (this is a streaming write)" for name in to_read]
        + [f"these options have no effect: {name} (this is a streaming query)" for name in to_write]
    )
    stream(topic="true")
    assert len(caplog.records) == len(told)


def test_options_without_effect_are_told(caplog: pytest.LogCaptureFixture) -> None:
    given = {**SERVERS, "subscribe": "t", "groupIdPrefix": "p"}
    parse_read(given, streaming=True)
    assert caplog.text == ""
    parse_read({**given, "kafka.group.id": "g"}, streaming=True)
    assert "groupIdPrefix has no effect: kafka.group.id is given" in caplog.text
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        caplog.clear()
        parse_read({**SERVERS, "subscribe": "t", name: "9"}, streaming=False)
        assert "have no effect in a batch query" in caplog.text


@pytest.mark.parametrize(
    ("given", "is_so"),
    [
        ({}, False),
        ({"startingOffsets": "earliest"}, True),
        ({"startingOffsets": '{"t": {"0": 3}}'}, True),
        ({"startingOffsets": '{"t": {"0": -2, "1": -1}}'}, False),
        ({"startingTimestamp": "5"}, True),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}, True),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, False),
        ({"startingOffsets": "committed", "kafka.group.id": "g"}, False),
    ],
    ids=str,
)
def test_what_begins_at_the_same_records_again(given: dict[str, str], is_so: bool) -> None:
    assert stream(**given).has_fixed_start is is_so


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500", 0.5), ("500ms", 0.5), ("30s", 30), ("15m", 900), ("15min", 900), ("1h", 3600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
