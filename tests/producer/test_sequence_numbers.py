"""Sequence numbers: which batches may go out, and under which identity."""

from __future__ import annotations

import asyncio

from aiokafka._retry import Backoff
from aiokafka.errors import KafkaError
from aiokafka.producer.batch import BatchState, ProducerBatch, advance
from aiokafka.producer.message_accumulator import PartitionQueue
from aiokafka.producer.transaction_manager import ProducerIdState, Transaction
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import TopicPartition

PARTITION = TopicPartition("topic", 0)


class Node:
    """A sender that sends nothing."""

    node_id = 0

    def add(self, queue: PartitionQueue) -> None:
        pass

    def discard(self, queue: PartitionQueue) -> None:
        pass


NODE = Node()


def new_queue() -> PartitionQueue:
    queue = PartitionQueue(PARTITION, Backoff(0.1, 1.0))
    queue.assign(NODE)
    return queue


def used_queue(id_state: ProducerIdState) -> PartitionQueue:
    """A queue whose first batch, of one record, was delivered."""
    queue = new_queue()
    new_batch(queue)
    deliver(id_state, queue, send(id_state, queue))
    return queue


def new_id_state(epoch: int = 0) -> ProducerIdState:
    id_state = ProducerIdState()
    id_state.set_producer_id(7, epoch)
    return id_state


def new_batch(queue: PartitionQueue, records: int = 1) -> ProducerBatch:
    builder = RecordBatchBuilder(size_limit=10_000)
    for _ in range(records):
        builder.append(0, None, b"v", ())
    batch = ProducerBatch(PARTITION, builder, 0.0, 1.0, asyncio.AbstractEventLoop())
    batch.transition(BatchState.SEALED)
    queue.append(batch)
    return batch


def send(id_state: ProducerIdState, queue: PartitionQueue) -> ProducerBatch:
    batch = queue.waiting[0]
    assert queue.take(NODE, id_state, 0.0)
    return batch


def deliver(id_state: ProducerIdState, queue: PartitionQueue, batch: ProducerBatch) -> None:
    queue.remove_in_flight(batch)
    id_state.on_success(queue, batch)


def put_back(queue: PartitionQueue, batch: ProducerBatch) -> None:
    queue.requeue(batch, KafkaError())


