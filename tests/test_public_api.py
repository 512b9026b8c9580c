"""Names and signatures of aiokafka 0.14 that programs call: all are here, with the same meaning."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aiokafka
from aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.helpers import create_ssl_context
from aiokafka.producer import AIOKafkaProducer
from aiokafka.structs import (
    BrokerMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionMetadata,
    RecordMetadata,
    TopicPartition,
)
from tests.support.signatures import METHODS

ANY = object()
"""Stands for a default that differs on purpose; the migration page says so."""

SECURITY = {
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
}
CLIENT = {
    "loop": None,
    "bootstrap_servers": "localhost",
    "metadata_max_age_ms": 300_000,
    "request_timeout_ms": 40_000,
    "retry_backoff_ms": 100,
    "connections_max_idle_ms": 540_000,
    "api_version": None,
    **SECURITY,
}
PRODUCER = {
    **CLIENT,
    "client_id": None,
    "acks": ANY,
    "key_serializer": None,
    "value_serializer": None,
    "compression_type": None,
    "max_batch_size": 16_384,
    "partitioner": ANY,
    "max_request_size": 1_048_576,
    "linger_ms": 0,
    "enable_idempotence": ANY,
    "transactional_id": None,
    "transaction_timeout_ms": 60_000,
    "send_backoff_ms": ANY,
}
CONSUMER = {
    **CLIENT,
    "client_id": ANY,
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "fetch_max_wait_ms": 500,
    "fetch_max_bytes": 52_428_800,
    "fetch_min_bytes": 1,
    "max_partition_fetch_bytes": 1_048_576,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "check_crcs": True,
    "partition_assignment_strategy": ANY,
    "max_poll_interval_ms": 300_000,
    "rebalance_timeout_ms": None,
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 3_000,
    "consumer_timeout_ms": 200,
    "max_poll_records": None,
    "exclude_internal_topics": True,
    "isolation_level": "read_uncommitted",
    "client_rack": None,
}
ADMIN = {**CLIENT, "client_id": ANY}


def default_of(parameter: inspect.Parameter) -> Any:
    return parameter.default


@pytest.mark.parametrize(
    ("cls", "expected"),
    [(AIOKafkaProducer, PRODUCER), (AIOKafkaConsumer, CONSUMER), (AIOKafkaAdminClient, ADMIN)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_constructor_keywords(cls: type[Any], expected: dict[str, Any]) -> None:
    parameters = inspect.signature(cls).parameters
    assert expected.keys() <= parameters.keys()
    for name, default in expected.items():
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY, name
        if default is not ANY:
            assert parameters[name].default == default, name


def test_the_migration_page_names_each_new_option() -> None:
    former = PRODUCER.keys() | CONSUMER.keys()
    options = {
        name
        for cls in (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient)
        for name, each in inspect.signature(cls).parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    page = (Path(__file__).parent.parent / "docs" / "migration.rst").read_text()
    section = page.partition("\nNew arguments\n")[2].partition("\nNew calls\n")[0]
    assert options - former <= set(re.findall(r"`([a-z_]+)`", section))


@pytest.mark.parametrize(
    ("cls", "name"), [(cls, name) for cls, methods in METHODS.items() for name in methods]
)
def test_method(cls: type[Any], name: str) -> None:
    kind, written = METHODS[cls][name]
    method = getattr(cls, name)
    assert inspect.iscoroutinefunction(method) == (kind == "async")
    parameters = list(inspect.signature(method).parameters.values())[1:]
    if name == "__aexit__":
        return
    check_parameters(written.split(), parameters)


def check_parameters(written: list[str], parameters: list[inspect.Parameter]) -> None:
    """Compare with what is expected; more parameters may follow if they have defaults."""
    named = {parameter.name: parameter for parameter in parameters}
    position, keyword_only = 0, False
    for word in written:
        if word == "*":
            keyword_only = True
            continue
        name = word.strip("*=")
        found = named.pop(name) if name in named else parameters[position]
        named.pop(found.name, None)
        if word.startswith("*"):
            assert found.kind is inspect.Parameter.VAR_POSITIONAL
            keyword_only = True
            continue
        if not keyword_only:
            assert parameters[position] is found, f"{name} is not number {position}"
        else:
            assert found.name == name
        assert (found.default is not inspect.Parameter.empty) == word.endswith("="), name
        position += 1
    for extra in named.values():
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        assert extra.kind in variable or extra.default is not inspect.Parameter.empty


# Tracers copy the parameters of this one, so it must not be called with more.
EXACT = [(GroupCoordinator, "commit_offsets")]


@pytest.mark.parametrize(("cls", "name"), EXACT)
def test_wrapped_method_has_no_further_parameters(cls: type[Any], name: str) -> None:
    parameters = list(inspect.signature(getattr(cls, name)).parameters)
    assert parameters == ["self", *METHODS[cls][name][1].split()]


# Names that callers may give as keywords.
KEYWORDS = [
    (AIOKafkaProducer.send_offsets_to_transaction, ["offsets", "group_id"]),
    (AIOKafkaConsumer.seek, ["partition", "offset"]),
    (AIOKafkaConsumer.offsets_for_times, ["timestamps"]),
    (AIOKafkaConsumer.partitions_for_topic, ["topic"]),
    (create_ssl_context, ["cafile", "capath", "cadata", "certfile", "keyfile", "password"]),
    (
        NewTopic,
        ["name", "num_partitions", "replication_factor", "replica_assignments", "topic_configs"],
    ),
    (NewPartitions, ["total_count", "new_assignments"]),
    (RecordsToDelete, ["before_offset"]),
    (ConfigResource, ["resource_type", "name", "configs"]),
]


@pytest.mark.parametrize(("function", "names"), KEYWORDS)
def test_keywords(function: Any, names: list[str]) -> None:
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert parameters[: len(names)] == names


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (TopicPartition, "topic partition"),
        (BrokerMetadata, "nodeId host port rack"),
        (PartitionMetadata, "topic partition leader replicas isr error"),
        (OffsetAndMetadata, "offset metadata"),
        (OffsetAndTimestamp, "offset timestamp"),
        (
            RecordMetadata,
            "topic partition topic_partition offset timestamp timestamp_type log_start_offset",
        ),
    ],
)
def test_named_tuples(cls: Any, fields: str) -> None:
    assert issubclass(cls, tuple)
    assert cls._fields == tuple(fields.split())


def test_names_of_the_package() -> None:
    assert set(aiokafka.__all__) == {
        "AIOKafkaProducer",
        "AIOKafkaConsumer",
        "AIOKafkaShareConsumer",
        "AcknowledgeType",
        "RejectRecord",
        "ShareConsumerHealth",
        "ShareRecord",
        "AIOKafkaClient",
        "AsyncConsumerRebalanceListener",
        "ConsumerGroupMetadata",
        "Defaults",
        "defaults",
        "ConsumerHealth",
        "ConsumerMetricsCollector",
        "ConsumerState",
        "ProducerHealth",
        "ProducerMetricsCollector",
        "ProducerState",
        "TransactionalSession",
        "ConsumerRebalanceListener",
        "ConsumerStoppedError",
        "IllegalOperation",
        "ConsumerRecord",
        "SubscriptionPattern",
        "TopicPartition",
        "OffsetAndTimestamp",
        "OffsetAndMetadata",
    }
    for name in aiokafka.__all__:
        assert getattr(aiokafka, name) is not None
    assert aiokafka.ConsumerRecord is ConsumerRecord
    assert aiokafka.__version__.startswith("0.14.")
    assert set(aiokafka.__all__) <= set(dir(aiokafka))
    with pytest.raises(AttributeError, match="no attribute 'KafkaProducer'"):
        aiokafka.KafkaProducer  # noqa: B018


SUBMODULES = (
    "abc",
    "client",
    "cluster",
    "codec",
    "conn",
    "consumer",
    "coordinator",
    "errors",
    "partitioner",
    "producer",
    "protocol",
    "record",
    "structs",
    "util",
)


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules_are_attributes(name: str) -> None:
    found = run_clean(f"import aiokafka; print(aiokafka.{name}.__name__)")
    assert found == f"aiokafka.{name}"


def test_importing_the_package_is_cheap() -> None:
    loaded = run_clean(
        "import sys; before = set(sys.modules); import aiokafka; "
        "print(*sorted(n for n in set(sys.modules) - before if n.startswith('aiokafka')))"
    )
    assert set(loaded.split()) <= {
        *("aiokafka", "aiokafka._loading", "aiokafka._loading", "aiokafka._version")
    }


def test_the_clients_import_nothing_heavy() -> None:
    heavy = {"argparse", "email", "importlib.metadata", "unittest", "zipfile", "http"}
    code = (
        "import sys; from aiokafka import AIOKafkaConsumer, AIOKafkaProducer; "
        f"print(*sorted({heavy!r} & set(sys.modules)))"
    )
    assert run_clean(code) == ""


def test_star_import() -> None:
    assert run_clean("from aiokafka import *; print(AIOKafkaProducer.__name__)") == (
        "AIOKafkaProducer"
    )


def run_clean(code: str) -> str:
    """What a program prints in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("aiokafka.abc", "AbstractTokenProvider ConsumerRebalanceListener"),
        ("aiokafka.admin", "AIOKafkaAdminClient NewPartitions NewTopic RecordsToDelete"),
        ("aiokafka.admin.config_resource", "ConfigResource ConfigResourceType"),
        (
            "aiokafka.structs",
            "BrokerMetadata ConsumerRecord OffsetAndMetadata PartitionMetadata RecordMetadata "
            "TopicPartition OffsetAndTimestamp KT VT",
        ),
        ("aiokafka.helpers", "create_ssl_context"),
        ("aiokafka.partitioner", "DefaultPartitioner murmur2"),
        ("aiokafka.consumer", "AIOKafkaConsumer"),
        ("aiokafka.producer", "AIOKafkaProducer"),
        ("aiokafka.coordinator.assignors.abstract", "AbstractPartitionAssignor"),
        ("aiokafka.coordinator.assignors.range", "RangePartitionAssignor"),
        ("aiokafka.coordinator.assignors.roundrobin", "RoundRobinPartitionAssignor"),
        ("aiokafka.coordinator.assignors.sticky.sticky_assignor", "StickyPartitionAssignor"),
        ("aiokafka.client", "AIOKafkaClient ConnectionGroup CoordinationType"),
    ],
)
def test_names_of_modules(module: str, names: str) -> None:
    found = importlib.import_module(module)
    for name in names.split():
        assert hasattr(found, name), name


def test_the_package_is_typed() -> None:
    import importlib.resources

    assert importlib.resources.files("aiokafka").joinpath("py.typed").is_file()


def test_everything_public_says_what_it_does() -> None:
    for cls in (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient, AIOKafkaClient):
        assert cls.__doc__
        for name, member in inspect.getmembers(cls):
            if not name.startswith("_") and callable(member):
                assert member.__doc__, f"{cls.__name__}.{name}"
