"""The options of clients as types, for dicts of options, editors and type checkers.

`AIOKafkaConsumer(**options)` is checked when `options` is a `ConsumerOptions`. Written by
`make options` from what `aiokafka._config` declares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from socket import socket
from ssl import SSLContext
from typing import TYPE_CHECKING, Literal, TypedDict

from aiokafka._config.security import Credential
from aiokafka.abc import AbstractSaslMechanism, AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.interceptors import ConsumerInterceptor, ProducerInterceptor
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
from aiokafka.structs import BrokerAddress, Dialed

if TYPE_CHECKING:
    from aiokafka._config.security import TlsSource
else:
    # `aiokafka._config` has this type for type checkers only, so that it need not import `ssl`.
    TlsSource = SSLContext | Callable[[], SSLContext | Awaitable[SSLContext]]

Servers = str | list[str] | tuple[str, ...] | AbstractSet[str]
BootstrapServers = Servers | Callable[[], Servers | Awaitable[Servers]]
SaslMechanism = (
    Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    | AbstractSaslMechanism
)
Target = tuple[str, int] | str | socket | Dialed | None
Dialer = Callable[[BrokerAddress], Target | Awaitable[Target]]

__all__ = [
    "AdminOptions",
    "ClientOptions",
    "ConsumerOptions",
    "ProducerOptions",
    "ShareConsumerOptions",
]


class ClientOptions(TypedDict, total=False):
    """Options of all clients."""

    bootstrap_servers: BootstrapServers
    """Brokers to connect to first, or a function that returns them; they return the addresses of
    all other brokers. The port is 9092 if none is given. A function or coroutine function is called
    whenever the client connects to them, also after an outage of all known brokers. Default:
    "localhost"."""

    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """use_all_dns_ips: connect to the names in bootstrap_servers as they are.
    resolve_canonical_bootstrap_servers_only: replace each name by the canonical host names of its
    addresses, which Kerberos needs for an alias (KIP-235). Default: "use_all_dns_ips"."""

    bootstrap_resolve_timeout_ms: float
    """Time for which start() repeats the look-up of the names in bootstrap_servers until one of
    them has an address (KIP-909); 0: a single look-up. Default: 0."""

    client_id: str | None
    """Name of the client in the broker's logs, quotas and metrics; None for the default."""

    request_timeout_ms: float
    """Time to wait for the response to a request. Default: 40000."""

    retry_backoff_ms: float
    """Time to wait before a failed request is sent again; doubles after every further failure.
    Default: 100."""

    retry_backoff_max_ms: float
    """Maximum time between two attempts of a request. Default: 1000."""

    reconnect_backoff_ms: float
    """Time to wait before the client connects to a broker again after a failure; doubles after
    every further failure. Default: 50."""

    reconnect_backoff_max_ms: float
    """Maximum time between two attempts to connect to a broker. Default: 1000."""

    socket_connection_setup_timeout_ms: float
    """Time in which a connection has to be established, authentication included; doubles after
    every failure, until a connection succeeds. Default: 10000."""

    socket_connection_setup_timeout_max_ms: float
    """Maximum of the time in which a connection has to be established. Default: 30000."""

    connections_max_idle_ms: float | None
    """Close a connection that was not used for this time; None: never. Default: 540000."""

    metadata_max_age_ms: float
    """Refresh the metadata of the cluster at least this often. Default: 300000."""

    metadata_max_idle_ms: float
    """Remove a topic from the metadata if it was not used for this time (KIP-526). Default:
    300000."""

    metadata_recovery_rebootstrap_trigger_ms: float | None
    """Connect to bootstrap_servers again if no known broker returns metadata: as soon as all known
    brokers have been tried, or at the latest after this time; None: never. Default: 300000."""

    metadata_cluster_check_enable: bool
    """Let each broker check on connect that it is the expected node of the expected cluster; if
    not, connect to bootstrap_servers again (KIP-1242, Kafka 4.4). No effect if
    metadata_recovery_rebootstrap_trigger_ms is None. Default: True."""

    receive_message_max_bytes: int
    """Reject a response that is larger than this number of bytes. Default: 268435456."""

    allow_auto_create_topics: bool
    """Let a broker create a missing topic when the client requests its metadata, if the broker is
    configured so (auto.create.topics.enable). Default: True."""

    enable_metrics_push: bool
    """Push metrics to brokers that request them (KIP-714). In an admin client the default is False.
    Default: True."""

    client_rack: str | None
    """Rack of the client. A consumer fetches from a replica in this rack (KIP-392, Kafka 2.4), and
    the group's assignor may prefer partitions with a replica in it. A producer uses it with
    partitioner_rack_aware. Other clients do not use it. Default: None."""

    dialer: Dialer | None
    """Function or coroutine function that gets a BrokerAddress before each connect, and returns
    another address to connect to, a connected socket, a Dialed, or None for the address as it is.
    TLS checks the advertised host name. Default: None."""

    proxy_url: str | None
    """Proxy for all connections: socks5://host:port, socks4://host:port or http://host:port (HTTP
    CONNECT), with user:password@ before the host if the proxy needs it. The proxy resolves the
    names of brokers. Default: None."""

    broker_address_family: Literal["any", "v4", "v6"]
    """IP version of the addresses to which host names are resolved. Default: "any"."""

    send_buffer_bytes: int | None
    """Size of the system's send buffer of a connection (SO_SNDBUF); None: the system adapts it.
    Default: None."""

    receive_buffer_bytes: int | None
    """Size of the system's receive buffer of a connection (SO_RCVBUF); None: the system adapts it.
    Default: None."""

    socket_options: Sequence[tuple[int, int, int | bytes]]
    """Options of sockets as (level, option, value), as setsockopt takes them. Connections have
    TCP_NODELAY and SO_KEEPALIVE anyway. Default: ()."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Protocol of the brokers' listener: with or without TLS, with or without SASL. Default:
    "PLAINTEXT"."""

    ssl_context: TlsSource | None
    """TLS settings, or a function that returns them for each new connection; required for SSL and
    SASL_SSL. Default: None."""

    sasl_mechanism: SaslMechanism
    """SASL mechanism, for SASL_PLAINTEXT and SASL_SSL: a name, or an
    aiokafka.abc.AbstractSaslMechanism for a mechanism of the application. Default: "PLAIN"."""

    sasl_plain_username: Credential | None
    """User name for PLAIN and SCRAM, or a function that returns it for each authentication.
    Default: None."""

    sasl_plain_password: Credential | None
    """Password for PLAIN and SCRAM, or a function that returns it for each authentication. Default:
    None."""

    sasl_scram_tokenauth: bool
    """With SCRAM: authenticate by a delegation token. The user name is the id of the token, the
    password its HMAC in base64 (KIP-48). Default: False."""

    sasl_kerberos_service_name: str
    """Service name of the brokers for GSSAPI: the first part of their principals. Default:
    "kafka"."""

    sasl_kerberos_domain_name: str | None
    """Host name in the principal of the broker, for GSSAPI; by default the host name of the
    connection. Default: None."""

    sasl_kerberos_principal: str | None
    """Principal of the client for GSSAPI; by default the principal of the ticket cache, or the
    first principal of the keytab. Default: None."""

    sasl_kerberos_keytab: str | None
    """Path of a keytab with which tickets are obtained, for GSSAPI; by default the environment
    variables KRB5CCNAME and KRB5_CLIENT_KTNAME apply. Default: None."""

    sasl_oauth_token_provider: AbstractTokenProvider | None
    """Source of tokens for OAUTHBEARER. Default: None."""


