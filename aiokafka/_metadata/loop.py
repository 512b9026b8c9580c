"""The one task that keeps the metadata up to date."""

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


# -- Topics that an application uses and that no broker knows: said once, with what to do


_MISSING = UnknownTopicOrPartitionError.errno
_ADVICE = {
    _MISSING: "no broker knows it%s. The brokers may be creating it; if not, create it or check "
    "its name. The client keeps asking",
    InvalidTopicError.errno: "no topic can have this name",
}


class AbsenceLog:
    """Logs each topic that is missing, or may not be used, once; and once that it is there.

    A topic is missing when each broker has denied it, or `MOST_ASKED` of them: one may lag behind.
    Owns the error code that was logged of each such topic, and which brokers have denied it.
    """

    def __init__(self, log: SubjectLog) -> None:
        self._log = log
        self._logged: dict[str, int] = {}
        # One entry for each response, None for a bootstrap server: brokers that keep silent must
        # not put off the log.
        self._denials: dict[str, list[int | None]] = {}
        self._brokers = 1

    def look(
        self,
        cluster: ClusterMetadata,
        topics: Iterable[str],
        node_id: int | None,
        told_of: Set[str | None] | None,
    ) -> set[str]:
        """Log what a new snapshot of the metadata says of the topics in use. It is from the
        response of `node_id` about the topics `told_of`, None for all.

        Returns the topics that other brokers are to be asked for: too few have denied them so far.
        """
        absent = {name: cluster.topic_error(name) for name in topics if is_absent(cluster, name)}
        self._brokers = max(1, len(cluster.node_ids))
        denials, self._denials = self._denials, {}
        logged, self._logged = self._logged, {}
        open_questions = set()
        for name, code in absent.items():
            by = self._denials[name] = denials.get(name, [])
            is_open = code == _MISSING and len(by) < min(self._brokers, MOST_ASKED)
            if is_open and (told_of is None or name in told_of):
                by.append(node_id)
                is_open = len(by) < min(self._brokers, MOST_ASKED)
            if is_open:
                open_questions.add(name)
                continue
            self._logged[name] = code
            if logged.get(name) != code:
                advice = _ADVICE.get(code) or str(for_code(code)())
                if code == _MISSING:
                    advice %= self.brokers_asked(name)
                self._log.warning("Topic %r cannot be used: %s", name, advice, topic=name)
        for name in logged.keys() - absent.keys():
            # Not in use any more is not the same as being there.
            if cluster.known_partitions(name) is not None:
                self._log.info("Topic %r is there now", name)
        return open_questions

    def brokers_asked(self, topic: str) -> str:
        """Return how many brokers have denied a missing `topic`, in words; "" for others."""
        by = self._denials.get(topic)
        return f" (asked: {min(len({*by}), self._brokers)} of {self._brokers})" if by else ""


def is_absent(cluster: ClusterMetadata, topic: str) -> bool:
    """Tell a topic with an error that lasts from one that is being moved or was known before."""
    code = cluster.topic_error(topic)
    is_lasting = code == _MISSING or not for_code(code).retriable
    return bool(code) and is_lasting and cluster.known_partitions(topic) is None


# -- Which topics to ask the brokers for, and when


log = logging.getLogger("aiokafka.cluster")

# The least age at which metadata is refreshed, in seconds.
_LEAST_AGE = 0.05

# Seconds between requests for a topic that a consumer reads and that does not exist, in the end.
_LONGEST_WAIT_FOR_TOPIC = 5.0


class TopicsInUse:
    """Topics set by a consumer, and topics a producer touched lately (KIP-526)."""

    def __init__(self, max_idle: float) -> None:
        self._max_idle = max_idle
        self._pinned: frozenset[str] = frozenset()
        self._touched: dict[str, float] = {}
        self.want_all = False

    def __contains__(self, topic: str) -> bool:
        return topic in self._touched or topic in self._pinned

    def names(self) -> frozenset[str]:
        """Return every topic in use."""
        return self._pinned.union(self._touched)

    @property
    def pinned(self) -> frozenset[str]:
        """The topics that stay until they are replaced."""
        return self._pinned

    def pin(self, topics: Iterable[str]) -> None:
        """Replace the topics that stay until they are replaced."""
        self._pinned = frozenset(topics)
        self.want_all = False

    def pin_all(self) -> None:
        """Use every topic of the cluster, until the next `pin`."""
        self.want_all = True

    def touch(self, topic: str, now: float) -> None:
        """Keep `topic` until it was not touched for `max_idle` seconds."""
        self._touched[topic] = now

    def evict(self, now: float) -> None:
        """Drop what was not touched lately."""
        limit = now - self._max_idle
        for topic in [topic for topic, used in self._touched.items() if used < limit]:
            del self._touched[topic]


