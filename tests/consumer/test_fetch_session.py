"""Incremental fetch sessions: what a broker is told, and when everything is said again."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka import TopicPartition
from aiokafka._reading import FetchSpec
from aiokafka.consumer.fetch.session import FetchSession
from aiokafka.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from aiokafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

NO_ID = bytes(16)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = b"i" * 16


def spec(offset: int = 0, topic_id: bytes = NO_ID) -> FetchSpec:
    return FetchSpec(topic_id, offset, -1, 1000)


def asked(request: FetchRequest) -> dict[tuple[str, int], int]:
    return {(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}


def forgotten(request: FetchRequest) -> list[tuple[str, int]]:
    return [(t.topic, number) for t in request.forgotten_topics_data for number in t.partitions]


def response(*topics: dict[str, Any]) -> FetchResponse:
    part = PartitionData(partition_index=0, high_watermark=0)
    return FetchResponse(
        responses=[FetchableTopicResponse(partitions=[part], **names) for names in topics]
    )


def opened(wanted: dict[TopicPartition, FetchSpec], session_id: int = 7) -> FetchSession:
    session = FetchSession()
    session.build(wanted, wanted)
    assert session.accept(0, session_id)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    request = session.build({T0: spec(3), T1: spec(4)}, [])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {("t", 0): 3, ("t", 1): 4}


def test_later_requests_name_what_changed() -> None:
    session = opened({T0: spec(), T1: spec()})
    request = session.build({T0: spec(9), T1: spec()}, [T0, T1])
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == {("t", 0): 9}
    session.accept(0, 7)
    request = session.build({T0: spec(9), T1: spec()}, [T0])
    assert (request.session_epoch, request.topics) == (2, [])


def test_a_partition_left_out_is_forgotten_once_and_can_come_back() -> None:
    session = opened({T0: spec(), T1: spec()})
    request = session.build({T0: spec()}, [T1])
    assert (forgotten(request), request.topics) == ([("t", 1)], [])
    session.accept(0, 7)
    assert forgotten(session.build({T0: spec()}, [T1])) == []
    session.accept(0, 7)
    assert asked(session.build({T0: spec(), T1: spec(5)}, [T1])) == {("t", 1): 5}


def test_without_a_session_every_request_is_full() -> None:
    session = opened({T0: spec()}, session_id=0)
    request = session.build({T0: spec(), T1: spec()}, [T1])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert len(asked(request)) == 2


def test_a_session_evicted_with_an_answer_starts_again() -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    assert session.accept(0, 0)
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (FetchSessionIdNotFound, 0),
        (FetchSessionTopicIdError, 0),
        (InvalidFetchSessionEpoch, 7),
    ],
)
def test_an_error_starts_again(error: type[FetchSessionIdNotFound], kept: int) -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    assert not session.accept(error.errno, 0)
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (kept, 0)
    assert asked(request) == {("t", 0): 1}


def test_after_a_lost_answer_the_session_is_replaced() -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    session.restart()
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (7, 0)


def test_a_session_that_lacks_a_partition_is_replaced() -> None:
    """Later requests would not name it, and it would be read no more."""
    session = opened({T0: spec(), T1: spec()})
    session.check_full({T0, T1})
    assert not session.is_full
    session.check_full({T0})
    request = session.build({T0: spec(1), T1: spec()}, [T0])
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert asked(request) == {("t", 0): 1, ("t", 1): 0}


def test_epochs_wrap_to_one() -> None:
    session = opened({T0: spec()})
    session.epoch = 2**31 - 1
    session.accept(0, 7)
    assert session.epoch == 1


def test_topic_ids_are_used_when_all_topics_have_one() -> None:
    session = FetchSession()
    session.build({T0: spec(0, ID)}, [])
    assert session.max_version is None
    found = session.partitions_in(response({"topic_id": ID}, {"topic_id": b"x" * 16}))
    assert [tp for tp, _ in found] == [T0]
    session = FetchSession()
    session.build({T0: spec(0, ID), TopicPartition("old", 0): spec()}, [])
    assert session.max_version == 12
    assert [tp for tp, _ in session.partitions_in(response({"topic": "old"}))] == [("old", 0)]


def test_a_topic_made_anew_starts_again() -> None:
    session = opened({T0: spec(0, ID)})
    request = session.build({T0: spec(0, b"j" * 16)}, [T0])
    assert request.session_epoch == 0
    assert request.topics[0].topic_id == b"j" * 16


def test_a_session_is_closed_once() -> None:
    session = FetchSession()
    assert session.closing_request() is None
    session = opened({T0: spec()})
    request = session.closing_request()
    assert request is not None
    assert (request.session_id, request.session_epoch, request.topics) == (7, -1, [])
    assert session.closing_request() is None