def identity(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_sequence_wraps_to_zero() -> None:
    assert advance(2**31 - 1, 1) == 0
    assert advance(2**31 - 2, 5) == 3


def test_batches_are_numbered_in_order() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    for records in (3, 1, 2):
        new_batch(queue, records)
    assert [identity(send(id_state, queue)) for _ in range(3)] == [(7, 0, 1), (7, 0, 4), (7, 0, 5)]


def test_the_first_batch_of_a_producer_id_goes_alone() -> None:
    id_state, queue = new_id_state(), new_queue()
    for producer_id in (7, 8):
        id_state.set_producer_id(producer_id, 0)
        new_batch(queue), new_batch(queue)
        first = send(id_state, queue)
        assert not id_state.assign_sequence(queue, queue.waiting[0], 0.0)
        deliver(id_state, queue, first)
        second = send(id_state, queue)
        assert identity(second) == (producer_id, 0, 1)
        deliver(id_state, queue, second)


def test_the_first_batch_of_an_epoch_has_company() -> None:
    """A leader that knows the producer id does not take the second before the first."""
    id_state = new_id_state()
    queue = used_queue(id_state)
    id_state.set_producer_id(7, 1)
    new_batch(queue), new_batch(queue)
    assert [identity(send(id_state, queue)) for _ in range(2)] == [(7, 1, 0), (7, 1, 1)]


def test_it_goes_alone_where_the_leader_seems_to_have_forgotten_the_producer_id() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    new_batch(queue), new_batch(queue)
    first = send(id_state, queue)
    id_state.on_gap(queue, first)
    put_back(queue, first)
    assert identity(send(id_state, queue)) == (7, 1, 0)
    assert not id_state.assign_sequence(queue, queue.waiting[0], 0.0)


def test_order_survives_the_wrap() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    queue.sequence.next = queue.sequence.expected = 2**31 - 2
    first, second = new_batch(queue, 2), new_batch(queue, 2)
    assert [send(id_state, queue).base_sequence for _ in range(2)] == [2**31 - 2, 0]
    put_back(queue, second)
    put_back(queue, first)
    assert list(queue.waiting) == [first, second]


def test_a_batch_keeps_its_number_when_it_is_sent_again() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    new_batch(queue), new_batch(queue)
    first, second = send(id_state, queue), send(id_state, queue)
    put_back(queue, second)
    put_back(queue, first)
    assert send(id_state, queue) is first
    assert send(id_state, queue) is second
    assert [first.base_sequence, second.base_sequence] == [1, 2]


def test_a_gap_behind_a_failed_batch_is_no_reason_for_a_new_epoch() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    new_batch(queue), new_batch(queue)
    first, second = send(id_state, queue), send(id_state, queue)
    put_back(queue, first)
    id_state.on_gap(queue, second)
    put_back(queue, second)
    assert send(id_state, queue) is first
    assert identity(first) == (7, 0, 1)


def test_a_gap_before_the_oldest_batch_starts_a_new_epoch() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    for _ in range(3):
        new_batch(queue)
    first, second = send(id_state, queue), send(id_state, queue)
    id_state.on_gap(queue, first)
    put_back(queue, first)
    assert not id_state.assign_sequence(queue, first, 0.0)  # the other one is still in flight
    id_state.on_gap(queue, second)
    put_back(queue, second)
    for expected in range(3):
        batch = send(id_state, queue)
        assert identity(batch) == (7, 1, expected)
        deliver(id_state, queue, batch)


def test_a_lost_batch_makes_new_ones_wait_and_then_begin_anew() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    for _ in range(3):
        new_batch(queue)
    first, second = send(id_state, queue), send(id_state, queue)
    queue.remove_in_flight(first)
    id_state.on_loss(queue, first, KafkaError())
    assert not id_state.assign_sequence(queue, queue.waiting[0], 0.0)
    put_back(queue, second)
    # The broker may have it under this number: it tells when asked again.
    assert identity(send(id_state, queue)) == (7, 0, 2)
    id_state.on_gap(queue, second)
    put_back(queue, second)
    assert identity(send(id_state, queue)) == (7, 1, 0)


def test_a_lost_batch_that_was_written_after_all_costs_no_epoch() -> None:
    id_state = new_id_state()
    queue = used_queue(id_state)
    for _ in range(3):
        new_batch(queue)
    first, second = send(id_state, queue), send(id_state, queue)
    queue.remove_in_flight(first)
    id_state.on_loss(queue, first, KafkaError())
    deliver(id_state, queue, second)
    assert identity(send(id_state, queue)) == (7, 0, 3)


def test_partitions_change_to_a_new_producer_id_when_nothing_is_pending() -> None:
    id_state, queue = new_id_state(), new_queue()
    new_batch(queue), new_batch(queue)
    first = send(id_state, queue)
    id_state.discard_producer_id(7)
    id_state.set_producer_id(8, 0)
    assert not id_state.assign_sequence(queue, queue.waiting[0], 0.0)
    deliver(id_state, queue, first)
    assert identity(send(id_state, queue)) == (8, 0, 0)


def test_after_the_last_epoch_a_new_producer_id_is_wanted() -> None:
    id_state, queue = new_id_state(epoch=2**15 - 1), new_queue()
    new_batch(queue)
    first = send(id_state, queue)
    id_state.on_gap(queue, first)
    put_back(queue, first)
    assert not id_state.assign_sequence(queue, first, 0.0)
    assert id_state.wants_producer_id
    id_state.set_producer_id(9, 0)
    assert identity(send(id_state, queue)) == (9, 0, 0)


def test_late_answers_for_an_old_epoch_change_nothing() -> None:
    id_state, queue = new_id_state(), new_queue()
    new_batch(queue)
    stale = send(id_state, queue)
    queue.remove_in_flight(stale)
    id_state.on_loss(queue, stale, KafkaError())
    new_batch(queue)
    fresh = send(id_state, queue)
    assert identity(fresh) == (7, 1, 0)
    id_state.on_gap(queue, stale)
    id_state.on_loss(queue, stale, KafkaError())
    deliver(id_state, queue, fresh)
    new_batch(queue)
    assert identity(send(id_state, queue)) == (7, 1, 1)


# -- partitions that are forgotten


def test_a_forgotten_partition_begins_with_a_higher_epoch() -> None:
    """The leader may still know the batch 0 to 0 of the old one."""
    id_state = new_id_state()
    assert id_state.forget(used_queue(id_state))
    queue = new_queue()
    new_batch(queue)
    batch = send(id_state, queue)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 0)
    deliver(id_state, queue, batch)
    assert id_state.forget(queue)
    later = new_queue()
    new_batch(later)
    assert send(id_state, later).producer_epoch == 2


def test_partitions_that_were_never_used_cost_no_epoch() -> None:
    id_state = new_id_state()
    assert id_state.forget(new_queue())
    queue = new_queue()
    new_batch(queue)
    assert send(id_state, queue).producer_epoch == 0


def test_a_forgotten_partition_of_an_older_producer_id_costs_no_epoch() -> None:
    id_state = new_id_state()
    old = used_queue(id_state)
    id_state.set_producer_id(8, 3)
    assert id_state.forget(old)
    queue = new_queue()
    new_batch(queue)
    assert send(id_state, queue).producer_epoch == 3


def test_without_epochs_left_a_forgotten_partition_costs_a_producer_id() -> None:
    id_state = new_id_state(epoch=0x7FFF)
    assert id_state.forget(used_queue(id_state))
    assert id_state.wants_producer_id
    queue = new_queue()
    batch = new_batch(queue)
    assert not id_state.assign_sequence(queue, batch, 0.0)
    id_state.set_producer_id(8, 0)
    assert send(id_state, queue).producer_id == 8


def test_with_transactions_what_was_used_is_kept() -> None:
    id_state = ProducerIdState(Transaction("id", lambda: None))
    id_state.set_producer_id(7, 0)
    assert id_state.forget(new_queue())
    queue = new_queue()
    queue.sequence.generation = id_state.generation
    assert not id_state.forget(queue)
