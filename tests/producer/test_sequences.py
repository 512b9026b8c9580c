"""Sequence numbers: which batches may go out, and under which identity."""

from __future__ import annotations

from aiokafka.errors import KafkaError
from aiokafka.producer._append import PartitionQueue
from aiokafka.producer.batch import BatchState, ProducerBatch
from aiokafka.producer.transaction_manager import PartitionSequence, TransactionManager, advance
from aiokafka.producer.transaction_state import Transaction
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.structs import TopicPartition

PARTITION = TopicPartition("topic", 0)


def new_queue() -> PartitionQueue:
    queue = PartitionQueue(PARTITION)
    queue.sequence = PartitionSequence()
    return queue


def used_queue(manager: TransactionManager) -> PartitionQueue:
    """A queue whose first batch, of one record, was delivered."""
    queue = new_queue()
    new_batch(queue)
    deliver(manager, queue, send(manager, queue))
    return queue


def new_manager(epoch: int = 0) -> TransactionManager:
    manager = TransactionManager()
    manager.set_producer_id(7, epoch)
    return manager


def new_batch(queue: PartitionQueue, records: int = 1) -> ProducerBatch:
    builder = RecordBatchBuilder(size_limit=10_000)
    for _ in range(records):
        builder.append(0, None, b"v", ())
    batch = ProducerBatch(PARTITION, builder, 0.0, 1.0)
    batch.transition(BatchState.SEALED)
    queue.waiting.append(batch)
    return batch


def send(manager: TransactionManager, queue: PartitionQueue) -> ProducerBatch:
    batch = queue.waiting[0]
    assert manager.identify(queue, batch)
    queue.waiting.popleft()
    batch.transition(BatchState.IN_FLIGHT)
    queue.in_flight.append(batch)
    return batch


def deliver(manager: TransactionManager, queue: PartitionQueue, batch: ProducerBatch) -> None:
    queue.in_flight.remove(batch)
    manager.on_success(queue, batch)


def put_back(queue: PartitionQueue, batch: ProducerBatch) -> None:
    queue.in_flight.remove(batch)
    batch.transition(BatchState.SEALED)
    queue.put_back(batch)


