"""The task that refreshes the metadata, its schedule, and waits for metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout, timeout_at
from aiokafka._config.options import brief, require_sendable
from aiokafka._log import SubjectLog
from aiokafka._metadata.discovery import FATAL, MOST_ASKED, Discovery
from aiokafka._retry import Backoff, OutOfTimeError, until
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MetadataEmptyBrokerList,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.net.pool import ConnectionPool, Endpoint
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig

__all__ = [
    "AbsenceLog",
    "MetadataLoop",
    "RefreshSchedule",
    "TopicsInUse",
    "check_name",
    "is_absent",
    "wait_for_partition",
    "wait_for_topic",
]


# -- Log topics in use that do not exist, or that the client is not authorized to use


_MISSING = UnknownTopicOrPartitionError.errno
_ADVICE = {
    _MISSING: "no broker knows it%s. The brokers may be creating it; if not, create it or check "
    "its name. The client keeps asking",
    InvalidTopicError.errno: "no topic can have this name",
}


class AbsenceLog:
    """Logs one line when a topic cannot be used, and one line when the topic can be used again.

    One broker may lag behind. So a topic counts as missing only after several responses with
    UNKNOWN_TOPIC_OR_PARTITION: as many as the cluster has brokers, but `MOST_ASKED` at most. Owns
    the logged error code of each topic, and the brokers that reported a topic as unknown.
    """

    def __init__(self, log: SubjectLog) -> None:
        self._log = log
        self._logged: dict[str, int] = {}
        # By topic: the broker id of the sender of each response that reported the topic as unknown;
        # None for a bootstrap server. Two responses of one broker count as two, so that the warning
        # about the topic does not wait for brokers that do not respond.
        self._denials: dict[str, list[int | None]] = {}
        self._brokers = 1

    def look(
        self,
        cluster: ClusterMetadata,
        topics: Iterable[str],
        node_id: int | None,
        covered: Set[str | None] | None,
    ) -> set[str]:
        """Log which of `topics` cannot be used according to the new snapshot `cluster`, and which
        can be used again.

        Args:
            topics: The topics in use.
            node_id: The broker whose response led to the snapshot; None for a bootstrap server.
            covered: The topics of the response; None for a response about all topics.

        Returns the unknown topics that are not logged yet, because too few responses report them.
        """
        used = dict.fromkeys(topics)
        absent = {name: cluster.topic_error(name) for name in used if is_absent(cluster, name)}
        self._brokers = max(1, len(cluster.node_ids))
        denials, self._denials = self._denials, {}
        logged, self._logged = self._logged, {}
        undecided = set()
        for name, code in absent.items():
            by = self._denials[name] = denials.get(name, [])
            is_undecided = code == _MISSING and len(by) < min(self._brokers, MOST_ASKED)
            if is_undecided and (covered is None or name in covered):
                by.append(node_id)
                is_undecided = len(by) < min(self._brokers, MOST_ASKED)
            if is_undecided:
                undecided.add(name)
                continue
            self._logged[name] = code
            if logged.get(name) != code:
                advice = _ADVICE.get(code) or str(for_code(code)())
                if code == _MISSING:
                    advice %= self.brokers_asked(name)
                self._log.warning("Topic %r cannot be used: %s", name, advice, topic=name)
        for name in logged.keys() - absent.keys():
            if cluster.known_partitions(name) is not None:
                self._log.info("Topic %r can be used now", name)
            elif name in used:
                # The topic has a temporary error now: log later that the topic can be used again.
                self._logged[name] = logged[name]
        return undecided

    def brokers_asked(self, topic: str) -> str:
        """Return a text with the number of brokers that reported `topic` as unknown; "" for 0."""
        by = self._denials.get(topic)
        return f" (asked: {min(len({*by}), self._brokers)} of {self._brokers})" if by else ""


def is_absent(cluster: ClusterMetadata, topic: str) -> bool:
    """Return whether `topic` has no known partitions, and a lasting error in the last response:
    UNKNOWN_TOPIC_OR_PARTITION, or an error that is not retriable. Other errors, such as
    LEADER_NOT_AVAILABLE, are temporary."""
    code = cluster.topic_error(topic)
    is_lasting = code == _MISSING or not for_code(code).retriable
    return bool(code) and is_lasting and cluster.known_partitions(topic) is None


# -- The topics to request, and the schedule of refreshes


log = logging.getLogger("aiokafka.cluster")

# Minimum of metadata_max_age_ms, in seconds.
_LEAST_AGE = 0.05

# Longest pause in seconds between requests for a missing topic of a consumer.
_LONGEST_WAIT_FOR_TOPIC = 5.0


class TopicsInUse:
    """The topics in use: those of a consumer (pinned), and those that a producer used recently
    (KIP-526). `want_all`: whether all topics of the cluster are in use."""

    def __init__(self, max_idle: float) -> None:
        self._max_idle = max_idle
        self._pinned: frozenset[str] = frozenset()
        self._touched: dict[str, float] = {}
        self.want_all = False

    def __contains__(self, topic: str) -> bool:
        return topic in self._touched or topic in self._pinned

    def names(self) -> frozenset[str]:
        """Return the names of all topics whose metadata is requested: topics that a caller has
        pinned, and topics that were used lately."""
        return self._pinned.union(self._touched)

    @property
    def pinned(self) -> frozenset[str]:
        """The topics of the last `pin`."""
        return self._pinned

    def pin(self, topics: Iterable[str]) -> None:
        """Replace the topics of a consumer by `topics`."""
        self._pinned = frozenset(topics)
        self.want_all = False

    def pin_all(self) -> None:
        """Keep every topic of the cluster in use, until the next `pin`."""
        self.want_all = True

    def touch(self, topic: str, now: float) -> None:
        """Keep `topic` in use until `max_idle` seconds after `now` (loop time)."""
        self._touched[topic] = now

    def evict(self, now: float) -> None:
        """Remove the topics whose last `touch` is more than `max_idle` seconds ago."""
        limit = now - self._max_idle
        for topic in [topic for topic, used in self._touched.items() if used < limit]:
            del self._touched[topic]


class RefreshSchedule:
    """Owns the pending requests for a refresh, and the backoff between refreshes.

    A refresh is full (all topics in use) if a full refresh was requested, or if the last full
    refresh is too old. Otherwise it is for the requested topics only, which costs less when many
    topics are in use.
    """

    def __init__(self, config: ClientConfig, topics: TopicsInUse) -> None:
        self._loop = asyncio.get_running_loop()
        # Pause between periodic refreshes even with `metadata_max_age_ms=0`.
        self._max_age = max(config.metadata_max_age, config.retry_backoff, _LEAST_AGE)
        self._series_ends_after = 2 * config.retry_backoff_max
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._in_use = topics
        self._reason = ""
        self._single: set[str] = set()
        self._missing: Set[str] = frozenset()
        self._missing_at = 0.0
        self._missing_backoff = Backoff(config.retry_backoff, _LONGEST_WAIT_FOR_TOPIC)
        self._may_ask_all = False
        self._has_new = False
        self._has_failed = False
        self._is_by_age = False
        self._last_full = self._loop.time()
        self._not_before = 0.0
        self._wake = asyncio.Event()

    @property
    def single_topics(self) -> Set[str]:
        """The topics requested since the last refresh by `request_again` and `request_new`."""
        return self._single

    def request(self, why: str) -> None:
        """Request a full refresh after the backoff; one refresh serves several requests."""
        if not self._reason:
            log.debug("metadata update requested: %s", why)
            self._reason = why
            self._wake.set()

    def force(self, why: str) -> None:
        """Request a full refresh for an application that waits for it.

        While brokers respond, the backoff between forced refreshes does not grow. If no topic is in
        use, the refresh is of all topics: programs may list the topics before they use a topic.
        """
        if not self._has_failed:
            self._backoff.reset()
        self.request(why)
        self._may_ask_all = True

    def request_again(self, topics: Iterable[str]) -> None:
        """Request topics again after the backoff, for example after an error."""
        self._single.update(topics)
        self._wake.set()

    def request_new(self, topics: Iterable[str]) -> None:
        """Request new topics, without a backoff unless refreshes fail."""
        self._single.update(topics)
        # While refreshes fail, keep the backoff: a program with thousands of new topics would send
        # requests without a pause.
        if not self._has_failed:
            self._backoff.reset()
            self._has_new = True
        self._wake.set()

    def note_missing(self, topics: Set[str]) -> None:
        """Schedule requests for the missing topics of a consumer, with growing pauses up to
        `_LONGEST_WAIT_FOR_TOPIC`. An additional topic begins with a short pause again."""
        now = self._loop.time()
        # This runs after each response; an unchanged set must not restart the pause.
        if topics == self._missing and now < self._missing_at:
            return
        if topics - self._missing:
            self._missing_backoff.reset()
        self._missing = topics
        self._missing_at = now + self._missing_backoff.next()
        self._wake.set()

    async def wait(self) -> None:
        """Return when a refresh is due."""
        while True:
            self._wake.clear()
            delay = self._due() - self._loop.time()
            if delay <= 0:
                return
            try:
                async with timeout(delay):
                    await self._wake.wait()
            except asyncio.TimeoutError:
                pass

    def _due(self) -> float:
        if self._has_new:
            return 0.0
        if self._reason or self._single:
            return self._not_before
        # The maximum age and missing topics have their own pauses, independent of the backoff.
        due = self._last_full + self._max_age
        return min(due, self._missing_at) if self._missing else due

    def take(self) -> tuple[Set[str] | None, bool]:
        """Return the topics to request now (None for all topics of the cluster), and whether the
        refresh is full; clear the pending requests."""
        now = self._loop.time()
        if self._missing and now >= self._missing_at:
            self._single.update(self._missing)
        self._is_by_age = not (self._reason or self._single)
        is_full = bool(self._reason) or not self._single or now > self._last_full + self._max_age
        single, self._single = self._single, set()
        self._reason, self._has_new = "", False
        may_ask_all, self._may_ask_all = self._may_ask_all, False
        if self._in_use.want_all:
            return None, True
        if not is_full:
            return single, False
        # Evict topics only before a full refresh, which removes them from the snapshot, too.
        self._in_use.evict(now)
        names = self._in_use.names()
        return (names if names or not may_ask_all else None), True

    def note_success(self, is_full: bool) -> None:
        """Schedule the next refresh after a success. `is_full`: whether the refresh was for all
        topics in use."""
        self._has_failed = False
        if is_full:
            self._last_full = self._loop.time()
        # A periodic refresh was not requested by anyone, so the next request needs no backoff.
        if not self._is_by_age:
            self._pause()

    def note_failure(self) -> None:
        """Schedule a full refresh, after the backoff, because a refresh has failed."""
        self._has_failed = True
        # Request a full refresh, which includes the requested single topics.
        self._reason = "the last refresh failed"
        self._pause()

    def _pause(self) -> None:
        now = self._loop.time()
        # The backoff grows during a series of refreshes. A time without refreshes resets it.
        if now > self._not_before + self._series_ends_after:
            self._backoff.reset()
        self._not_before = now + self._backoff.next()


class MetadataLoop:
    """Refreshes the metadata on request, for new topics, and when the snapshot is too old.

    Owns `cluster`, the current snapshot, which only this object replaces. The task continues after
    invalid responses and during broker outages; each waiter gets an error at its own deadline.
    """

    def __init__(self, config: ClientConfig, subject: str) -> None:
        """`subject` names the client in log lines. The first snapshot is empty."""
        self.cluster = ClusterMetadata()
        self._log = SubjectLog(log, subject)
        self._absences = AbsenceLog(self._log)
        self.topics = TopicsInUse(config.metadata_max_idle)
        self.error: KafkaError | None = None
        """The error of the last refresh; None if the last refresh succeeded."""
        self.failing_since = 0.0
        """The loop time of the first failed refresh since the last success."""
        self._accepted_at: float | None = None
        self.asked = 0
        """The number of refreshes that were started so far."""
        self.answered = 0
        """The value of `asked` at the last metadata response."""
        self._config = config
        self._discovery = Discovery(config)
        self._loop = asyncio.get_running_loop()
        self._schedule = RefreshSchedule(config, self.topics)
        self._waiters: list[asyncio.Future[None]] = []
        self._refreshes: list[tuple[asyncio.Future[bool], tuple[str, ...]]] = []
        self._dead: BaseException | None = None
        self._refusal: BaseException | None = None
        self._is_unpublished = False
        self.cluster.on_request_update(self.force_update)

    # -- requests

    @property
    def age(self) -> float | None:
        """Seconds since the last metadata response; None before the first."""
        return None if self._accepted_at is None else self._loop.time() - self._accepted_at

    def request_update(self, why: str) -> None:
        """Request a full refresh after the backoff; one refresh serves several requests."""
        self._schedule.request(why)

    def doubt(self, why: str) -> None:
        """Request a full refresh from another broker than the last one."""
        self._discovery.doubt()
        self._schedule.request(why)

    def rebootstrap(self, why: str) -> None:
        """Request a full refresh from the bootstrap servers."""
        self._discovery.rebootstrap()
        self._schedule.request(why)

    def look_elsewhere(self) -> None:
        """Send the next refresh to another broker than the last one, with a short timeout."""
        self._discovery.look_elsewhere()

    def add_topic(self, topic: str) -> bool:
        """Keep `topic` in the metadata for `metadata_max_idle_ms`; return whether its partitions
        are known.

        A new topic is requested at once.
        """
        is_new = topic not in self.topics
        self.topics.touch(topic, self._loop.time())
        if self.cluster.known_partitions(topic) is not None:
            return True
        if is_new:
            self._schedule.request_new((topic,))
        return False

    def set_topics(self, topics: Iterable[str]) -> bool:
        """Keep only `topics` and the topics of `add_topic` in the metadata; return whether the
        partitions of all `topics` are known.

        New topics are requested at once.
        """
        wanted = frozenset(topics)
        missing = {name for name in wanted if self.cluster.known_partitions(name) is None}
        new = {name for name in missing if name not in self.topics}
        self.topics.pin(wanted)
        if new:
            self._schedule.request_new(new)
        return not missing

    def brokers_asked(self, topic: str) -> str:
        """Return a text with the number of brokers that reported `topic` as unknown; "" for 0."""
        return self._absences.brokers_asked(topic)

    def want_all_topics(self) -> None:
        """Request all topics of the cluster with each refresh, until the next `set_topics`."""
        if not self.topics.want_all:
            self.topics.pin_all()
            self.request_update("all topics are wanted")

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        endpoints: Iterable[BrokerMetadata] = (),
    ) -> None:
        """Update leaders by (leader id, epoch) pairs from an error response (KIP-951).

        The snapshot is replaced at once. Waiters are woken in the next loop iteration, once for all
        updates of the current iteration.
        """
        newer = self.cluster.with_leaders(leaders, endpoints)
        if newer is not self.cluster:
            self.cluster = newer
            # Listeners examine all partitions, so call them once for hundreds of updates.
            if not self._is_unpublished:
                self._is_unpublished = True
                self._loop.call_soon(self._publish)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that resolves at the next snapshot or failed refresh."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def next_refresh(self, topics: Iterable[str] = ()) -> asyncio.Future[bool]:
        """Return a future. Its result is True if the next refresh succeeds, and all `topics` are
        known afterwards.

        Requests the unknown topics. If all topics are known, this call causes no refresh: the
        caller has to request one.
        """
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
        """Request a full refresh, of all topics if no topic is in use; return a future whose result
        is whether the next refresh succeeds."""
        self._schedule.force("forced by the application")
        return self.next_refresh()

    async def wait_for(
        self, predicate: Callable[[ClusterMetadata], Any], deadline: float, why: str
    ) -> ClusterMetadata:
        """Request refreshes until `predicate` is true for the current snapshot; return that
        snapshot.

        Raises KafkaTimeoutError at `deadline` (loop time), with the error of the last refresh as
        its cause. If a refresh fails with a FATAL error, such as an authentication error, raises
        that error at once.
        """
        return await self._wait(
            predicate, deadline, why, FATAL, lambda: self._schedule.request(why)
        )

    async def wait_for_topic(
        self, topic: str, predicate: Callable[[ClusterMetadata], Any], deadline: float
    ) -> ClusterMetadata:
        """Wait as `wait_for` does, but request only `topic`.

        Continues after authentication errors, because the credentials were accepted before.
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
                    # Request before each wait: the response to an earlier request may be too old.
                    ask()
                    await self.changed()
                    # Check `error` only after a refresh. Before the refresh it may be outdated, and
                    # a caller that retries at once would get the same error again and again.
                    if isinstance(self.error, final):
                        raise renewed(self.error)
        except asyncio.TimeoutError:
            if predicate(self.cluster):
                return self.cluster  # the snapshot and the timeout came in the same loop iteration
            cause = "; no response so far contained it"
            if self.error:
                cause = f"; the last attempt failed: {self.error}"
            raise KafkaTimeoutError(f"metadata: {why}: timed out{cause}") from self.error
        return self.cluster

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """Return the address of a broker or bootstrap server (negative id), None if unknown."""
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
        """Make all present and later waits raise a copy of `error`; refreshes continue."""
        self._refusal = error
        self._wake_waiters()

    def fail(self, error: BaseException) -> None:
        """Make all present and later waits raise a copy of `error`, because the task has failed or
        the client is closed."""
        self._dead = error
        self._end_refresh()

    # -- the task

    async def run(self, pool: ConnectionPool) -> None:
        """Refresh whenever a refresh is due, until cancelled."""
        while True:
            await self._schedule.wait()
            await self.refresh(pool)

    async def refresh(self, pool: ConnectionPool) -> None:
        """Get a response from a broker, or else from the bootstrap servers, and replace the
        snapshot. Then close the connections to former addresses of brokers. If the cluster id has
        changed, or a broker has required a rebootstrap, close the connections to all brokers. Store
        the error of a failure in `error`, and raise nothing.
        """
        self.asked += 1
        # Clear the pending requests before Metadata is sent: a refresh that is requested later may
        # be for a change that this response misses, so it needs another response.
        wanted, is_full = self._schedule.take()
        self._log.debug(
            "refreshing metadata of %s", "all topics" if wanted is None else f"{len(wanted)} topics"
        )
        try:
            response = await self._discovery.ask_any(pool, self.cluster.node_ids, wanted)
            before = self.cluster.cluster_id
            self._accept(response, is_full, has_all=wanted is None)
            is_rebootstrap = self._discovery.take_rebootstrap()
            if before and before != self.cluster.cluster_id:
                pool.leave_all("it leads to another cluster")
            elif is_rebootstrap:
                pool.leave_all("the client was sent back to the bootstrap servers")
            pool.leave_moved()
        except KafkaError as error:
            self._on_failure(error)
        except Exception as error:
            self._log.exception("unexpected error while refreshing metadata")
            self._on_failure(KafkaConnectionError(f"unexpected {error!r} in a metadata response"))
        self._end_refresh()

    def _end_refresh(self) -> None:
        """Resolve the futures of `next_refresh` and `changed`."""
        refreshes, self._refreshes = self._refreshes, []
        for waiter, topics in refreshes:
            if not waiter.done():
                known = all(self.cluster.known_partitions(topic) is not None for topic in topics)
                waiter.set_result(self.error is None and self._dead is None and known)
        self._wake_waiters()

    def _on_failure(self, error: KafkaError) -> None:
        # Log one warning for each outage.
        level = logging.WARNING if self.error is None else logging.DEBUG
        if self.error is None:
            self.failing_since = self._loop.time()
        self._log.log(level, "Metadata refresh failed: %s", error)
        self.error = error
        self._schedule.note_failure()

    async def fetch_all(self, pool: ConnectionPool, deadline: float | None) -> MetadataResponse:
        """Return a response about all topics, without changing the snapshot."""
        return await self._discovery.ask_for_all_topics(pool, self.cluster.node_ids, deadline)

    # -- bootstrap

    async def resolve_bootstrap_servers(self) -> None:
        """Return as soon as the name of a bootstrap server can be resolved (KIP-909). Raises
        KafkaConnectionError with the reason of every name after `bootstrap_resolve_timeout_ms`."""
        config = self._config
        deadline = self._loop.time() + config.bootstrap_resolve_timeout
        backoff = Backoff(config.reconnect_backoff, config.reconnect_backoff_max)
        try:
            await until(
                deadline,
                lambda: self._discovery.resolve_any(deadline),
                lambda _: backoff.next(),
                passes=lambda error: isinstance(error, KafkaConnectionError),
            )
        except OutOfTimeError as late:
            limit = config.bootstrap_resolve_timeout * 1000
            reason = late.failure.args[0] if late.failure is not None else "no answer in time"
            raise KafkaConnectionError(
                f"Unable to bootstrap: no name resolved in bootstrap_resolve_timeout_ms={limit:g}: "
                f"{reason}"
            ) from late.failure

    async def bootstrap(self, pool: ConnectionPool, deadline: float) -> None:
        """Get the first snapshot from the bootstrap server that responds first.

        Raises one KafkaConnectionError with the reason of every server, at the latest at `deadline`
        (loop time); FATAL errors, such as authentication errors, are raised unchanged. A fenced
        broker, which has just started or has lost its connection to the controller, may list no
        brokers: then the servers are tried again until the deadline.
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
            response,
            is_full=is_full,
            has_all=has_all,
            keep=self._schedule.single_topics,
            node_id=self._discovery.responder,
        )
        if before.cluster_id and after.cluster_id != before.cluster_id:
            self._log.warning(
                "The cluster id changed from %s to %s", before.cluster_id, after.cluster_id
            )
        # Replace the snapshot in one assignment, so that no task reads parts of two responses.
        self.cluster = after
        names = self.topics.names()
        covered = None if has_all else {topic.name for topic in response.topics}
        denied = self._absences.look(after, names, self._discovery.responder, covered)
        self._publish()
        lacking = after.topics_without_leaders(names) | after.doubtful_topics()
        if lacking or denied:
            self._schedule.request_again(lacking | denied)
        if lacking or after.missing_topics(names):
            # The broker of this response may lag behind the other brokers.
            self._discovery.look_elsewhere()
        self._schedule.note_missing(after.missing_topics(self.topics.pinned))

    def _publish(self) -> None:
        """Wake the waiters, and call the listeners with the new snapshot."""
        self._is_unpublished = False
        self._wake_waiters()
        self.cluster.notify_listeners()

    def _wake_waiters(self) -> None:
        # Swap the list first: a woken waiter may wait again at once.
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


# -- Waits for the partitions of a topic


_NOT_THERE = (
    "it does not exist, as brokers reported for {:.1f} s{}: create it, or correct the name. "
    "Brokers create topics themselves only with auto.create.topics.enable=true"
)
_NO_PARTITIONS = "brokers returned this error instead of its partitions for {:.1f} s{}"


async def wait_for_topic(metadata: MetadataLoop, topic: str, deadline: float) -> frozenset[int]:
    """Return the partitions of `topic`, and keep the topic in the metadata from now on.

    Raises the errors of `AIOKafkaClient.wait_for_topic`.
    """
    check_name(topic)
    if metadata.add_topic(topic):
        return metadata.cluster.known_partitions(topic) or frozenset()
    is_settled = _TopicIsSettled(topic, metadata.cluster.epoch)
    return await _wait_for_partitions(metadata, topic, is_settled, deadline)


async def wait_for_partition(
    metadata: MetadataLoop, partition: TopicPartition, deadline: float
) -> frozenset[int]:
    """Return the partitions of the topic of `partition`. If `partition` is not among them, first
    request metadata from up to two other brokers, because one broker may lag behind. The result may
    still lack the partition.

    Raises the errors of `wait_for_topic`, for example if the topic was deleted.
    """
    topic, number = partition
    known = await wait_for_topic(metadata, topic, deadline)
    for _ in metadata.cluster.node_ids[:2]:
        if number in known:
            break
        metadata.look_elsewhere()
        known = await _ask_again(metadata, topic, deadline)
    return known


async def _ask_again(metadata: MetadataLoop, topic: str, deadline: float) -> frozenset[int]:
    # Wait for the response to a new request. An earlier request may have been handled before the
    # partition was created. A new snapshot alone is not enough: leaders from Produce and Fetch
    # errors (KIP-951) create a snapshot without a metadata response.
    asked = metadata.asked
    is_settled = _TopicIsSettled(topic, metadata.cluster.epoch)
    return await _wait_for_partitions(
        metadata, topic, lambda cluster: metadata.answered > asked and is_settled(cluster), deadline
    )


async def _wait_for_partitions(
    metadata: MetadataLoop,
    topic: str,
    is_settled: Callable[[ClusterMetadata], bool],
    deadline: float,
) -> frozenset[int]:
    """Wait until `is_settled` is true for a snapshot; return the partitions of `topic`. Raises the
    error of the topic if it has one in that snapshot or at `deadline`, else KafkaTimeoutError at
    the deadline."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    try:
        cluster = await metadata.wait_for_topic(topic, is_settled, deadline)
    except KafkaTimeoutError as timed_out:
        code = metadata.cluster.topic_error(topic)
        if not code:
            raise
        text = _NOT_THERE if code == UnknownTopicOrPartitionError.errno else _NO_PARTITIONS
        reason = text.format(loop.time() - began_at, metadata.brokers_asked(topic))
        raise for_code(code)(f"topic {topic!r}: {reason}") from timed_out
    known = cluster.known_partitions(topic)
    if known is None:
        raise for_code(cluster.topic_error(topic))(f"topic {topic!r}")
    return known


def check_name(topic: Any) -> None:
    """Raise TypeError or ValueError for an invalid topic name.

    A name that cannot be encoded would fail every metadata request for this and other topics.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topics: expected names, not {topic!r}")
    if not topic:
        raise ValueError("topics: a topic name must not be empty")
    try:
        require_sendable(topic)
    except ValueError as error:
        raise ValueError(f"topics: {brief(topic)} is not a valid topic name: {error}") from None


class _TopicIsSettled:
    """A predicate for snapshots: whether a topic has known partitions, or a final error
    (TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC) in a snapshot after `epoch`."""

    def __init__(self, topic: str, epoch: int) -> None:
        self._topic = topic
        self._old_epoch = epoch

    def __call__(self, cluster: ClusterMetadata) -> bool:
        if cluster.known_partitions(self._topic) is not None:
            return True
        # An error from before the wait may be outdated.
        final = (TopicAuthorizationFailedError.errno, InvalidTopicError.errno)
        return cluster.epoch > self._old_epoch and cluster.topic_error(self._topic) in final
