"""The sender of a producer: routes partitions to brokers, expires batches, gets producer ids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
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
from aiokafka.producer._metrics import ProducerMeter
from aiokafka.producer.batch import BatchState
from aiokafka.producer.batch_completion import BatchCompletion
from aiokafka.producer.message_accumulator import MessageAccumulator, PartitionQueue
from aiokafka.producer.node_sender import NodeSender
from aiokafka.producer.transaction_manager import ProducerIdState
from aiokafka.protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata

__all__ = ["ProducerIdentity", "Sender", "check", "identity_in", "init_producer_id", "retry"]


# -- Request a producer id, and retry until a deadline


T = TypeVar("T")

_NO_TIMEOUT = 0x7FFFFFFF

# First backoff in seconds after CONCURRENT_TRANSACTIONS: the coordinator usually completes the last
# transaction within milliseconds. The backoff grows up to `retry_backoff_max_ms`.
_CONCURRENT_BACKOFF = 0.002


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch, from an InitProducerId response (KIP-98)."""

    producer_id: int
    epoch: int


async def retry(
    client: AIOKafkaClient,
    what: str,
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    also_retriable: tuple[type[KafkaError], ...] = (),
) -> T:
    """Call `attempt` until it succeeds, and return its result. Errors that are retriable or in
    `also_retriable` are retried after a backoff.

    `attempt` must end by `deadline` (loop time) itself, with asyncio.TimeoutError, or with a
    KafkaTimeoutError that has the reason in its text: a timer here could fire first, and the reason
    would be lost. Raises KafkaTimeoutError at the deadline with the last failure as its cause.
    """
    waiting = client.waits.on(what)
    backoffs: dict[bool, Backoff] = {}  # created after a failure, because most calls have none

    def pause(error: KafkaError) -> float:
        waiting.note(error)
        is_concurrent = isinstance(error, ConcurrentTransactions)
        if is_concurrent not in backoffs:
            initial = _CONCURRENT_BACKOFF if is_concurrent else client.config.retry_backoff
            backoffs[is_concurrent] = Backoff(initial, client.config.retry_backoff_max)
        return backoffs[is_concurrent].next()

    def is_retriable(error: KafkaError) -> bool:
        return error.retriable or isinstance(error, also_retriable)

    try:
        with waiting:
            return await until(deadline, attempt, pause, is_retriable)
    except OutOfTimeError as late:
        text = f"{what}: timed out; last failure: {late.failure or 'no response'}"
        raise KafkaTimeoutError(text) from late.failure


async def init_producer_id(client: AIOKafkaClient, deadline: float) -> ProducerIdentity:
    """Return a producer id and its first epoch, for a producer without transactions.

    Any broker can allocate a producer id. After a retriable error the request is sent to another
    broker.

    Raises KafkaTimeoutError at `deadline` (loop time), UnsupportedVersionError before Kafka 0.11,
    and the error of a response if it is not retriable.
    """

    nodes = RetryNodes(client)

    async def ask(node_id: int) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT)
        response = await client.send(node_id, request)
        what = f"node {node_id} returned no producer id"
        check(response.error_code, what)
        return identity_in(response, what)

    what = "a producer id, which idempotence needs"
    return await retry(client, what, deadline, lambda: nodes.ask(ask, deadline))


def identity_in(response: InitProducerIdResponse, what: str) -> ProducerIdentity:
    """Return the producer id and epoch of a response without an error.

    Raises KafkaProtocolError for a negative id or epoch. Brokers would accept records with a
    negative id, but neither recognize duplicates nor add the records to a transaction.
    """
    identity = ProducerIdentity(response.producer_id, response.producer_epoch)
    if min(identity) < 0:
        raise KafkaProtocolError(f"{what}: the response has id {identity[0]}, epoch {identity[1]}")
    return identity


def check(error_code: int, what: str) -> None:
    """Raise the exception for `error_code`, with the message `what`; do nothing for code 0."""
    if error_code == InvalidProducerEpoch.errno:
        # Coordinators before Kafka 2.7 respond with this code to a producer that was fenced.
        raise ProducerFenced()
    if error_code:
        error = for_code(error_code)
        raise ProducerFenced() if error is ProducerFenced else error(what)


# -- The sender


log = logging.getLogger("aiokafka.producer.producer")