class AdminOptions(ClientOptions, total=False):
    """Options of admin clients."""

    bootstrap_controllers: BootstrapServers | None
    """Controllers to connect to instead of brokers (KIP-919, Kafka 3.7), for example while no
    broker runs. Excludes bootstrap_servers. Default: None."""


class ConsumerOptions(ClientOptions, total=False):
    """Options of consumers."""

    group_id: str | None
    """Group to join, and to commit offsets for. None: no group; then the consumer reads all
    partitions of its topics. Default: None."""

    group_instance_id: str | None
    """Id of a static member, which keeps its partitions during a restart (KIP-345). Default:
    None."""

    group_protocol: Literal["classic", "consumer"]
    """Protocol of the group: with classic, one of the members assigns the partitions; with
    consumer, the broker does (KIP-848, Kafka 4.0). Default: "classic"."""

    group_remote_assignor: str | None
    """Assignor of the broker for group_protocol="consumer": uniform, range, or another assignor in
    the broker's list group.consumer.assignors; None: the first assignor in that list. Default:
    None."""

    on_deserialization_error: Literal["raise", "skip", "raw"]
    """What to do with a record if a deserializer raises an exception. raise: raise
    RecordDeserializationError, with each read until the application seeks past the record. skip:
    leave the record out; the position moves past it. raw: return the record with its key and value
    as bytes, and the error in record.deserialization_error. With skip and raw, the consumer logs a
    warning and counts the record in health().unreadable. Default: "raise"."""

    fetch_max_wait_ms: float
    """Maximum time that a broker waits for fetch_min_bytes before it responds to a fetch. Default:
    500."""

    fetch_min_bytes: int
    """Number of bytes that a broker waits for before it responds to a fetch, up to
    fetch_max_wait_ms. Default: 1."""

    fetch_max_bytes: int
    """Maximum number of bytes in one response to a fetch. Default: 52428800."""

    max_partition_fetch_bytes: int
    """Maximum number of bytes of one partition in one response to a fetch. If the first batch is
    larger, it is returned nevertheless. Default: 1048576."""

    fetch_buffer_memory: int
    """Maximum number of bytes that are fetched before the application requests the records, over
    all brokers. Default: 67108864."""

    max_decompressed_bytes: int
    """Reject a batch that would have more than this number of bytes after decompression. Default:
    268435456."""

    default_api_timeout_ms: float
    """Timeout of calls that have no timeout argument. Default: 60000."""

    unreachable_timeout_ms: float | None
    """Raise KafkaUnreachableError from calls that read records if the group's coordinator, or the
    brokers of all partitions, have not responded for this time; None: these calls wait without
    limit. Default: None."""

    max_poll_records: int | None
    """Maximum number of records that getmany returns; None: no limit. Default: None."""

    consumer_timeout_ms: float
    """Has no effect: the consumer waits for records without polling. Accepted for programs written
    for aiokafka 0.14. Default: 200."""

    auto_offset_reset: Literal["earliest", "latest", "none"] | timedelta
    """Where to start in a partition without a valid position: earliest is the first record, latest
    the end; none raises NoOffsetForPartitionError or OffsetOutOfRangeError. With a timedelta, or
    by_duration:, start at the first record that is not older than this duration (KIP-1106).
    Default: "latest"."""

    enable_auto_commit: bool
    """Commit offsets in the background, at an interval. Records count as finished if they were
    returned before the latest call of getone or getmany. Default: True."""

    auto_commit_interval_ms: float
    """Time between two automatic commits (enable_auto_commit). Default: 5000."""

    check_crcs: bool
    """Verify the checksum of every fetched batch. Default: True."""

    isolation_level: Literal["read_uncommitted", "read_committed"]
    """read_uncommitted: return the records of open and aborted transactions as well.
    read_committed: do not return them. Default: "read_uncommitted"."""

    exclude_internal_topics: bool
    """Omit internal topics from the list of topics, and from the topics that match a pattern given
    as a str. Default: True."""

    partition_assignment_strategy: Sequence[
        type[AbstractPartitionAssignor] | AbstractPartitionAssignor
    ]
    """Assignors for the partitions of a group, in the order of preference (classic protocol).
    Default: [RoundRobinPartitionAssignor]."""

    session_timeout_ms: float
    """Time without a heartbeat after which the group removes a member (classic protocol). Default:
    10000."""

    heartbeat_interval_ms: float
    """Time between two heartbeats; less than session_timeout_ms (classic protocol). Default:
    3000."""

    max_poll_interval_ms: float
    """Time without a call of getone or getmany after which a member leaves the group. Default:
    300000."""

    rebalance_timeout_ms: float | None
    """Time that members have to revoke partitions in a rebalance. None: session_timeout_ms, or
    max_poll_interval_ms with group_protocol="consumer". Default: None."""

    interceptors: Sequence[ConsumerInterceptor]
    """Interceptors that get the records before they are returned, and may change them; called in
    the order of the list. Default: ()."""

    metrics_collector: ConsumerMetricsCollector | None
    """Is called after fetches, for returned records, with the lag, and after commits. Default:
    None."""