class RefreshSchedule:
    """Owns what was requested since the last refresh, and the time before which there is no next
    one.

    A refresh is full (every topic in use) when one was requested with a reason or the last is too
    old; else it is for single topics only, which costs brokers and us little when many are in use.
    """

    def __init__(self, config: ClientConfig, topics: TopicsInUse) -> None:
        self._loop = asyncio.get_running_loop()
        # Not without a pause for an age of 0, even if that of the backoff is 0 as well.
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
        """The topics that wait for a refresh of their own."""
        return self._single

    def request(self, why: str) -> None:
        """Ask for a full refresh as soon as the backoff allows, one for any number of requests."""
        if not self._reason:
            log.debug("metadata update requested: %s", why)
            self._reason = why
            self._wake.set()

    def force(self, why: str) -> None:
        """Ask as `request` does, for an application that waits: while brokers answer, the pauses
        between such requests do not grow. If no topic is in use, ask for every topic of the
        cluster, once: so programs look for topics before they use any."""
        if not self._has_failed:
            self._backoff.reset()
        self.request(why)
        self._may_ask_all = True

    def request_again(self, topics: Iterable[str]) -> None:
        """Ask again, as soon as the backoff allows, for topics whose last response was an error."""
        self._single.update(topics)
        self._wake.set()

    def request_new(self, topics: Iterable[str]) -> None:
        """Ask at once for topics that were never asked for."""
        self._single.update(topics)
        # While brokers do not answer, new topics do not hurry: a program that goes through
        # thousands of them would ask without a pause.
        if not self._has_failed:
            self._backoff.reset()
            self._has_new = True
        self._wake.set()

    def note_missing(self, topics: Set[str]) -> None:
        """Ask again, ever less often, for topics in use that do not exist."""
        now = self._loop.time()
        # The pause goes on: each response comes here, and would otherwise begin it again.
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
        # Both have pauses of their own: those between requests do not make metadata older than it
        # may be.
        due = self._last_full + self._max_age
        return min(due, self._missing_at) if self._missing else due

    def take(self) -> tuple[Set[str] | None, bool]:
        """Return the topics to ask for now (None: all), and whether the refresh is full."""
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
        # With a full refresh, whose response leaves them out of the snapshot as well.
        self._in_use.evict(now)
        names = self._in_use.names()
        return (names if names or not may_ask_all else None), True

    def note_success(self, is_full: bool) -> None:
        """Note that the refresh that was taken succeeded."""
        self._has_failed = False
        if is_full:
            self._last_full = self._loop.time()
        # Nothing asked for it, so what is asked for next is no repetition.
        if not self._is_by_age:
            self._pause()

    def note_failure(self) -> None:
        """Note that the refresh that was taken failed: another will follow."""
        self._has_failed = True
        # It is full: what was to be asked for singly is in use as well, and so is not forgotten.
        self._reason = "the last refresh failed"
        self._pause()

    def _pause(self) -> None:
        now = self._loop.time()
        # After a quiet time the pauses are short again; requests that follow each other wait ever
        # longer.
        if now > self._not_before + self._series_ends_after:
            self._backoff.reset()
        self._not_before = now + self._backoff.next()


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
            response,
            is_full=is_full,
            has_all=has_all,
            keep=self._schedule.single_topics,
            node_id=self._discovery.told_by,
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


# -- Waits for the partitions of a topic, and what the metadata says instead of them


_NOT_THERE = (
    "it does not exist, as brokers said for {:.1f} s{}: create it, or correct the name. "
    "Brokers create topics themselves only with auto.create.topics.enable=true"
)
_NO_PARTITIONS = "brokers named no partitions of it for {:.1f} s{}, but this error"


async def wait_for_topic(metadata: MetadataLoop, topic: str, deadline: float) -> frozenset[int]:
    """Return the partitions of `topic`, which is in use from now on.

    Raises as `AIOKafkaClient.wait_for_topic`.
    """
    check_name(topic)
    if metadata.add_topic(topic):
        return metadata.cluster.known_partitions(topic) or frozenset()
    is_settled = _TopicIsSettled(topic, metadata.cluster.epoch)
    return await _wait_for_partitions(metadata, topic, is_settled, deadline)


async def wait_for_partition(
    metadata: MetadataLoop, partition: TopicPartition, deadline: float
) -> frozenset[int]:
    """Return the partitions of the topic of `partition`. If it is not among them, two brokers are
    asked, if there are two: one may lag behind.

    Raises as `wait_for_topic`, also when the topic is gone, or forbidden, by these refreshes.
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
    # A response that is under way may have been true before the partition was made, and news of a
    # leader are no response.
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
    """Return the partitions of `topic` once it is settled, or raise what keeps it from having
    any."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    try:
        cluster = await metadata.wait_for_topic(topic, is_settled, deadline)
    except KafkaTimeoutError as timed_out:
        code = metadata.cluster.topic_error(topic)
        if not code:
            raise
        text = _NOT_THERE if code == UnknownTopicOrPartitionError.errno else _NO_PARTITIONS
        said = text.format(loop.time() - began_at, metadata.brokers_asked(topic))
        raise for_code(code)(f"topic {topic!r}: {said}") from timed_out
    known = cluster.known_partitions(topic)
    if known is None:
        raise for_code(cluster.topic_error(topic))(f"topic {topic!r}")
    return known


def check_name(topic: Any) -> None:
    """Raise TypeError or ValueError for what is no topic name.

    One name that cannot be encoded would fail every metadata request that it is part of.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topics: expected names, not {topic!r}")
    if not topic:
        raise ValueError("topics: a topic name must not be empty")
    try:
        require_sendable(topic)
    except ValueError as error:
        raise ValueError(f"topics: {brief(topic)} is no topic name: {error}") from None


class _TopicIsSettled:
    """Judges whether a response about a topic is final: partitions, or an error that stays."""

    def __init__(self, topic: str, epoch: int) -> None:
        self._topic = topic
        self._old_epoch = epoch

    def __call__(self, cluster: ClusterMetadata) -> bool:
        if cluster.known_partitions(self._topic) is not None:
            return True
        # An error from an earlier response may be over.
        final = (TopicAuthorizationFailedError.errno, InvalidTopicError.errno)
        return cluster.epoch > self._old_epoch and cluster.topic_error(self._topic) in final