class Sender:
    """Routes every partition queue to the NodeSender of its leader.

    Owns: the NodeSenders and the background tasks (`owner`). The task `sender_task` fails batches
    whose delivery timeout is over.
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
        # Tasks hold no reference to the producer, so that an abandoned producer is
        # garbage-collected.
        self.owner = TaskOwner(config.client.client_id, self._on_task_failed)
        self._loop = asyncio.get_running_loop()
        self.meter = ProducerMeter(self._log, config.metrics_collector)
        self.accumulator = MessageAccumulator(
            config, self._loop, hashes_keys=hashes_keys, sender=self, meter=self.meter
        )
        self.completion = BatchCompletion(client, config, self.accumulator, self.meter, self)
        self.sender_task: asyncio.Task[None] | None = None
        self._nodes: dict[int, NodeSender] = {}
        self._sent: dict[str, int] = {}
        """The number of batches by topic, as of the last `_touch_topics`."""
        self.health = ProducerHealthMonitor(client, self.completion, self._nodes, self.owner)

    @property
    def _sender_task(self) -> asyncio.Task[None] | None:
        """The name of `sender_task` in aiokafka 0.14, which health checks of applications read."""
        return self.sender_task

    @property
    def _acks(self) -> int:
        return self._config.acks

    @property
    def requests_in_flight(self) -> int:
        """The number of in-flight Produce requests."""
        return sum(len(node.requests) for node in list(self._nodes.values()))

    async def wait_for_responses(self, deadline: float) -> None:
        """Wait until every request that is in flight now has a response, or has failed. A request
        may be in flight although all its batches have timed out.

        Raises KafkaTimeoutError at `deadline` (loop time).
        """
        responses = [each.response for node in self._nodes.values() for each in node.requests]
        if not responses:
            return
        left = max(0.0, deadline - self._loop.time())
        _, pending = await asyncio.wait(responses, timeout=left)
        if pending:
            raise KafkaTimeoutError(f"{len(pending)} Produce requests got no response in time")

    async def start(self) -> None:
        """Start the background tasks, except those of NodeSenders, which `_node` starts.

        Awaits nothing, but is a coroutine function because tests of applications replace `start` by
        a coroutine function.
        """
        self.owner.keep_context()
        self.sender_task = self.owner.start(self._expire_batches(), name="expiry")
        if self.completion.id_state is not None and self.completion.transaction is None:
            self.owner.start(self._renew_producer_id(), name="producer-id")
        self._client.cluster.add_listener(self._on_cluster)

    def close(self) -> None:
        """Stop listening for metadata, and close the NodeSenders. The caller stops `owner`."""
        self._client.cluster.remove_listener(self._on_cluster)
        for node in self._nodes.values():
            node.close()

    def _on_task_failed(self, error: BaseException) -> None:
        """Fail all records and waiting calls, because a background task has ended with `error`, a
        bug: no record can be delivered any more."""
        self.health.look()
        self.accumulator.accept(False)
        self.accumulator.memory.refuse_waiters(lambda: renewed(error))
        self.fail_all(error)

    def on_bug(self, name: str, error: BaseException) -> None:
        """Fail the producer at once with `error`, a bug, which a callback of the NodeSender `name`
        has raised. A callback is no task, so the TaskOwner does not notice the error itself.

        Raises `error` again if it is not an Exception, such as KeyboardInterrupt.
        """
        self.owner.fail(name, error)
        if not isinstance(error, Exception):
            raise error

    # -- routes

    def route_new(self, queue: PartitionQueue) -> None:
        """Route `queue`, which has a new batch but no NodeSender, and keep its topic in the
        metadata."""
        self._client.touch_topic(queue.partition.topic)
        self.route(queue, self._client.cluster)

    def route(self, queue: PartitionQueue, cluster: ClusterMetadata) -> None:
        """Assign `queue` to the NodeSender of the leader, and notify this NodeSender. Without a
        leader, assign no NodeSender, and request metadata if a batch waits."""
        leader = cluster.leader_for_partition(queue.partition)
        if leader is None or leader < 0:
            queue.assign(None)
            if queue.waiting:
                topic, number = queue.partition
                # Keep the topic in the metadata: during a long outage its last use may be longer
                # ago than `metadata_max_idle_ms`.
                self._client.touch_topic(topic)
                self._client.look_for_leader(queue.partition, f"no leader for {topic}-{number}")
            return
        node = self._node(leader)
        queue.assign(node)
        node.add(queue)

    def _node(self, node_id: int) -> NodeSender:
        node = self._nodes.get(node_id)
        if node is None:
            # Use the context variables of `start()`, not those of the sending task.
            node = self.owner.context.run(NodeSender, node_id, self)
            self._nodes[node_id] = node
            self.owner.start(node.run(), name=f"sender-{node_id}")
        return node

    def _on_cluster(self, cluster: ClusterMetadata) -> None:
        """Route queues again after a change of leaders or partitions."""
        self.health.look()
        # Clear the cached partitions, so that the next record of a topic uses the new metadata.
        self.accumulator.clear_topics()
        if self.owner.is_stopping:
            return
        for queue in self.accumulator.forget_queues(cluster, self._may_forget):
            queue.assign(None)
        id_state = self.completion.id_state
        for queue in self.accumulator.queues.values():
            if id_state is not None:
                id_state.set_topic_id(queue, cluster.topic_id(queue.partition.topic))
            # `route_new` routes an idle queue without a NodeSender when its next batch is opened.
            if queue.node is not None or queue.waiting:
                self.route(queue, cluster)
        self._retire_nodes(cluster)

    def _retire_nodes(self, cluster: ClusterMetadata) -> None:
        """End the NodeSenders of brokers that have left the cluster.

        Otherwise idle NodeSenders would accumulate in clusters where brokers are replaced by
        brokers with new node ids.
        """
        gone = self._nodes.keys() - set(cluster.node_ids)
        if not gone:
            return
        used = {queue.node for queue in self.accumulator.queues.values()}
        for node_id in gone:
            node = self._nodes[node_id]
            # A NodeSender with in-flight requests stays, to complete their batches.
            if node not in used and not node.is_busy:
                del self._nodes[node_id]
                node.retire()
                self.completion.keep_error(newest([], [node.health]))

    def _may_forget(self, queue: PartitionQueue) -> bool:
        """Return whether `queue`, which has no batches, can be removed; if so, its sequence number
        is removed as well."""
        id_state = self.completion.id_state
        return id_state is None or id_state.forget(queue)

    # -- timeouts

    async def _expire_batches(self) -> None:
        """Fail each batch when its delivery timeout is over.

        The task can sleep until the earliest deadline, although batches are added during the sleep:

        1. The task checks all pending batches, and sleeps until `nearest`, their earliest deadline.
        2. A batch that is opened during the sleep has the same `delivery_timeout_ms`, so its
           deadline is later than `nearest`.
        3. The parts of a split batch keep the deadline of the batch, so `nearest` stays correct.
        4. At `nearest` the task fails the batches that are due, and finds the next deadline.

        What happens to a batch depends on its state: see `BatchCompletion.expire`.
        """
        pending = self.accumulator.pending
        while True:
            if not pending:
                # Touch the topics before the wait, which may be long.
                self._touch_topics()
                await pending.wait_for_next()
            self._touch_topics()
            now = self._loop.time()
            for batch, queue in pending.entries():
                if batch.deadline <= now:
                    self.completion.expire(queue, batch)
            nearest = min((batch.deadline for batch in pending), default=now)
            # Touch topics at least twice per `metadata_max_idle_ms`, or the metadata would drop
            # them.
            idle = self._config.client.metadata_max_idle / 2
            await asyncio.sleep(min(nearest - now, idle))

    def _touch_topics(self) -> None:
        """Mark topics as used, so that they stay in the metadata: those with pending batches, or
        with batches since the last call.

        (`MessageAccumulator.append` does not do this, because it runs for each record.)
        """
        sent = {topic: counts.batches for topic, counts in self.meter.topics.items()}
        used = {topic for topic, count in sent.items() if count != self._sent.get(topic)}
        self._sent = sent
        used.update(queue.partition.topic for _, queue in self.accumulator.pending.entries())
        for topic in used:
            self._client.touch_topic(topic)

    def fail_all(self, error: BaseException) -> None:
        """Fail all undelivered batches, also those in flight."""
        for batch, queue in self.accumulator.pending.entries():
            if batch.state == BatchState.IN_FLIGHT:
                self.completion.abandon(batch, error)
            else:
                self.completion.drop(queue, batch, error)

    def drop_waiting(self, error: BaseException) -> None:
        """Fail all batches that are not in flight."""
        for queue in self.accumulator.queues.values():
            if queue.waiting:
                self.completion.fail_waiting(queue, error)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Send the batches of `partitions`, which the coordinator has added to the transaction."""
        for partition in partitions:
            queue = self.accumulator.queue(partition)
            if queue.node is not None:
                queue.node.add(queue)

    # -- the producer id

    async def obtain_producer_id(self, deadline: float) -> None:
        """Get a producer id, which makes the producer idempotent. Raises the errors of
        `init_producer_id`."""
        id_state = ProducerIdState()
        id_state.set_producer_id(*await init_producer_id(self._client, deadline))
        self.completion.set_id_state(id_state)

    async def try_to_obtain_producer_id(self, deadline: float) -> None:
        """Make the producer idempotent, if possible. If the brokers are too old, or the client is
        not authorized, log a warning instead. Raises other errors of `init_producer_id`.

        Does nothing without a known broker: the test of an application may have replaced
        `bootstrap()`.
        """
        if not self._client.cluster.brokers():
            return
        try:
            await self.obtain_producer_id(deadline)
        except (UnsupportedVersionError, ClusterAuthorizationFailedError) as error:
            self._log.warning(
                "Idempotence is not available, so retries may write a record twice (set "
                "enable_idempotence=False to accept this): %s",
                error,
            )

    async def _renew_producer_id(self) -> None:
        """Get another producer id whenever `ProducerIdState.wants_producer_id` is set: brokers no
        longer accept the id, or its last epoch is used up. Runs until cancelled.
        """
        wanted = self.completion.identity_wanted
        id_state = self.completion.id_state
        backoff = Backoff(self._config.client.retry_backoff, self._config.client.retry_backoff_max)
        while id_state is not None:
            await wanted.wait()
            wanted.clear()
            if not id_state.wants_producer_id:
                continue
            try:
                deadline = self._loop.time() + self._config.client.request_timeout
                identity = await init_producer_id(self._client, deadline)
            except KafkaError as error:
                self._log.warning("No new producer id, trying again: %s", error)
                id_state.set_id_error(error)
                self.completion.keep_error((self._loop.time(), error))
                # Set the event for a retry after the backoff: no batch sets it again.
                wanted.set()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            id_state.set_producer_id(*identity)
            for queue in self.accumulator.queues.values():
                if queue.waiting and queue.node is not None:
                    queue.node.add(queue)
