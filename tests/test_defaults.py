"""Defaults of the process: in code and in a file, precedence, sources, refusals."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import aiokafka
from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaShareConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConfigurationError
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
from aiokafka.testing import FakeCluster
from tests.testing.certificates import make_contexts

HERE = re.escape(Path(__file__).name)


@pytest.fixture
def scope() -> Iterator[ExitStack]:
    """Defaults that are entered here end with the test."""
    with ExitStack() as stack:
        yield stack


class DefaultsFile:
    """The file of defaults, which the environment variable names."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def write(self, text: str) -> None:
        self.path.write_text(text)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DefaultsFile:
    path = tmp_path / "kafka.properties"
    monkeypatch.setenv("AIOKAFKA_DEFAULTS", str(path))
    return DefaultsFile(path)


def option(client: Any, name: str) -> Any:
    """The value of an option, as the constructor got it; the attribute is that of 0.14."""
    return getattr(client, f"_{name}")


# -- precedence


async def test_defaults_apply_to_clients_that_have_the_option(scope: ExitStack) -> None:
    scope.enter_context(
        aiokafka.defaults(
            client_rack="a",
            producer={"linger_ms": 5},
            consumer={"group_protocol": "consumer"},
            admin={"request_timeout_ms": 7000},
        )
    )
    producer, consumer = AIOKafkaProducer(), AIOKafkaConsumer()
    assert option(producer, "linger_ms") == 5
    assert option(consumer, "group_protocol") == "consumer"
    assert option(consumer, "client_rack") == option(producer.client, "client_rack") == "a"
    assert option(producer.client, "request_timeout_ms") == 40_000
    assert option(AIOKafkaClient(), "client_rack") == "a"
    assert "7000" in repr(AIOKafkaAdminClient().__dict__["_config"].as_given("request_timeout_ms"))


async def test_share_consumers_have_defaults_as_well(file: DefaultsFile) -> None:
    file.write("group.id=g\nshare.share.acknowledgement.mode=explicit\n")
    consumer = AIOKafkaShareConsumer()
    assert len(consumer.health().defaults) == 2
    assert [text for text in consumer.health().defaults if "'explicit'" in text]


async def test_an_explicit_argument_wins_even_if_it_equals_the_default(scope: ExitStack) -> None:
    scope.enter_context(aiokafka.defaults(producer={"linger_ms": 5, "acks": 1}))
    producer = AIOKafkaProducer(linger_ms=0)
    assert option(producer, "linger_ms") == 0
    assert producer.health().defaults == (
        *[text for text in producer.health().defaults if text.startswith("acks=1 by ")],
    )


async def test_an_override_wins_over_explicit_arguments(scope: ExitStack) -> None:
    scope.enter_context(aiokafka.defaults(producer={"enable_idempotence": False}))
    scope.enter_context(aiokafka.defaults(override=True, producer={"enable_idempotence": True}))
    scope.enter_context(aiokafka.defaults(producer={"enable_idempotence": False}))
    producer = AIOKafkaProducer(enable_idempotence=False)
    (text,) = producer.health().defaults
    assert re.fullmatch(
        rf"enable_idempotence=True by aiokafka\.defaults\(\) at {HERE}:\d+ instead of False", text
    )


async def test_the_last_defaults_win_and_end_with_their_block(file: DefaultsFile) -> None:
    file.write("linger.ms=1\n")

    def linger() -> Any:
        return option(AIOKafkaProducer(), "linger_ms")

    assert linger() == 1
    with aiokafka.defaults(producer={"linger_ms": 2}) as outer:
        with aiokafka.defaults(producer={"linger_ms": 3}):
            assert linger() == 3
            outer.end()
            assert linger() == 3
        assert linger() == 1
    file.write("linger.ms=9\n")
    assert linger() == 1, "the file is read once"


async def test_defaults_reach_other_threads_and_tasks(scope: ExitStack) -> None:
    scope.enter_context(aiokafka.defaults(producer={"linger_ms": 5}))

    async def make() -> Any:
        return option(AIOKafkaProducer(), "linger_ms")

    assert await asyncio.to_thread(lambda: asyncio.run(make())) == 5


async def test_bootstrap_controllers_exclude_a_default_of_bootstrap_servers(
    scope: ExitStack,
) -> None:
    scope.enter_context(aiokafka.defaults(bootstrap_servers="a:1"))
    admin = AIOKafkaAdminClient(bootstrap_controllers="b:2")
    assert admin.__dict__["_config"].bootstrap_servers == (("b", 2),)


# -- sources


async def test_health_and_log_name_the_sources(
    scope: ExitStack, file: DefaultsFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafka")
    file.write("consumer.group.protocol=consumer\nretry.backoff.ms=50\n")
    collectors = ProducerMetricsCollector(), ConsumerMetricsCollector()
    async with FakeCluster() as cluster:
        scope.enter_context(
            aiokafka.defaults(
                bootstrap_servers=cluster.bootstrap_servers,
                producer={"metrics_collector": collectors[0]},
                consumer={"metrics_collector": collectors[1]},
            )
        )
        await cluster.create_topic("t")
        async with AIOKafkaProducer(client_id="p") as producer:
            await producer.send_and_wait("t", b"1")
            assert len(producer.health().defaults) == 3
        async with AIOKafkaConsumer("t", group_id="g", client_id="c") as consumer:
            texts = consumer.health().defaults
            assert f"group_protocol='consumer' by AIOKAFKA_DEFAULTS={file}" in texts
            assert consumer.health().as_dict()["defaults"] == list(texts)
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=50)
    assert f"c: group_protocol='consumer' by AIOKAFKA_DEFAULTS={file}" in caplog.messages
    assert any(line.startswith("p: bootstrap_servers=") for line in caplog.messages)


