"""Subscription, assignment and partition states, without any I/O."""

from __future__ import annotations

import re

import pytest

from aiokafka import TopicPartition
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.position.lookup import EARLIEST, LATEST, OffsetSpec
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import IllegalStateError

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class Watcher:
    def __init__(self) -> None:
        self.seen: list[PartitionState] = []

    def touch(self, state: PartitionState) -> None:
        self.seen.append(state)


def test_assign_and_subscribe_exclude_each_other() -> None:
    state = SubscriptionState()
    state.subscribe_topics(["a"])
    with pytest.raises(IllegalStateError):
        state.assign([T0])
    state.unsubscribe()
    state.assign([T0])
    with pytest.raises(IllegalStateError):
        state.subscribe_topics(["a"])
    with pytest.raises(IllegalStateError):
        state.subscribe_pattern(re.compile("a"))
    with pytest.raises(IllegalStateError):
        state.assign_from_subscribed([T0])


def test_a_partition_that_stays_keeps_its_state() -> None:
    subscriptions = SubscriptionState()
    subscriptions.assign([T0, T1])
    kept, gone = subscriptions.assigned_state(T0), subscriptions.assigned_state(T1)
    kept.seek(5)
    kept.pause()
    old = subscriptions.assignment
    subscriptions.assign([T0, T2])
    assert subscriptions.assigned_state(T0) is kept
    assert (kept.position, subscriptions.paused()) == (5, {T0})
    assert gone.phase is Phase.RETIRED
    assert not old.active
    assert subscriptions.assignment.active
    with pytest.raises(IllegalStateError):
        subscriptions.assigned_state(T1)


def test_a_partition_that_comes_back_starts_anew() -> None:
    subscriptions = SubscriptionState()
    subscriptions.assign([T0])
    subscriptions.assigned_state(T0).seek(5)
    subscriptions.assign([])
    subscriptions.assign([T0])
    assert subscriptions.assigned_state(T0).position is None


def return_records(subscriptions: SubscriptionState, call: int) -> None:
    for state in subscriptions.assignment.states():
        state.call = call


def test_the_latest_partitions_that_were_given_up_are_remembered() -> None:
    """Topics come and go, as with a pattern, and one partition comes back again and again."""
    subscriptions = SubscriptionState()
    for number in range(10_500):
        subscriptions.assign([TopicPartition(f"of-day-{number}", 0), *[T0] * (number % 2)])
        return_records(subscriptions, number + 1)
    subscriptions.assign([])
    latest = {TopicPartition(f"of-day-{number}", 0): number + 1 for number in range(501, 10_500)}
    assert subscriptions.given_up == {**latest, T0: 10_500}


def test_large_assignments_are_remembered_whole_when_they_are_given_up() -> None:
    """The application may have records of each partition in hand, though others follow."""
    subscriptions = SubscriptionState()
    large = [TopicPartition("t", number) for number in range(12_000)]
    for call, tps in enumerate((large[:500], large[500:], large[:500]), start=1):
        subscriptions.assign(tps)
        return_records(subscriptions, call)
    subscriptions.assign([])
    assert subscriptions.given_up.keys() == set(large)


def test_patterns_match_topics_as_they_come() -> None:
    subscriptions = SubscriptionState()
    subscriptions.subscribe_pattern(re.compile("^log-"))
    assert subscriptions.match_pattern({"log-1", "other"})
    assert not subscriptions.match_pattern({"log-1", "else"})
    assert subscriptions.topics == {"log-1"}
    assert subscriptions.match_pattern({"log-1", "log-2"})
    assert subscriptions.topics == {"log-1", "log-2"}


def test_every_change_of_a_state_is_seen() -> None:
    watcher = Watcher()
    subscriptions = SubscriptionState()
    subscriptions.assign([T0])
    subscriptions.watch(watcher)
    state = subscriptions.assigned_state(T0)
    state.reset(EARLIEST)
    state.seek(1)
    state.pause()
    state.resume()
    subscriptions.unsubscribe()
    assert watcher.seen == [state] * 5


def test_a_new_position_voids_what_was_fetched() -> None:
    state = PartitionState(T0)
    epochs = [state.epoch]
    state.seek(3)
    epochs.append(state.epoch)
    state.reset(LATEST)
    epochs.append(state.epoch)
    assert state.position is None
    state.seek(4)
    epochs.append(state.epoch)
    state.retire()
    epochs.append(state.epoch)
    assert epochs == sorted(set(epochs))


def test_pausing_keeps_what_was_fetched() -> None:
    state = PartitionState(T0)
    state.seek(3)
    epoch = state.epoch
    state.pause()
    assert not state.is_fetchable
    state.resume()
    assert state.is_fetchable
    assert state.epoch == epoch


def test_a_retired_state_refuses_a_new_life() -> None:
    state = PartitionState(T0)
    state.retire()
    with pytest.raises(IllegalStateError):
        state.seek(1)
    with pytest.raises(IllegalStateError):
        state.reset(EARLIEST)


def test_only_a_fetched_position_is_validated() -> None:
    state = PartitionState(T0)
    with pytest.raises(IllegalStateError):
        state.begin_validation(1)
    state.seek(1)
    state.begin_validation(1)
    assert not state.is_fetchable
    assert state.needs_offset
    state.end_validation()
    assert state.is_fetchable


def test_reset_policies() -> None:
    assert OffsetSpec.from_policy("earliest", None) == EARLIEST
    assert OffsetSpec.from_policy("latest", None) == LATEST
    assert OffsetSpec.from_policy("none", None) is None
    spec = OffsetSpec.from_policy("by_duration:PT1H", 3600.0)
    assert spec is not None
    assert spec.timestamp_now() > 0


def test_a_position_in_a_former_topic_has_no_epoch_of_the_latest() -> None:
    """A commit would store it."""
    state = PartitionState(T0)
    state.change_topic(b"former", is_new=False)
    state.seek(3)
    assert not state.change_topic(b"latest", is_new=True)
    state.seek(0)
    state.cursor.advance(10, [(0, 10, 7)])
    assert state.epoch_before(3) == 7
    assert state.change_topic(b"former", is_new=False)
    assert (state.position, state.epoch_before(3)) == (3, -1)
