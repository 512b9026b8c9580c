"""How many bytes of records go into a batch that is to be full when compressed."""

from __future__ import annotations

import random
from collections.abc import Callable

from aiokafka._config import ClientConfig
from aiokafka._config.producer import ProducerConfig
from aiokafka.producer.batch import BatchSizing

FULL = 16_384


def room(sizing: BatchSizing) -> int:
    """Bytes of records that a new batch takes."""
    builder, value = sizing.new_builder(), random.Random(1).randbytes(100)
    while builder.append(5, None, value, ()) >= 0:
        pass
    return builder.size


def sizing_of(clock: Callable[[], float] = lambda: 0.0, **options: object) -> BatchSizing:
    client = ClientConfig.from_options(bootstrap_servers="h:1")
    return BatchSizing(ProducerConfig.from_options(client=client, **options), clock)


def test_batches_grow_with_what_is_learnt() -> None:
    sizing = sizing_of(compression_type="gzip", max_batch_size=FULL)
    assert room(sizing) <= FULL
    for _ in range(30):
        sizing.learn(room(sizing), room(sizing) // 5)
    assert 4 * FULL < room(sizing) < 5 * FULL


def test_a_few_records_say_nothing_of_full_batches() -> None:
    """They compress badly, or even become longer."""
    sizing = sizing_of(compression_type="gzip", max_batch_size=FULL)
    for _ in range(30):
        sizing.learn(room(sizing), room(sizing) // 5)
    before = room(sizing)
    for size in (10, 100, FULL // 2 - 1):
        sizing.learn(size, 2 * size)
        assert room(sizing) == before
    sizing.learn(FULL, FULL)
    assert room(sizing) < before


def test_without_compression_there_is_nothing_to_learn() -> None:
    sizing = sizing_of(max_batch_size=FULL)
    sizing.learn(FULL, FULL // 10)
    assert room(sizing) <= FULL


def test_a_limit_does_not_count_for_ever() -> None:
    """It may be raised, and nothing but a batch that is larger shows it."""
    now = 5000.0
    sizing = sizing_of(lambda: now, max_batch_size=FULL)
    for size in (FULL, FULL // 2):
        sizing.refuse(size)
    assert room(sizing) <= FULL // 4
    now += 500
    assert room(sizing) <= FULL // 4
    now += 500
    assert room(sizing) > FULL // 2
    sizing.refuse(FULL)
    assert room(sizing) <= FULL // 2
