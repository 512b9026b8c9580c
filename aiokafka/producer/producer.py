"""The producer: its public methods, start and stop, interceptors, and `transaction()` blocks."""

from __future__ import annotations

import asyncio
import warnings
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from types import CoroutineType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Generic

from aiokafka import _clock
from aiokafka._arguments import as_number
from aiokafka._compat import timeout_at
from aiokafka._config import ClientConfig, SecurityConfig, warn_ignored
from aiokafka._config.options import (
    MISSING,
    apply_defaults,
    naming_defaults,
    show_options,
    with_options,
)
from aiokafka._config.producer import ProducerConfig
from aiokafka._health import ProducerState
from aiokafka._log import SubjectLog
from aiokafka._tasks import OF_PRODUCERS, SharedStart, made_for, origin, refuse_other_loop
from aiokafka._telemetry import Reporting
from aiokafka._typing import (
    KeyGiven,
    KeySent,
    Self,
    Serializer,
    Unpack,
    ValueGiven,
    ValueSent,
    as_bytes,
    later,
)
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    IllegalOperation,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosed,
    TransactionStateError,
    WrongArgument,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer._arguments import (
    Headers,
    as_headers,
    ask_partitioner,
    check_batch,
    check_topic,
    checked_record,
    partition_number,
)
from aiokafka.producer._metrics import read_producer
from aiokafka.producer.batch_builder import BatchBuilder
from aiokafka.producer.message_accumulator import TopicQueues, record_bound
from aiokafka.producer.sender import Sender, log
from aiokafka.producer.transaction_manager import ProducerIdState
from aiokafka.structs import RecordMetadata, TopicPartition

__all__ = ["AIOKafkaProducer", "ProducerSettings", "TransactionContext"]


# -- The options of a producer


@with_options({"_given": ProducerConfig, "_given.client": ClientConfig})
class ProducerSettings:
    """The options of a producer as attributes, which programs read. A subclass may set attributes
    with these names; the producer does not use their values.
    """

    _given: ProducerConfig

    @cached_property
    def transactional_id(self) -> str | None:
        """The option `transactional_id`; None for a producer without transactions."""
        return self._given.transactional_id


if TYPE_CHECKING:
    from aiokafka._interception import ProducerInterception
    from aiokafka.health import ProducerHealth
    from aiokafka.interceptors import ProducerRecord
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import ProducerOptions
    from aiokafka.producer._serialization import Serialized, Serializers
    from aiokafka.producer.transactions import ProducerTransactions
else:
    ProducerHealth = later("aiokafka.health.ProducerHealth")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    ProducerOptions = later("aiokafka.options.ProducerOptions")
    ProducerInterception = later("aiokafka._interception.ProducerInterception")
    ProducerRecord = later("aiokafka.interceptors.ProducerRecord")
    ProducerTransactions = later("aiokafka.producer.transactions.ProducerTransactions")
    Serialized = Any
    Serializers = later("aiokafka.producer._serialization.Serializers")


# Programs for aiokafka 0.14 import this object, and pass it for an argument that is not given.
_missing: Any = MISSING

_NO_MEMORY = "brokers take records more slowly than they are sent, or do not respond"
_LONG_STOP = 3.0  # seconds after which `stop()` logs what it waits for

_DEFAULT_PARTITIONER = DefaultPartitioner()


