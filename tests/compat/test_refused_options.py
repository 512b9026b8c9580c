"""The words with which errors about options begin: programs match what aiokafka says there."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


@pytest.mark.parametrize(
    ("cls", "options", "opening"),
    [
        (
            AIOKafkaConsumer,
            {"isolation_level": "READ_CCC"},
            "Incorrect isolation level READ_CCC",
        ),
        (
            AIOKafkaConsumer,
            {"security_protocol": "SASL_PLAINTEXT"},
            "sasl_plain_username and sasl_plain_password required for PLAIN sasl",
        ),
        (
            AIOKafkaProducer,
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"},
            "sasl_plain_username and sasl_plain_password required for SCRAM-SHA-256 sasl",
        ),
        (
            AIOKafkaProducer,
            {"acks": 1, "enable_idempotence": True},
            "acks=1 not supported if enable_idempotence=True",
        ),
        (
            AIOKafkaProducer,
            {"acks": 0, "transactional_id": "x"},
            "acks=0 not supported if enable_idempotence=True",
        ),
    ],
)
async def test_openings_of_refused_options(cls: Any, options: dict[str, Any], opening: str) -> None:
    with pytest.raises(ValueError) as caught:
        cls(**options)
    assert str(caught.value).startswith(opening)
