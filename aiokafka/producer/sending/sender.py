"""The sender of a producer: one NodeSender for each broker, and the producer id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiokafka._health import newest
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff, OutOfTimeError, RetryNodes, until
from aiokafka._tasks import TaskOwner
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    ProducerFenced,
    UnsupportedVersionError,
    for_code,
    renewed,
)
from aiokafka.producer._health import ProducerHealthMonitor
from aiokafka.producer._meter import ProducerMeter
from aiokafka.producer.batches.appender import PartitionQueue
from aiokafka.producer.batches.batch import BatchState
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sending.delivery import Delivery
from aiokafka.producer.sending.node_sender import NodeSender
from aiokafka.producer.sending.sequencer import Sequencer
from aiokafka.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata

__all__ = ["ProducerIdentity", "Sender", "check", "identity_in", "init_producer_id", "retry"]


# -- Ask brokers for a producer id, and retry until a deadline


T = TypeVar("T")

_NO_TIMEOUT = 0x7FFFFFFF

# A coordinator that is still writing the markers of the last transaction is ready in milliseconds.
_CONCURRENT_BACKOFF = 0.002


class ProducerIdentity(NamedTuple):
    """What brokers know a producer by."""

    producer_id: int
    epoch: int


async def retry(
    client: AIOKafkaClient,
    what: str,
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    passing: tuple[type[KafkaError], ...] = (),
) -> T:
    """Repeat `attempt` while its error is retriable or one of `passing`; return its result.

    `attempt` ends by `deadline` (loop time) without help, with asyncio.TimeoutError or with a
    KafkaTimeoutError that says more: a timer around it could go off first and lose the reason.
    Raises KafkaTimeoutError at the deadline with the last failure as its cause.
    """
    backoff = Backoff(client.config.retry_backoff, client.config.retry_backoff_max)
    concurrent = Backoff(_CONCURRENT_BACKOFF, client.config.retry_backoff_max)

    waiting = client.waits.on(what)

    def pause(error: KafkaError) -> float:
        waiting.note(error)
        return (concurrent if isinstance(error, ConcurrentTransactions) else backoff).next()

    def passes(error: KafkaError) -> bool:
        return error.retriable or isinstance(error, passing)

    try:
        with waiting:
            return await until(deadline, attempt, pause, passes)
    except OutOfTimeError as late:
        text = f"{what}: not in time; last failure: {late.failure or 'no answer'}"
        raise KafkaTimeoutError(text) from late.failure


async def init_producer_id(client: AIOKafkaClient, deadline: float) -> ProducerIdentity:
    """Return a producer id and its first epoch, for a producer without transactions.

    Any broker can give them; one that did not is not asked again while there are others.

    Raises KafkaTimeoutError at `deadline` (loop time), UnsupportedVersionError before Kafka 0.11,
    other refusals as they are.
    """

    nodes = RetryNodes(client)

    async def ask(node_id: int) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        response = await client.send(node_id, request)
        what = f"node {node_id} gave no producer id"
        check(response.error_code, what)
        return identity_in(response, what)

    what = "a producer id, which idempotence needs"
    return await retry(client, what, deadline, lambda: nodes.ask(ask, deadline))


def identity_in(response: InitProducerIdResponse, what: str) -> ProducerIdentity:
    """Return the identity in a response without an error.

    Raises KafkaProtocolError for a negative id or epoch. Brokers would take records under it, but
    neither recognize duplicates nor count the records to a transaction.
    """
    identity = ProducerIdentity(response.producer_id, response.producer_epoch)
    if min(identity) < 0:
        raise KafkaProtocolError(f"{what}: the response has id {identity[0]}, epoch {identity[1]}")
    return identity


def check(error_code: int, what: str) -> None:
    """Raise the exception for `error_code`, unless that is 0."""
    if error_code == InvalidProducerEpoch.errno:
        # Coordinators before Kafka 2.7 respond with this code to a producer that was fenced.
        raise ProducerFenced()
    if error_code:
        error = for_code(error_code)
        raise ProducerFenced() if error is ProducerFenced else error(what)


log = logging.getLogger("aiokafka.producer.producer")


class Sender:
    """Routes every partition queue to the NodeSender of its leader.

    Owns: the NodeSenders and the tasks (`owner`), among them `sender_task`, which gives up batches
    whose time is up.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ProducerConfig,
        *,
        hashes_keys: bool,
    ) -> None:
        self._client = client
        self._config = config
        self._log = SubjectLog(log, config.subject)
        # The producer must not be among what tasks refer to, or it would never be garbage.
        self.owner = TaskOwner(config.client.client_id, self._on_task_failed)
        self._loop = asyncio.get_running_loop()
        self.meter = ProducerMeter(self._log, config.metrics_collector)
        self.accumulator = MessageAccumulator(
            config, self._loop, hashes_keys=hashes_keys, on_batch=self._on_batch, meter=self.meter
        )
        self.delivery = Delivery(
            client,
            config,
            self.accumulator,
            self.meter,
            lambda queue: self._route(queue, client.cluster),
        )
        self.sender_task: asyncio.Task[None] | None = None
        self._nodes: dict[int, NodeSender] = {}
        self._something = asyncio.Event()
        self._sent: dict[str, int] = {}
        """How many batches had gone to each topic when `_keep_topics` looked last."""
        self.health = ProducerHealthMonitor(client, self.delivery, self._nodes, self.owner)

    @property
    def _sender_task(self) -> asyncio.Task[None] | None:
        """The name of `sender_task` that health checks of applications use: when it is done, the
        producer is not alive."""
        return self.sender_task

    @property
    def _acks(self) -> int:
        return self._config.acks

    @property
    def requests_in_flight(self) -> int:
        """Requests with batches that were not answered yet."""
        return sum(node.in_flight for node in list(self._nodes.values()))

    async def land(self, deadline: float) -> None:
        """Wait until every request of this moment is answered, or will not be.

        That is longer than until its batches are settled, where their time is up before. Raises
        KafkaTimeoutError at `deadline` (loop time).
        """
        answers = [answer for node in self._nodes.values() for answer in node.answers]
        if not answers:
            return
        left = max(0.0, deadline - self._loop.time())
        _, pending = await asyncio.wait(answers, timeout=left)
        if pending:
            raise KafkaTimeoutError(f"{len(pending)} Produce requests got no response in time")

    async def start(self) -> None:
        """Start the background tasks; those of a broker are started when it is first needed. It
        waits for nothing: tests of programs put coroutine functions in its place."""
        self.owner.keep_context()
        self.sender_task = self.owner.start(self._expire(), name="expiry")
        if self.delivery.sequencer is not None and self.delivery.transaction is None:
            self.owner.start(self._renew_producer_id(), name="producer-id")
        self._client.cluster.add_listener(self._on_cluster)

    def close(self) -> None:
        """Stop listening for metadata; the tasks are ended by their owner."""
        self._client.cluster.remove_listener(self._on_cluster)
        for node in self._nodes.values():
            node.close()

    def _on_task_failed(self, error: BaseException) -> None:
        """Fail all that waits: a task died, which is a bug, so nothing is delivered any more."""
        self.health.look()
        self.accumulator.appender.accept(False)
        self.accumulator.memory.refuse_waiters(lambda: renewed(error))
        self.fail_all(error)

    def _on_bug(self, name: str, error: BaseException) -> None:
        """End the producer at once, for a bug in a callback: no task learns of it, and the one of
        the same broker may wait for its connection for long.

        Raises `error` again if it is meant to end the program, such as KeyboardInterrupt.
        """
        self.owner.fail(name, error)
        if not isinstance(error, Exception):
            raise error

    # -- routes

    def _on_batch(self, queue: PartitionQueue) -> None:
        """Show `queue`, whose batch was opened or sealed, to the sender of its leader."""
        if not self._something.is_set():
            self._something.set()
        node = queue.node
        if node is None:
            self._client.touch_topic(queue.partition.topic)
            self._route(queue, self._client.cluster)
        else:
            node.add(queue)

    def _route(self, queue: PartitionQueue, cluster: ClusterMetadata) -> None:
        """Hand `queue` to the NodeSender of the partition's leader."""
        leader = cluster.leader_for_partition(queue.partition)
        if leader is None or leader < 0:
            queue.assign(None)
            if queue.waiting:
                topic, number = queue.partition
                # After a long outage nothing else may have used it, and the response leaves it out.
                self._client.touch_topic(topic)
                self._client.look_for_leader(queue.partition, f"no leader for {topic}-{number}")
            return
        node = self._node(leader)
        queue.assign(node)
        node.add(queue)

    def _node(self, node_id: int) -> NodeSender:
        node = self._nodes.get(node_id)
        if node is None:
            # Not in the context of the program that sends the first record there.
            node = self._nodes[node_id] = self.owner.context.run(self._new_node, node_id)
            self.owner.start(node.run(), name=f"sender-{node_id}")
        return node

    def _new_node(self, node_id: int) -> NodeSender:
        on_bug = partial(self._on_bug, f"sender-{node_id}")
        return NodeSender(node_id, self.delivery, self.health.look, on_bug)

    def _on_cluster(self, cluster: ClusterMetadata) -> None:
        """Follow leaders and partitions that have changed."""
        self.health.look()
        # Made from the last metadata. The next record of each topic has them made again, with the
        # partitions of now.
        self.accumulator.appender.forget_lanes()
        if self.owner.is_stopping:
            return
        for queue in self.accumulator.forget_queues(cluster, self._may_forget):
            queue.assign(None)
        sequencer = self.delivery.sequencer
        for queue in self.accumulator.queues.values():
            if sequencer is not None:
                sequencer.note_topic(queue, cluster.topic_id(queue.partition.topic))
            # An idle queue without a leader costs nothing: with its next batch it is routed
            # (`_on_batch`).
            if queue.node is not None or queue.waiting:
                self._route(queue, cluster)
        self._retire_nodes(cluster)

    def _retire_nodes(self, cluster: ClusterMetadata) -> None:
        """End the NodeSenders of brokers that have left the cluster.

        Most ids never come back; where brokers are replaced rather than restarted they would add
        up.
        """
        gone = self._nodes.keys() - set(cluster.node_ids)
        if not gone:
            return
        used = {queue.node for queue in self.accumulator.queues.values()}
        for node_id in gone:
            node = self._nodes[node_id]
            # With requests in flight it stays: their batches wait for what becomes of them.
            if node not in used and not node.is_busy:
                del self._nodes[node_id]
                node.retire()
                self.delivery.keep_error(newest([], [node.contact]))

    def _may_forget(self, queue: PartitionQueue) -> bool:
        """Return whether the sequence numbers of an idle `queue` are dispensable."""
        sequencer = self.delivery.sequencer
        return sequencer is None or sequencer.forget(queue)

    # -- expiry

    async def _expire(self) -> None:
        """Give up each batch when its delivery timeout is over.

        One look per timeout is enough, although batches come without end:

        1. The task looks, and sleeps until `nearest`, the earliest deadline of all pending batches.
        2. A batch that is made meanwhile has `delivery_timeout_ms` from its making, the same as the
           others. So its deadline is later than theirs: `nearest` stays right.
        3. The parts of a batch that was split keep its deadline, so they change nothing either.
        4. At `nearest` the task fails what is due, and finds the next one.

        What happens to a batch whose time is up depends on where it is: see `Delivery.expire`.
        """
        pending = self.accumulator.pending
        while True:
            if not pending:
                # Before the wait, however long it is: this was sent lately.
                self._keep_topics()
                self._something.clear()
                await self._something.wait()
            self._keep_topics()
            now = self._loop.time()
            for batch, queue in pending.entries():
                if batch.deadline <= now:
                    self.delivery.expire(queue, batch)
            nearest = min((batch.deadline for batch in pending), default=now)
            # Earlier than that, because topics that nothing used for a while are forgotten.
            idle = self._config.client.metadata_max_idle / 2
            await asyncio.sleep(min(nearest - now, idle))

    def _keep_topics(self) -> None:
        """Keep topics with something to send in use, however long it takes, and those to which
        something was sent since the last look: `Appender.append` asks the client for none of them.
        """
        sent = {topic: counts.batches for topic, counts in self.meter.topics.items()}
        used = {topic for topic, count in sent.items() if count != self._sent.get(topic)}
        self._sent = sent
        used.update(queue.partition.topic for _, queue in self.accumulator.pending.entries())
        for topic in used:
            self._client.touch_topic(topic)

    def fail_all(self, error: BaseException) -> None:
        """Fail everything that was not delivered: it will not be sent any more."""
        for batch, queue in self.accumulator.pending.entries():
            if batch.state == BatchState.IN_FLIGHT:
                self.delivery.abandon(batch, error)
            else:
                self.delivery.drop(queue, batch, error)

    def drop_waiting(self, error: BaseException) -> None:
        """Fail everything that is not in flight."""
        for queue in self.accumulator.queues.values():
            if queue.waiting:
                self.delivery.fail_waiting(queue, error)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Send the batches of these partitions, which the coordinator has added now."""
        for partition in partitions:
            queue = self.accumulator.queue(partition)
            if queue.node is not None:
                queue.node.add(queue)

    # -- the producer id

    async def obtain_producer_id(self, deadline: float) -> None:
        """Make the producer idempotent. Raises what `init_producer_id` raises."""
        sequencer = Sequencer()
        sequencer.set_producer_id(*await init_producer_id(self._client, deadline))
        self.delivery.number_batches(sequencer)

    async def try_to_obtain_producer_id(self, deadline: float) -> None:
        """Do the same, but go on without a producer id if brokers have none for this client, or if
        there are none: a test has put something else in the place of `bootstrap()`."""
        if not self._client.cluster.brokers():
            return
        try:
            await self.obtain_producer_id(deadline)
        except (UnsupportedVersionError, ClusterAuthorizationFailedError) as error:
            self._log.warning(
                "Idempotence is not available, so retries may write a record twice (set "
                "enable_idempotence=False to agree): %s",
                error,
            )

    async def _renew_producer_id(self) -> None:
        """Get another producer id when the brokers do not accept the old one, or it has no epochs
        left.
        """
        wanted = self.delivery.identity_wanted
        sequencer = self.delivery.sequencer
        backoff = Backoff(self._config.client.retry_backoff, self._config.client.retry_backoff_max)
        while sequencer is not None:
            await wanted.wait()
            wanted.clear()
            if not sequencer.wants_producer_id:
                continue
            try:
                deadline = self._loop.time() + self._config.client.request_timeout
                identity = await init_producer_id(self._client, deadline)
            except KafkaError as error:
                self._log.warning("No new producer id: %s", error)
                sequencer.note_no_id(error)
                self.delivery.keep_error((self._loop.time(), error))
                # Asked for again after the pause: nothing else would.
                wanted.set()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            sequencer.set_producer_id(*identity)
            for queue in self.accumulator.queues.values():
                if queue.waiting and queue.node is not None:
                    queue.node.add(queue)