class AIOKafkaProducer(Reporting, ProducerSettings, Generic[KeySent, ValueSent]):
    """Sends records to a Kafka cluster.

    Records are collected into batches per partition and sent by background tasks; `send` returns a
    future that resolves when the record is written. By default a record counts as written when
    every in-sync replica has it, and retries neither duplicate nor reorder records. Create the
    producer in a running event loop, and use it in that loop only::

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            await producer.send_and_wait("topic", b"value")

    The constructor raises ValueError or TypeError for wrong arguments, UnsupportedCodecError if a
    compression package is missing, and RuntimeError without an event loop. `loop` is the event loop
    to use if none is running (deprecated). `api_version` and `send_backoff_ms` have no effect.

    The types of keys and values are the parameter types of the serializers; without a serializer,
    the type is `bytes | None`. `AIOKafkaProducer(value_serializer=dump_order)` sends values of type
    `Order` if this function accepts an `Order`.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `acks`: Number of replicas that must have written a record before the broker acknowledges it:
      0 none (and no response), 1 the leader, "all" (or -1) all in-sync replicas. By default "all".
    - `enable_idempotence`: Let the broker discard duplicates of records that are sent again. By
      default True, unless acks is 0 or 1, or max_in_flight_requests_per_connection is above 5;
      always True with a transactional_id.
    - `transactional_id=None`: Id of the producer that stays the same after a restart; enables
      transactions.
    - `transaction_timeout_ms=60000`: Time after which the coordinator aborts an open transaction.
    - `key_serializer=None`: Converts the key given to send to bytes, or to None for no key; see
      value_serializer.
    - `value_serializer=None`: Converts the value given to send to bytes, or to None for no value.
      It is called with the value, and with a SerializationContext if its second parameter has the
      name ctx; it returns the result or an awaitable, which send awaits.
    - `partitioner=DefaultPartitioner()`: Returns the partition of a record: partitioner(key bytes,
      all partitions, available partitions). By default the same as in the Java client: see
      DefaultPartitioner.
    - `partitioner_rack_aware=False`: Send records without a key only to partitions whose leader is
      in client_rack, if there are such partitions (KIP-1123). No effect with a partitioner of your
      own.
    - `compression_type=None`: Codec with which batches are compressed; None: not compressed.
    - `compression_level=None`: Level of the codec, if it has levels; None for the codec's default.
    - `max_batch_size=16384`: Size in bytes at which a batch is full. By default, full batches grow
      up to 1 MB until they are sent.
    - `max_request_size=1048576`: Maximum size of a request in bytes.
    - `linger_ms=0`: Time that a batch waits for more records before it is sent, unless it is full.
    - `buffer_memory=33554432`: Maximum number of bytes in records that wait to be sent. If it is
      used up, send waits.
    - `max_block_ms=60000`: Time that send waits for metadata and buffer memory.
    - `delivery_timeout_ms`: Time in which a record is delivered, retries included, or fails. By
      default 120000, or linger_ms + request_timeout_ms if that is more.
    - `max_in_flight_requests_per_connection=5`: Maximum number of in-flight requests to each
      broker; at most 5 with idempotence.
    - `interceptors=()`: Interceptors that get the records before they are sent, and may change
      them; called in the order of the list.
    - `metrics_collector=None`: Is called with the outcome of each batch.
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

    _closed: bool | None = None  # None until the constructor has finished
    _is_connected = False
    _is_started = False
    _is_idle: Callable[[], bool] | None = None  # `is_idle` of `_interception`

    def __init__(
        self: AIOKafkaProducer[KeyGiven, ValueGiven],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: str | None = None,
        send_backoff_ms: float | None = None,
        key_serializer: Serializer[KeyGiven] | None = as_bytes,
        value_serializer: Serializer[ValueGiven] | None = as_bytes,
        **options: Unpack[ProducerOptions],
    ) -> None:
        warn_ignored(api_version=api_version, send_backoff_ms=send_backoff_ms)
        name = type(self).__name__
        given, applied = apply_defaults("producer", options)
        with naming_defaults(applied):
            self._given = config = ProducerConfig.of(
                name,
                {
                    **given,
                    "client_id": given.get("client_id")
                    or f"aiokafka-producer-{_clock.next_number()}",
                    "key_serializer": key_serializer,
                    "value_serializer": value_serializer,
                },
            )
        config.client.note_defaults(applied)
        self._demands_idempotence = given.get("enable_idempotence") is True
        # Instrumentation for aiokafka 0.14 reads these two attributes, and calls each of them that
        # is not None.
        self._key_serializer = self._value_serializer = None
        self._serializers: Serializers | None = None
        if key_serializer is not None or value_serializer is not None:
            from aiokafka.producer._serialization import make_serializers, without_awaitables

            self._serializers = make_serializers(key_serializer, value_serializer)
            self._key_serializer = without_awaitables("key_serializer", key_serializer)
            self._value_serializer = without_awaitables("value_serializer", value_serializer)
        self._partitioner = config.partitioner or _DEFAULT_PARTITIONER
        self._hashes_keys = type(self._partitioner) is DefaultPartitioner
        with made_for(loop, name, OF_PRODUCERS) as self._loop:
            self._assemble(config)
        self._starts = SharedStart()
        self._unclosed_context = origin(self._loop)
        self._is_stopped = self._closed = False
        self._report(AIOKafkaProducer.metrics, self.client.telemetry, config.telemetry_labels)

    def _assemble(self, config: ProducerConfig) -> None:
        self._log = SubjectLog(log, config.subject)
        self.client = AIOKafkaClient(config.client, subject=config.subject)
        self._sender = Sender(self.client, config, hashes_keys=self._hashes_keys)
        self._owner = self._sender.owner
        self._message_accumulator = self._sender.accumulator
        self._append: Callable[..., Any] = self._message_accumulator.append
        self._interception: ProducerInterception | None = None
        if config.interceptors:
            from aiokafka._interception import ProducerInterception

            self._interception = ProducerInterception(
                config.interceptors, self._log, config.introduction
            )
            self._is_idle = self._interception.is_idle
        self._health_monitor = self._sender.health
        self._transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            # Import here, because the module imports many messages that most producers do not need.
            from aiokafka.producer.transactions import ProducerTransactions

            self._transactions = ProducerTransactions(
                self.client, config, self._sender, config.transactional_id
            )
        # If the codec's package is missing, raise in the constructor, not for the first record.
        self._message_accumulator.sizing("").new_builder()

    def __repr__(self) -> str:
        if self._closed is None:
            return f"<{type(self).__name__} in the making>"
        names = [f"client_id={self._given.client.client_id}"]
        if self._given.transactional_id is not None:
            names.append(f"transactional_id={self._given.transactional_id}")
        return f"<{type(self).__name__} {' '.join(names)}>"

    def __del__(self) -> None:
        if self._closed is False and self._is_started:
            self.client.disown()
            name = type(self).__name__
            warnings.warn(f"Unclosed {name} {self!r}", ResourceWarning, source=self, stacklevel=1)
            message = f"Unclosed {name}: call stop(), or make it with `async with`"
            context = {"producer": self, "message": message, **self._unclosed_context}
            if not self._loop.is_closed():
                self._loop.call_exception_handler(context)

    # -- start and stop

    async def start(self) -> None:
        """Connect to the cluster, and get a producer id unless idempotence is off.

        Connecting takes at most `request_timeout_ms`; getting the producer id takes at most
        `max_block_ms` or `request_timeout_ms`, whichever is longer. Raises KafkaConnectionError
        with the reason for every bootstrap server, AuthenticationFailedError, KafkaTimeoutError if
        no producer id was returned in time, UnsupportedVersionError if the brokers are too old for
        an option, WrongArgument in another event loop than the constructor's, ProducerClosed after
        `stop()`. After an error or a cancellation every connection is closed. Has no effect on a
        running producer. Concurrent calls share one outcome; if one call is cancelled, another
        continues.
        """
        self._refuse_if_closed()
        if self._is_started:
            return
        if asyncio.get_running_loop() is not self._loop:
            raise WrongArgument("start() is called in another event loop than the constructor")
        await self._starts.run(self._launch, self._undo_start)

    async def _launch(self) -> None:
        if self._is_started:
            return
        self._refuse_if_closed()
        try:
            await self._connect()
        except KafkaError:
            self._refuse_if_closed()  # raises ProducerClosed if `stop()` has caused the error
            raise
        self._refuse_if_closed()
        self._is_started = True
        await self._sender.start()
        if self._interception is not None:
            self._owner.start(self._interception.run(), name="interceptors")
        self._message_accumulator.accept(self._transactions is None)
        self._health_monitor.enter(None)

    async def _connect(self) -> None:
        await self.client.bootstrap()
        self._is_connected = True
        if self._transactions is not None:
            await self._become_transactional(self._transactions)
        elif self._given.enable_idempotence:
            deadline = self._ready_by()
            if self._demands_idempotence:
                await self._sender.obtain_producer_id(deadline)
            else:
                await self._sender.try_to_obtain_producer_id(deadline)

    def _ready_by(self) -> float:
        # By default `max_block_ms` is longer than `request_timeout_ms`, so there is time to repeat
        # a request that got no response.
        limit = max(self._given.max_block, self._given.client.request_timeout)
        return self._loop.time() + limit

    async def _undo_start(self) -> None:
        # If the client could not connect, it has closed everything itself, and `start()` can be
        # called again.
        if self._is_connected:
            self._closed = True
            self._health_monitor.enter(ProducerState.CLOSED)
            try:
                await self._shut(None)
            finally:
                self._abandon()

    async def _become_transactional(self, transactions: ProducerTransactions) -> None:
        await self._transact("init", transactions.start(self._ready_by()))
        self._sender.completion.set_id_state(transactions.id_state)
        self._owner.start(transactions.serve_batches(), name="transaction")

    async def stop(self, timeout: float | None = None) -> None:
        """Deliver all records, then stop the background tasks and close every connection. Can be
        called any number of times.

        `timeout` (seconds) limits the delivery: records that are not delivered by then fail with
        ProducerClosed. An open transaction is aborted first; a commit that was already sent is
        finished instead. Without a `timeout`, `delivery_timeout_ms` limits the delivery of records,
        and the longer one of `max_block_ms` and `transaction_timeout_ms` limits the end of the
        transaction. Calls that wait in `send` fail with ProducerClosed at once. After a cancelled
        call, call `stop` again to continue. The end of `async with` calls `stop()` without a
        `timeout`; to limit the wait, call `stop(timeout)` inside the block.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        deadline = self._deadline(timeout)
        self._closed = True
        if self._is_stopped:
            return
        self._health_monitor.enter(ProducerState.CLOSING)
        self._message_accumulator.accept(False)
        self._message_accumulator.memory.refuse_waiters(
            lambda: ProducerClosed("the producer was stopped")
        )
        self.client.refuse_waiters(ProducerClosed("the producer was stopped"))
        if self._is_started and self._owner.failure is None:
            try:
                if self._transactions is not None:
                    async with timeout_at(deadline):
                        await self._transactions.close(deadline)
                await self._deliver_rest(deadline)
            except (KafkaError, asyncio.TimeoutError) as error:
                self._log.warning("Stopped before everything was delivered: %r", error)
        await self._shut(deadline)

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        return self._loop.time() + as_number("timeout", timeout, "a number of seconds, or None")

    async def _deliver_rest(self, deadline: float | None) -> None:
        """Wait until all records are delivered or have failed. After `_LONG_STOP` seconds log what
        delays the delivery. Raises KafkaTimeoutError at `deadline` (loop time)."""
        soon = self._loop.time() + _LONG_STOP
        if deadline is None or soon < deadline:
            try:
                return await self._message_accumulator.flush(soon)
            except KafkaTimeoutError:
                log.warning("%s is closing: %s", self, self._health_monitor.backlog(deadline))
        await self._message_accumulator.flush(deadline)

    async def _shut(self, deadline: float | None) -> None:
        self._sender.fail_all(ProducerClosed("the producer was stopped before this was delivered"))
        if self._interception is not None:
            await self._interception.finish(deadline)
            self._interception.close()
        await self._owner.stop(deadline)
        self._sender.close()
        await self.client.close()
        self._is_stopped = True
        self._health_monitor.enter(ProducerState.CLOSED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.stop()
        finally:
            # If stop() was cancelled, no caller will stop the producer again.
            self._abandon()

    def _abandon(self) -> None:
        """Close without waiting: fail all records, cancel the tasks, abort the connections."""
        self._sender.fail_all(ProducerClosed("the producer was stopped before this was delivered"))
        self._owner.cancel()
        if self._interception is not None:
            self._interception.close()
        self._sender.close()
        self.client.abort()
        self._health_monitor.enter(ProducerState.CLOSED)

    def health(self) -> ProducerHealth:
        """Return the state of the producer and the reasons for it.

        The call sends nothing, raises nothing, costs little, and is allowed at any time, also
        before `start()` and after `stop()`.
        """
        return self._health_monitor.health()

    def metrics(self) -> MetricsSnapshot:
        """Return a snapshot of the producer's metrics. Allowed at any time."""
        return read_producer(self.client, self._given, self._sender)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ProducerClosed("the producer was stopped; make a new one")

    def _check_usable(self) -> None:
        refuse_other_loop(self._loop, type(self).__name__)
        self._owner.check()
        self._refuse_if_closed()
        if not self._is_started:
            raise ProducerClosed("the producer is not started: call start() first")

    def _check_may_send(self, call: str, number: int | None = None) -> int:
        """Return the number of the open transaction, 0 for a producer without transactions. Raises
        unless the method named `call` may add records now.

        A call that has waited passes the `number` of its transaction, and gets an error if this
        transaction has ended: its records must not become part of a later transaction.
        """
        self._check_usable()
        if self._transactions is None:
            return 0
        transaction = self._transactions.transaction
        transaction.check(call)
        if number is not None and number != transaction.number:
            raise TransactionStateError(f"{call}: the transaction ended while this call waited")
        return transaction.number

    # -- records

    async def send(
        self,
        topic: str,
        value: ValueSent | None = None,
        key: KeySent | None = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> Future[RecordMetadata]:
        """Add a record to a batch; return a future that resolves when the record is written, or has
        failed.

        `key` and `value` are bytes, or whatever the serializers convert to bytes; a record without
        a value is a tombstone for its key. `timestamp_ms` is in milliseconds since 1970, by default
        now; fractions are cut off. `headers` are pairs of name and bytes, from any iterable.
        Without `partition` the partitioner chooses a partition. The future's result is a
        RecordMetadata (None with acks=0); the future fails at the latest `delivery_timeout_ms`
        after this call returned. Cancelling the future does not undo the send.

        The call waits up to `max_block_ms` for metadata and buffer memory, and sometimes for one
        iteration of the event loop. If it is cancelled while it waits, the record is not sent. When
        the call has returned, the record will be sent. Raises ValueError or TypeError for wrong
        arguments (often as WrongArgument, which is also an AssertionError),
        MessageSizeTooLargeError, UnknownTopicOrPartitionError, TopicAuthorizationFailedError,
        KafkaTimeoutError, ProducerClosed. With a `transactional_id`, raises TransactionStateError
        if no transaction is open, or the transaction has failed.
        """
        if (interception := self._interception) is not None and (
            (is_idle := self._is_idle) is None or not is_idle()
        ):
            sent = self._intercept(
                interception, topic, value, key, partition, timestamp_ms, headers
            )
            return await sent if type(sent) is CoroutineType else sent  # type: ignore[return-value]
        if self._serializers is not None:
            key, value, pairs, rest = self._serializers.serialize(topic, key, value, headers)
            if rest is not None:
                return await self._send_suspended(rest, topic, partition, timestamp_ms)
        else:
            # An iterator can be read only once, so convert `headers` to a sequence here.
            pairs = as_headers(headers) if headers else ()
        try:
            future: Future[RecordMetadata] | None = self._append(
                topic, value, key, partition, timestamp_ms, pairs
            )
        except TypeError:
            check_topic(topic)  # a list, for example, is not hashable
            raise
        if future is None:
            return await self._send_declined(topic, value, key, partition, timestamp_ms, pairs)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: ValueSent | None = None,
        key: KeySent | None = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata:
        """Send a record, wait until it is written, and return its metadata.

        If the call is cancelled, the record may still be sent. Raises the errors of `send`, and the
        error of the delivery.
        """
        if (
            self._interception is not None
            or type(send := self.send) is not MethodType
            # `send` is overridden by a subclass or wrapped by instrumentation: call the override.
            or send.__func__ is not _send
        ):
            return await (await self.send(topic, value, key, partition, timestamp_ms, headers))
        if self._serializers is not None:
            key, value, pairs, rest = self._serializers.serialize(topic, key, value, headers)
            if rest is not None:
                return await (await self._send_suspended(rest, topic, partition, timestamp_ms))
        else:
            pairs = as_headers(headers) if headers else ()
        try:
            future: Future[RecordMetadata] | None = self._append(
                topic, value, key, partition, timestamp_ms, pairs, True
            )
        except TypeError:
            check_topic(topic)  # a list, for example, is not hashable
            raise
        if future is None:
            future = await self._send_declined(topic, value, key, partition, timestamp_ms, pairs)
        return await future

    async def _send_suspended(
        self,
        rest: Coroutine[Any, Any, Serialized],
        topic: str,
        partition: int | None,
        timestamp_ms: float | None,
    ) -> Future[RecordMetadata]:
        """Send a record whose serializer waits: `rest` is the coroutine of
        `Serializers.serialize`. The record becomes part of the open transaction, if there is
        one."""
        number = self._transaction_number()
        key, value, pairs = await self._finish_serializing(rest)
        self._check_may_send("send", number)
        return await self._send_declined(topic, value, key, partition, timestamp_ms, pairs)

    async def _finish_serializing(self, rest: Coroutine[Any, Any, Serialized]) -> Serialized:
        """Wait for a serializer, and show the wait in `health()`. The caller must not have awaited
        anything else since the first step of the serializer."""
        with self.client.waits.on("a serializer", reason="the serializer has not returned"):
            return await rest

    async def _send_declined(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Headers,
    ) -> Future[RecordMetadata]:
        """Send a record for which `MessageAccumulator.append` has returned None: it needs checks or
        conversions, or has to wait."""
        number = self._check_may_send("send")
        stand_in = vars(self._message_accumulator).get("add_message")
        if stand_in is not None:  # a mock that the test of an application has set
            await self.client._wait_on_metadata(topic)
            tp = TopicPartition(topic, self._partition(topic, partition, key, value, key, value))
            limit = self._given.client.request_timeout
            named = {"timestamp_ms": timestamp_ms, "headers": list(headers)}
            future: Future[RecordMetadata] = await stand_in(tp, key, value, limit, **named)
            return future
        if type(value) is bytes and not headers and self._message_accumulator.is_yield_due:
            # `append` usually declines a record because a yield is due; with large records, this
            # happens every few calls. `_send_checked` would yield as well, but it costs as much as
            # many calls of `send`.
            await self._message_accumulator.yield_to_loop()
            self._check_may_send("send", number)
            appended: Future[RecordMetadata] | None = self._append(
                topic, value, key, partition, timestamp_ms, headers
            )
            if appended is not None:
                return appended
        return await self._send_checked(topic, value, key, partition, timestamp_ms, headers, number)

    async def _send_checked(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Headers,
        number: int,
    ) -> Future[RecordMetadata]:
        record = checked_record(topic, value, key, timestamp_ms, headers, self._given)
        partition = partition_number(partition)
        deadline = self._loop.time() + self._given.max_block
        need = record_bound(record.key, record.value, record.headers)
        queues, waited = await self._wait_for_memory(topic, partition, need, deadline)
        self._check_may_send("send", number)
        accumulator = self._message_accumulator
        if partition is None and record.key is None and self._hashes_keys:
            future = accumulator.append_sticky(
                queues, record.timestamp, record.value, record.headers
            )
            partition = None if queues.sticky is None else queues.sticky.partition.partition
        else:
            partition = self._partition(topic, partition, key, value, record.key, record.value)
            queue = queues.by_number[partition]
            future = accumulator.append_to(
                queues, queue, record.timestamp, record.key, record.value, record.headers
            )
        self._sender.meter.buffer_waited(topic, partition, waited)
        return future

    async def _wait_for_memory(
        self, topic: str, partition: int | None, need: int, deadline: float
    ) -> tuple[TopicQueues, float]:
        """Wait until the partition (None = any of the topic) is known and `need` bytes are free.
        The caller must append before it awaits anything else.

        Returns the queues of the topic, and the seconds for which too little memory was free.
        Raises WrongArgument for a partition that does not exist.
        """
        waited = 0.0
        while True:
            if partition is None:
                await self.client.wait_for_topic(topic, deadline)
            else:
                await self._wait_for_partition(topic, partition, deadline)
            with self.client.waits.on("buffer memory", reason=_NO_MEMORY):
                waited += await self._message_accumulator.wait_for_memory(
                    need, deadline, topic, partition
                )
            self._check_usable()
            queues = self._message_accumulator.topic_queues(topic, self.client.cluster)
            if queues is not None and (partition is None or partition in queues.by_number):
                return queues, waited

    async def _wait_for_partition(self, topic: str, partition: int, deadline: float) -> None:
        """Raise WrongArgument unless `partition` exists, if necessary after a metadata refresh."""
        if partition >= 0:
            known = await self.client.wait_for_partition(TopicPartition(topic, partition), deadline)
        else:
            known = await self.client.wait_for_topic(topic, deadline)
        if partition not in known:
            raise WrongArgument(
                f"Unrecognized partition: partition {partition} of topic {topic!r} does not exist: "
                f"it has {len(known)} partitions, from {min(known)} to {max(known)}"
            )

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int:
        """Return the partition for a record: `partition`, or the sticky partition, or the choice of
        the partitioner. Raises WrongArgument for a partition that does not exist."""
        cluster = self.client.cluster
        numbers = cluster.partition_ids(topic)
        if partition is not None:
            if partition not in numbers:
                raise WrongArgument(f"Unrecognized partition: {partition} of topic {topic!r}")
            return partition
        if not numbers:
            raise WrongArgument(f"the partitions of topic {topic!r} are not known")
        if self._hashes_keys and serialized_key is None:
            queues = self._message_accumulator.topic_queues(topic, cluster)
            assert queues is not None
            queue = queues.sticky or queues.switch()
            return int(queue.partition.partition)
        return ask_partitioner(self._partitioner, topic, serialized_key, cluster)

    # -- records that pass through interceptors, before the serializers

    def _intercept(
        self,
        interception: ProducerInterception,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Iterable[tuple[str, bytes | None]] | None,
    ) -> Future[RecordMetadata] | Coroutine[Any, Any, Future[RecordMetadata]]:
        """Append the record that the interceptors return, and return its future. Return a coroutine
        of the future if an interceptor returns an awaitable, or the record has to wait."""
        given = tuple(as_headers(headers)) if headers else ()
        if interception.is_full or not self._message_accumulator.is_accepting:
            return self._intercept_patiently(
                interception, topic, value, key, partition, timestamp_ms, given
            )
        record = interception.on_send(topic, value, key, partition, timestamp_ms, given)
        if not isinstance(record, interception.record_type):
            return self._send_passed(interception, record, self._transaction_number())
        try:
            key, value, headers = record.key, record.value, record.headers
            if self._serializers is not None:
                key, value, pairs, rest = self._serializers.serialize(
                    record.topic, key, value, headers
                )
                if rest is not None:
                    number = self._transaction_number()
                    return self._send_later(interception, record, rest, number)
            else:
                pairs = as_headers(headers) if headers else ()
            future: Any = self._append(
                record.topic, value, key, record.partition, record.timestamp_ms, pairs
            )
        except (Exception, asyncio.CancelledError) as error:
            # A serializer raises CancelledError if it awaits a cancelled task.
            interception.acknowledge(record, None, error)
            raise
        if future is None:
            number = self._transaction_number()
            return self._send_observed(interception, record, value, key, pairs, number)
        if (observer := interception.observer) is not None:
            future.observe(record, observer)
        return future  # type: ignore[no-any-return]

    def _transaction_number(self) -> int:
        return 0 if self._transactions is None else self._transactions.transaction.number

    async def _intercept_patiently(
        self,
        interception: ProducerInterception,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Headers,
    ) -> Future[RecordMetadata]:
        """Send a record after a wait, because too many coroutines of interceptors wait. Also called
        if the producer accepts no records: `_check_may_send` then raises an error with the reason.

        Raises KafkaTimeoutError if too many coroutines still wait after `max_block_ms`.
        """
        if "add_message" in vars(self._message_accumulator):  # a mock of the application's tests
            return await self._send_declined(topic, value, key, partition, timestamp_ms, headers)
        number = self._check_may_send("send")
        await interception.wait_for_capacity(self._loop.time() + self._given.max_block)
        passed = interception.on_send(topic, value, key, partition, timestamp_ms, tuple(headers))
        return await self._send_passed(interception, passed, number)

    async def _send_passed(
        self,
        interception: ProducerInterception,
        passed: ProducerRecord | Coroutine[Any, Any, ProducerRecord],
        number: int,
    ) -> Future[RecordMetadata]:
        """Send the record that the interceptors return, in transaction `number`."""
        record = passed if isinstance(passed, interception.record_type) else await passed
        try:
            self._check_may_send("send", number)
            key, value, headers = record.key, record.value, record.headers
            if self._serializers is not None:
                key, value, pairs, rest = self._serializers.serialize(
                    record.topic, key, value, headers
                )
            else:
                pairs, rest = as_headers(headers), None
        except (Exception, asyncio.CancelledError) as error:
            interception.acknowledge(record, None, error)
            raise
        if rest is not None:
            return await self._send_later(interception, record, rest, number)
        return await self._send_observed(interception, record, value, key, pairs, number)

    async def _send_later(
        self,
        interception: ProducerInterception,
        record: ProducerRecord,
        rest: Coroutine[Any, Any, Serialized],
        number: int,
    ) -> Future[RecordMetadata]:
        """Send `record` in transaction `number` after its serializer has finished. `rest` is the
        coroutine of the serializer, which is waiting; it returns key, value and headers."""
        try:
            key, value, pairs = await self._finish_serializing(rest)
            self._check_may_send("send", number)
        except (Exception, asyncio.CancelledError) as error:
            interception.acknowledge(record, None, error)
            raise
        return await self._send_observed(interception, record, value, key, pairs, number)

    async def _send_observed(
        self,
        interception: ProducerInterception,
        record: ProducerRecord,
        value: Any,
        key: Any,
        headers: Headers,
        number: int,
    ) -> Future[RecordMetadata]:
        """Send `record` with the serialized `value` and `key`, and call `on_acknowledgement` with
        its outcome, even if this call raises or is cancelled."""
        try:
            future: Any = await self._send_checked(
                record.topic, value, key, record.partition, record.timestamp_ms, headers, number
            )
        except (Exception, asyncio.CancelledError) as error:
            # A call that is cancelled while it waits sends nothing: report the cancellation, too.
            interception.acknowledge(record, None, error)
            raise
        if interception.observer is not None:
            future.observe(record, interception.observer)
        return future  # type: ignore[no-any-return]

    # -- batches

    def create_batch(self, *, topic: str | None = None) -> BatchBuilder:
        """Return an empty batch of up to `max_batch_size` bytes, for `send_batch`.

        Serializers that take a context need `topic`; `send_batch` then accepts no other topic.
        Raises WrongArgument (a ValueError) if there are such serializers, and no `topic`.
        """
        serializers = self._serializers
        if topic is not None:
            check_topic(topic)
        elif serializers is not None and serializers.takes_context:
            raise WrongArgument(
                "topic: create_batch() needs it, because a serializer takes a context"
            )
        builder = self._message_accumulator.sizing("").builder(self._given.max_batch_size)
        return BatchBuilder(builder, serializers, topic)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None = None
    ) -> Future[RecordMetadata]:
        """Queue `batch` for sending; return a future of the RecordMetadata of the first record.

        Without `partition` a partition is chosen as for a record without a key. `partition` is a
        keyword argument.

        A batch that was not closed accepts the records of later `send` calls for the partition
        until the batch is full. The call waits like `send`; if it is cancelled while it waits, the
        batch is not sent and can be passed again. Raises the errors of `send`, WrongArgument (a
        ValueError) for an empty batch, IllegalStateError for a batch that was sent before.
        """
        number = self._check_may_send("send_batch")
        check_topic(topic)
        if not isinstance(batch, BatchBuilder):
            raise TypeError(f"batch: must come from create_batch(), not {type(batch).__name__}")
        partition = partition_number(partition)
        check_batch(batch, topic, self._given)
        deadline = self._loop.time() + self._given.max_block
        queues, waited = await self._wait_for_memory(topic, partition, batch.size(), deadline)
        self._check_may_send("send_batch", number)
        check_batch(batch, topic, self._given)
        if partition is None and self._hashes_keys:
            partition = int(queues.switch().partition.partition)
        elif partition is None:
            partition = ask_partitioner(self._partitioner, topic, None, self.client.cluster)
        self._sender.meter.buffer_waited(topic, partition, waited)
        return self._message_accumulator.submit(TopicPartition(topic, partition), batch)

    # -- transactions

    @property
    def _txn_manager(self) -> ProducerIdState | None:
        """The producer id and the sequence numbers. Programs for aiokafka 0.14 read this attribute.

        Without a producer id: None, or an empty state with `enable_idempotence=True`.
        """
        id_state = (self._transactions or self._sender.completion).id_state
        if id_state is None and self._demands_idempotence:
            return ProducerIdState()
        return id_state

    def _transactional(self) -> ProducerTransactions:
        if self._transactions is None:
            raise IllegalOperation(
                "You need to configure transaction_id to use transactions: transactional_id=..."
            )
        self._check_usable()
        return self._transactions

    async def _transact(self, call: str, work: Awaitable[None]) -> None:
        """Await `work`, and add its duration to the metric of `call`. Raise ProducerClosed if
        `work` raises IllegalStateError after `stop()` was called."""
        began_at = self._loop.time()
        try:
            await work
        except IllegalStateError as error:
            if not self._closed:
                raise
            raise ProducerClosed(f"the producer was stopped before {call} was done") from error
        finally:
            self._sender.meter.transacted(call, self._loop.time() - began_at)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records that are sent from now on are part of the transaction.

        First finishes an abort that was cancelled or timed out, or a commit that was cancelled or
        timed out after it was sent. If this fails, the error is raised, for example ProducerFenced.
        Raises IllegalOperation without a `transactional_id`, and TransactionStateError (an
        IllegalOperation and an AssertionError) if a transaction is open, also if its commit was
        cancelled while it waited for records.
        """
        await self._transact("begin", self._transactional().begin())

    async def commit_transaction(self) -> None:
        """Wait until all records of the transaction are written, then commit.

        Takes up to `max_block_ms`. After a KafkaTimeoutError without `requires_abort`, or a
        cancellation, the outcome is unknown: call `commit_transaction` again to continue. The
        outcome is also unknown after ProducerClosed, if `stop()` was called meanwhile with too
        short a timeout. After any other error abort the transaction, unless the error has
        `is_fatal`.
        """
        await self._transact("commit", self._transactional().commit())

    async def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent are dropped, and consumers with
        `read_committed` skip records that were written.

        Waits for in-flight requests, even if the records in them have exceeded
        `delivery_timeout_ms`: brokers without KIP-890 could write these records into the next
        transaction. Takes up to `max_block_ms`. After a KafkaTimeoutError or a cancellation call
        `abort_transaction` again.
        """
        await self._transact("abort", self._transactional().abort())

    def transaction(self) -> TransactionContext:
        """Return a context manager that begins a transaction, commits it at the end of the block,
        and aborts it if the block raises."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Any], group_id: Any
    ) -> None:
        """Commit offsets of a consumer group with the transaction. Cancelling the call does not
        undo this.

        `offsets` maps each TopicPartition to the offset of the next record to read, as int,
        (int, str) or OffsetAndMetadata. `group_id` is the consumer that read the records, its
        `group_metadata()`, or the group id, which stands for the consumers of that group in this
        event loop. The request names the member and its generation, so that brokers since Kafka 2.5
        refuse a member that has lost its partitions.

        Raises CommitFailedError if a partition was revoked since its records were returned. If the
        partition was assigned to the consumer again, the error is raised only until the application
        requests more records. Raises ValueError and TypeError for wrong arguments. If the
        coordinator responds with IllegalGenerationError, UnknownMemberIdError or FencedInstanceId,
        the call raises this error, which is fatal to the consumer, but not to this producer. After
        an error without `is_fatal` abort the transaction.
        """
        transactions = self._transactional()
        await self._transact("send_offsets", transactions.send_offsets(offsets, group_id))

    async def flush(self, timeout: float | None = None) -> None:
        """Send all records without lingering, and wait until they are delivered or have failed.

        The call waits for the records that were sent before it. `timeout` is in seconds; without a
        `timeout`, `delivery_timeout_ms` limits the wait. Raises KafkaTimeoutError after the
        timeout. Cancelling the call has no effect on the records.
        """
        refuse_other_loop(self._loop, type(self).__name__)
        self._owner.check()
        deadline = self._deadline(timeout)
        with self._sender.meter.flushing():
            await self._message_accumulator.flush(deadline)

    def abort_buffered(self) -> None:
        """Drop the records that are not in flight, and fail their futures with KafkaError.

        A dropped record that was waiting for a retry may have been written.
        """
        self._check_usable()
        self._sender.drop_waiting(KafkaError("not sent: dropped by abort_buffered()"))

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of `topic`. Waits up to `request_timeout_ms` for metadata.

        Raises UnknownTopicOrPartitionError, TopicAuthorizationFailedError, KafkaTimeoutError.
        """
        self._check_usable()
        check_topic(topic)
        deadline = self._loop.time() + self._given.client.request_timeout
        return set(await self.client.wait_for_topic(topic, deadline))

    _metadata = property(lambda self: self.client.cluster)  # an attribute of aiokafka 0.14

    @property
    def buffer_available_bytes(self) -> int:
        """The free bytes of `buffer_memory`; `send` waits while a record needs more."""
        return max(0, self._message_accumulator.memory.free)


_send = AIOKafkaProducer.send


# -- A transaction as an `async with` block


class TransactionContext:
    """Begins a transaction, commits it at the end of the `async with` block, and aborts it after an
    error. Created by `AIOKafkaProducer.transaction`."""

    def __init__(self, producer: AIOKafkaProducer[Any, Any]) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        producer = self._producer
        transactions = producer._transactions
        if transactions is None:
            return
        try:
            if exc is None:
                await producer.commit_transaction()
        finally:
            # After the block, the program would not abort a transaction that is not committed, so
            # abort it here.
            if transactions.transaction.is_undecided and not producer._closed:
                try:
                    await producer.abort_transaction()
                except KafkaError as error:
                    # Let the error that led to the abort propagate, and only log this one. The next
                    # `begin_transaction()` repeats the abort first.
                    log.warning("%s: the transaction is not aborted yet: %s", producer, error)


show_options(
    AIOKafkaProducer.__init__,
    ProducerConfig,
    ClientConfig,
    SecurityConfig,
    client_id=lambda: None,
    partitioner=lambda: _DEFAULT_PARTITIONER,
)
