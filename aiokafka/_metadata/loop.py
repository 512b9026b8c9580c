"""The one task that keeps the metadata up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka._metadata.absence import AbsenceLog
from aiokafka._metadata.discovery import FATAL, Discovery
from aiokafka._metadata.refresh import RefreshSchedule, TopicsInUse
from aiokafka._metadata.snapshot import ClusterMetadata
from aiokafka._retry import OutOfTimeError, until
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MetadataEmptyBrokerList,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.net.pool import ConnectionPool, Endpoint
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig

__all__ = ["MetadataLoop"]

log = logging.getLogger("aiokafka.cluster")


class MetadataLoop:
    """Owns `cluster`, the current snapshot, which only this object replaces.

    Asks when an update was requested (with a reason), when a topic is new, and when the snapshot is
    too old. A bad response or a dead broker never ends the task: each waiter gets an error at its
    own deadline.
    """

    def __init__(self, config: ClientConfig, subject: str) -> None:
        """Begin without a snapshot; `subject` is what lines in the log call the client."""
        self.cluster = ClusterMetadata()
        self._log = SubjectLog(log, subject)
        self._absences = AbsenceLog(self._log)
        self.topics = TopicsInUse(config.metadata_max_idle)
        self.error: KafkaError | None = None
        """Why the last refresh failed; None after a good one."""
        self.failing_since = 0.0
        """When the first of the refreshes failed that failed in a row (loop time)."""
        self._accepted_at: float | None = None
        self.asked = 0
        """Counts the refreshes that were begun."""
        self.answered = 0
        """Which of them the newest answer belongs to."""
        self._config = config
        self._discovery = Discovery(config)
        self._loop = asyncio.get_running_loop()
        self._schedule = RefreshSchedule(config, self.topics)
        self._waiters: list[asyncio.Future[None]] = []
        self._refreshes: list[tuple[asyncio.Future[bool], tuple[str, ...]]] = []
        self._dead: BaseException | None = None
        self._refusal: BaseException | None = None
        self._has_unheard = False
        self.cluster.on_request_update(self.force_update)

    # -- asked by others

    @property
    def age(self) -> float | None:
        """Seconds since a broker has given metadata last; None before that."""
        return None if self._accepted_at is None else self._loop.time() - self._accepted_at

    def request_update(self, why: str) -> None:
        """Refresh soon, once for any number of requests, and not more often than the backoff
        allows."""
        self._schedule.request(why)

    def doubt(self, why: str) -> None:
        """Refresh soon, as `request_update` does, by another broker than the last time."""
        self._discovery.doubt()
        self._schedule.request(why)

    def look_elsewhere(self) -> None:
        """Ask another broker than the last time with the next refresh, if it answers soon."""
        self._discovery.look_elsewhere()

    def add_topic(self, topic: str) -> bool:
        """Use `topic`, at least for a while.

        Returns whether it is known already; if not, it is asked for at once.
        """
        is_new = topic not in self.topics
        self.topics.touch(topic, self._loop.time())
        if self.cluster.known_partitions(topic) is not None:
            return True
        if is_new:
            self._schedule.request_new((topic,))
        return False

    def set_topics(self, topics: Iterable[str]) -> bool:
        """Use exactly `topics`, besides those of `add_topic`.

        Returns whether all are known already.
        """
        wanted = frozenset(topics)
        missing = {name for name in wanted if self.cluster.known_partitions(name) is None}
        new = {name for name in missing if name not in self.topics}
        self.topics.pin(wanted)
        if new:
            self._schedule.request_new(new)
        return not missing

    def brokers_asked(self, topic: str) -> str:
        """Return how many brokers have denied a missing `topic`, in words; "" for others."""
        return self._absences.brokers_asked(topic)

    def want_all_topics(self) -> None:
        """Ask for every topic of the cluster from now on, until the next `set_topics`."""
        if not self.topics.want_all:
            self.topics.pin_all()
            self.request_update("all topics are wanted")

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        endpoints: Iterable[BrokerMetadata] = (),
    ) -> None:
        """Take newer (leader id, epoch) from an error in a response (KIP-951).

        The snapshot is replaced at once; waiters are woken in the next turn of the loop, once for
        all the partitions of a response.
        """
        newer = self.cluster.with_leaders(leaders, endpoints)
        if newer is not self.cluster:
            self.cluster = newer
            # A response can name hundreds of leaders, and listeners look at all partitions each
            # time.
            if not self._has_unheard:
                self._has_unheard = True
                self._loop.call_soon(self._tell)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that resolves with the next snapshot or failed refresh."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def next_refresh(self, topics: Iterable[str] = ()) -> asyncio.Future[bool]:
        """Return a future: did the next refresh succeed, and are `topics` known then. Those that
        are not known are asked for soon: the future must not wait for another reason to ask."""
        waiter: asyncio.Future[bool] = self._loop.create_future()
        if self._dead is None:
            names = tuple(topics)
            if missing := [name for name in names if self.cluster.known_partitions(name) is None]:
                self._schedule.request_again(missing)
            self._refreshes.append((waiter, names))
        else:
            waiter.set_result(False)
        return waiter

    def force_update(self) -> asyncio.Future[bool]:
        """Refresh soon, with all topics if none is in use; the future tells whether the next
        refresh succeeded."""
        self._schedule.force("forced by the application")
        return self.next_refresh()

    async def wait_for(
        self, predicate: Callable[[ClusterMetadata], Any], deadline: float, why: str
    ) -> ClusterMetadata:
        """Return the first snapshot, the current one included, for which `predicate` is true.

        Asks for updates meanwhile.

        Raises KafkaTimeoutError at `deadline` (loop time), with the last failed refresh as its
        cause, and authentication errors at once.
        """
        return await self._wait(
            predicate, deadline, why, FATAL, lambda: self._schedule.request(why)
        )

    async def wait_for_topic(
        self, topic: str, predicate: Callable[[ClusterMetadata], Any], deadline: float
    ) -> ClusterMetadata:
        """Wait as `wait_for` does, but ask for this topic only.

        Waits for refused credentials to be accepted again: there was a response before.
        """
        why = f"partitions of topic {topic!r}"
        again = (topic,)
        final = tuple(kind for kind in FATAL if kind not in REFUSALS)
        return await self._wait(
            predicate, deadline, why, final, lambda: self._schedule.request_again(again)
        )

    async def _wait(
        self,
        predicate: Callable[[ClusterMetadata], Any],
        deadline: float,
        why: str,
        final: tuple[type[KafkaError], ...],
        ask: Callable[[], None],
    ) -> ClusterMetadata:
        try:
            async with timeout_at(deadline):
                while not predicate(self.cluster):
                    if self._dead is not None:
                        raise renewed(self._dead)
                    if self._refusal is not None:
                        raise renewed(self._refusal)
                    # Before each wait: the response of a request from before may be older than what
                    # is waited for.
                    ask()
                    await self.changed()
                    # Not before: an old error may be over, and callers that try again at once
                    # would never let the loop find out.
                    if isinstance(self.error, final):
                        raise renewed(self.error)
        except asyncio.TimeoutError:
            if predicate(self.cluster):
                return self.cluster  # in the same turn: the program has stood still
            cause = "; no response so far has it"
            if self.error:
                cause = f"; the last attempt failed: {self.error}"
            raise KafkaTimeoutError(f"metadata: {why}: not in time{cause}") from self.error
        return self.cluster

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Return where a broker, or a bootstrap server (negative id), is reached."""
        if node_id < 0:
            servers = self._discovery.servers
            if -node_id > len(servers):
                return None
            return Endpoint(*servers[-node_id - 1], "bootstrap server")
        broker = self.cluster.broker_metadata(node_id)
        if broker is None:
            return None
        return Endpoint(broker.host, broker.port, f"node {node_id}", self._discovery.origin)

    def refuse_waiters(self, error: BaseException) -> None:
        """Fail all waits with a copy of `error`, now and from now on; the refreshes go on."""
        self._refusal = error
        self._wake_waiters()

    def fail(self, error: BaseException) -> None:
        """Fail all waits, now and from now on, because the task ended with `error`."""
        self._dead = error
        self._end_refresh()

    # -- the task

    async def run(self, pool: ConnectionPool) -> None:
        """Refresh whenever it is due, for ever."""
        while True:
            await self._schedule.wait()
            await self.refresh(pool)

    async def refresh(self, pool: ConnectionPool) -> None:
        """Ask one broker after the other until one responds, in the end the bootstrap servers.

        Raises nothing.
        """
        self.asked += 1
        # Before the request: what is asked for while it is out may have happened after the broker
        # read it, and leads to another one.
        wanted, is_full = self._schedule.take()
        self._log.debug(
            "refreshing metadata of %s", "all topics" if wanted is None else f"{len(wanted)} topics"
        )
        try:
            response = await self._discovery.ask_anybody(pool, self.cluster.node_ids, wanted)
            before = self.cluster.cluster_id
            self._accept(response, is_full, has_all=wanted is None)
            is_sent_back = self._discovery.take_sent_back()
            if before and before != self.cluster.cluster_id:
                pool.leave_all("it is to another cluster")
            elif is_sent_back:
                pool.leave_all("the client was sent back to the bootstrap servers")
            pool.leave_moved()
        except KafkaError as error:
            self._on_failure(error)
        except Exception as error:
            self._log.exception("unexpected error while refreshing metadata")
            self._on_failure(KafkaConnectionError(f"unexpected {error!r} in a metadata response"))
        self._end_refresh()

    def _end_refresh(self) -> None:
        """Resolve the futures that wait for the outcome of a refresh."""
        refreshes, self._refreshes = self._refreshes, []
        for waiter, topics in refreshes:
            if not waiter.done():
                known = all(self.cluster.known_partitions(topic) is not None for topic in topics)
                waiter.set_result(self.error is None and self._dead is None and known)
        self._wake_waiters()

    def _on_failure(self, error: KafkaError) -> None:
        # Once for each outage, however long it lasts.
        level = logging.WARNING if self.error is None else logging.DEBUG
        if self.error is None:
            self.failing_since = self._loop.time()
        self._log.log(level, "Metadata refresh failed: %s", error)
        self.error = error
        self._schedule.note_failure()

    async def fetch_all(self, pool: ConnectionPool, deadline: float | None) -> MetadataResponse:
        """Return a response about all topics; the current snapshot stays as it is."""
        return await self._discovery.ask_beside(pool, self.cluster.node_ids, deadline)

    # -- bootstrap

    async def bootstrap(self, pool: ConnectionPool, deadline: float) -> None:
        """Take the first snapshot from the bootstrap server that responds first.

        Raises ONE KafkaConnectionError with the reason of every server, at the latest at `deadline`
        (loop time); authentication errors as themselves. A broker that has just started, or that
        the controller has lost sight of, is fenced, and may know no broker, itself included: such
        servers are asked again until the deadline.
        """
        wanted = None if self.topics.want_all else self.topics.names()
        backoff = Backoff(self._config.retry_backoff, self._config.retry_backoff_max)
        try:
            response = await until(
                deadline,
                lambda: self._discovery.ask_bootstrap_servers(pool, wanted, deadline),
                lambda _: backoff.next(),
                passes=lambda error: isinstance(error.__cause__, MetadataEmptyBrokerList),
            )
        except OutOfTimeError as late:
            if late.failure is None:
                raise KafkaTimeoutError("no bootstrap server answered in time") from None
            raise late.failure from late.failure.__cause__
        self._accept(response, is_full=True, has_all=wanted is None)
        self._end_refresh()

    # -- the snapshot

    def _accept(self, response: MetadataResponse, is_full: bool, has_all: bool) -> None:
        self.answered = self.asked
        self._accepted_at = self._loop.time()
        if self.error is not None:
            self._log.info("Metadata refresh works again")
        self.error = None
        self._schedule.note_success(is_full)
        before = self.cluster
        after = before.updated(
            response, is_full=is_full, has_all=has_all, keep=self._schedule.single_topics
        )
        if before.cluster_id and after.cluster_id != before.cluster_id:
            self._log.warning(
                "The cluster id changed from %s to %s", before.cluster_id, after.cluster_id
            )
        # In one step: no task ever sees a snapshot that is half of two responses.
        self.cluster = after
        names = self.topics.names()
        told_of = None if has_all else {topic.name for topic in response.topics}
        denied = self._absences.look(after, names, self._discovery.told_by, told_of)
        self._tell()
        lacking = after.topics_without_leaders(names) | after.doubtful_topics()
        if lacking or denied:
            self._schedule.request_again(lacking | denied)
        if lacking or after.missing_topics(names):
            # This broker may lag behind, and the others may know them.
            self._discovery.look_elsewhere()
        self._schedule.note_missing(after.missing_topics(self.topics.pinned))

    def _tell(self) -> None:
        """Wake all that wait for a new snapshot."""
        self._has_unheard = False
        self._wake_waiters()
        self.cluster.notify_listeners()

    def _wake_waiters(self) -> None:
        # Swapped first: one that is woken may wait again at once, for the next.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