class ProducerOptions(ClientOptions, total=False):
    """Options of producers."""

    acks: Literal[0, 1, -1, "all"]
    """Number of replicas that must have written a record before the broker acknowledges it: 0 none
    (and no response), 1 the leader, "all" (or -1) all in-sync replicas. By default "all"."""

    enable_idempotence: bool
    """Let the broker discard duplicates of records that are sent again. By default True, unless
    acks is 0 or 1, or max_in_flight_requests_per_connection is above 5; always True with a
    transactional_id."""

    transactional_id: str | None
    """Id of the producer that stays the same after a restart; enables transactions. Default:
    None."""

    transaction_timeout_ms: float
    """Time after which the coordinator aborts an open transaction. Default: 60000."""

    partitioner: Callable[[bytes | None, list[int], list[int]], int] | None
    """Returns the partition of a record: partitioner(key bytes, all partitions, available
    partitions). By default the same as in the Java client: see DefaultPartitioner. Default:
    DefaultPartitioner()."""

    partitioner_rack_aware: bool
    """Send records without a key only to partitions whose leader is in client_rack, if there are
    such partitions (KIP-1123). No effect with a partitioner of your own. Default: False."""

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    """Codec with which batches are compressed; None: not compressed. Default: None."""

    compression_level: int | None
    """Level of the codec, if it has levels; None for the codec's default. Default: None."""

    max_batch_size: int
    """Size in bytes at which a batch is full. By default, full batches grow up to 1 MB until they
    are sent. Default: 16384."""

    max_request_size: int
    """Maximum size of a request in bytes. Default: 1048576."""

    linger_ms: float
    """Time that a batch waits for more records before it is sent, unless it is full. Default: 0."""

    buffer_memory: int
    """Maximum number of bytes in records that wait to be sent. If it is used up, send waits.
    Default: 33554432."""

    max_block_ms: float
    """Time that send waits for metadata and buffer memory. Default: 60000."""

    delivery_timeout_ms: float
    """Time in which a record is delivered, retries included, or fails. By default 120000, or
    linger_ms + request_timeout_ms if that is more."""

    max_in_flight_requests_per_connection: int
    """Maximum number of in-flight requests to each broker; at most 5 with idempotence. Default:
    5."""

    interceptors: Sequence[ProducerInterceptor]
    """Interceptors that get the records before they are sent, and may change them; called in the
    order of the list. Default: ()."""

    metrics_collector: ProducerMetricsCollector | None
    """Is called with the outcome of each batch. Default: None."""


