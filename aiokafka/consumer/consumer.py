"""AIOKafkaConsumer: start and stop, subscription, records, positions and commits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import operator
import re
import sys
import traceback
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property, partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, overload

from aiokafka._arguments import (
    as_number,
    as_pattern,
    as_text,
    items_of,
    least_records,
    record_limit,
    stop_limit,
)
from aiokafka._compat import timeout_at
from aiokafka._config import ClientConfig, SecurityConfig, warn_ignored
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import (
    apply_defaults,
    naming_defaults,
    show_options,
    with_options,
)
from aiokafka._group_members import add_reader
from aiokafka._health import ConsumerState
from aiokafka._log import SubjectLog
from aiokafka._partitions import (
    as_partition,
    topic_names,
)
from aiokafka._tasks import OF_CONSUMERS, TaskOwner, made_for, refuse_other_loop
from aiokafka._telemetry import Reporting
from aiokafka._typing import (
    KT,
    MYPY,
    VT,
    Deserializer,
    Key,
    Self,
    Unpack,
    Value,
    as_it_is,
    later,
)
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import AllTopics
from aiokafka.consumer._arguments import (
    AllPositions,
    WrongStart,
    as_partitions,
    as_wanted,
    configure,
    default_strategy,
    is_offset,
    offsets_to_commit,
    server_regex,
    to_assign,
)
from aiokafka.consumer._context import ConsumerContext, refuse_in_listener, telemetry_labels
from aiokafka.consumer._health import ConsumerHealthMonitor
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer.fetch.buffer import RecordIterator
from aiokafka.consumer.fetch.fetcher import Fetcher, FetchTargets
from aiokafka.consumer.fetch.record_queue import RecordQueue
from aiokafka.consumer.group.no_group import NoGroup, no_group
from aiokafka.consumer.position.lookup import EARLIEST, LATEST, OffsetSpec
from aiokafka.consumer.position.resolver import OffsetResolver
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    renewed,
)
from aiokafka.structs import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
)

__all__ = ["AIOKafkaConsumer", "ConsumerSettings"]


@with_options({"_given": ConsumerConfig, "_given.client": ClientConfig})
class ConsumerSettings:
    """Options of the constructor as attributes. As in aiokafka 0.14, a subclass may define
    attributes with these names. Setting an attribute does not change the option."""

    _given: ConsumerConfig

    @cached_property
    def group_id(self) -> str | None:
        """The consumer group; None without a group."""
        return self._given.group_id

    @cached_property
    def enable_auto_commit(self) -> bool:
        """Whether offsets are committed in the background."""
        return self._given.enable_auto_commit

    @cached_property
    def isolation_level(self) -> str:
        """Which records of transactions are read: the option `isolation_level`."""
        return self._given.isolation_level

    @cached_property
    def auto_offset_reset(self) -> str:
        """Where to start without a valid position: the option `auto_offset_reset`."""
        return self._given.auto_offset_reset

    # -- private attributes of aiokafka 0.14, for programs that use them ---------------------------

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
    from aiokafka._upstream.fetcher import FetcherNames
    from aiokafka.consumer.group.group import GroupMembership, GroupView
    from aiokafka.consumer.position.committed import OffsetCommitter
    from aiokafka.health import ConsumerHealth
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import ConsumerOptions
else:
    ConsumerHealth = later("aiokafka.health.ConsumerHealth")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    ConsumerOptions = later("aiokafka.options.ConsumerOptions")
    FetcherNames = later("aiokafka._upstream.fetcher.FetcherNames")
    GroupMembership = later("aiokafka.consumer.group.group.GroupMembership")
    GroupView = later("aiokafka.consumer.group.group.GroupView")
    OffsetCommitter = later("aiokafka.consumer.position.committed.OffsetCommitter")


log = logging.getLogger("aiokafka.consumer.consumer")

# If all calls find buffered records, a call lets other tasks run after this many seconds. Together
# with the time of one call (3.5 ms to decompress 1 MB of gzip), the event loop is blocked for 5 ms
# at most.
_YIELD_AFTER = 0.001

# `stop()` waits for the end of tasks and interceptors until its deadline, but at least this many
# seconds after the commit and LeaveGroup. If a second `stop()` is called meanwhile, the work of the
# first one is cancelled this many seconds after the deadline of the second.
_CLOSE_TIMEOUT = 1.0

# Seconds that `start()` waits for the end offsets from the leaders; then it returns without them.
_POSITIONS_TIMEOUT = 5.0

_STOPPED = "the consumer was stopped; make a new one"

# Programs for aiokafka match the first words of these error texts.
_NOT_ASSIGNED = "No current assignment for partition {}: it is not assigned"
_NOT_ALL_ASSIGNED = "Partitions {{{}}} are not assigned"
_NO_PARTITIONS = "partitions must be TopicPartition namedtuples"


class AIOKafkaConsumer(Reporting, ConsumerSettings, Generic[KT, VT]):
    """Reads records from a Kafka cluster.

    Subscribe to topics with the arguments, or with `subscribe()` by name or pattern; or choose
    partitions with `assign()`. The members of a group divide the partitions of their topics among
    them; without `group_id` the consumer reads all partitions.

    A consumer belongs to the event loop in which it was created. It fetches ahead in the
    background, up to `fetch_buffer_memory` bytes over all brokers; the reading task decodes the
    records. A call that is cancelled or times out consumes no records: the next call returns them.

    The deserializers determine the types of keys and values, by default `bytes | None`:
    `AIOKafkaConsumer(value_deserializer=as_order)` is an `AIOKafkaConsumer[bytes | None, Order]`.

    Raises TypeError or ValueError for a wrong argument, RuntimeError without a running event loop.
    The deprecated `loop` is the future event loop, for a consumer created before the loop runs.
    `api_version` is accepted without effect.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `group_id=None`: Group to join, and to commit offsets for. None: no group; then the consumer
      reads all partitions of its topics.
    - `group_instance_id=None`: Id of a static member, which keeps its partitions during a restart
      (KIP-345).
    - `group_protocol="classic"`: Protocol of the group: with classic, one of the members assigns
      the partitions; with consumer, the broker does (KIP-848, Kafka 4.0).
    - `group_remote_assignor=None`: Assignor of the broker for group_protocol="consumer": uniform,
      range, or another assignor in the broker's list group.consumer.assignors; None: the first
      assignor in that list.
    - `key_deserializer=None`: Converts the bytes of a key to the key of the record; called with
      None for a record without a key. See value_deserializer.
    - `value_deserializer=None`: Converts the bytes of a value to the value of the record; called
      with None for a record without a value (a tombstone). It is called with a
      SerializationContext, too, if its second parameter has the name ctx; it returns the result or
      an awaitable, which the call that reads awaits. If it raises an exception, records before this
      one are returned first; then each read of the partition raises RecordDeserializationError with
      topic, partition, offset and raw record, until the application skips the record:
      consumer.seek(error.topic_partition, error.offset + 1). See on_deserialization_error.
    - `on_deserialization_error="raise"`: What to do with a record if a deserializer raises an
      exception. raise: raise RecordDeserializationError, with each read until the application seeks
      past the record. skip: leave the record out; the position moves past it. raw: return the
      record with its key and value as bytes, and the error in record.deserialization_error. With
      skip and raw, the consumer logs a warning and counts the record in health().unreadable.
    - `fetch_max_wait_ms=500`: Maximum time that a broker waits for fetch_min_bytes before it
      responds to a fetch.
    - `fetch_min_bytes=1`: Number of bytes that a broker waits for before it responds to a fetch, up
      to fetch_max_wait_ms.
    - `fetch_max_bytes=52428800`: Maximum number of bytes in one response to a fetch.
    - `max_partition_fetch_bytes=1048576`: Maximum number of bytes of one partition in one response
      to a fetch. If the first batch is larger, it is returned nevertheless.
    - `fetch_buffer_memory=67108864`: Maximum number of bytes that are fetched before the
      application requests the records, over all brokers.
    - `max_decompressed_bytes=268435456`: Reject a batch that would have more than this number of
      bytes after decompression.
    - `default_api_timeout_ms=60000`: Timeout of calls that have no timeout argument.
    - `unreachable_timeout_ms=None`: Raise KafkaUnreachableError from calls that read records if the
      group's coordinator, or the brokers of all partitions, have not responded for this time; None:
      these calls wait without limit.
    - `max_poll_records=None`: Maximum number of records that getmany returns; None: no limit.
    - `consumer_timeout_ms=200`: Has no effect: the consumer waits for records without polling.
      Accepted for programs written for aiokafka 0.14.
    - `auto_offset_reset="latest"`: Where to start in a partition without a valid position: earliest
      is the first record, latest the end; none raises NoOffsetForPartitionError or
      OffsetOutOfRangeError. With a timedelta, or by_duration:, start at the first record that is
      not older than this duration (KIP-1106).
    - `enable_auto_commit=True`: Commit offsets in the background, at an interval. Records count as
      finished if they were returned before the latest call of getone or getmany.
    - `auto_commit_interval_ms=5000`: Time between two automatic commits (enable_auto_commit).
    - `check_crcs=True`: Verify the checksum of every fetched batch.
    - `isolation_level="read_uncommitted"`: read_uncommitted: return the records of open and aborted
      transactions as well. read_committed: do not return them.
    - `exclude_internal_topics=True`: Omit internal topics from the list of topics, and from the
      topics that match a pattern given as a str.
    - `partition_assignment_strategy=[RoundRobinPartitionAssignor]`: Assignors for the partitions of
      a group, in the order of preference (classic protocol).
    - `session_timeout_ms=10000`: Time without a heartbeat after which the group removes a member
      (classic protocol).
    - `heartbeat_interval_ms=3000`: Time between two heartbeats; less than session_timeout_ms
      (classic protocol).
    - `max_poll_interval_ms=300000`: Time without a call of getone or getmany after which a member
      leaves the group.
    - `rebalance_timeout_ms=None`: Time that members have to revoke partitions in a rebalance. None:
      session_timeout_ms, or max_poll_interval_ms with group_protocol="consumer".
    - `interceptors=()`: Interceptors that get the records before they are returned, and may change
      them; called in the order of the list.
    - `metrics_collector=None`: Is called after fetches, for returned records, with the lag, and
      after commits.
    - `bootstrap_servers="localhost"`: Brokers to connect to first, or a function that returns them;
      they return the addresses of all other brokers. The port is 9092 if none is given. A function
      or coroutine function is called whenever the client connects to them, also after an outage of
      all known brokers.
    - `client_dns_lookup="use_all_dns_ips"`: use_all_dns_ips: connect to the names in
      bootstrap_servers as they are. resolve_canonical_bootstrap_servers_only: replace each name by
      the canonical host names of its addresses, which Kerberos needs for an alias (KIP-235).
    - `bootstrap_resolve_timeout_ms=0`: Time for which start() repeats the look-up of the names in
      bootstrap_servers until one of them has an address (KIP-909); 0: a single look-up.
    - `client_id`: Name of the client in the broker's logs, quotas and metrics; None for the
      default.
    - `request_timeout_ms=40000`: Time to wait for the response to a request.
    - `retry_backoff_ms=100`: Time to wait before a failed request is sent again; doubles after
      every further failure.
    - `retry_backoff_max_ms=1000`: Maximum time between two attempts of a request.
    - `reconnect_backoff_ms=50`: Time to wait before the client connects to a broker again after a
      failure; doubles after every further failure.
    - `reconnect_backoff_max_ms=1000`: Maximum time between two attempts to connect to a broker.
    - `socket_connection_setup_timeout_ms=10000`: Time in which a connection has to be established,
      authentication included; doubles after every failure, until a connection succeeds.
    - `socket_connection_setup_timeout_max_ms=30000`: Maximum of the time in which a connection has
      to be established.
    - `connections_max_idle_ms=540000`: Close a connection that was not used for this time; None:
      never.
    - `metadata_max_age_ms=300000`: Refresh the metadata of the cluster at least this often.
    - `metadata_max_idle_ms=300000`: Remove a topic from the metadata if it was not used for this
      time (KIP-526).
    - `metadata_recovery_rebootstrap_trigger_ms=300000`: Connect to bootstrap_servers again if no
      known broker returns metadata: as soon as all known brokers have been tried, or at the latest
      after this time; None: never.
    - `metadata_cluster_check_enable=True`: Let each broker check on connect that it is the expected
      node of the expected cluster; if not, connect to bootstrap_servers again (KIP-1242, Kafka
      4.4). No effect if metadata_recovery_rebootstrap_trigger_ms is None.
    - `receive_message_max_bytes=268435456`: Reject a response that is larger than this number of
      bytes.
    - `allow_auto_create_topics=True`: Let a broker create a missing topic when the client requests
      its metadata, if the broker is configured so (auto.create.topics.enable).
    - `enable_metrics_push=True`: Push metrics to brokers that request them (KIP-714). In an admin
      client the default is False.
    - `client_rack=None`: Rack of the client. A consumer fetches from a replica in this rack
      (KIP-392, Kafka 2.4), and the group's assignor may prefer partitions with a replica in it. A
      producer uses it with partitioner_rack_aware. Other clients do not use it.
    - `dialer=None`: Function or coroutine function that gets a BrokerAddress before each connect,
      and returns another address to connect to, a connected socket, a Dialed, or None for the
      address as it is. TLS checks the advertised host name.
    - `proxy_url=None`: Proxy for all connections: socks5://host:port, socks4://host:port or
      http://host:port (HTTP CONNECT), with user:password@ before the host if the proxy needs it.
      The proxy resolves the names of brokers.
    - `broker_address_family="any"`: IP version of the addresses to which host names are resolved.
    - `send_buffer_bytes=None`: Size of the system's send buffer of a connection (SO_SNDBUF); None:
      the system adapts it.
    - `receive_buffer_bytes=None`: Size of the system's receive buffer of a connection (SO_RCVBUF);
      None: the system adapts it.
    - `socket_options=()`: Options of sockets as (level, option, value), as setsockopt takes them.
      Connections have TCP_NODELAY and SO_KEEPALIVE anyway.
    - `security_protocol="PLAINTEXT"`: Protocol of the brokers' listener: with or without TLS, with
      or without SASL.
    - `ssl_context=None`: TLS settings, or a function that returns them for each new connection;
      required for SSL and SASL_SSL.
    - `sasl_mechanism="PLAIN"`: SASL mechanism, for SASL_PLAINTEXT and SASL_SSL: a name, or an
      aiokafka.abc.AbstractSaslMechanism for a mechanism of the application.
    - `sasl_plain_username=None`: User name for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_plain_password=None`: Password for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_scram_tokenauth=False`: With SCRAM: authenticate by a delegation token. The user name is
      the id of the token, the password its HMAC in base64 (KIP-48).
    - `sasl_kerberos_service_name="kafka"`: Service name of the brokers for GSSAPI: the first part
      of their principals.
    - `sasl_kerberos_domain_name=None`: Host name in the principal of the broker, for GSSAPI; by
      default the host name of the connection.
    - `sasl_kerberos_principal=None`: Principal of the client for GSSAPI; by default the principal
      of the ticket cache, or the first principal of the keytab.
    - `sasl_kerberos_keytab=None`: Path of a keytab with which tickets are obtained, for GSSAPI; by
      default the environment variables KRB5CCNAME and KRB5_CLIENT_KTNAME apply.
    - `sasl_oauth_token_provider=None`: Source of tokens for OAUTHBEARER.
    """

    _closed: bool | None = None  # None: __init__ did not finish
    _source_traceback: traceback.StackSummary | None = None

    if MYPY:
        # Mypy infers no type from `Awaitable[Key] | Key`, and takes the first overload that fits.

        @overload
        def __init__(
            self: AIOKafkaConsumer[Key, Value],
            *topics: str,
            loop: asyncio.AbstractEventLoop | None = None,
            api_version: str | None = None,
            key_deserializer: Callable[[bytes], Awaitable[Key]],
            value_deserializer: Callable[[bytes], Awaitable[Value]],
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaConsumer[Key, Value],
            *topics: str,
            loop: asyncio.AbstractEventLoop | None = None,
            api_version: str | None = None,
            key_deserializer: Callable[[bytes], Key] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], Awaitable[Value]],
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaConsumer[Key, Value],
            *topics: str,
            loop: asyncio.AbstractEventLoop | None = None,
            api_version: str | None = None,
            key_deserializer: Callable[[bytes], Awaitable[Key]],
            value_deserializer: Callable[[bytes], Value] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaConsumer[Key, Value],
            *topics: str,
            loop: asyncio.AbstractEventLoop | None = None,
            api_version: str | None = None,
            key_deserializer: Callable[[bytes], Key] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], Value] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        def __init__(self, *topics: str, **options: Any) -> None: ...

    else:

        def __init__(
            self: AIOKafkaConsumer[Key, Value],
            *topics: str,
            loop: asyncio.AbstractEventLoop | None = None,
            api_version: str | None = None,
            key_deserializer: Deserializer[Key] | None = as_it_is,
            value_deserializer: Deserializer[Value] | None = as_it_is,
            **options: Unpack[ConsumerOptions],
        ) -> None:
            warn_ignored(api_version=api_version)
            deserializers = {
                "key_deserializer": key_deserializer,
                "value_deserializer": value_deserializer,
            }
            self._configure(options, deserializers)
            with made_for(loop, type(self).__name__, OF_CONSUMERS) as made_for_loop:
                self._set_up(topics, made_for_loop)

    def _configure(self, options: ConsumerOptions, deserializers: dict[str, Any]) -> None:
        given, applied = apply_defaults("consumer", options)
        with naming_defaults(applied):
            self._given = configure(type(self).__name__, {**given, **deserializers})
        self._given.client.note_defaults(applied)

    def _set_up(self, topics: tuple[str, ...], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._assemble(SubscriptionState())
        if topics:
            self._subscription.subscribe_topics(topic_names(topics))
        if loop.get_debug():
            self._source_traceback = traceback.extract_stack(sys._getframe(2))
        self._renew()

    def _renew(self) -> None:
        self._closed = self._has_failed = False
        labels = partial(telemetry_labels, self._given, self._membership)
        self._report(AIOKafkaConsumer.metrics, self._client.telemetry, labels)

    def _assemble(self, subscription: SubscriptionState) -> None:
        config = self._given
        self._client = client = AIOKafkaClient(config.client, subject=config.subject)
        self._subscription = subscription
        self._queue = queue = RecordQueue()
        self._monitor = health = ConsumerHealthMonitor(client, config, self._subscription)
        self._context = context = ConsumerContext(client, config, self._subscription, queue, health)
        # The tasks must not refer to the consumer, so that an unclosed consumer can be
        # garbage-collected, and `__del__` warns about it.
        self._owner = tasks = TaskOwner(config.client.client_id, context.fail)
        targets = FetchTargets(context)
        self._committer: OffsetCommitter | None = None
        self._membership: GroupMembership | None = None
        self._group_view: GroupView | None = None
        if config.group_id is not None:
            # Imported here, so that a consumer without a group does not load this module.
            from aiokafka.consumer.group import group

            self._committer = group.make_committer(context, config.group_id)
        self._resolver = OffsetResolver(context, tasks, targets, self._committer)
        self._fetch = Fetcher(context, tasks, targets, self._resolver)
        if self._committer is not None:
            self._membership = group.GroupMembership(context, self._fetch, self._committer)
            self._group_view = group.GroupView(context, self._membership)
            add_reader(self._loop, self._group_view)
        self._coordinator = self._membership or NoGroup(context, self._fetch)
        health.begin(queue, tasks, targets, self._coordinator, context.meter)
        self._all_topics: AllTopics | None = None
        self._is_started = False
        self._yielded_at = 0.0
        self._committed_at = 0.0
        self._waited = 0.0  # seconds in which `getone()` and `getmany()` waited for records
        self._stopping = asyncio.Lock()
        self._is_finished = False
        # The task that reads, as a weak reference, and its thread.
        self._reader: Callable[[], asyncio.Task[Any] | None] = _no_task
        self._reader_thread = 0

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
        """Connect, get metadata of the subscribed or assigned topics, join the group and wait for
        the first assignment, and start to fetch. With `auto_offset_reset="latest"`, all records
        written after `start()` returns are read, because `start()` waits for the end offsets, for
        at most five seconds. It does not wait for the end offset of a partition that has no leader,
        or whose request has failed.

        Raises:

        - KafkaConnectionError if no broker responds; AuthenticationFailedError.
        - UnknownTopicOrPartitionError if a topic does not exist after `request_timeout_ms`, plus
          `bootstrap_resolve_timeout_ms`.
        - TopicAuthorizationFailedError if all topics are denied; GroupAuthorizationFailedError.
        - KafkaTimeoutError if the coordinator of the group is not found within
          `request_timeout_ms`.
        - KafkaTimeoutError if the group has no assignment for this member in time. The limit is the
          longest of `default_api_timeout_ms`, `max_poll_interval_ms` (other members may take so
          long to rejoin) and 5/4 of `rebalance_timeout_ms`.
        - ConsumerStoppedError if another task calls `stop()`.
        - IllegalStateError (also an AssertionError) if the consumer was started before, or belongs
          to another event loop.

        After a failure or a cancellation everything is closed, and `start()` may be called again,
        with the same subscription.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise WrongStart("start() is called in another event loop than the constructor")
        if self._has_failed and not self._stopping.locked():
            self._subscription.begin_again()
            self._assemble(self._subscription)
            self._renew()
        self._check()
        if self._is_started:
            raise WrongStart("Did you call `start` twice? The consumer was started before")
        self._is_started = True
        self._monitor.override_state(ConsumerState.STARTING)
        try:
            await self._launch()
            self._check()
        except BaseException as error:
            is_stopped = bool(self._closed)
            # Set the flag before the following call, which may be cancelled, too.
            self._has_failed = not is_stopped
            await self._stop_for_good()
            if is_stopped and isinstance(error, Exception):
                # The error is a consequence of `stop()`, which closed the connections.
                raise ConsumerStoppedError("the consumer was stopped while it started") from error
            raise
        self._monitor.override_state(None)

    async def _launch(self) -> None:
        config = self._given.client
        deadline = self._loop.time() + config.bootstrap_resolve_timeout + config.request_timeout
        # Set the topics before `bootstrap()`, so that the first metadata request includes the
        # topics.
        if self._subscription.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(self._subscription.topics)
        await self._client.bootstrap()
        if self._subscription.subscription is None:
            # A program may call partitions_for_topic() before assign(). That call cannot wait for
            # metadata, so request metadata of all topics now.
            await self._load_all_topics()
        self._coordinator.on_subscribed()
        if self._subscription.pattern is None:
            await self._await_topics(deadline)
        self._fetch.start()
        self._coordinator.on_metadata()
        self._owner.start(self._resolver.run(), name="offsets")
        if self._context.interception is not None:
            self._owner.start(self._context.interception.run(), name="interceptors")
        await self._coordinator.start(self._owner)
        await self._await_positions(deadline)

    async def _load_all_topics(self) -> None:
        """Request metadata of all topics, for `partitions_for_topic()`. Log retriable errors and
        timeouts; raise other errors."""
        try:
            self._all_topics = await AllTopics.of(self._client, self._given.client.request_timeout)
        except KafkaError as error:
            if not (error.retriable or isinstance(error, KafkaTimeoutError)):
                raise
            SubjectLog(log, self._given.subject).warning(
                "The topics of the cluster are not known yet: %s", error
            )

    async def _await_topics(self, deadline: float) -> None:
        """Wait for the metadata of the subscribed topics. Raises TopicAuthorizationFailedError if
        no topic is known and at least one is denied (otherwise `getone()` and `getmany()` raise the
        error of a denied topic), and the error of a topic that is not found until `deadline`."""
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
        """Unless the reset policy is "earliest" or "none", wait until the positions are known: the
        application may write records as soon as `start()` returns, and expects to read them. Do
        not wait for a partition without a leader, or whose request has failed. Return after 5
        seconds, or at `deadline`, even if leaders do not respond."""
        if self._given.auto_offset_reset in ("earliest", "none"):
            return
        deadline = min(deadline, self._loop.time() + _POSITIONS_TIMEOUT)
        while self._resolver.is_looking and not self._closed:
            if not await self._queue.positions.wait(deadline):
                break
        self._check()

    async def stop(self, timeout: float | None = None, *, leave: bool | None = None) -> None:
        """Commit finished records (with auto-commit), leave the group (unless a static member), end
        all background work and close the connections.

        Args:
            timeout: Seconds for commits and for leaving.
            leave: Whether the group removes this member at once, so that other members get its
                partitions (KIP-1092). True: remove it, even if it is static. False: keep it, with
                its partitions, until its session expires (`session_timeout_ms`; with the consumer
                protocol, the session timeout of the broker). None: keep it only if it is static.

        Commits, also those of other tasks, and leaving take `timeout` seconds at most (None: ten
        seconds; 0: do neither). A waiting `getone()` or `start()` raises ConsumerStoppedError at
        once, and a waiting `getmany()` returns `{}`. Other waiting calls raise ConsumerStoppedError
        at the latest when the connections are closed. Concurrent calls of `stop()` return together.
        A second call does nothing, or continues the work after a cancelled call.

        The last returned records count as finished if `stop()` is called by the task that read
        them, unless the task is handling an exception.

        Raises ValueError or TypeError for a wrong argument, IllegalStateError in a rebalance
        listener of this consumer, or in another event loop.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        refuse_in_listener(self._queue, "stop()")
        if leave is not None and not isinstance(leave, bool):
            raise TypeError(f"leave: must be True, False or None, not {leave!r}")
        deadline = self._loop.time() + stop_limit(timeout)
        self._refuse_work()
        try:
            async with timeout_at(deadline + _CLOSE_TIMEOUT):
                await self._stopping.acquire()
        except asyncio.TimeoutError:
            # An earlier `stop()` with a longer timeout is still running.
            self._abandon()
            await self._stopping.acquire()
        try:
            await self._finish(deadline, leave)
        finally:
            self._stopping.release()

    def _refuse_work(self) -> None:
        """Return no more records: later calls, and waiting calls except `getmany()`, raise
        ConsumerStoppedError. If the application calls `stop()` after a failed `start()`, another
        `start()` raises this error, too."""
        if self._closed:
            self._has_failed = False
            return
        self._closed = True
        # A reading task that calls `stop()` has finished its records, unless it handles an
        # exception.
        if self._is_reader() and sys.exc_info()[0] is None:
            self._queue.buffer.begin_call(self._loop.time())
        self._monitor.override_state(ConsumerState.CLOSED)
        self._queue.close()

    def _is_reader(self) -> bool:
        """Return whether the caller is the task that called `_begin_call()` last."""
        # With the loop as argument, `current_task()` makes no system call before CPython 3.12. But
        # in another thread it then returns the task of this loop, so compare the thread, too.
        task = asyncio.current_task(self._loop)
        return task is not None and task is self._reader() and self._reader_thread == get_ident()

    async def _finish(self, deadline: float, leave: bool | None) -> None:
        """Commit and leave until `deadline` (loop time) at most, then end the tasks and close the
        connections. Do nothing if an earlier call has completed."""
        if self._is_finished:
            return
        if self._is_started and self._owner.failure is None:
            await self._coordinator.stop(deadline, leave)
        limit = max(deadline, self._loop.time() + _CLOSE_TIMEOUT)
        await self._coordinator.close(limit)
        if self._context.interception is not None:
            await self._context.interception.finish(limit)
            self._context.interception.close()
        await self._owner.stop(limit)
        await self._fetch.close()
        self._monitor.close()
        await self._client.close()
        self._is_finished = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop_for_good()

    async def _stop_for_good(self) -> None:
        """Call `stop()`. If it is cancelled, end all work without waiting: the group then removes
        the member when its session expires."""
        try:
            await self.stop()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Cancel all tasks and close all connections without waiting."""
        self._monitor.close()
        self._coordinator.abandon()
        self._owner.cancel()
        if self._context.interception is not None:
            self._context.interception.close()
        self._client.abort()

    def _check(self) -> None:
        """Raise ConsumerStoppedError if the consumer is stopped, or the error that ended a
        background task or the membership."""
        if self._closed:
            raise ConsumerStoppedError(_STOPPED)
        joined = self._membership
        failure = self._owner.failure or (None if joined is None else joined.state.failure)
        if failure is not None:
            raise renewed(failure) from failure

    def _check_can_read(self) -> None:
        """Raise the same errors as `_check()`, and IllegalStateError if the consumer is not started
        or belongs to another event loop."""
        if asyncio.get_running_loop() is not self._loop:
            refuse_other_loop(self._loop, type(self).__name__)
        self._check()
        if not self._is_started:
            raise IllegalStateError("the consumer is not started: await start() first")

    @contextlib.contextmanager
    def _unless_stopped(self) -> Iterator[None]:
        """Raise ConsumerStoppedError if the `with` block raises IllegalStateError or
        KafkaConnectionError after `stop()` was called: `stop()` has closed the connections."""
        try:
            yield
        except (IllegalStateError, KafkaConnectionError) as error:
            self._refuse_stopped(error)
            raise

    def _refuse_stopped(self, error: KafkaError) -> None:
        if self._closed:
            raise ConsumerStoppedError("the consumer was stopped during the call") from error

    # -- what to read ------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions from now on.

        Partitions that were assigned before keep their position, and stay paused if they were. With
        auto-commit, the finished records of partitions that are no longer assigned are committed.

        Raises IllegalStateError after `subscribe()`, and in a rebalance listener of this consumer;
        TypeError for anything but TopicPartitions or (topic, partition) tuples; ValueError for an
        invalid topic name or a negative partition number.
        """
        refuse_in_listener(self._queue, "assign()")
        self._subscription.assign(to_assign(partitions))
        self._subscription_changed()

    def subscribe(
        self,
        topics: list[str] | tuple[str, ...] | Set[str] = (),
        pattern: str | SubscriptionPattern | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all topics whose name matches a regular expression, from now on. No
        more records of other topics are returned.

        New partitions, and new topics that match a pattern, are found within `metadata_max_age_ms`.
        The client matches a str with Python's `re` against the beginning of the name; the broker
        matches a SubscriptionPattern. `listener` is called when partitions move within a group;
        without `group_id` it is not called.

        Raises TypeError unless exactly one of `topics` and `pattern` is given, if `topics` is not a
        list, tuple or set of names, and if `listener` is not a ConsumerRebalanceListener;
        ValueError for an invalid pattern or topic name; IllegalStateError after `assign()`, and in
        a rebalance listener of this consumer; IllegalOperation for a SubscriptionPattern without
        `group_id` or without group_protocol="consumer".
        """
        refuse_in_listener(self._queue, "subscribe()")
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
                compiled = re.compile(as_pattern("pattern", pattern))
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from None
            self._subscription.subscribe_pattern(compiled, listener)
        else:
            self._subscription.subscribe_topics(topic_names(topics), listener)
        self._subscription_changed()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics: for a pattern the matching topics; for a
        SubscriptionPattern, and after `assign()`, the topics with assigned partitions."""
        return self._subscription.topics

    def unsubscribe(self) -> None:
        """Drop the subscription and all partitions; `assign()` or `subscribe()` may follow.

        In the background the consumer commits finished records (with auto-commit), calls the
        listener with the revoked partitions and leaves the group. Raises IllegalStateError in a
        rebalance listener of this consumer.
        """
        refuse_in_listener(self._queue, "unsubscribe()")
        self._subscription.unsubscribe()
        self._subscription_changed()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Make this member join its group again, in the background (KIP-568). Call this if the user
        data of the assignor has changed, or if the assignment depends on something that Kafka does
        not know.

        The group rebalances: all members join again, and the leader assigns again. A call during a
        rebalance leads to another rebalance. Each call costs the group a rebalance, so call this
        method rarely.

        Args:
            reason: A text for the logs of this client and, since Kafka 3.2, of the broker
                (KIP-800).

        Raises IllegalOperation without `group_id` or a subscription, and with
        group_protocol="consumer", where the coordinator decides when to assign again;
        ConsumerStoppedError after `stop()`, IllegalStateError before `start()`, TypeError if
        `reason` is not a str.
        """
        if not isinstance(reason, str):
            raise TypeError(f"reason: must be a string, not {reason!r}")
        if self._membership is None:
            raise no_group("enforce_rebalance")
        self._check_can_read()
        self._membership.enforce_rebalance(reason)

    def _subscription_changed(self) -> None:
        if self._is_started and not self._closed:
            self._coordinator.on_subscribed()
            self._monitor.look()

    # -- records -----------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[KT, VT]:
        """Return the next record of these partitions (none given: of all); wait for it without
        limit.

        Partitions take turns, one fetched record set at a time. A cancelled call consumes nothing.

        Raises ConsumerStoppedError when stopped; RecordDeserializationError (see
        `on_deserialization_error`) and CorruptRecordError for an unreadable record, with each call
        until `seek()`; OffsetOutOfRangeError, NoOffsetForPartitionError and LogTruncationError with
        `auto_offset_reset="none"`; TopicAuthorizationFailedError; KafkaUnreachableError at most
        once per `unreachable_timeout_ms`; any error of the broker that is not retriable. The error
        of a partition is raised when it is the partition's turn; other partitions are still read.
        IllegalStateError is raised before `start()`, without a subscription, in another event loop,
        and in a rebalance listener, interceptor or deserializer of this consumer.
        """
        # Use the fast path only in the task that called `_begin_call()` last. For another task,
        # `_begin_call()` must first check the event loop, and register the task as the reader.
        if not partitions and self._is_reader():
            record = self._queue.next()
            if record is not None:
                return record
        return await self._read_one(partitions)

    async def _read_one(self, partitions: tuple[TopicPartition, ...]) -> ConsumerRecord[KT, VT]:
        buffer = self._queue.buffer
        wanted = as_wanted(partitions) if partitions else None
        while True:
            if buffer.unfinished is not None or buffer.suspended is not None:
                # `next()` has found a record whose interceptor has to be awaited, or whose
                # deserializer waits.
                record = await self._finish_next()
                if record is not None:
                    return record
            began_at = await self._begin_call()
            if began_at is None:
                raise ConsumerStoppedError(_STOPPED)
            # No await from here to the wait: a failure or `stop()` in between wakes only calls that
            # already wait, so this call would then wait without an end.
            if self._subscription.subscription is None:
                raise _no_subscription()
            if wanted is not None or buffer.interceptor is None:
                break
            # `next()` calls the interceptors itself, unless they may be `async`. This is faster
            # than `intercept_one()` below.
            record = self._queue.next()
            if record is not None:
                return record
            if buffer.unfinished is None and buffer.suspended is None:
                break
        raised_at = self._monitor.raised_at
        may_raise = self._given.unreachable_timeout is not None
        while True:
            record = self._queue.next_of(wanted)
            if self._queue.buffer.suspended is not None:
                record = await self._finish_one()
                if record is not None:
                    return record
            elif record is None:
                look_at = self._monitor.check(raised_at) if may_raise else None
                self._fetch.await_records(wanted)
                waits_from = max(began_at, self._yielded_at)
                try:
                    await self._queue.wait(wanted, look_at)
                finally:
                    self._yielded_at = self._loop.time()
                    self._waited += self._yielded_at - waits_from
                self._check()
            elif self._queue.buffer.interceptor is None:
                return record
            else:
                from aiokafka.consumer._interception import intercept_one

                record = await intercept_one(self._context, record, began_at)
                if record is not None:
                    return record
                if (now := self._loop.time()) - self._yielded_at > _YIELD_AFTER:
                    await self._yield(now)
                self._check()

    async def _finish_next(self) -> ConsumerRecord[KT, VT] | None:
        """Wait for the interceptor or deserializer of the record that `FetchBuffer.next()` has
        found. Return the record; None if it is dropped, or must be read again."""
        record: ConsumerRecord[KT, VT] | None = None
        if self._queue.buffer.unfinished is not None:
            from aiokafka.consumer._interception import resume

            record = await resume(self._context)
        if record is None and self._queue.buffer.suspended is not None:
            self._queue.buffer.begin_call(self._loop.time())
            record = await self._finish_one()
        return record

    async def _finish_one(self, intercepts: bool = True) -> ConsumerRecord[KT, VT] | None:
        """Wait for the deserializer of the next record of `FetchBuffer.suspended`. Return the
        record, changed by the interceptors if `intercepts` is True; None if it is dropped, or must
        be read again."""
        from aiokafka.consumer._deserialization import finish_one

        began_at = self._loop.time()
        record = await finish_one(self._context)
        self._yielded_at = self._loop.time()
        if intercepts and record is not None and self._queue.buffer.interceptor is not None:
            from aiokafka.consumer._interception import intercept_one

            record = await intercept_one(self._context, record, began_at)
        if record is None:
            self._check()
        return record

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
        min_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """Return the buffered records of these partitions (none given: of all). If there are none,
        wait for records for `timeout_ms` (0 or less: do not wait).

        Returns at most `max_records` over all partitions (default: `max_poll_records`); partitions
        take turns from call to call. Returns `{}` if no records arrive within `timeout_ms`, or when
        `stop()` is called. A cancelled call consumes nothing.

        With `min_records`, wait until there are at least this many records over all partitions.
        Return fewer records after `timeout_ms`, before an error, or if a partition is revoked or
        moved by a seek during the wait. While the call waits, other tasks get no records.

        Raises ValueError or TypeError for a wrong `max_records`, `min_records` or `timeout_ms`, and
        the errors of `getone()`. Records before an error are returned first; the next call raises
        the error.
        """
        wanted = as_wanted(partitions) if partitions else None
        limit = record_limit(max_records, self._given.max_poll_records)
        least = 1 if min_records is None else least_records(min_records, limit)
        try:
            is_wrong = math.isnan(timeout_ms)
        except (TypeError, OverflowError):
            is_wrong = True
        if is_wrong:
            as_number("timeout_ms", timeout_ms, "a number of milliseconds")
        # The fast path, as in `getone()`.
        if wanted is None and least == 1 and self._is_reader():
            records = self._queue.take_now(limit)
            if self._queue.buffer.suspended is not None:
                until = self._loop.time() + timeout_ms / 1000
                records = await self._finish_many(records or {}, wanted, limit, until)
            if records:
                self._fetch.settle(records)
                return records
        return await self._read_many(wanted, timeout_ms, limit, least)

    async def _finish_many(
        self,
        records: dict[TopicPartition, list[ConsumerRecord[KT, VT]]],
        wanted: Set[TopicPartition] | None,
        limit: int,
        deadline: float,
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """Wait for the deserializer of the next record of `FetchBuffer.suspended`. Return
        `records`, and the records after them up to `limit`."""
        from aiokafka.consumer._deserialization import finish_many

        while True:
            records = await finish_many(self._context, records, wanted, limit, deadline)
            self._yielded_at = self._loop.time()
            if records or self._closed:
                return records
            self._check()
            # If all records are left out because of errors (`on_unreadable`), there may be no
            # record to return for a long time.
            if self._context.on_unreadable is not None and self._yielded_at >= deadline:
                return records
            # The record was dropped, for example after a seek. Read on instead of waiting: other
            # records may be buffered already, and buffered records do not wake a waiting call.
            records = self._queue.take(wanted, limit)
            if self._queue.buffer.suspended is None:
                return records

    async def _read_many(
        self, wanted: Set[TopicPartition] | None, timeout_ms: float, limit: int, least: int
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        began_at = await self._begin_call()
        if began_at is None:
            return {}
        if self._subscription.subscription is None:
            raise _no_subscription()
        records = self._queue.take(wanted, limit)
        limit_at = began_at + timeout_ms / 1000
        deadline = None
        if self._queue.buffer.suspended is not None:
            records = await self._finish_many(records, wanted, limit, limit_at)
            deadline = limit_at
        raised_at = self._monitor.raised_at
        may_raise = self._given.unreachable_timeout is not None
        while not records and not self._closed:
            if deadline is None:
                deadline = self._loop.time() + timeout_ms / 1000
            look_at = self._monitor.check(raised_at) if may_raise else None
            until = deadline if look_at is None else min(deadline, look_at)
            self._fetch.await_records(wanted)
            waits_from = max(began_at, self._yielded_at)
            try:
                in_time = await self._queue.wait(wanted, until)
            finally:
                self._yielded_at = self._loop.time()
                self._waited += self._yielded_at - waits_from
            if self._closed:
                break  # type: ignore[unreachable]
            self._check()
            records = self._queue.take(wanted, limit)
            if self._queue.buffer.suspended is not None:
                records = await self._finish_many(records, wanted, limit, limit_at)
            if not in_time and until == deadline:
                break
        if least > 1 and records and self._loop.time() < limit_at:
            records = await self._fill_many(records, wanted, least, limit, began_at, limit_at)
        result = records
        if records and self._queue.buffer.interceptor is not None:
            from aiokafka.consumer._interception import intercept

            result = await intercept(self._context, records, began_at, limit_at)
        self._fetch.settle(records)
        return result

    async def _fill_many(
        self,
        records: dict[TopicPartition, list[ConsumerRecord[KT, VT]]],
        wanted: Set[TopicPartition] | None,
        least: int,
        limit: int,
        began_at: float,
        deadline: float,
    ) -> dict[TopicPartition, list[ConsumerRecord[KT, VT]]]:
        """Wait for `least` records, `records` included, until `deadline` (loop time)."""
        from aiokafka.consumer._deserialization import fill_many

        async def wait() -> bool:
            self._fetch.await_records(wanted)
            waits_from = max(began_at, self._yielded_at)
            try:
                return await self._queue.wait(wanted, deadline)
            finally:
                self._yielded_at = self._loop.time()
                self._waited += self._yielded_at - waits_from

        context = self._context
        records = await fill_many(context, records, wanted, least, limit, deadline, wait)
        if not records and not self._closed:
            self._check()
        return records

    async def _begin_call(self) -> float | None:
        """Begin `getone()` or `getmany()`: the records of earlier calls now count as finished. Let
        other tasks run if necessary (`_YIELD_AFTER`). Return the loop time; None if `stop()` was
        called meanwhile. Raises like `_check_can_read()`."""
        if self._is_reader():
            self._check()
        else:
            self._check_can_read()
            task = asyncio.current_task()
            if task is not None:
                self._reader, self._reader_thread = weakref.ref(task), get_ident()
        now, buffer = self._loop.time(), self._queue.buffer
        # Count the call before the await, so that an auto-commit during the await includes the
        # records that count as finished now.
        buffer.begin_call(now)
        interception = self._context.interception
        if interception is not None:
            is_idle = interception.is_idle is not None and interception.is_idle()
            buffer.set_interceptor(None if is_idle else interception.begin, interception.is_plain)
        share = (now - self._yielded_at) / _YIELD_AFTER
        buffer.pace(share)
        if share > 1 and self._committed_at > self._yielded_at:
            # Other tasks ran while the commit waited for its response: do not yield again.
            self._yielded_at = self._committed_at
            share = (now - self._yielded_at) / _YIELD_AFTER
        if share > 1:
            await self._yield(now)
            if self._closed:
                return None
            self._check()
        return now

    async def _yield(self, now: float) -> None:
        """Let other tasks run, such as fetches. `now`: the present loop time."""
        self._yielded_at = now
        await self._queue.yield_turn()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[KT, VT]]:
        """Return an iterator over all records, which ends when the consumer is stopped. `async for`
        is faster than calls of `getone()`. Raises ConsumerStoppedError if the consumer was stopped
        before the loop began."""
        self._check()
        return RecordIterator(
            self._queue.buffer, self._is_plain, lambda: type(self).__anext__(self)
        )

    def _is_plain(self) -> bool:
        """Return whether no program or tracer has replaced `getone` or `__anext__`."""
        kind = type(self)
        is_own = kind.getone is _GETONE and kind.__anext__ is _ANEXT
        return is_own and "getone" not in vars(self)

    async def __anext__(self) -> ConsumerRecord[KT, VT]:
        """Return the next record; the loop ends when the consumer is stopped.

        RecordTooLargeError is logged, and the call keeps waiting; other errors are raised.
        """
        while True:
            try:
                return await self.getone()
            except ConsumerStoppedError:
                raise StopAsyncIteration from None
            except RecordTooLargeError as error:
                SubjectLog(log, self._given.subject).error("%s", error)

    # -- assignment and positions ----------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._subscription.assignment.tps

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition. Waits until the offset is known.

        Raises IllegalStateError if the partition is not assigned, KafkaTimeoutError after
        `default_api_timeout_ms`, NoOffsetForPartitionError with `auto_offset_reset="none"`,
        TopicAuthorizationFailedError.
        """
        deadline = self._loop.time() + self._given.default_api_timeout
        while True:
            self._check_can_read()
            state = self._subscription.assigned_state(partition)
            position = state.position
            if position is not None:
                return position
            # The error of a failed look-up is raised once, by this call or the next `getone()` or
            # `getmany()`.
            failure = self._queue.buffer.pop_failure(state)
            if failure is not None:
                raise failure
            self._refuse_denied(state)
            if not await self._queue.positions.wait(deadline):
                why = self._why_unset(state)
                raise KafkaTimeoutError(f"position of {partition} not found in time: {why}")

    def _why_unset(self, state: PartitionState) -> str:
        """Return the reason why a partition has no position, for an error text."""
        error = state.retry.error
        if error is not None:
            return str(error() if isinstance(error, type) else error)
        reasons = [s.reason for s in self._client.waits.lasting() if s.partition == state.tp]
        return reasons[0] if reasons else "no broker has responded"

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. A seek forward within the buffered records keeps the buffered
        records from `offset` on; any other seek drops all buffered records of the partition.

        Raises ValueError for anything but an integer of at least 0 and below 2**63,
        IllegalStateError if the partition is not assigned.
        """
        if not is_offset(offset):
            raise ValueError(
                f"Offset must be a positive integer below 2**63, or 0, not offset={offset!r}"
            )
        state = self._subscription.assigned_state(partition, _NOT_ASSIGNED)
        state.forget_former()
        if not self._queue.buffer.skip(state, offset):
            state.seek(offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the oldest record of these partitions (none given: all assigned).

        Returns True when the positions are known, or False after `request_timeout_ms`: the look-up
        then continues in the background. Raises IllegalStateError if a partition is not assigned,
        AssertionError if no partition is given and none is assigned, TypeError for anything but
        TopicPartitions, TopicAuthorizationFailedError.
        """
        return await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue after the newest record of these partitions (none given: all assigned); with
        `read_committed`, at the last stable offset. Returns and raises like `seek_to_beginning()`.
        """
        return await self._seek_to(LATEST, partitions)

    async def _seek_to(self, spec: OffsetSpec, partitions: tuple[TopicPartition, ...]) -> bool:
        states = self._states_of(partitions)
        self._check_can_read()
        deadline = self._loop.time() + self._given.client.request_timeout
        for state in states:
            state.forget_former()
            state.reset(spec)
        while waiting := [state for state in states if state.needs_offset]:
            for state in waiting:
                self._refuse_denied(state)
            if not await self._queue.positions.wait(deadline):
                return False
            self._check_can_read()
        return True

    def _refuse_denied(self, state: PartitionState) -> None:
        """Raise TopicAuthorizationFailedError if the topic is denied."""
        if state.tp.topic in self._client.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(state.tp.topic)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets of these partitions (none given: all assigned), and
        return the committed offsets.

        A partition without committed offset (None) keeps its position. Raises IllegalOperation
        without a group, IllegalStateError if a partition is not assigned, KafkaTimeoutError after
        `default_api_timeout_ms`.
        """
        states = self._states_of(partitions)
        committer = self._need_group("seek_to_committed")
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch([state.tp for state in states], deadline)
        offsets: dict[TopicPartition, int | None] = {}
        for state in states:
            committed = found.get(state.tp)
            offsets[state.tp] = None if committed is None else committed.offset
            # If the partition was revoked and assigned again during the request, keep its new
            # position: the application called this method for the earlier assignment.
            if committed is not None and self._subscription.assignment.get(state.tp) is state:
                state.forget_former()
                state.seek_to_committed(committed.offset, committed.leader_epoch)
        return offsets

    def _states_of(self, partitions: tuple[TopicPartition, ...]) -> list[PartitionState]:
        rule = "partitions must be TopicPartition instances"
        tps = [as_partition(tp, rule) for tp in partitions] or sorted(self.assignment())
        assert tps, "No partitions are currently assigned"
        return [self._subscription.assigned_state(tp, _NOT_ALL_ASSIGNED) for tp in tps]

    # -- pause and resume --------------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume()`; buffered records are kept.

        Raises TypeError for anything but TopicPartitions, IllegalStateError if a partition is not
        assigned.
        """
        get = self._subscription.assignment.get
        for tp in partitions:
            state = get(tp) if type(tp) is TopicPartition else None
            (self._assigned_state(tp) if state is None else state).pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause()`: reads return records of these partitions again. Raises like `pause()`."""
        get = self._subscription.assignment.get
        for tp in partitions:
            state = get(tp) if type(tp) is TopicPartition else None
            (self._assigned_state(tp) if state is None else state).resume()

    def _assigned_state(self, tp: TopicPartition) -> PartitionState:
        return self._subscription.assigned_state(as_partition(tp, _NO_PARTITIONS), _NOT_ASSIGNED)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._subscription.paused()

    # -- end offsets and lag, as of the last fetch -------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the newest record, as of the last fetch; None before the first
        fetch. Raises AssertionError if the partition is not assigned."""
        return self._fetched_state(partition).highwater

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset in the last fetch response: all transactions that began
        before this offset are complete. None before the first fetch; -1 without `read_committed`.
        Raises AssertionError if the partition is not assigned."""
        lso = self._fetched_state(partition).lso
        return lso if lso is None or self._given.read_committed else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the partition's last fetch response (ms since 1970); None before the
        first response. Raises AssertionError if the partition is not assigned."""
        return self._fetched_state(partition).timestamp

    @overload
    def lag(self) -> dict[TopicPartition, int | None]: ...

    @overload
    def lag(self, partition: TopicPartition) -> int | None: ...

    def lag(
        self, partition: TopicPartition | None = None
    ) -> int | dict[TopicPartition, int | None] | None:
        """Return the number of offsets between the position and the end of a partition, as of its
        last fetch; None if either is unknown. Without `partition`, return these numbers for all
        assigned partitions.

        Sends no request, so it may be called often. With `read_committed`, the end is the last
        stable offset. Raises IllegalStateError if the partition is not assigned.
        """
        read_committed = self._given.read_committed
        if partition is not None:
            return self._subscription.assigned_state(partition).lag(read_committed)
        states = self._subscription.assignment.states()
        return {state.tp: state.lag(read_committed) for state in states}

    def known_end_offsets(self) -> dict[TopicPartition, int | None]:
        """Return the end offsets of the assigned partitions as of their last fetches, without a
        request; None for a partition before its first fetch."""
        read_committed = self._given.read_committed
        states = self._subscription.assignment.states()
        return {state.tp: state.end(read_committed) for state in states}

    def _fetched_state(self, partition: TopicPartition) -> PartitionState:
        if type(partition) is not TopicPartition:
            partition = next(iter(as_wanted((partition,)) or ()))
        state = self._subscription.assignment.get(partition)
        assert state is not None, f"Partition is not assigned: {partition}"
        return state

    # -- committed offsets -------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit these offsets, or by default the positions after all records returned so far.

        A committed offset is the offset of the next record to read. Takes `default_api_timeout_ms`
        at most. After a cancellation, some or all of the offsets may be committed.

        Raises IllegalOperation without a group; IllegalStateError for partitions not assigned;
        ValueError and TypeError for malformed `offsets`; CommitFailedError if the partitions belong
        to another member now, or were revoked while the application processed their records;
        UnknownTopicOrPartitionError for a deleted topic, after the other offsets are committed;
        KafkaTimeoutError; other errors of the broker.
        """
        self._need_group("commit")
        assert self._membership is not None
        if self._subscription.subscription is None:
            raise IllegalStateError(
                "Not subscribed to any topics: call subscribe() or assign() first"
            )
        assignment = self._subscription.assignment
        if offsets is None:
            # No await until `commit_offsets` has queued the commit, so that the positions belong to
            # the records returned so far.
            entries: dict[TopicPartition, OffsetAndMetadata] = AllPositions()
            for state in assignment.states():
                position = state.position
                if position is not None:
                    epoch = state.epoch_before(position)
                    entries[state.tp] = OffsetAndMetadata(position, "", epoch)
        else:
            entries = offsets_to_commit(offsets)
            for tp, entry in entries.items():
                found = assignment.get(tp)
                if found is None:
                    opening = "" if assignment else "No partitions assigned: "
                    refusal = opening + "Partition {} is not assigned"
                    found = self._subscription.assigned_state(tp, refusal)
                # If the application gave no leader epoch, commit the epoch of the record before
                # the offset.
                if entry.leader_epoch < 0 and (epoch := found.epoch_before(entry.offset)) >= 0:
                    entry.leader_epoch = epoch
        if entries:
            try:
                await self._membership.commit_offsets(assignment, entries)
            except (IllegalStateError, KafkaConnectionError) as error:
                self._refuse_stopped(error)
                raise
            self._committed_at = self._loop.time()
        if offsets is None:
            # Check for revoked partitions last: by now the offsets of all other partitions are
            # committed.
            self._membership.refuse_revoked()

    async def committed_offsets(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of several partitions (none given: all assigned), with
        metadata and leader epoch; None for a partition without a committed offset.

        Raises IllegalOperation without a group, TypeError for anything but TopicPartitions,
        KafkaTimeoutError after `default_api_timeout_ms`.
        """
        committer = self._need_group("committed_offsets")
        tps = sorted(self.assignment()) if partitions is None else as_partitions(partitions)
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch(tps, deadline) if tps else {}
        return {tp: found.get(tp) for tp in tps}

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition; None without a committed offset.

        Raises IllegalOperation without a group, TypeError for anything but a TopicPartition,
        KafkaTimeoutError after `default_api_timeout_ms`.
        """
        committer = self._need_group("committed")
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch([as_partition(partition)], deadline)
        return found[partition].offset if partition in found else None

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member id and generation of this consumer, for
        `producer.send_offsets_to_transaction` (KIP-447).

        After `assign()` the result has no member id and no generation. Raises IllegalOperation
        without a group, CommitFailedError if the consumer is not a member of the group at the
        moment.
        """
        if self._group_view is None:
            raise no_group("group_metadata")
        return self._group_view.metadata()

    def _need_group(self, call: str) -> OffsetCommitter:
        if self._committer is None:
            raise no_group(call)
        self._check_can_read()
        return self._committer

    # -- offset look-ups ---------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset of the oldest record of each partition. The partitions need not be
        assigned.

        Raises KafkaTimeoutError, with the missing partitions and the cause in its text, after
        `default_api_timeout_ms`.
        """
        return await self._ends(EARLIEST, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the newest record of each partition; with `read_committed`, the
        last stable offset. Raises like `beginning_offsets()`."""
        return await self._ends(LATEST, partitions)

    async def _ends(
        self, spec: OffsetSpec, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self._check_can_read()
        deadline = self._loop.time() + self._given.default_api_timeout
        wanted = dict.fromkeys(as_partitions(partitions), spec.timestamp)
        with self._unless_stopped():
            found = await self._resolver.lookup.find(wanted, deadline)
        return {tp: answer.offset for tp, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the offset of the first record that is not older than the
        partition's timestamp; None if all records are older. The partitions need not be assigned.

        Timestamps are milliseconds since 1970; fractions are dropped. Raises ValueError for a
        negative timestamp, TypeError for other types, KafkaTimeoutError, with the missing
        partitions and the cause in its text, after `default_api_timeout_ms`.
        """
        self._check_can_read()
        rule = "Key should be TopicPartition instance in timestamps"
        given = items_of("timestamps", timestamps)
        wanted = {as_partition(tp, rule): timestamp for tp, timestamp in given}
        for tp, timestamp in wanted.items():
            if isinstance(timestamp, SupportsIndex):  # NumPy integers are not `int`
                timestamp = operator.index(timestamp)
            elif not isinstance(timestamp, float):
                raise TypeError(f"timestamp of {tp}: must be a number, not {timestamp!r}")
            if not 0 <= timestamp < math.inf:  # false for NaN, too
                raise ValueError(
                    f"The target time for partition {tp} is {timestamp}. It must not be negative."
                )
        deadline = self._loop.time() + self._given.default_api_timeout
        times = {tp: int(timestamp) for tp, timestamp in wanted.items()}
        with self._unless_stopped():
            found = await self._resolver.lookup.find(times, deadline)
        return {
            tp: None
            if found[tp].offset < 0
            else OffsetAndTimestamp(found[tp].offset, found[tp].timestamp)
            for tp in times
        }

    # -- health and metrics ------------------------------------------------------------------------

    def health(self) -> ConsumerHealth:
        """Return the present health of the consumer.

        This call costs little, sends no request and never raises. It may be made at any time, also
        before `start()` and after `stop()`."""
        return self._monitor.health()

    def metrics(self) -> MetricsSnapshot:
        """Return the metrics of the consumer. May be called before `start()` and after `stop()`."""
        from aiokafka.consumer._metrics import read_consumer

        now, buffer, waited = self._loop.time(), self._queue.buffer, self._waited
        if self._queue.has_readers:
            waited += max(0.0, now - max(buffer.called_at, self._yielded_at))
        return read_consumer(
            self._context, self._membership, self._fetch.buffered_bytes, waited, now
        )

    # -- the cluster -------------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic; None if the consumer has no metadata of it.

        The consumer has metadata of its own topics, and of all topics after `topics()`, or after
        `start()` without topics, pattern or partitions.
        """
        partitions = self._client.cluster.known_partitions(as_text("topic", topic))
        if partitions is None and self._all_topics is not None:
            return self._all_topics.partitions(topic)
        return None if partitions is None else set(partitions)

    async def topics(self) -> set[str]:
        """Return all topics that this user may see. Requests metadata from one broker after the
        other until a broker responds.

        Raises the last error if no broker responds, KafkaTimeoutError after
        `default_api_timeout_ms`."""
        self._check_can_read()
        with self._unless_stopped():
            limit = self._given.default_api_timeout
            self._all_topics = everything = await AllTopics.of(self._client, limit)
        return everything.names(self._given.exclude_internal_topics)

    @cached_property
    def _fetcher(self) -> FetcherNames:
        """An object with the attributes of the Fetcher in aiokafka 0.14, for programs that use this
        private attribute."""
        from aiokafka._upstream.fetcher import FetcherNames

        return FetcherNames(self)

    # -- listeners ---------------------------------------------------------------------------------

    @property
    def rebalance_listener(self) -> ConsumerRebalanceListener | None:
        """The listener given to `subscribe()`; None without a listener. Before `start()` this
        property may be set to another listener, for example one that wraps the first; the
        subscription stays the same. Setting it without a subscription raises IllegalStateError."""
        return self._subscription.listener

    @rebalance_listener.setter
    def rebalance_listener(self, listener: ConsumerRebalanceListener | None) -> None:
        self._subscription.replace_listener(listener)


def _no_task() -> None:
    """Return None: used in place of the weak reference to the reading task until a task reads."""


def _no_subscription() -> IllegalStateError:
    return IllegalStateError("nothing to read: call subscribe() or assign() first")


_GETONE = AIOKafkaConsumer.getone
_ANEXT = AIOKafkaConsumer.__anext__


show_options(
    AIOKafkaConsumer.__init__,
    ConsumerConfig,
    ClientConfig,
    SecurityConfig,
    partition_assignment_strategy=default_strategy,
)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # In aiokafka 0.14 this module has the name RoundRobinPartitionAssignor, and programs import
        # it from here.
        if name != "RoundRobinPartitionAssignor":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return default_strategy()[0]
