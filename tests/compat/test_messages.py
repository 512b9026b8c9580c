"""Texts and names that programs match, and hints for options that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.codec import gzip_decode, gzip_encode, snappy_decode, snappy_encode
from aiokafka.errors import for_code

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
