"""AIOKafkaShareConsumer: start and stop, subscription, records, and acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Set
from typing import TYPE_CHECKING, Any, Generic, overload

import aiokafka
from aiokafka._arguments import as_number, record_limit, stop_limit
from aiokafka._compat import timeout_at
from aiokafka._config import ClientConfig, SecurityConfig
from aiokafka._config.options import (
    apply_defaults,
    naming_defaults,
    refuse_unknown,
    show_options,
)
from aiokafka._config.share import ShareConsumerConfig
from aiokafka._health import ConsumerState
from aiokafka._log import SubjectLog
from aiokafka._partitions import topic_names
from aiokafka._tasks import TaskOwner, made_for, refuse_other_loop
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
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordDeserializationError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    renewed,
)
from aiokafka.share._health import ShareHealthMonitor
from aiokafka.share._metrics import ShareMeter, read_share_consumer
from aiokafka.share.acquired import (
    Acknowledgements,
    AcknowledgeType,
    OutcomeCallback,
    Run,
    ShareRecord,
    runs,
)
from aiokafka.share.buffer import ShareBuffer
from aiokafka.share.deserialization import Deserializers
from aiokafka.share.fetcher import ShareFetcher
from aiokafka.share.membership import ShareMembership, ShareMemberState
from aiokafka.share.processing import (
    Handler,
    LockRenewals,
    Processing,
    ShareProcessor,
    outcome_type,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    import aiokafka.parallel
    from aiokafka._interception import ConsumerInterception
    from aiokafka.health import ShareConsumerHealth
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import ShareConsumerOptions
else:
    ShareConsumerHealth = later("aiokafka.health.ShareConsumerHealth")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    ShareConsumerOptions = later("aiokafka.options.ShareConsumerOptions")

__all__ = ["AIOKafkaShareConsumer"]

log = logging.getLogger("aiokafka.share")

_STOPPED = "the consumer was stopped; make a new one"

# Calls that find buffered records do not wait, so they let other tasks run at this interval in
# seconds.
_YIELD_AFTER = 0.001

# `stop()` waits for the end of tasks until its deadline, but at least this many seconds after the
# share sessions were closed.
_CLOSE_TIMEOUT = 1.0

# The part of the time of `stop()` that handlers have; the rest is for their acknowledgements.
_DRAIN_PART = 0.7


class AIOKafkaShareConsumer(Reporting, Generic[KT, VT]):
    """Consumes records as a member of a share group, as from a queue (KIP-932, Kafka 4.2; a preview
    in 4.1).

    The members of a share group share the records, not the partitions: a group may have more
    members than partitions. A member acquires records for the duration of an acquisition lock (30 s
    by default), and acknowledges each record: accepted records are done, released records are
    delivered again to any member, rejected records are not. A record whose lock expires is
    delivered again, up to the delivery limit of the group. Records carry `delivery_count`. The
    order of records is not kept.

    A consumer belongs to the event loop in which it was created. It acquires records only when the
    application wants some. A call that is cancelled or times out consumes no records.

    The deserializers determine the types of keys and values, by default `bytes | None`.

    Where a new group starts (`share.auto.offset.reset`), the isolation level, the lock's duration
    and the delivery limit are configurations of the group: set them with
    `AIOKafkaAdminClient.configs`.

    Raises TypeError or ValueError for a wrong argument, RuntimeError without a running event loop.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `group_id`: Share group to join. All members of the group consume the same records, each
      record once.
    - `share_acknowledgement_mode="implicit"`: implicit: a call of getone or getmany accepts the
      records that the same task got from its previous call. explicit: the application acknowledges
      each record, with acknowledge() or processing().
    - `share_acquire_mode="batch_optimized"`: batch_optimized: a fetch may acquire more records than
      max_poll_records, because the broker acquires whole batches. record_limit: a fetch never
      acquires more (KIP-1206, Kafka 4.2; older brokers ignore it).
    - `max_poll_records=500`: Maximum number of records that getmany returns, and number of records
      to acquire with one fetch from a broker.
    - `key_deserializer=None`: Converts the bytes of a key to the key of the record; called with
      None for a record without a key. For errors, see value_deserializer.
    - `value_deserializer=None`: Converts the bytes of a value to the value of the record; called
      with None for a record without a value (a tombstone). It is called with a
      SerializationContext, too, if its second parameter has the name ctx; it returns the result or
      an awaitable, which the call that reads awaits. If it raises an exception, records before this
      one are returned first; then a call raises RecordDeserializationError with the raw record.
      With implicit acknowledgement the record is released, or rejected if the exception is
      RejectRecord; with explicit acknowledgement the application acknowledges error.record. See
      on_deserialization_error.
    - `on_deserialization_error="raise"`: What to do with a record if a deserializer raises an
      exception. raise: raise RecordDeserializationError once. skip: reject the record, so that it
      is not delivered again; a broker with dead letters (Kafka 4.4) copies it to the dead-letter
      topic. raw: return the record with its key and value as bytes, and the error in
      record.deserialization_error; it is acknowledged like other records. With skip and raw, the
      consumer logs a warning and counts the record in health().unreadable.
    - `fetch_max_wait_ms=500`: Maximum time that a broker waits for fetch_min_bytes before it
      responds to a fetch.
    - `fetch_min_bytes=1`: Number of bytes that a broker waits for before it responds to a fetch, up
      to fetch_max_wait_ms.
    - `fetch_max_bytes=52428800`: Maximum number of bytes in one response to a fetch.
    - `max_decompressed_bytes=268435456`: Reject a batch that would have more than this number of
      bytes after decompression.
    - `default_api_timeout_ms=60000`: Timeout of calls that have no timeout argument.
    - `check_crcs=True`: Verify the checksum of every fetched batch.
    - `interceptors=()`: Interceptors that get the records before they are returned, and may change
      them; called in the order of the list.
    - `metrics_collector=None`: Is called after fetches, for returned records, and after
      acknowledgements.
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

    if MYPY:
        # Mypy infers no type from `Awaitable[Key] | Key`, and takes the first overload that fits.

        @overload
        def __init__(
            self: AIOKafkaShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Callable[[bytes], Awaitable[Key]],
            value_deserializer: Callable[[bytes], Awaitable[Value]],
            **options: Unpack[ShareConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Callable[[bytes], Key] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], Awaitable[Value]],
            **options: Unpack[ShareConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Callable[[bytes], Awaitable[Key]],
            value_deserializer: Callable[[bytes], Value] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ShareConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: AIOKafkaShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Callable[[bytes], Key] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], Value] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ShareConsumerOptions],
        ) -> None: ...

        def __init__(self, *topics: str, **options: Any) -> None: ...

    else:

        def __init__(
            self: AIOKafkaShareConsumer[Key, Value],
            *topics: str,
            key_deserializer: Deserializer[Key] | None = as_it_is,
            value_deserializer: Deserializer[Value] | None = as_it_is,
            **options: Unpack[ShareConsumerOptions],
        ) -> None:
            deserializers = {
                "key_deserializer": key_deserializer,
                "value_deserializer": value_deserializer,
            }
            self._set_up(topics, options, deserializers)

    def _set_up(
        self,
        topics: tuple[str, ...],
        options: ShareConsumerOptions,
        deserializers: dict[str, Any],
    ) -> None:
        name = type(self).__name__
        given, applied = apply_defaults("share_consumer", options)
        with naming_defaults(applied):
            self._given = config = _configure(name, {**given, **deserializers})
        config.client.note_defaults(applied)
        given_topics = topic_names(topics)
        with made_for(None, name) as self._loop:
            self._client = client = AIOKafkaClient(config.client, subject=config.subject)
            self._meter = meter = ShareMeter(SubjectLog(log, config.subject), config)
            self._acknowledgements = Acknowledgements(config.subject, meter)
            self._buffer = ShareBuffer()
            self._membership = membership = ShareMembership(client, config)
            self._monitor = monitor = ShareHealthMonitor(client, config, membership)
            # The tasks must not refer to the consumer, so that an unclosed consumer can be
            # garbage-collected, and `__del__` warns about it.
            failure = _Failure(self._buffer, membership, monitor)
            self._owner = TaskOwner(config.client.client_id, failure)
            self._fetcher = fetcher = ShareFetcher(
                client,
                config,
                membership.member_id,
                self._owner,
                self._acknowledgements,
                self._buffer,
                meter,
            )
            membership.begin(fetcher)
            monitor.begin(fetcher, self._owner)
            self._renewals = LockRenewals(fetcher)
            self._deserializers = Deserializers(config, self._acknowledgements, meter)
            self._interception = _interception(config)
            self._is_plain = self._interception is None and self._deserializers.is_empty
        self._explicit = self._acknowledgements if config.is_explicit else None
        """The same as `_acknowledgements` while `acknowledge()` is allowed; None with implicit
        acknowledgement, and after `stop()`."""
        self._topics = given_topics
        self._left_topics: frozenset[str] = frozenset()
        self._is_started = False
        self._is_finished = False
        self._stopping = asyncio.Lock()
        self._yielded_at = 0.0
        self._delivered: dict[asyncio.Task[Any], list[Run]] = {}
        self._processing: dict[ShareProcessor, None] = {}
        self._closed = False
        self._report(AIOKafkaShareConsumer.metrics, client.telemetry, self._labels())

    def _labels(self) -> Callable[[], dict[str, str]]:
        config, membership = self._given, self._membership
        return lambda: {
            "group_id": config.group_id,
            "group_member_id": membership.member_id,
            "client_rack": config.client.client_rack or "",
        }

    def __repr__(self) -> str:
        client_id, group_id = self._given.client.client_id, self._given.group_id
        return f"<AIOKafkaShareConsumer client_id={client_id!r} group_id={group_id!r}>"

    def __del__(self) -> None:
        if self._closed is not False or not self._is_started:
            return
        self._client.disown()
        warnings.warn(
            f"Unclosed AIOKafkaShareConsumer {self!r}", ResourceWarning, source=self, stacklevel=2
        )
        context = {"consumer": self, "message": "Unclosed AIOKafkaShareConsumer"}
        self._loop.call_exception_handler(context)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, get metadata of the subscribed topics, and join the group.

        Takes `request_timeout_ms` at most, or `bootstrap_resolve_timeout_ms` longer if names of
        brokers cannot be resolved. Raises KafkaConnectionError if no broker responds,
        UnknownTopicOrPartitionError if a topic does not exist, KafkaTimeoutError if the group has
        no coordinator, UnsupportedVersionError if the brokers have no share groups,
        GroupAuthorizationFailedError, TopicAuthorizationFailedError, AuthenticationFailedError;
        IllegalStateError if the consumer was started before, ConsumerStoppedError if it was
        stopped. After a failure or a cancellation the consumer is stopped.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        if self._closed:
            raise ConsumerStoppedError(_STOPPED)
        if self._is_started:
            raise IllegalStateError("the consumer was started before")
        self._is_started = True
        self._monitor.override_state(ConsumerState.STARTING)
        try:
            await self._launch()
            self._check()
        except BaseException as error:
            is_stopped = bool(self._closed)
            await self._stop_for_good()
            if is_stopped and isinstance(error, Exception):
                # The error is a consequence of `stop()`, which closed the connections.
                raise ConsumerStoppedError("the consumer was stopped while it started") from error
            raise
        self._monitor.override_state(None)

    async def _launch(self) -> None:
        config = self._given.client
        deadline = self._loop.time() + config.bootstrap_resolve_timeout + config.request_timeout
        self._client.set_topics(self._topics)
        await self._client.bootstrap()
        self._owner.keep_context()
        await self._await_topics(deadline)
        self._owner.start(self._fetcher.run(), name="share-fetcher")
        self._owner.start(self._renewals.run(), name="share-renewals")
        if self._interception is not None:
            self._owner.start(self._interception.run(), name="interceptors")
        self._membership.subscribe(self._topics)
        self._owner.start(self._membership.run(), name="share-membership")
        await self._await_membership(deadline)

    async def _await_topics(self, deadline: float) -> None:
        denied: TopicAuthorizationFailedError | None = None
        is_any_known = False
        for topic in sorted(self._topics):
            try:
                await self._client.wait_for_topic(topic, deadline)
                is_any_known = True
            except TopicAuthorizationFailedError as error:
                denied = error
        if denied is not None and not is_any_known:
            raise denied

    async def _await_membership(self, deadline: float) -> None:
        """Wait until the member has joined. Raises the error that ended the membership, and
        KafkaTimeoutError at `deadline` (loop time)."""
        while self._membership.state is ShareMemberState.JOINING and not self._closed:
            if not await self._membership.changed.wait(deadline):
                error = self._membership.error
                raise KafkaTimeoutError(
                    f"group {self._given.group_id!r} was not joined in time"
                    + (f": {error}" if error is not None else "")
                ) from error
            self._owner.check()

    async def stop(self, timeout: float | None = None) -> None:
        """Send the pending acknowledgements, release all other acquired records, leave the group,
        and close the connections.

        Calls of `process()` start no more handlers. Running handlers have most of `timeout` to end;
        then they are cancelled, and their records are released. If a handler calls `stop()`, its
        own record is released, too, because the handler has not returned. Takes `timeout` seconds
        at most (None: ten), and one second to close. A waiting `getone()` raises
        ConsumerStoppedError at once, a waiting `getmany()` returns `{}`. Concurrent calls return
        together. A later call does nothing, unless it continues the work of a cancelled call.

        With implicit acknowledgement, the records that each task got last are accepted in two
        cases: the task has ended without an exception, or the task calls `stop()` outside the
        handling of an exception. Otherwise these records are released.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        deadline = self._loop.time() + stop_limit(timeout)
        if not self._closed:
            self._closed = True
            self._explicit = None
            self._accept_delivered(is_stopping=True)
            self._monitor.override_state(ConsumerState.CLOSED)
            self._buffer.arrived.notify()
            self._membership.changed.notify()
        with contextlib.ExitStack() as stack:
            for processor in self._processing:
                stack.enter_context(processor.stopping())
            async with self._stopping:
                await self._finish(deadline)

    async def _finish(self, deadline: float) -> None:
        if self._is_finished:
            return
        now = self._loop.time()
        await self._drain(now + (deadline - now) * _DRAIN_PART)
        if self._is_started and self._owner.failure is None:
            await self._fetcher.close(deadline)
        limit = max(deadline, self._loop.time() + _CLOSE_TIMEOUT)
        if self._interception is not None:
            await self._interception.finish(limit)
            self._interception.close()
        await self._owner.stop(limit)
        if self._is_started:
            try:
                async with timeout_at(limit):
                    await self._membership.leave()
            except asyncio.TimeoutError:
                pass
        await self._client.close()
        self._is_finished = True

    async def _drain(self, deadline: float) -> None:
        """Wait for the handlers of `process()` until `deadline` (loop time), then cancel them."""
        for processor in self._processing:
            processor.release_waiting()
        for wait_until in (deadline, deadline + _CLOSE_TIMEOUT):
            try:
                async with timeout_at(wait_until):
                    for processor in list(self._processing):
                        await processor.drain()
            except asyncio.TimeoutError:
                for processor in self._processing:
                    processor.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop_for_good()

    async def _stop_for_good(self) -> None:
        """Call `stop()`. If it is cancelled, end all work without waiting: the brokers then release
        the acquired records, because the connections close."""
        try:
            await self.stop()
        finally:
            self._owner.cancel()
            if self._interception is not None:
                self._interception.close()
            self._client.abort()

    def _check(self) -> None:
        """Raise ConsumerStoppedError if the consumer is stopped, or the error that ended a
        background task or the membership."""
        if self._closed:
            raise ConsumerStoppedError(_STOPPED)
        failure = self._owner.failure or self._membership.failure
        if failure is not None:
            raise renewed(failure) from failure

    def _check_can_read(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            refuse_other_loop(self._loop, type(self).__name__)
        self._check()
        if not self._is_started:
            raise IllegalStateError("the consumer is not started: await start() first")

    # -- subscription ------------------------------------------------------------------------------

    def subscribe(self, topics: list[str] | tuple[str, ...] | Set[str]) -> None:
        """Consume these topics instead of the previous topics. Returned records of topics that are
        no longer subscribed can still be acknowledged; their buffered records are released.

        Raises TypeError if `topics` is not a list, tuple or set of names, ValueError if it is
        empty, or for a name that no topic can have, and ConsumerStoppedError after `stop()`.
        """
        names = topic_names(topics)
        if not names:
            raise ValueError("topics: must not be empty; unsubscribe() leaves the group")
        self._change_topics(names)

    def unsubscribe(self) -> None:
        """Drop the subscription: in the background, send the pending acknowledgements, and leave
        the group. Acquired records can still be acknowledged. Raises ConsumerStoppedError after
        `stop()`."""
        self._change_topics(frozenset())

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._topics

    def _change_topics(self, topics: frozenset[str]) -> None:
        if self._closed:
            raise ConsumerStoppedError(_STOPPED)
        self._left_topics = (self._left_topics | self._topics) - topics
        self._topics = topics
        if self._is_started:
            self._client.set_topics(topics)
            self._membership.subscribe(topics)

    # -- records -----------------------------------------------------------------------------------

    async def getone(self) -> ShareRecord[KT, VT]:
        """Return the next record; wait for it without limit.

        With implicit acknowledgement, accepts the records that this task got from its previous
        call. A cancelled call consumes nothing.

        Raises ConsumerStoppedError when stopped; IllegalStateError if the consumer is not started,
        or has no subscription; RecordDeserializationError, CorruptRecordError and
        UnsupportedCodecError for unreadable records; TopicAuthorizationFailedError and
        GroupAuthorizationFailedError; any other error of the broker that is not retriable. After an
        error of a record the next call continues with the following records.
        """
        await self._begin_call()
        with self._undecodable():
            taken = await self._read(1, None, self._given.max_poll_records)
        self._deliver(taken)
        return taken[0][0]

    async def getmany(
        self, *, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ShareRecord[KT, VT]]]:
        """Return the acquired records of each partition. If there are none, wait for records, at
        most `timeout_ms` milliseconds (0 or less: do not wait).

        Returns at most `max_records` (default and maximum: `max_poll_records`), and `{}` if no
        records arrive in time, or when `stop()` is called. Acknowledges like `getone()`. A
        cancelled call consumes nothing.

        Raises ValueError or TypeError for a wrong `max_records` or `timeout_ms`, and the errors of
        `getone()`, except ConsumerStoppedError while it waits. Records before an error are returned
        first; the next call raises the error.
        """
        limit = min(record_limit(max_records, None), self._given.max_poll_records)
        if limit < 0:
            limit = self._given.max_poll_records
        try:
            is_wrong = math.isnan(timeout_ms)
        except (TypeError, OverflowError):
            is_wrong = True
        if is_wrong:
            as_number("timeout_ms", timeout_ms, "a number of milliseconds")
        await self._begin_call()
        try:
            with self._undecodable():
                taken = await self._read(limit, self._loop.time() + timeout_ms / 1000, limit)
        except ConsumerStoppedError:
            return {}
        found: dict[TopicPartition, list[ShareRecord[KT, VT]]] = {}
        for run in taken:
            found.setdefault(run[0]._acquisition.tp, []).extend(run)
        self._deliver(taken)
        return found

    def __aiter__(self) -> AsyncIterator[ShareRecord[KT, VT]]:
        """Return an iterator over all records, which ends when the consumer is stopped."""
        self._check()
        return self

    async def __anext__(self) -> ShareRecord[KT, VT]:
        """Return the next record, like `getone()`."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    async def _begin_call(self) -> None:
        """Begin `getone()` or `getmany()`: accept the records of the previous call."""
        self._check_can_read()
        if not self._topics:
            raise IllegalStateError("nothing to read: call subscribe() first")
        self._accept_delivered()
        await self._let_others_run()

    async def _let_others_run(self) -> None:
        now = self._loop.time()
        if now - self._yielded_at > _YIELD_AFTER:
            self._yielded_at = now
            await asyncio.sleep(0)

    async def _read(
        self, limit: int, deadline: float | None, demand: int, as_bytes: bool = False
    ) -> list[Run]:
        """Return up to `limit` records, and wait for the first until `deadline` (loop time; None =
        no limit). `demand`: the number of records to acquire. `as_bytes`: do not deserialize the
        records, unless there are interceptors, which need deserialized records."""
        began_at = self._loop.time()
        while True:
            self._check()
            found = taken = self._buffer.take(limit)
            if self._left_topics:
                taken = self._release_left(taken)
            if not as_bytes or self._interception is not None:
                taken = await self._deserializers.convert(taken, self._buffer)
                self._check()
            if taken and self._interception is not None:
                taken = await self._intercept(taken, began_at)
            if taken and not self._is_plain:
                # The locks may have expired, or were lost, while a deserializer waited.
                taken = self._buffer.without_lost(taken)
            if taken:
                return taken
            if found:
                # All records were rejected, dropped by interceptors, or are of topics that are not
                # subscribed. There may be many such records, so let other tasks run.
                await self._let_others_run()
                continue
            if deadline is not None and deadline <= self._loop.time():
                self._buffer.want(demand)
                return []
            await self._buffer.wait(demand, deadline)
            self._yielded_at = self._loop.time()

    def _release_left(self, taken: list[Run]) -> list[Run]:
        """Release the records of topics that are no longer subscribed, and return the others."""
        for run in taken:
            if run[0].topic in self._left_topics:
                run[0]._acquisition.deliver(len(run))
                for record in run:
                    self._acknowledgements.finish(record, AcknowledgeType.RELEASE)
        return [run for run in taken if run[0].topic not in self._left_topics]

    async def _acquire(self, demand: int, deadline: float | None) -> list[ShareRecord[Any, Any]]:
        """Return all acquired records, for `process()`. If there are none, wait until records may
        have arrived or until `deadline` (loop time; None = no limit), then return []."""
        demand = min(demand, self._given.max_poll_records)
        taken = await self._read(2**31, 0.0, demand, as_bytes=True)
        if not taken:
            await self._buffer.wait(demand, deadline)
        self._note_delivered(taken)
        return [record for run in taken for record in run]

    def _deliver(self, taken: list[Run]) -> None:
        """Mark records as delivered to the application. There is no await between taking records
        from the buffer and this method, so a cancelled call has consumed nothing."""
        self._note_delivered(taken)
        if taken and not self._given.is_explicit:
            task = asyncio.current_task()
            if task is not None:
                self._delivered[task] = taken

    def _note_delivered(self, taken: list[Run]) -> None:
        for run in taken:
            run[0]._acquisition.deliver(len(run))
        self._meter.delivered(taken)

    @contextlib.contextmanager
    def _undecodable(self) -> Iterator[None]:
        """If the block raises RecordDeserializationError, the application gets the record with the
        error. With implicit acknowledgement, release or reject the record."""
        try:
            yield
        except RecordDeserializationError as error:
            record: Any = error.record
            record._acquisition.deliver(1)
            if not self._given.is_explicit:
                self._acknowledgements.finish(record, outcome_type(type(error.cause)))
            raise

    async def _intercept(self, taken: list[Run], began_at: float) -> list[Run]:
        """Return the records that the interceptors return. Records that they drop are accepted."""
        assert self._interception is not None
        records = [record for run in taken for record in run]
        by_partition: dict[TopicPartition, list[Any]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(
                record
            )
        try:
            passed = self._interception.begin(by_partition, self._loop.time() - began_at)
            result = passed if isinstance(passed, dict) else await passed
            self._check()
            kept = _own_records(records, [record for some in result.values() for record in some])
        except BaseException:
            self._buffer.put_back(records)
            raise
        present = {(id(record._acquisition), record.offset) for record in kept}
        for record in records:
            if (id(record._acquisition), record.offset) not in present:
                record._acquisition.deliver(1)
                self._acknowledgements.finish(record, AcknowledgeType.ACCEPT)
        return list(runs(kept))

    # -- acknowledgement ---------------------------------------------------------------------------

    def acknowledge(
        self, record: ShareRecord[Any, Any], type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record: ACCEPT, RELEASE, REJECT or RENEW.

        The acknowledgement is sent with the next fetch, or within 50 ms if no fetch is due; its
        outcome is reported by `commit()` and by the acknowledgement commit callback. It fails if
        the acquisition lock has expired, or if the leader of the partition has moved or was lost:
        then the record is delivered again.

        Raises IllegalStateError if the consumer acknowledges implicitly, if the record was
        acknowledged before, or if another consumer has acquired it; ConsumerStoppedError after
        `stop()`; TypeError if `record` is not a ShareRecord, or `type` is not an AcknowledgeType;
        UnsupportedVersionError for a RENEW before Kafka 4.2.
        """
        try:
            growing = record._acquisition.growing
        except AttributeError:
            growing = None  # not a ShareRecord, or a copy that has no acquisition
        if (
            growing is not None
            and growing.type is type
            and growing.last + 1 == record.offset
            and growing.owner is self._explicit
            and record._close()
        ):
            # The usual case is handled here, without another method call: the record follows the
            # record that was acknowledged last.
            growing.last += 1
            return
        if not self._given.is_explicit:
            raise IllegalStateError(
                "acknowledge() needs share_acknowledgement_mode='explicit': with 'implicit', the "
                "next call that reads accepts the records"
            )
        if not isinstance(type, AcknowledgeType):
            raise TypeError(f"type={type!r}: must be an AcknowledgeType")
        self._refuse_foreign(record)
        if self._closed:
            raise ConsumerStoppedError(_STOPPED)
        acquisition, offset = record._acquisition, record.offset
        if type is not AcknowledgeType.RENEW:
            record._close()
        elif not acquisition.session.can_renew:
            raise UnsupportedVersionError(
                f"node {acquisition.session.node_id} cannot renew acquisition locks, which needs "
                "Kafka 4.2 (KIP-1222)"
            )
        self._acknowledgements.acknowledge(acquisition, offset, offset, type)

    def _refuse_foreign(self, record: ShareRecord[Any, Any]) -> None:
        """Raise TypeError or IllegalStateError if the record cannot be acknowledged: see
        `acknowledge()`."""
        if not isinstance(record, ShareRecord):
            raise TypeError(f"record: must be a ShareRecord, not {record.__class__.__name__}")
        acquisition = getattr(record, "_acquisition", None)
        if acquisition is None or not acquisition.session.is_of(self._fetcher):
            raise IllegalStateError(f"{_place(record)} was not acquired by this consumer")
        if not record._is_open:
            raise IllegalStateError(f"{_place(record)} was acknowledged before")

    def _drop_if_lost(self, record: ShareRecord[Any, Any]) -> bool:
        """If the acquisition lock of a record was lost or has expired, drop the record and return
        True; else return False."""
        acquisition = record._acquisition
        expires_at = acquisition.lock_end(record.offset)
        if acquisition.failure is None and expires_at > self._loop.time():
            return False
        record._close()
        acquisition.settle(1)
        self._buffer.note_expired()
        return True

    def _accept_delivered(self, is_stopping: bool = False) -> None:
        """Accept the records that the calling task got before (implicit acknowledgement).

        Accept the records of tasks that have ended, too: before Python 3.12, `asyncio.wait_for`
        runs each read in a new task. If an ended task failed or was cancelled, release its records.
        """
        caller = asyncio.current_task()
        for task in [task for task in self._delivered if task is caller or task.done()]:
            taken = self._delivered.pop(task)
            if task is caller:
                # The caller handles an exception: `stop()` is called in an `except` block, or by an
                # `async with` block that ends with an exception.
                has_failed = is_stopping and sys.exc_info()[0] is not None
            else:
                has_failed = task.cancelled() or task.exception() is not None
            type_ = AcknowledgeType.RELEASE if has_failed else AcknowledgeType.ACCEPT
            for run in taken:
                if self._interception is None:
                    first, last = run[0].offset, run[-1].offset
                    self._acknowledgements.acknowledge(run[0]._acquisition, first, last, type_)
                else:  # an interceptor may return a record twice
                    for record in run:
                        self._acknowledgements.finish(record, type_)

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send the pending acknowledgements, and wait for their outcome. Return a dict with a
        value for each partition: None, or the error of its first acknowledgement that failed.

        The result includes the acknowledgements that were sent in the background since the last
        `commit()`. With implicit acknowledgement, first accepts the records that this task got
        before. A fetch in flight delays the commit by `fetch_max_wait_ms` at most.

        Takes `default_api_timeout_ms` at most, then raises KafkaTimeoutError. After a timeout or a
        cancellation, the acknowledgements are still sent, and the next `commit()` returns their
        outcomes. Raises ConsumerStoppedError after `stop()`, IllegalStateError before `start()`.
        """
        self._check_can_read()
        self._accept_delivered()
        limit = self._given.default_api_timeout
        waiting = self._acknowledgements.commit(self._loop.time() + limit)
        self._loop.call_soon(self._fetcher.wake)
        outcomes = await waiting
        if outcomes is None:
            count = self._acknowledgements.pending
            raise KafkaTimeoutError(f"{count} acknowledgements got no response within {limit:g} s")
        return outcomes

    def set_acknowledgement_commit_callback(self, callback: OutcomeCallback | None) -> None:
        """Call a function with the outcomes of acknowledgements: `callback(partition, offsets,
        error)`, with a TopicPartition, a list of offsets, and None or a KafkaError. None removes
        the callback. The callback must not be a coroutine function; its exceptions are logged. It
        does not get the offsets of unreadable batches, which the consumer itself rejects or
        releases.

        Raises TypeError if `callback` is not a function.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback={callback!r}: must be a function or None")
        self._acknowledgements.set_callback(callback)

    @property
    def acquisition_lock_timeout_ms(self) -> float | None:
        """The duration of acquisition locks in milliseconds (group.share.record.lock.duration.ms),
        as a broker reported it last; None before the first response to a fetch."""
        fetcher = self._fetcher
        return fetcher.lock_timeout * 1000 if fetcher.is_lock_timeout_known else None

    # -- processing --------------------------------------------------------------------------------

    def processing(self, record: ShareRecord[KT, VT]) -> Processing[KT, VT]:
        """Return a context manager that acknowledges a record when the block ends, and renews its
        acquisition lock as long as the block runs (KIP-1222, Kafka 4.2)::

            async with consumer.processing(record):
                await work(record)

        The record is accepted if the block succeeds, rejected if it raises RejectRecord (which is
        not propagated), and released after any other exception or a cancellation (which are
        propagated). The block may acknowledge the record itself. Before Kafka 4.2, a warning is
        logged before the lock expires.

        Raises IllegalStateError and TypeError as `acknowledge()` does.
        """
        if not self._given.is_explicit:
            raise IllegalStateError("processing() needs share_acknowledgement_mode='explicit'")
        self._refuse_foreign(record)
        return Processing(self, record)

    async def process(
        self,
        handler: Handler,
        *,
        concurrency: int = 50,
        retry: aiokafka.parallel.RetryTopics[KT, VT] | None = None,
    ) -> None:
        """Call `handler(record)` for each record, with up to `concurrency` calls at the same time,
        until the consumer is stopped.

        Each record is accepted if its handler returns, rejected if the handler raises
        RejectRecord, and released after any other exception, which is logged. Acquisition locks are
        renewed until the handler ends (KIP-1222, Kafka 4.2). `handler` is a function or a coroutine
        function.

        With `retry`, a record whose handler fails is sent to its retry topic, and after the last
        retry, or a RejectRecord, to its dead-letter topic. The record is accepted after the broker
        has acknowledged the copy, so it is not lost; if it cannot be accepted, it is processed
        again, and there may be two copies. If the copy cannot be sent, all records in process are
        released, and the call raises the error. The retry topics are added to the subscription; the
        group needs share.auto.offset.reset=earliest to read all of their records.

        A record of a retry topic waits in the consumer until it is due, and its lock is renewed;
        other handlers run meanwhile. (If the record was released instead, the broker would deliver
        it again at once, up to the delivery limit.) While records of a partition wait, the consumer
        does not fetch this partition. A record that is delivered again before it is due is sent to
        the end of its topic (`RetryTopics.send_back`), so that waiting does not use up its
        deliveries.

        Records are acquired when fewer than `concurrency` handlers run and no record waits: about
        `concurrency` records (`max_poll_records` at most) and `fetch_max_bytes` from each broker.
        With share_acquire_mode="batch_optimized" a broker may add the rest of a batch.

        After `stop()`, waiting records are released, and the running handlers have most of the
        timeout of `stop()` to end. If the call is cancelled, the handlers are cancelled, and their
        records released. An unreadable record is logged, and rejected or released as `getone()`
        does.

        Raises TypeError or ValueError for a wrong argument, and the other errors of `getone()`.
        """
        processor = ShareProcessor(self, handler, concurrency, retry)
        self._check_can_read()
        if not self._topics:
            raise IllegalStateError("nothing to read: call subscribe() first")
        if retry is not None:
            topics = topic_names(retry.with_retry_topics(sorted(self._topics)))
            if topics != self._topics:
                self._change_topics(topics)
        self._processing[processor] = None
        try:
            await processor.run()
        finally:
            del self._processing[processor]

    # -- health and metrics ------------------------------------------------------------------------

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that the group has assigned to this member. Other members may have
        the same partitions."""
        return frozenset(self._fetcher.partitions.values())

    def health(self) -> ShareConsumerHealth:
        """Return the present health of the consumer.

        This call costs little, sends no request and never raises. It is possible at any time, also
        before `start()` and after `stop()`."""
        return self._monitor.health(self._acknowledgements, self._buffer)

    def metrics(self) -> MetricsSnapshot:
        """Return the current metrics of the consumer; possible at any time, as for `health()`."""
        return read_share_consumer(
            self._client,
            self._given,
            self._fetcher,
            self._membership,
            self._acknowledgements,
            self._buffer,
            self._loop.time(),
        )


class _Failure:
    """Called with the error that ended a background task: wakes all waiting calls, so that they
    raise the error."""

    def __init__(
        self, buffer: ShareBuffer, membership: ShareMembership, monitor: ShareHealthMonitor
    ) -> None:
        self._buffer = buffer
        self._membership = membership
        self._monitor = monitor

    def __call__(self, error: BaseException) -> None:
        self._monitor.look()
        self._buffer.arrived.notify()
        self._membership.changed.notify()


def _place(record: ShareRecord[Any, Any]) -> str:
    return f"offset {record.offset} of topic {record.topic}, partition {record.partition}"


def _own_records(
    records: list[ShareRecord[Any, Any]], returned: list[Any]
) -> list[ShareRecord[Any, Any]]:
    """Return the records that interceptors returned for `records`. A copy of a record takes over
    the acquisition of the record. Raises TypeError for any other object, because it could not be
    acknowledged."""
    own = {id(record) for record in records}
    by_offset = {(record.topic, record.partition, record.offset): record for record in records}
    for record in returned:
        if id(record) in own:
            continue
        if not isinstance(record, ShareRecord):
            raise TypeError(f"an interceptor returned {record!r}, which is not a ShareRecord")
        original = by_offset.get((record.topic, record.partition, record.offset))
        if original is None:
            raise TypeError(
                f"an interceptor returned offset {record.offset} of topic {record.topic}, "
                f"partition {record.partition}, which was not passed to it"
            )
        record.delivery_count = original.delivery_count
        record._acquisition, record._is_raw = original._acquisition, original._is_raw
        record._is_open, original._is_open = original._is_open, False
    return returned


def _interception(config: ShareConsumerConfig) -> ConsumerInterception | None:
    if not config.interceptors:
        return None
    from aiokafka._interception import ConsumerInterception

    subject = SubjectLog(log, config.subject)
    return ConsumerInterception(config.interceptors, subject, config.introduction)


def _configure(owner: str, options: dict[str, Any]) -> ShareConsumerConfig:
    """Return the configuration for the keyword arguments of the constructor."""
    refuse_unknown(owner, options, ShareConsumerConfig, ClientConfig, SecurityConfig)
    if options.get("group_id") is None:
        raise TypeError(f"{owner}: group_id is required: the name of the share group")
    own = ShareConsumerConfig.keywords()
    client = ClientConfig.from_options(**{k: v for k, v in options.items() if k not in own})
    return ShareConsumerConfig.from_options(
        client=client, **{k: v for k, v in options.items() if k in own}
    )


show_options(AIOKafkaShareConsumer.__init__, ShareConsumerConfig, ClientConfig, SecurityConfig)