async def test_secrets_are_not_shown(scope: ExitStack) -> None:
    scope.enter_context(
        aiokafka.defaults(
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="alice",
            sasl_plain_password="pa55word",
        )
    )
    texts = AIOKafkaProducer().health().defaults
    assert len(texts) == 3 and "pa55word" not in str(texts) and "=***" in str(texts)


# -- refusals


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"linger_ms": 5}, "unknown option 'linger_ms'; it is an option of producer"),
        ({"client_idd": "x"}, r"unknown option 'client_idd'; did you mean client_id\?"),
        ({"producer": {"batch_size": 1}}, "unknown option 'batch_size'; did you mean max_batch_si"),
        ({"client_rack": 5}, "client_rack=5: must be a string"),
        ({"consumer": {"max_poll_records": "x"}}, ".*max_poll_records='x': must be an int"),
        ({"producer": {"key_serializer": str.encode}}, "key_serializer cannot have a default"),
    ],
)
def test_wrong_defaults_are_refused_at_once(given: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"aiokafka\.defaults\(.*\): " + text):
        aiokafka.defaults(**given)


async def test_a_contradiction_names_the_sources(scope: ExitStack) -> None:
    scope.enter_context(aiokafka.defaults(override=True, producer={"enable_idempotence": True}))
    text = rf"acks=1 not supported .* \(from defaults: enable_idempotence=True by .*{HERE}"
    with pytest.raises(ValueError, match=text):
        AIOKafkaProducer(acks=1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("linger.mss=5", r"linger.mss: unknown option; did you mean linger_ms\?"),
        ("consumer.linger.ms=5", "consumer.linger.ms: unknown option"),
        ("linger.ms=soon", "linger.ms='soon': must be a number of milliseconds"),
        ("enable.idempotence=yes", "enable.idempotence='yes': must be True or False"),
        ("producer.partitioner=x", "producer.partitioner='x': must be a function"),
        ("group.protocol=new", "group.protocol='new': must be one of"),
        ("a=\\u12", "a: .u needs four hexadecimal digits"),
        ("sasl.jaas.config=x", "must be as in Java"),
        ("ssl.truststore.location=/x.jks", "only stores of type PEM"),
        ("ssl.ca.location=/nowhere.pem", r"No such file .*/nowhere\.pem"),
    ],
)
async def test_a_wrong_file_is_refused(file: DefaultsFile, line: str, text: str) -> None:
    file.write(f"client.id=x\n{line}\n")
    for make in (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient, AIOKafkaClient):
        with pytest.raises(
            KafkaConfigurationError, match=rf"AIOKAFKA_DEFAULTS={re.escape(str(file))}: .*{text}"
        ):
            make()


async def test_a_file_that_is_not_there(file: DefaultsFile) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"AIOKAFKA_DEFAULTS=.*: No such file"):
        AIOKafkaProducer()


# -- the file


async def test_values_of_every_kind(file: DefaultsFile) -> None:
    file.write(
        "bootstrap.servers = a:1,b:2\nclient_rack=7\nacks=1\nlinger.ms=3\n"
        "enable.auto.commit=false\nisolation.level=read_committed\nmax.poll.records=none\n"
        "producer.override.compression.type=gzip\nconnections.max.idle.ms=none\n"
        "auto.offset.reset=by_duration:PT1H\n"
    )
    producer = AIOKafkaProducer(compression_type=None)
    assert option(producer, "acks") == 1
    assert option(producer, "linger_ms") == 3
    assert option(producer, "compression_type") == "gzip"
    assert option(producer.client, "client_rack") == "7"
    assert producer.client.config.bootstrap_servers == (("a", 1), ("b", 2))
    assert producer.client.config.connections_max_idle is None
    consumer = AIOKafkaConsumer()
    assert option(consumer, "enable_auto_commit") is False
    assert option(consumer, "isolation_level") == "read_committed"
    assert option(consumer, "max_poll_records") is None
    assert option(consumer, "auto_offset_reset") == "by_duration:PT1H"


async def test_security_as_in_java(file: DefaultsFile, tmp_path: Path) -> None:
    server, _ = make_contexts(tmp_path)
    file.write(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="
        f"{tmp_path / 'server.pem'}\nssl.endpoint.identification.algorithm=\n"
    )
    async with FakeCluster(ssl_context=server) as cluster:
        async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert await admin.list_topics() == []
    plain = AIOKafkaProducer(security_protocol="PLAINTEXT")
    assert not [text for text in plain.health().defaults if "ssl_context" in text]


async def test_a_login_as_in_java(file: DefaultsFile) -> None:
    file.write(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="pa55word";\n'
    )
    client = AIOKafkaClient()
    assert option(client, "sasl_plain_username") == "alice"
    assert option(client, "sasl_plain_password") == "pa55word"
    assert option(client, "sasl_mechanism") == "SCRAM-SHA-512"
    assert option(client, "ssl_context") is not None
