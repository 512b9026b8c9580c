"""The consumer as applications see it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Set
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic

from aiokafka._compat import timeout_at
from aiokafka._config import ClientConfig, SecurityConfig, warn_ignored
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import show_options, with_options
from aiokafka._group_members import add_reader
from aiokafka._health import ConsumerState
from aiokafka._log import SubjectLog
from aiokafka._metadata.all_topics import AllTopics
from aiokafka._tasks import OF_CONSUMERS, TaskOwner, made_for, refuse_other_loop
from aiokafka._telemetry.reporter import Reporting
from aiokafka._typing import KT, VT, Key, Self, Unpack, Value, as_it_is, later
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer._arguments import (
    WrongStart,
    as_wanted,
    configure,
    record_limit,
    server_regex,
    stop_limit,
    to_assign,
    topic_names,
)
from aiokafka.consumer._health import ConsumerHealthMonitor, Sources
from aiokafka.consumer._listener_call import refuse_in_listener
from aiokafka.consumer._positions import ConsumerPositions
from aiokafka.consumer._shared import Shared, telemetry_labels
from aiokafka.consumer.fetch.buffer import RecordIterator
from aiokafka.consumer.fetch.desk import ReaderDesk
from aiokafka.consumer.fetch.fetcher import Fetcher, Placement
from aiokafka.consumer.group.no_group import NoGroup
from aiokafka.consumer.position.resolver import OffsetResolver
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import ConsumerRecord, SubscriptionPattern, TopicPartition

__all__ = ["AIOKafkaConsumer", "ConsumerSettings"]


# -- What a consumer was made with, as properties of it


@with_options({"_given": ConsumerConfig, "_given.client": ClientConfig})
class ConsumerSettings:
    """The options that programs ask a consumer for. A subclass of theirs may have attributes of
    these names, as in aiokafka: they can be set, without any effect here."""

    _given: ConsumerConfig

    @cached_property
    def group_id(self) -> str | None:
        """The group to commit offsets for; None without one."""
        return self._given.group_id

    @cached_property
    def enable_auto_commit(self) -> bool:
        """Whether offsets are committed in the background."""
        return self._given.enable_auto_commit

    @cached_property
    def isolation_level(self) -> str:
        """Which records of transactions are read, as the constructor was told."""
        return self._given.isolation_level

    # -- names that others read --------------------------------------------------------------------

    @cached_property
    def _group_id(self) -> str | None:
        return self._given.group_id

    @cached_property
    def _group_instance_id(self) -> str | None:
        return self._given.group_instance_id

    @cached_property
    def _enable_auto_commit(self) -> bool:
        return self._given.enable_auto_commit

    @cached_property
    def _max_poll_records(self) -> int | None:
        return self._given.max_poll_records

    @cached_property
    def _client_rack(self) -> str | None:
        return self._given.client.client_rack


if TYPE_CHECKING:
    from aiokafka.consumer.group.group import GroupMakings
    from aiokafka.health import ConsumerHealth
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import ConsumerOptions
else:
    ConsumerHealth = later("aiokafka.health.ConsumerHealth")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    ConsumerOptions = later("aiokafka.options.ConsumerOptions")
    GroupMakings = later("aiokafka.consumer.group.group.GroupMakings")


log = logging.getLogger("aiokafka.consumer.consumer")

# A reader that always finds data would never let other tasks run. With what one call decompresses
# and returns (3.5 ms for 1 MB of gzip), the event loop is to stand still for 5 ms at most.
_YIELD_AFTER = 0.001

# What ending tasks and closing connections may take, in seconds, after the commit and leaving.
_CLOSE_TIMEOUT = 1.0

# How long start() waits for leaders to tell where their logs end.
_LOOK_TIMEOUT = 5.0


class AIOKafkaConsumer(Reporting, ConsumerSettings, ConsumerPositions, Generic[KT, VT]):
    """Reads records from a Kafka cluster.

    Partitions come from `assign()`, or from topics: given here, or to `subscribe()` by name or
    pattern. The members of a group share them; without `group_id` every partition is read.

    A consumer belongs to the event loop it was made in. It fetches ahead in the background, up to
    `fetch_buffer_memory` bytes over all brokers; records are decoded in the task that asks for
    them. A call that is cancelled or times out has taken no records: the next one gets them.

    The types of keys and values are those that the deserializers return, else `bytes | None`:
    `AIOKafkaConsumer(value_deserializer=as_order)` is an `AIOKafkaConsumer[bytes | None, Order]`.

    Raises TypeError or ValueError for a wrong argument, RuntimeError without a running event loop;
    `loop` is the one that it will be used in, where none is running yet, which is deprecated.
    `api_version` is accepted, without effect.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `group_id=None`: Group to join and to commit offsets for; None for neither: every partition is
      read.
    - `group_instance_id=None`: Name of a static member, which keeps its partitions over a restart
      (KIP-345).
    - `group_protocol="classic"`: How members come to their partitions: with classic one of them
      assigns, with consumer the broker does (KIP-848, Kafka 4.0).
    - `group_remote_assignor=None`: Assignor of the broker for group_protocol="consumer": uniform,
      range, or one that it is configured with (group.consumer.assignors); None for the broker's
      first.
    - `key_deserializer=None`: Turns the bytes of a key into what a record holds; called with None
      for a record without key. See value_deserializer.
    - `value_deserializer=None`: Turns the bytes of a value into what a record holds; called with
      None for a record without value (a tombstone). If it raises, the call raises
      RecordDeserializationError, with topic, partition, offset and the raw record, again and again
      until the application goes past it: consumer.seek(error.topic_partition, error.offset + 1).
      Records before it are returned first.
    - `fetch_max_wait_ms=500`: How long a broker waits until it has fetch_min_bytes.
    - `fetch_min_bytes=1`: Bytes that a broker tries to collect before it answers.
    - `fetch_max_bytes=52428800`: Most bytes in one answer of a broker.
    - `max_partition_fetch_bytes=1048576`: Most bytes of one partition in one answer; one larger
      batch is sent all the same.
    - `fetch_buffer_memory=67108864`: Bytes fetched ahead of the application, over all brokers.
    - `max_decompressed_bytes=268435456`: Refuse a batch that would decompress to more bytes than
      this.
    - `default_api_timeout_ms=60000`: How long a call that has no time limit of its own may take.
    - `unreachable_timeout_ms=None`: Reading raises KafkaUnreachableError when the group's
      coordinator, or the brokers of all partitions, have not answered for this long; None: it waits
      for them without limit.
    - `max_poll_records=None`: Most records that getmany returns; None: no limit.
    - `consumer_timeout_ms=200`: Accepted for compatibility; the consumer waits for data without
      polling.
    - `auto_offset_reset="latest"`: Where to start without a valid position: earliest is the oldest
      record, latest is after the newest, none raises NoOffsetForPartitionError or
      OffsetOutOfRangeError. With a timedelta, or by_duration:, the first record not older than that
      (KIP-1106).
    - `enable_auto_commit=True`: Commit in the background what the application has finished: all
      that was returned before its latest call.
    - `auto_commit_interval_ms=5000`: Time between such commits.
    - `check_crcs=True`: Check the checksum of every batch that is read.
    - `isolation_level="read_uncommitted"`: Whether records of open and aborted transactions are
      read.
    - `exclude_internal_topics=True`: Leave internal topics out when topics are listed or matched by
      a pattern that is a str.
    - `partition_assignment_strategy=[RoundRobinPartitionAssignor]`: Ways to assign partitions in a
      group, in the order of preference.
    - `session_timeout_ms=10000`: The group removes a member that has sent no heartbeat for this
      long (classic protocol).
    - `heartbeat_interval_ms=3000`: Time between heartbeats, less than session_timeout_ms (classic
      protocol).
    - `max_poll_interval_ms=300000`: A member that has not asked for records for this long leaves
      the group.
    - `rebalance_timeout_ms=None`: How long a member may take to give up partitions in a rebalance.
      None: session_timeout_ms, or max_poll_interval_ms with group_protocol="consumer".
    - `interceptors=()`: See records before they are returned, and may change them, in this order.
    - `metrics_collector=None`: Is called with what is fetched, returned and committed.
    - `bootstrap_servers="localhost"`: Brokers to ask for the rest of the cluster. A few of them
      suffice; the port is 9092 where none is given.
    - `client_dns_lookup="use_all_dns_ips"`: Names of bootstrap_servers are used as they are, or
      replaced by the canonical names of all their addresses, which Kerberos wants of an alias
      (KIP-235).
    - `client_id`: Name of the client in the broker's logs; None for the default.
    - `request_timeout_ms=40000`: How long to wait for the response to a request.
    - `retry_backoff_ms=100`: Pause before a failed request is sent again; doubles with every
      further failure.
    - `retry_backoff_max_ms=1000`: Longest pause between retries.
    - `reconnect_backoff_ms=50`: Pause before a broken connection is made again; doubles with every
      further failure.
    - `reconnect_backoff_max_ms=1000`: Longest pause between attempts to connect.
    - `socket_connection_setup_timeout_ms=10000`: How long a connection may take to be made; doubles
      with every further failure.
    - `socket_connection_setup_timeout_max_ms=30000`: Longest time that a connection may take to be
      made.
    - `connections_max_idle_ms=540000`: Close a connection that was not used for this long; None for
      never.
    - `metadata_max_age_ms=300000`: Ask for the state of the cluster at least this often.
    - `metadata_max_idle_ms=300000`: Forget a topic that was not used for this long (KIP-526).
    - `metadata_recovery_rebootstrap_trigger_ms=300000`: Start again from bootstrap_servers when no
      known broker gives metadata: as soon as all of them were tried, at the latest after this long;
      None for never.
    - `receive_message_max_bytes=268435456`: Refuse a response larger than this many bytes.
    - `allow_auto_create_topics=True`: Let a broker that is configured so create a missing topic
      when it is asked for it.
    - `enable_metrics_push=True`: Push metrics to brokers that ask for them (KIP-714). An admin
      client does so only if it is set.
    - `client_rack=None`: Rack of the client, to read from a replica near by (KIP-392, Kafka 2.4);
      told to the group, whose assignor may prefer partitions with such a replica.
    - `security_protocol="PLAINTEXT"`: Protocol of the listener: with or without TLS, with or
      without SASL.
    - `ssl_context=None`: TLS settings, or a function that gives them for each new connection;
      needed for SSL and SASL_SSL.
    - `sasl_mechanism="PLAIN"`: How SASL authenticates.
    - `sasl_plain_username=None`: User name for PLAIN and SCRAM, or a function that gives it for
      each authentication.
    - `sasl_plain_password=None`: Password for PLAIN and SCRAM, or a function that gives it for each
      authentication.
    - `sasl_scram_tokenauth=False`: With SCRAM: the user name is the id of a delegation token, the
      password its HMAC in base64 (KIP-48).
    - `sasl_kerberos_service_name="kafka"`: Service name of the brokers for GSSAPI.
    - `sasl_kerberos_domain_name=None`: Kerberos domain for GSSAPI; by default the host name of the
      broker.
    - `sasl_kerberos_principal=None`: Principal of the client for GSSAPI; by default that of the
      ticket cache, or the first of the keytab.
    - `sasl_kerberos_keytab=None`: Path of a keytab to get tickets with, for GSSAPI; by default
      KRB5CCNAME and KRB5_CLIENT_KTNAME of the environment count.
    - `sasl_oauth_token_provider=None`: Source of tokens for OAUTHBEARER.
    """

    _closed: bool | None = None  # None: __init__ did not finish
    _source_traceback: traceback.StackSummary | None = None

    def __init__(
        self: AIOKafkaConsumer[Key, Value],
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: str | None = None,
        key_deserializer: Callable[[bytes], Key] | None = as_it_is,  # type: ignore[assignment]
        value_deserializer: Callable[[bytes], Value] | None = as_it_is,  # type: ignore[assignment]
        **options: Unpack[ConsumerOptions],
    ) -> None:
        warn_ignored(api_version=api_version)
        name = type(self).__name__
        self._given = configure(
            name,
            {
                **options,
                "key_deserializer": key_deserializer,
                "value_deserializer": value_deserializer,
            },
        )
        with made_for(loop, name, OF_CONSUMERS) as self._loop:
            self._assemble(SubscriptionState())
        if topics:
            self._subscription.subscribe_topics(topic_names(topics))
        if self._loop.get_debug():
            self._source_traceback = traceback.extract_stack(sys._getframe(1))
        self._renew()

    def _renew(self) -> None:
        self._closed = self._has_failed = False
        labels = partial(telemetry_labels, self._given, self._joined)
        self._report(AIOKafkaConsumer.metrics, self._client.telemetry, labels)

    def _assemble(self, subscription: SubscriptionState) -> None:
        config = self._given
        self._client = client = AIOKafkaClient(config.client, subject=config.subject)
        self._subscription = subscription
        self._desk = desk = ReaderDesk()
        self._vitals = health = ConsumerHealthMonitor(client, config, self._subscription)
        self._shared = shared = Shared(client, config, self._subscription, desk, health.look)
        # Knows the desk and not the consumer, which can then be missed by its owner and say so.
        self._owner = tasks = TaskOwner(config.client.client_id, shared.fail)
        placement = Placement(shared)
        makings = None if config.group_id is None else _prepare_group(shared, config.group_id)
        self._committer = None if makings is None else makings.committer
        self._resolver = OffsetResolver(shared, tasks, placement.contact_of, self._committer)
        self._fetcher = Fetcher(shared, tasks, placement, self._resolver)
        self._joined = None if makings is None else makings.make_group(shared, self._fetcher.route)
        self._coordinator = self._joined or NoGroup(shared, self._fetcher.route)
        if makings is not None and self._joined is not None:
            self._group_view = makings.make_view(shared, self._joined)
            add_reader(self._loop, self._group_view)
        health.begin(Sources(desk, tasks, placement, self._coordinator, shared.meter))
        self._all_topics: AllTopics | None = None
        self._is_started = False
        self._yielded_at = 0.0
        self._stopping = asyncio.Lock()
        self._is_finished = False
        self._reader: weakref.ref[asyncio.Task[Any]] | None = None

    def __repr__(self) -> str:
        group = f" group_id={self._given.group_id!r}" if self._given.group_id else ""
        return f"<AIOKafkaConsumer client_id={self._given.client.client_id!r}{group}>"

    def __del__(self) -> None:
        if self._closed is not False or not self._is_started:
            return
        self._client.disown()
        warnings.warn(
            f"Unclosed AIOKafkaConsumer {self!r}", ResourceWarning, source=self, stacklevel=2
        )
        context: dict[str, Any] = {"consumer": self, "message": "Unclosed AIOKafkaConsumer"}
        if self._source_traceback is not None:
            context["source_traceback"] = self._source_traceback
        self._loop.call_exception_handler(context)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, learn about the subscribed or assigned topics, join the group and wait for the
        first assignment, and begin to fetch. With `auto_offset_reset="latest"` nothing is missed
        that is written after it has returned.

        Raises KafkaConnectionError when no broker answers, UnknownTopicOrPartitionError when such a
        topic does not come into being within `request_timeout_ms`, TopicAuthorizationFailedError
        when all of them are denied, AuthenticationFailedError; KafkaTimeoutError when the group has
        no coordinator for so long, or gives this member no assignment within `max_poll_interval_ms`
        (which other members may take for a rebalance), 5/4 of `rebalance_timeout_ms` or
        `default_api_timeout_ms`, whichever is longest; GroupAuthorizationFailedError;
        ConsumerStoppedError when another task calls `stop()`; IllegalStateError, also an
        AssertionError, when it was started before, or in another loop. After a failure or a
        cancellation everything is closed; the next call begins again, with the same subscription.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WrongStart("start() is called in another event loop than the constructor")
        if self._has_failed and not self._stopping.locked():
            self._subscription.begin_again()
            self._assemble(self._subscription)
            self._renew()
        self._refuse_if_closed()
        if self._is_started:
            raise WrongStart("Did you call `start` twice? The consumer was started before")
        self._is_started = True
        self._vitals.live(ConsumerState.STARTING)
        try:
            await self._launch()
            self._refuse_if_closed()
        except BaseException as error:
            is_stopped = bool(self._closed)
            self._has_failed = not is_stopped  # now, for what follows may be cancelled, too
            await self._stop_for_good()
            if is_stopped and isinstance(error, Exception):
                # What failed is what `stop()` has closed.
                raise ConsumerStoppedError("the consumer was stopped while it started") from error
            raise
        self._vitals.live(None)

    async def _launch(self) -> None:
        deadline = self._loop.time() + self._given.client.request_timeout
        # Before the first metadata request, so that it asks for them already.
        if self._subscription.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(self._subscription.topics)
        await self._client.bootstrap()
        if self._subscription.subscription is None:
            # To assign partitions, a program asks partitions_for_topic() next, which cannot wait.
            await self._look_at_cluster()
        self._coordinator.on_subscribed()
        if self._subscription.pattern is None:
            await self._await_topics(deadline)
        self._fetcher.start()
        self._coordinator.on_metadata()
        self._owner.start(self._resolver.run(), name="offsets")
        if self._shared.interception is not None:
            self._owner.start(self._shared.interception.run(), name="interceptors")
        await self._coordinator.start(self._owner)
        await self._await_positions(deadline)

    async def _look_at_cluster(self) -> None:
        """Ask for all topics, for the application's questions only: what may pass is logged."""
        try:
            self._all_topics = await AllTopics.of(self._client, self._given.client.request_timeout)
        except KafkaError as error:
            if not (error.retriable or isinstance(error, KafkaTimeoutError)):
                raise
            told = SubjectLog(log, self._given.subject)
            told.warning("The topics of the cluster are not known yet: %s", error)

    async def _await_topics(self, deadline: float) -> None:
        """Wait until the subscribed topics are known, or all of them denied; a few denied ones are
        reported to readers."""
        denied: TopicAuthorizationFailedError | None = None
        is_any_known = False
        for topic in self._subscription.topics:
            try:
                await self._client.wait_for_topic(topic, deadline)
                is_any_known = True
            except TopicAuthorizationFailedError as error:
                denied = error
        if denied is not None and not is_any_known:
            raise denied

    async def _await_positions(self, deadline: float) -> None:
        """Wait until the ends of the logs are known, with "latest", before the application goes on
        to write; as far as their leaders answer soon."""
        if self._given.auto_offset_reset in ("earliest", "none"):
            return
        deadline = min(deadline, self._loop.time() + _LOOK_TIMEOUT)
        while self._resolver.is_looking and not self._closed:
            if not await self._desk.positions.wait(deadline):
                break
        self._refuse_if_closed()

    async def stop(self, timeout: float | None = None) -> None:
        """Commit what is finished (with auto-commit), end all background work and close the
        connections; before that leave the group, unless a static member.

        Takes `timeout` seconds at most to commit, also what other tasks are committing, and to
        leave (None: ten; 0: does neither). Readers that wait, and `start()`, get
        ConsumerStoppedError at once, other calls when that time is over. Several calls at once end
        together. Called again, it does nothing, or, after a cancelled call, goes on with the work.

        Records in the hands of the application count as finished if the task that read them calls
        this, and not because of an exception.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        refuse_in_listener(self._desk, "stop()")
        deadline = self._loop.time() + stop_limit(timeout)
        self._refuse_work()
        try:
            async with timeout_at(deadline + _CLOSE_TIMEOUT):
                await self._stopping.acquire()
        except asyncio.TimeoutError:
            # The call that has begun the work has more time than this one.
            self._abandon()
            await self._stopping.acquire()
        try:
            await self._finish(deadline)
        finally:
            self._stopping.release()

    def _refuse_work(self) -> None:
        """Return no record from now on; after a `start()` that has failed, begin no more."""
        if self._closed:
            self._has_failed = False
            return
        self._closed = True
        if self._is_through():
            self._desk.buffer.begin_call()
        self._vitals.live(ConsumerState.CLOSED)
        self._desk.close()

    def _is_through(self) -> bool:
        """Return whether the application has finished what it has in hand: only the task that reads
        says so, when it stops of its own accord.
        """
        return self._is_reader() and sys.exc_info()[0] is None

    def _is_reader(self) -> bool:
        return self._reader is not None and self._reader() is asyncio.current_task()

    async def _finish(self, deadline: float) -> None:
        """Do all that is left to do; the time to commit and leave is over at `deadline`."""
        if self._is_finished:
            return
        if self._is_started and self._owner.failure is None:
            await self._coordinator.stop(deadline)
        limit = max(deadline, self._loop.time() + _CLOSE_TIMEOUT)
        await self._coordinator.close(limit)
        if self._shared.interception is not None:
            await self._shared.interception.finish(limit)
            self._shared.interception.close()
        await self._owner.stop(limit)
        await self._fetcher.close()
        self._vitals.close()
        await self._client.close()
        self._is_finished = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop_for_good()

    async def _stop_for_good(self) -> None:
        """Call `stop()` for the last time: if it is cancelled, what it left ends at once, and the
        group notices at the end of the session."""
        try:
            await self.stop()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """End everything without waiting for it."""
        self._vitals.close()
        self._coordinator.abandon()
        self._owner.cancel()
        if self._shared.interception is not None:
            self._shared.interception.close()
        self._client.abort()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped; make a new one")
        self._owner.check()
        self._coordinator.check()

    @contextlib.contextmanager
    def _unless_stopped(self) -> Iterator[None]:
        """Raise ConsumerStoppedError if the block ends because `stop()` closes the connections."""
        try:
            yield
        except (IllegalStateError, KafkaConnectionError) as error:
            if self._closed:
                raise ConsumerStoppedError("the consumer was stopped meanwhile") from error
            raise

    def _check_can_read(self) -> None:
        refuse_other_loop(self._loop, type(self).__name__)
        self._refuse_if_closed()
        if not self._is_started:
            raise IllegalStateError("the consumer is not started: await start() first")

    # -- what to read ------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions from now on.

        One that was assigned before keeps its position and pause; of others, with auto-commit, what
        is finished is committed. Raises IllegalStateError after `subscribe()`, TypeError for
        anything but TopicPartitions (a tuple is one), ValueError for a name that no topic can have.
        """
        refuse_in_listener(self._desk, "assign()")
        self._subscription.assign(to_assign(partitions))
        self._subscription_changed()

    def subscribe(
        self,
        topics: list[str] | tuple[str, ...] | Set[str] = (),
        pattern: str | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all topics whose name matches a regular expression, from now on: of
        others no more records are returned.

        New partitions and, with a pattern, new topics are noticed at the latest after
        `metadata_max_age_ms`. A str is matched here, with Python's `re`, against the beginning of
        a name; a SubscriptionPattern by the broker. `listener` is called when partitions move
        within a group; without `group_id` nothing moves.

        Raises TypeError unless exactly one of `topics` and `pattern` is given, and for topics that
        are not a list, tuple or set of names; ValueError for a bad pattern, and for a name that no
        topic can have; IllegalStateError after `assign()`; IllegalOperation for a
        SubscriptionPattern without group_protocol="consumer".
        """
        refuse_in_listener(self._desk, "subscribe()")
        if not topics and not pattern:
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern is not None:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        if isinstance(pattern, SubscriptionPattern):
            regex = server_regex(pattern, self._given)
            self._subscription.subscribe_regex(regex, listener)
        elif pattern is not None:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from None
            self._subscription.subscribe_pattern(compiled, listener)
        else:
            self._subscription.subscribe_topics(topic_names(topics), listener)
        self._subscription_changed()

    def subscription(self) -> frozenset[str]:
        """Return the names of the topics read at the moment: for a pattern those that match, or
        those with assigned partitions if the broker matches."""
        return self._subscription.topics

    def unsubscribe(self) -> None:
        """Read nothing any more; `assign()` or `subscribe()` may follow.

        In the background, with auto-commit, what is finished is committed; the listener is told
        that its partitions are revoked; the group is left.
        """
        refuse_in_listener(self._desk, "unsubscribe()")
        self._subscription.unsubscribe()
        self._subscription_changed()

    def _subscription_changed(self) -> None:
        if self._is_started and not self._closed:
            self._coordinator.on_subscribed()
            self._vitals.look()

    # -- records -----------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[KT, VT]:
        """Return the next record of these partitions (none given: of all), waiting for it without
        limit.

        Partitions are served in turn, one fetched record set at a time. A cancelled call has taken
        nothing.

        Raises ConsumerStoppedError when stopped; RecordDeserializationError and CorruptRecordError
        for a record that cannot be read, again with each call until `seek()`;
        OffsetOutOfRangeError, NoOffsetForPartitionError and LogTruncationError with
        `auto_offset_reset="none"`; TopicAuthorizationFailedError; KafkaUnreachableError at most
        once per `unreachable_timeout_ms`; any error of the broker that is not retriable. An error
        of one partition is raised in its turn and does not stop the others.
        """
        # The short way, once it is known that it is this task that reads.
        if not partitions and self._is_reader():
            record = self._desk.next()
            if record is not None:
                return record
        return await self._wait_for_one(partitions)

    async def _wait_for_one(self, partitions: tuple[TopicPartition, ...]) -> ConsumerRecord[KT, VT]:
        wanted = as_wanted(partitions)
        self._check_can_read()
        if (stand_in := vars(self._fetcher).get("next_record")) is not None:  # of a test
            found: ConsumerRecord[KT, VT] = await stand_in(partitions)
            return found
        began_at = self._begin_call()
        await self._maybe_yield()
        # No await from here to the wait: whatever ends the consumer then wakes this reader.
        self._check_can_read()
        self._check_has_subscription()
        told_at = self._vitals.told_at
        while True:
            record = self._desk.next_of(wanted)
            if record is not None and self._shared.interception is not None:
                from aiokafka.consumer._interception import intercept_one

                record = await intercept_one(self._shared, record, began_at)
                if record is None:
                    await self._maybe_yield()
                    self._check_can_read()
                    continue
            if record is not None:
                return record
            await self._fetcher.wait_for_records(wanted, self._next_look(told_at))
            self._yielded_at = self._loop.time()
            self._check_can_read()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """Return records of these partitions (none given: of all) that are there, or come within
        `timeout_ms` (0 or less: only those that are there).

        At most `max_records` over all partitions (default: `max_poll_records`), which take turns
        from call to call. `{}` when there is nothing in time, or `stop()` is called meanwhile. A
        cancelled call has taken nothing.

        Raises ValueError for a wrong `max_records` or `timeout_ms`, otherwise as `getone()`. Good
        records are returned first; the error of what follows them is raised by the next call.
        """
        wanted = as_wanted(partitions)
        limit = record_limit(max_records, self._given.max_poll_records)
        if math.isnan(timeout_ms):
            raise ValueError(f"timeout_ms={timeout_ms!r}: must be a number of milliseconds")
        self._check_can_read()
        if (stand_in := vars(self._fetcher).get("fetched_records")) is not None:  # of a test
            most = max_records or self._max_poll_records
            return dict(await stand_in(partitions, timeout_ms / 1000, max_records=most))
        began_at = self._begin_call()
        if not await self._maybe_yield():
            return {}
        self._check_can_read()
        self._check_has_subscription()
        records = self._desk.take(wanted, limit)
        told_at = self._vitals.told_at
        deadline = None
        while not records:
            if deadline is None:
                deadline = self._loop.time() + timeout_ms / 1000
            look_at = self._next_look(told_at)
            until = deadline if look_at is None else min(deadline, look_at)
            in_time = await self._fetcher.wait_for_records(wanted, until)
            self._yielded_at = self._loop.time()
            if self._closed:
                break
            self._check_can_read()
            records = self._desk.take(wanted, limit)
            if not in_time and until == deadline:
                break
        result = records
        if records and self._shared.interception is not None:
            from aiokafka.consumer._interception import intercept

            limit_at = began_at + timeout_ms / 1000
            result = await intercept(self._shared, records, began_at, limit_at)
        self._fetcher.settle(records)
        return result

    def _next_look(self, told_at: float) -> float | None:
        """Return when a reader has to see again whether the brokers answer (loop time; None =
        never). Raises KafkaUnreachableError if they have not for too long."""
        if self._given.unreachable_timeout is None:
            return None
        return self._vitals.check(told_at)

    def _check_has_subscription(self) -> None:
        if self._subscription.subscription is None:
            raise IllegalStateError("nothing to read: call subscribe() or assign() first")

    async def _maybe_yield(self) -> bool:
        """Let other tasks run, ours that fetch among them, if they have not for a while; False if
        `stop()` is called."""
        now = self._loop.time()
        share = (now - self._yielded_at) / _YIELD_AFTER
        self._desk.buffer.pace(share)
        if share > 1:
            self._yielded_at = now
            await self._desk.pass_turn()
        return not self._closed

    def _begin_call(self) -> float:
        """Note who reads, and that it has finished what it got before; return the time (loop time).

        Before anything else runs: a commit that is due now takes along what this call finishes.
        """
        task = asyncio.current_task()
        if task is not None and (self._reader is None or self._reader() is not task):
            self._reader = weakref.ref(task)
        self._desk.buffer.begin_call()
        return self._loop.time()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KT, VT]]:
        """Return what goes through the records one by one, and ends when the consumer is stopped:
        `async for` over this takes less time than `getone()`. Raises ConsumerStoppedError when
        stopped already."""
        self._refuse_if_closed()
        return RecordIterator(self._desk.buffer, self._is_plain, lambda: type(self).__anext__(self))

    def _is_plain(self) -> bool:
        """Return whether nothing of a program or a tracer is in the place of our methods."""
        kind = type(self)
        is_own = kind.getone is _GETONE and kind.__anext__ is _ANEXT
        return is_own and "getone" not in vars(self)

    async def __anext__(self) -> ConsumerRecord[KT, VT]:
        """Return the next record; the loop ends when the consumer is stopped.

        A record too large to be fetched is logged and waited for; every other error is raised.
        """
        while True:
            try:
                return await self.getone()
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except RecordTooLargeError as error:
                SubjectLog(log, self._given.subject).error("%s", error)

    # -- how it is doing ---------------------------------------------------------------------------

    def health(self) -> ConsumerHealth:
        """Return how the consumer is doing at this moment. It costs little, sends no request,
        raises nothing, and may be called at any time, before `start()` and after `stop()` as
        well."""
        return self._vitals.health()

    def metrics(self) -> MetricsSnapshot:
        """Return the numbers of the consumer's work so far, at any time."""
        from aiokafka.consumer._metrics import read_consumer

        buffered = self._fetcher.buffered_bytes
        return read_consumer(self._shared, self._joined, buffered, self._loop.time())

    # -- the cluster -------------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic; None if the consumer has no metadata of it.

        It knows the topics in use, and all those of its last look at the cluster: `topics()`, or
        `start()` without topics, pattern or partitions.
        """
        partitions = self._client.cluster.known_partitions(topic)
        if partitions is None and self._all_topics is not None:
            return self._all_topics.partitions(topic)
        return None if partitions is None else set(partitions)

    async def topics(self) -> set[str]:
        """Return all topics this user may see, asking one broker after the other until one answers.

        Raises the last error when none does, KafkaTimeoutError after `default_api_timeout_ms`."""
        self._check_can_read()
        with self._unless_stopped():
            limit = self._given.default_api_timeout
            self._all_topics = everything = await AllTopics.of(self._client, limit)
        return everything.names(self._given.exclude_internal_topics)

    # -- how it was set up -------------------------------------------------------------------------

    @property
    def rebalance_listener(self) -> ConsumerRebalanceListener | None:
        """The listener given to `subscribe()`; None without one. It may be replaced, before
        `start()`, by one that stands between: that keeps the subscription."""
        return self._subscription.listener

    @rebalance_listener.setter
    def rebalance_listener(self, listener: ConsumerRebalanceListener | None) -> None:
        self._subscription.replace_listener(listener)


_GETONE = AIOKafkaConsumer.getone
_ANEXT = AIOKafkaConsumer.__anext__


def _prepare_group(shared: Shared, group_id: str) -> GroupMakings:
    # A consumer without a group does not load what it never needs.
    from aiokafka.consumer.group.group import prepare_group

    return prepare_group(shared, group_id)


show_options(
    AIOKafkaConsumer.__init__,
    ConsumerConfig,
    ClientConfig,
    SecurityConfig,
    partition_assignment_strategy=(RoundRobinPartitionAssignor,),
)