class ShareConsumerOptions(ClientOptions, total=False):
    """Options of share consumers."""

    group_id: str
    """Share group to join. All members of the group consume the same records, each record once."""

    share_acknowledgement_mode: Literal["implicit", "explicit"]
    """implicit: a call of getone or getmany accepts the records that the same task got from its
    previous call. explicit: the application acknowledges each record, with acknowledge() or
    processing(). Default: "implicit"."""

    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    """batch_optimized: a fetch may acquire more records than max_poll_records, because the broker
    acquires whole batches. record_limit: a fetch never acquires more (KIP-1206, Kafka 4.2; older
    brokers ignore it). Default: "batch_optimized"."""

    max_poll_records: int
    """Maximum number of records that getmany returns, and number of records to acquire with one
    fetch from a broker. Default: 500."""

    on_deserialization_error: Literal["raise", "skip", "raw"]
    """What to do with a record if a deserializer raises an exception. raise: raise
    RecordDeserializationError once. skip: reject the record, so that it is not delivered again; a
    broker with dead letters (Kafka 4.4) copies it to the dead-letter topic. raw: return the record
    with its key and value as bytes, and the error in record.deserialization_error; it is
    acknowledged like other records. With skip and raw, the consumer logs a warning and counts the
    record in health().unreadable. Default: "raise"."""

    fetch_max_wait_ms: float
    """Maximum time that a broker waits for fetch_min_bytes before it responds to a fetch. Default:
    500."""

    fetch_min_bytes: int
    """Number of bytes that a broker waits for before it responds to a fetch, up to
    fetch_max_wait_ms. Default: 1."""

    fetch_max_bytes: int
    """Maximum number of bytes in one response to a fetch. Default: 52428800."""

    max_decompressed_bytes: int
    """Reject a batch that would have more than this number of bytes after decompression. Default:
    268435456."""

    default_api_timeout_ms: float
    """Timeout of calls that have no timeout argument. Default: 60000."""

    check_crcs: bool
    """Verify the checksum of every fetched batch. Default: True."""

    interceptors: Sequence[ConsumerInterceptor]
    """Interceptors that get the records before they are returned, and may change them; called in
    the order of the list. Default: ()."""

    metrics_collector: ConsumerMetricsCollector | None
    """Is called after fetches, for returned records, and after acknowledgements. Default: None."""