def identity(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_sequence_wraps_to_zero() -> None:
    assert advance(2**31 - 1, 1) == 0
    assert advance(2**31 - 2, 5) == 3


def test_batches_are_numbered_in_order() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    for records in (3, 1, 2):
        new_batch(queue, records)
    assert [identity(send(manager, queue)) for _ in range(3)] == [(7, 0, 1), (7, 0, 4), (7, 0, 5)]


def test_the_first_batch_of_a_producer_id_goes_alone() -> None:
    manager, queue = new_manager(), new_queue()
    for producer_id in (7, 8):
        manager.set_producer_id(producer_id, 0)
        new_batch(queue), new_batch(queue)
        first = send(manager, queue)
        assert not manager.identify(queue, queue.waiting[0])
        deliver(manager, queue, first)
        second = send(manager, queue)
        assert identity(second) == (producer_id, 0, 1)
        deliver(manager, queue, second)


def test_the_first_batch_of_an_epoch_has_company() -> None:
    """A leader that knows the producer id does not take the second before the first."""
    manager = new_manager()
    queue = used_queue(manager)
    manager.set_producer_id(7, 1)
    new_batch(queue), new_batch(queue)
    assert [identity(send(manager, queue)) for _ in range(2)] == [(7, 1, 0), (7, 1, 1)]


def test_it_goes_alone_where_the_leader_seems_to_have_forgotten_the_producer_id() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    new_batch(queue), new_batch(queue)
    first = send(manager, queue)
    manager.on_gap(queue, first)
    put_back(queue, first)
    assert identity(send(manager, queue)) == (7, 1, 0)
    assert not manager.identify(queue, queue.waiting[0])


def test_order_survives_the_wrap() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    queue.sequence.next = queue.sequence.expected = 2**31 - 2
    first, second = new_batch(queue, 2), new_batch(queue, 2)
    assert [send(manager, queue).base_sequence for _ in range(2)] == [2**31 - 2, 0]
    put_back(queue, second)
    put_back(queue, first)
    assert list(queue.waiting) == [first, second]


def test_a_batch_keeps_its_number_when_it_is_sent_again() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    new_batch(queue), new_batch(queue)
    first, second = send(manager, queue), send(manager, queue)
    put_back(queue, second)
    put_back(queue, first)
    assert send(manager, queue) is first
    assert send(manager, queue) is second
    assert [first.base_sequence, second.base_sequence] == [1, 2]


def test_a_gap_behind_a_failed_batch_is_no_reason_for_a_new_epoch() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    new_batch(queue), new_batch(queue)
    first, second = send(manager, queue), send(manager, queue)
    put_back(queue, first)
    manager.on_gap(queue, second)
    put_back(queue, second)
    assert send(manager, queue) is first
    assert identity(first) == (7, 0, 1)


def test_a_gap_before_the_oldest_batch_starts_a_new_epoch() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    for _ in range(3):
        new_batch(queue)
    first, second = send(manager, queue), send(manager, queue)
    manager.on_gap(queue, first)
    put_back(queue, first)
    assert not manager.identify(queue, first)  # the other one is still in flight
    manager.on_gap(queue, second)
    put_back(queue, second)
    for expected in range(3):
        batch = send(manager, queue)
        assert identity(batch) == (7, 1, expected)
        deliver(manager, queue, batch)


def test_a_lost_batch_makes_new_ones_wait_and_then_begin_anew() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    for _ in range(3):
        new_batch(queue)
    first, second = send(manager, queue), send(manager, queue)
    queue.in_flight.remove(first)
    manager.on_loss(queue, first, KafkaError())
    assert not manager.identify(queue, queue.waiting[0])
    put_back(queue, second)
    # The broker may have it under this number: it tells when asked again.
    assert identity(send(manager, queue)) == (7, 0, 2)
    manager.on_gap(queue, second)
    put_back(queue, second)
    assert identity(send(manager, queue)) == (7, 1, 0)


def test_a_lost_batch_that_was_written_after_all_costs_no_epoch() -> None:
    manager = new_manager()
    queue = used_queue(manager)
    for _ in range(3):
        new_batch(queue)
    first, second = send(manager, queue), send(manager, queue)
    queue.in_flight.remove(first)
    manager.on_loss(queue, first, KafkaError())
    deliver(manager, queue, second)
    assert identity(send(manager, queue)) == (7, 0, 3)


def test_partitions_change_to_a_new_producer_id_when_nothing_is_pending() -> None:
    manager, queue = new_manager(), new_queue()
    new_batch(queue), new_batch(queue)
    first = send(manager, queue)
    manager.discard_producer_id(7)
    manager.set_producer_id(8, 0)
    assert not manager.identify(queue, queue.waiting[0])
    deliver(manager, queue, first)
    assert identity(send(manager, queue)) == (8, 0, 0)


def test_after_the_last_epoch_a_new_producer_id_is_wanted() -> None:
    manager, queue = new_manager(epoch=2**15 - 1), new_queue()
    new_batch(queue)
    first = send(manager, queue)
    manager.on_gap(queue, first)
    put_back(queue, first)
    assert not manager.identify(queue, first)
    assert manager.wants_producer_id
    manager.set_producer_id(9, 0)
    assert identity(send(manager, queue)) == (9, 0, 0)


def test_late_answers_for_an_old_epoch_change_nothing() -> None:
    manager, queue = new_manager(), new_queue()
    new_batch(queue)
    stale = send(manager, queue)
    queue.in_flight.clear()
    manager.on_loss(queue, stale, KafkaError())
    new_batch(queue)
    fresh = send(manager, queue)
    assert identity(fresh) == (7, 1, 0)
    manager.on_gap(queue, stale)
    manager.on_loss(queue, stale, KafkaError())
    deliver(manager, queue, fresh)
    new_batch(queue)
    assert identity(send(manager, queue)) == (7, 1, 1)


# -- partitions that are forgotten


def test_a_forgotten_partition_begins_with_a_higher_epoch() -> None:
    """The leader may still know the batch 0 to 0 of the old one."""
    manager = new_manager()
    assert manager.forget(used_queue(manager))
    queue = new_queue()
    new_batch(queue)
    batch = send(manager, queue)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 0)
    deliver(manager, queue, batch)
    assert manager.forget(queue)
    later = new_queue()
    new_batch(later)
    assert send(manager, later).producer_epoch == 2


def test_partitions_that_were_never_used_cost_no_epoch() -> None:
    manager = new_manager()
    assert manager.forget(new_queue())
    queue = new_queue()
    new_batch(queue)
    assert send(manager, queue).producer_epoch == 0


def test_a_forgotten_partition_of_an_older_producer_id_costs_no_epoch() -> None:
    manager = new_manager()
    old = used_queue(manager)
    manager.set_producer_id(8, 3)
    assert manager.forget(old)
    queue = new_queue()
    new_batch(queue)
    assert send(manager, queue).producer_epoch == 3


def test_without_epochs_left_a_forgotten_partition_costs_a_producer_id() -> None:
    manager = new_manager(epoch=0x7FFF)
    assert manager.forget(used_queue(manager))
    assert manager.wants_producer_id
    queue = new_queue()
    batch = new_batch(queue)
    assert not manager.identify(queue, batch)
    manager.set_producer_id(8, 0)
    assert send(manager, queue).producer_id == 8


def test_with_transactions_what_was_used_is_kept() -> None:
    manager = TransactionManager(Transaction("id", lambda: None))
    manager.set_producer_id(7, 0)
    assert manager.forget(new_queue())
    queue = new_queue()
    queue.sequence.generation = manager.generation
    assert not manager.forget(queue)
