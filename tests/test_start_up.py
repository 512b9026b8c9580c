"""What a program loads before its first record: nothing that it has not asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each of these takes time that only a program should pay that uses what is in it.
NOT_AT_FIRST = (
    *("aiokafka.admin", "aiokafka.cli", "aiokafka.oauth", "aiokafka.testing", "aiokafka.spark"),
    *("aiokafka.metrics.prometheus", "aiokafka.ranges", "aiokafka.session", "aiokafka.parallel"),
    "aiokafka.tables",
    *("aiokafka.net.sasl", "aiokafka.net.authentication", "aiokafka.net.authentication"),
    *("aiokafka._upstream.messages", "aiokafka._coordinator_lookup", "aiokafka._config.admin"),
    *("aiokafka._telemetry.push", "aiokafka.protocol.messages.telemetry"),
    *("copy", "dataclasses", "datetime", "difflib", "platform", "uuid"),
)
NOT_IN_A_CONSUMER = (
    *("aiokafka.health", "aiokafka.metrics._values", "aiokafka.interceptors"),
    *("aiokafka.consumer._metrics", "aiokafka.consumer.group.group"),
    *("aiokafka.consumer.group.classic", "aiokafka.consumer.group.kip848", "aiokafka.producer"),
    *("aiokafka.consumer.group.state", "aiokafka.consumer.position.committed"),
    *("aiokafka._config.producer", "aiokafka.record.legacy", "aiokafka.coordinator"),
    *("aiokafka._interception", "aiokafka.consumer._interception"),
)

NOT_IN_AN_ADMIN_CLIENT = (
    *("aiokafka.admin.topics", "aiokafka.admin.groups", "aiokafka.admin.tokens"),
    *("aiokafka.admin.configs", "aiokafka.admin._upstream_calls", "aiokafka.admin.enums"),
    *("aiokafka.protocol.messages.topics", "aiokafka.consumer", "aiokafka.producer"),
)


# Of these, 8 are public. Python takes ten times as long to create one as for a class with slots.
MOST_NAMED_TUPLES = 15


def printed_by(program: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(run.stdout.split())


def loaded_by(line: str) -> set[str]:
    program = f"import sys, asyncio; before = set(sys.modules); {line}; "
    program += "print(*(set(sys.modules) - before))"
    return printed_by(program)


@pytest.mark.parametrize(
    ("line", "unwanted"),
    [
        ("import aiokafka", ("aiokafka.errors", "aiokafka.client", *NOT_AT_FIRST)),
        ("from aiokafka import AIOKafkaProducer", ("aiokafka.consumer", *NOT_AT_FIRST)),
        ("from aiokafka import AIOKafkaConsumer", (*NOT_IN_A_CONSUMER, *NOT_AT_FIRST)),
        ("from aiokafka.admin import AIOKafkaAdminClient", NOT_IN_AN_ADMIN_CLIENT),
    ],
)
def test_only_what_is_used_is_loaded(line: str, unwanted: tuple[str, ...]) -> None:
    assert loaded_by(line).isdisjoint(unwanted)


def test_few_classes_are_named_tuples() -> None:
    program = (
        "import aiokafka.consumer.consumer, aiokafka.producer.producer\n"
        "import aiokafka.consumer.group.group\n"
        "classes = tuple.__subclasses__()\n"
        "names = {f'{each.__module__}.{each.__qualname__}' for each in classes}\n"
        "print(*(name for name in names if name.startswith('aiokafka.')))"
    )
    found = printed_by(program)
    assert len(found) <= MOST_NAMED_TUPLES, found
