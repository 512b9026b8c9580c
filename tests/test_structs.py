"""Values that users keep, copy and send to other processes."""

from __future__ import annotations

import copy
import pickle

import pytest

from aiokafka import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aiokafka.admin.results import DescribedMember

COPIES = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


@pytest.mark.parametrize("make", COPIES)
def test_an_offset_keeps_its_leader_epoch(make: object) -> None:
    """Without it a log that was cut meanwhile is not noticed."""
    assert callable(make)
    twin = make(OffsetAndMetadata(5, "mine", 7))
    assert (twin, twin.leader_epoch) == ((5, "mine"), 7)
    assert type(twin) is OffsetAndMetadata
    assert twin._replace(offset=6).leader_epoch == 7


@pytest.mark.parametrize("make", COPIES)
def test_a_member_keeps_its_instance(make: object) -> None:
    assert callable(make)
    member = DescribedMember("id", "client", "host", b"", b"", group_instance_id="one")
    twin = make(member)
    assert (twin, twin.group_instance_id) == (member, "one")


@pytest.mark.parametrize("make", COPIES)
def test_plain_values_are_equal(make: object) -> None:
    assert callable(make)
    for value in (TopicPartition("t", 1), ConsumerGroupMetadata("g", 3, "m", None)):
        assert make(value) == value
        assert type(make(value)) is type(value)
