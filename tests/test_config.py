"""The configuration classes: defaults, conversion, and errors that name the keyword."""

from __future__ import annotations

import re
import ssl
import warnings
from decimal import Decimal
from typing import Any

import pytest

from aiokafka._config import ClientConfig, SecurityConfig, parse_address, warn_ignored
from aiokafka._config.consumer import ConsumerConfig, parse_duration
from aiokafka._config.options import MISSING
from aiokafka._config.producer import ProducerConfig
from aiokafka.abc import AbstractTokenProvider


class TokenProvider(AbstractTokenProvider):
    async def token(self) -> str:
        return "token"


class LikeAnything:
    """Equal to all, like some arrays."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


CONFIGS = [SecurityConfig, ClientConfig, ProducerConfig, ConsumerConfig]


def test_milliseconds_become_seconds_once() -> None:
    config = ClientConfig.from_options(request_timeout_ms=1500, retry_backoff_ms=0.5)
    assert config.request_timeout == 1.5
    assert config.retry_backoff == 0.0005
    assert config.metadata_max_age == 300.0
    assert config.connections_max_idle == 540.0


def test_defaults_are_those_of_the_manual() -> None:
    defaults = {
        option.keyword: option.default
        for config in (ClientConfig, ProducerConfig, ConsumerConfig)
        for option in config.describe()
    }
    expected = {
        "bootstrap_servers": "localhost",
        "metadata_max_age_ms": 300_000,
        "request_timeout_ms": 40_000,
        "retry_backoff_ms": 100,
        "connections_max_idle_ms": 540_000,
        "max_batch_size": 16_384,
        "max_request_size": 1_048_576,
        "linger_ms": 0,
        "transaction_timeout_ms": 60_000,
        "fetch_max_wait_ms": 500,
        "fetch_min_bytes": 1,
        "fetch_max_bytes": 52_428_800,
        "max_partition_fetch_bytes": 1_048_576,
        "auto_offset_reset": "latest",
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 5_000,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 3_000,
        "max_poll_interval_ms": 300_000,
        "consumer_timeout_ms": 200,
        "isolation_level": "read_uncommitted",
    }
    assert {keyword: defaults[keyword] for keyword in expected} == expected


@pytest.mark.parametrize("config", CONFIGS)
def test_options_are_described(config: type[Any]) -> None:
    described = config.describe()
    assert len({option.keyword for option in described}) == len(described)
    for option in described:
        assert option.help.endswith(".")
        assert option.accepts
        if option.default is not MISSING:
            config.from_options(**{option.keyword: option.default})


@pytest.mark.parametrize("config", CONFIGS)
def test_configurations_are_frozen(config: type[Any]) -> None:
    made = config.from_options()
    name = next(iter(vars(made)))
    with pytest.raises(AttributeError, match=name):
        setattr(made, name, "x")


WRONG: list[tuple[type[Any], str, Any, type[Exception], str]] = [
    (ClientConfig, "request_timeout_ms", "40", TypeError, "a number of milliseconds, at least 1"),
    (ClientConfig, "request_timeout_ms", True, TypeError, "a number of milliseconds"),
    (ClientConfig, "request_timeout_ms", 0, ValueError, "at least 1"),
    (ClientConfig, "request_timeout_ms", float("nan"), ValueError, "at least 1"),
    (ClientConfig, "request_timeout_ms", 2**31, ValueError, "at most 2147483647"),
    (ClientConfig, "request_timeout_ms", 10**400, ValueError, "at most 2147483647"),
    (ClientConfig, "retry_backoff_ms", -1, ValueError, "at least 0"),
    (ClientConfig, "retry_backoff_ms", 10**400, ValueError, "at least 0"),
    (ClientConfig, "retry_backoff_ms", float("inf"), ValueError, "at least 0"),
    (ClientConfig, "retry_backoff_ms", Decimal(5), TypeError, "a number of milliseconds"),
    (ClientConfig, "client_id", "x" * 2**15, ValueError, "more than 32767 bytes"),
    (ClientConfig, "client_id", "\N{SNOWMAN}" * 2**14, ValueError, "more than 32767 bytes"),
    (ClientConfig, "client_id", 7, TypeError, "a string"),
    (ClientConfig, "security_protocol", "TLS", ValueError, "'SASL_SSL'"),
    (ClientConfig, "sasl_mechanism", "plain", ValueError, "'SCRAM-SHA-256'"),
    (ClientConfig, "ssl_context", True, TypeError, "create_ssl_context"),
    (ClientConfig, "sasl_oauth_token_provider", "token", TypeError, "AbstractTokenProvider"),
    (ClientConfig, "bootstrap_servers", 9092, TypeError, "host:port"),
    (ClientConfig, "bootstrap_servers", "", ValueError, "host:port"),
    (ClientConfig, "bootstrap_servers", [], ValueError, "host:port"),
    (ClientConfig, "bootstrap_servers", "a:b", ValueError, "'a:b' has no port from 1 to 65535"),
    (ClientConfig, "allow_auto_create_topics", "yes", TypeError, "True or False"),
    (ProducerConfig, "acks", 2, ValueError, "one of 0, 1, -1, 'all'"),
    (ProducerConfig, "acks", True, ValueError, "one of 0, 1, -1, 'all'"),
    (ProducerConfig, "acks", 1.0, ValueError, "one of 0, 1, -1, 'all'"),
    (ProducerConfig, "acks", 0.0, ValueError, "one of 0, 1, -1, 'all'"),
    (ProducerConfig, "acks", LikeAnything(), ValueError, "one of 0, 1, -1, 'all'"),
    (ProducerConfig, "transaction_timeout_ms", 2**31, ValueError, "at most 2147483647"),
    (ProducerConfig, "transactional_id", "x" * 2**15, ValueError, "more than 32767 bytes"),
    (ProducerConfig, "compression_type", "zip", ValueError, "'zstd'"),
    (ProducerConfig, "key_serializer", "utf-8", TypeError, "a function or None"),
    (ProducerConfig, "buffer_memory", 0, ValueError, "an integer from 1"),
    (ProducerConfig, "max_batch_size", 1.5, TypeError, "an integer"),
    (ProducerConfig, "transactional_id", "", ValueError, "not empty"),
    (ConsumerConfig, "max_poll_records", 0, ValueError, "at least 1, or None"),
    (ConsumerConfig, "max_poll_records", "5", ValueError, "at least 1, or None"),
    (ConsumerConfig, "fetch_max_wait_ms", 2**31, ValueError, "at least 0 and at most 2147483647"),
    (ConsumerConfig, "session_timeout_ms", 2**31, ValueError, "at most 2147483647"),
    (ConsumerConfig, "rebalance_timeout_ms", 2**31, ValueError, "at most 2147483647, or None"),
    (ProducerConfig, "transaction_timeout_ms", 2**31, ValueError, "at most 2147483647"),
    (ConsumerConfig, "isolation_level", "committed", ValueError, "'read_committed'"),
    (ConsumerConfig, "auto_offset_reset", "smallest", ValueError, "'earliest'"),
    (ConsumerConfig, "auto_offset_reset", "by_duration:1h", ValueError, "ISO 8601"),
    (ConsumerConfig, "partition_assignment_strategy", [int], TypeError, "no name"),
]


@pytest.mark.parametrize(
    ("config", "keyword", "value", "error", "text"),
    [pytest.param(*case, id=f"{case[1]}-{number}") for number, case in enumerate(WRONG)],
)
def test_wrong_value_is_refused_by_name(
    config: type[Any], keyword: str, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        config.from_options(**{keyword: value})
    # At the start, or behind the words that programs match.
    assert re.search(rf"(^|: ){keyword}\b", str(caught.value))
    assert text in str(caught.value)


@pytest.mark.parametrize("length", [2**15 - 1, 1])
def test_the_longest_values_are_taken(length: int) -> None:
    config = ClientConfig.from_options(client_id="x" * length, request_timeout_ms=2**31 - 1)
    assert config.client_id == "x" * length
    assert round(config.request_timeout * 1000) == 2**31 - 1


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(ValueError) as caught:
        ClientConfig.from_options(client_id="x" * 10**6)
    assert len(str(caught.value)) < 1000
    # Python does not even print such integers.
    with pytest.raises(ValueError, match=r"^retry_backoff_ms.*: must be a number"):
        ClientConfig.from_options(retry_backoff_ms=-(10**6000))


def test_a_choice_is_taken_as_it_is_listed() -> None:
    class Text(str):
        pass

    class Integer(int):
        pass

    config = ProducerConfig.from_options(acks=Integer(1), compression_type=Text("gzip"))
    assert (type(config.acks), type(config.compression_type)) == (int, str)


def test_time_between_polls_may_be_longer_than_brokers_can_be_told() -> None:
    config = ConsumerConfig.from_options(group_protocol="consumer", max_poll_interval_ms=2**40)
    assert config.rebalance_timeout is not None
    assert round(config.rebalance_timeout * 1000) == 2**31 - 1


def test_password_is_never_shown() -> None:
    with pytest.raises(TypeError) as caught:
        SecurityConfig.from_options(sasl_plain_password=b"secret")
    assert "secret" not in str(caught.value)
    config = SecurityConfig.from_options(
        security_protocol="SASL_PLAINTEXT",
        sasl_plain_username="alice",
        sasl_plain_password="secret",
    )
    assert "secret" not in repr(config)


def test_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="'bootstrap_server': unknown option"):
        ClientConfig.from_options(bootstrap_server="localhost")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , b ,", [("a", 1), ("b", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        (("a:1", "a:1"), [("a", 1)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("fe80::1", [("fe80::1", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
        ("2001:db8::,[2001:db8::]:1", [("2001:db8::", 9092), ("2001:db8::", 1)]),
        ("SASL_SSL://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers(given: Any, expected: list[tuple[str, int]]) -> None:
    config = ClientConfig.from_options(bootstrap_servers=given)
    assert list(config.bootstrap_servers) == expected


def test_a_connection_string_is_no_address_and_is_not_shown() -> None:
    text = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=hush="
    for given in (text, [text]):
        with pytest.raises(ValueError, match="a connection string of Event Hubs") as caught:
            ClientConfig.from_options(bootstrap_servers=given)
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":9092", "a:", "host::", "a:0", "a:65536", "a:٣", "a:1:2"),
        *("[::1", "[::1]:", "[2001:db8::]:", "::1:", "a b:1", "a\0b:1", "a\x7f:1"),
    ],
)
def test_address_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


def test_tls_needs_a_context() -> None:
    with pytest.raises(ValueError, match="needs ssl_context"):
        ClientConfig.from_options(security_protocol="SSL")
    context = ssl.create_default_context()
    config = ClientConfig.from_options(security_protocol="SSL", ssl_context=context)
    assert config.security.uses_tls
    assert not config.security.uses_sasl


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_are_needed(mechanism: str) -> None:
    with pytest.raises(ValueError, match="sasl_plain_username and sasl_plain_password"):
        ClientConfig.from_options(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism)


def test_token_provider_is_needed() -> None:
    given: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    with pytest.raises(ValueError, match="sasl_oauth_token_provider"):
        ClientConfig.from_options(**given)
    provider = TokenProvider(endpoint="ignored")
    config = ClientConfig.from_options(**given, sasl_oauth_token_provider=provider)
    assert config.security.sasl_oauth_token_provider is provider
    assert provider.extensions() == {}


def test_maximum_follows_its_start_value() -> None:
    config = ClientConfig.from_options(retry_backoff_ms=5_000)
    assert config.retry_backoff_max == 5.0


@pytest.mark.parametrize(
    ("given", "acks", "idempotent"),
    [
        ({}, -1, True),
        ({"acks": MISSING}, -1, True),
        ({"acks": "all"}, -1, True),
        ({"acks": -1}, -1, True),
        ({"acks": 1}, 1, False),
        ({"acks": 0}, 0, False),
        ({"enable_idempotence": False}, -1, False),
        ({"acks": 1, "enable_idempotence": False}, 1, False),
        ({"transactional_id": "t"}, -1, True),
        ({"transactional_id": "t", "enable_idempotence": False}, -1, True),
        ({"max_in_flight_requests_per_connection": 6}, -1, False),
    ],
)
def test_acks_and_idempotence(given: dict[str, Any], acks: int, idempotent: bool) -> None:
    config = ProducerConfig.from_options(**given)
    assert config.acks == acks
    assert config.enable_idempotence is idempotent


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"acks": 1, "enable_idempotence": True}, "acks=1 not supported if enable_idempotence"),
        ({"acks": 0, "transactional_id": "t"}, "acks=0 not supported if enable_idempotence=True"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
            "at most 5 with idempotence",
        ),
        ({"delivery_timeout_ms": 10, "linger_ms": 10}, "must be more than linger_ms, that is 10"),
    ],
)
def test_contradictions_of_a_producer(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ProducerConfig.from_options(**given)


def test_delivery_timeout_leaves_room_for_a_request() -> None:
    assert ProducerConfig.from_options().delivery_timeout == 120.0
    client = ClientConfig.from_options(request_timeout_ms=200_000)
    config = ProducerConfig.from_options(client=client, linger_ms=1_000)
    assert config.delivery_timeout == 201.0
    assert ProducerConfig.from_options(delivery_timeout_ms=500).delivery_timeout == 0.5


def test_no_compression_has_two_names() -> None:
    assert ProducerConfig.from_options(compression_type="none").compression_type is None


def test_offset_reset_by_duration() -> None:
    config = ConsumerConfig.from_options(auto_offset_reset="by_duration:P1DT2H3M4.5S")
    assert config.reset_duration == 86_400 + 2 * 3_600 + 3 * 60 + 4.5
    assert ConsumerConfig.from_options(auto_offset_reset="Earliest").auto_offset_reset == "earliest"
    assert ConsumerConfig.from_options().reset_duration is None


@pytest.mark.parametrize("text", ["P", "PT", "1H", "P1H", "PT-1H", "P1Y", "PT1", "PT1H2"])
def test_duration_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def test_rebalance_timeout_is_the_session_timeout_by_default() -> None:
    assert ConsumerConfig.from_options(session_timeout_ms=6_000).rebalance_timeout == 6.0
    assert ConsumerConfig.from_options(rebalance_timeout_ms=7_000).rebalance_timeout == 7.0


def test_ignored_keywords() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_ignored(loop=None, api_version="auto", send_backoff_ms=None)
    with pytest.warns(DeprecationWarning, match="api_version has no effect"):
        warn_ignored(api_version="2.4.1")
    with pytest.warns(DeprecationWarning, match="loop has no effect"):
        warn_ignored(loop=object())
