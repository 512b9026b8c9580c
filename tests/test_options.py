"""Every option is a typed keyword of the constructors, described once."""

from __future__ import annotations

import copy
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer, options
from aiokafka._config import ClientConfig, SecurityConfig
from aiokafka._config.admin import AdminConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import show_options
from aiokafka._config.producer import ProducerConfig
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.structs import ConsumerRecord
from tests.house.options import texts

CLIENT = ClientConfig.keywords() | SecurityConfig.keywords()
CLIENTS: dict[type[Any], frozenset[str]] = {
    AIOKafkaClient: CLIENT,
    AIOKafkaAdminClient: CLIENT | AdminConfig.keywords(),
    AIOKafkaProducer: CLIENT | ProducerConfig.keywords(),
    AIOKafkaConsumer: CLIENT | ConsumerConfig.keywords(),
}


@pytest.mark.parametrize(
    ("path", "text"), texts().items(), ids=lambda value: getattr(value, "name", "")
)
def test_what_editors_show_is_what_is_declared(path: Path, text: str) -> None:
    assert path.read_text() == text, "run `make options`"


@pytest.mark.parametrize("cls", CLIENTS)
def test_signatures_name_every_option(cls: type[Any]) -> None:
    parameters = inspect.signature(cls).parameters
    assert CLIENTS[cls] <= parameters.keys()
    for name in CLIENTS[cls]:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].annotation != inspect.Parameter.empty
        assert f"`{name}" in (cls.__doc__ or "")
    assert not [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]


def test_a_signature_may_be_compared_copied_changed_and_bound() -> None:
    """It is computed when it is read; each use here is the first one."""

    def first() -> inspect.Signature:
        def function(own: int, **options: object) -> str:
            return ""

        show_options(function, SecurityConfig, sasl_mechanism=lambda: "OAUTHBEARER")
        return inspect.signature(function)

    read = first()
    assert read.parameters["sasl_mechanism"].default == "OAUTHBEARER"
    assert first() == read and hash(first()) == hash(read) and str(first()) == str(read)
    assert copy.copy(first()) == read
    assert first().replace(return_annotation=int).return_annotation is int
    assert first().bind(1, ssl_context=None).arguments == {"own": 1, "ssl_context": None}


@pytest.mark.parametrize("cls", CLIENTS)
async def test_unknown_options_are_refused_with_a_hint(cls: type[Any]) -> None:
    with pytest.raises(
        TypeError,
        match=r"unexpected keyword argument 'bootstrap_server'.* did you mean bootstrap_servers\?",
    ):
        cls(bootstrap_server="localhost")


async def test_defaults_of_signatures_are_taken() -> None:
    parameters = inspect.signature(AIOKafkaConsumer).parameters
    strategy = parameters["partition_assignment_strategy"].default
    assert strategy == (RoundRobinPartitionAssignor,)
    for group_protocol in ("classic", "consumer"):
        AIOKafkaConsumer(
            group_id="g", group_protocol=group_protocol, partition_assignment_strategy=strategy
        )


@pytest.mark.parametrize("cls", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaClient])
async def test_no_client_id_is_the_default_one(cls: type[Any]) -> None:
    assert "client_id='None'" not in repr(cls(client_id=None))
    assert "aiokafka-" in repr(cls(client_id=None))


def test_options_for_type_checkers_are_those_of_the_constructors() -> None:
    serializers = {"key_serializer", "value_serializer"}
    deserializers = {"key_deserializer", "value_deserializer"}
    assert options.ClientOptions.__annotations__.keys() == CLIENT
    assert options.ProducerOptions.__annotations__.keys() == CLIENTS[AIOKafkaProducer] - serializers
    assert (
        options.ConsumerOptions.__annotations__.keys() == CLIENTS[AIOKafkaConsumer] - deserializers
    )


def test_a_duration_may_be_a_timedelta() -> None:
    config = ConsumerConfig.from_options(
        auto_offset_reset=timedelta(days=2, seconds=1, microseconds=5)
    )
    assert config.reset_duration == 2 * 86_400 + 1.000005
    assert ConsumerConfig.from_options(auto_offset_reset=timedelta()).reset_duration == 0
    longest = ConsumerConfig.from_options(auto_offset_reset=timedelta.max)
    assert longest.reset_duration == timedelta.max.total_seconds()
    with pytest.raises(ValueError, match="auto_offset_reset"):
        ConsumerConfig.from_options(auto_offset_reset=timedelta(seconds=-1))


async def test_classes_take_types_of_keys_and_values() -> None:
    assert ConsumerRecord[str, int].__args__ == (str, int)  # type: ignore[attr-defined]
    consumer = AIOKafkaConsumer[str, int](key_deserializer=bytes.decode, value_deserializer=int)
    assert type(consumer) is AIOKafkaConsumer
    producer = AIOKafkaProducer[str, str](key_serializer=str.encode, value_serializer=str.encode)
    assert type(producer) is AIOKafkaProducer
