"""The options of clients as types, for dicts of options, editors and type checkers.

`AIOKafkaConsumer(**options)` is checked when `options` is a `ConsumerOptions`. Written by
`make options` from what `aiokafka._config` declares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from ssl import SSLContext
from typing import TYPE_CHECKING, Literal, TypedDict

from aiokafka._config.security import Credential
from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.interceptors import ConsumerInterceptor, ProducerInterceptor
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector

if TYPE_CHECKING:
    from aiokafka._config.security import TlsSource
else:
    # The configuration is vocabulary, which imports no TLS.
    TlsSource = SSLContext | Callable[[], SSLContext | Awaitable[SSLContext]]

__all__ = ["AdminOptions", "ClientOptions", "ConsumerOptions", "ProducerOptions"]


class ClientOptions(TypedDict, total=False):
    """Options of all clients."""

    bootstrap_servers: str | list[str] | tuple[str, ...] | AbstractSet[str]
    """Brokers to ask for the rest of the cluster. A few of them suffice; the port is 9092 where
    none is given. Default: "localhost"."""

    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """Names of bootstrap_servers are used as they are, or replaced by the canonical names of all
    their addresses, which Kerberos wants of an alias (KIP-235). Default: "use_all_dns_ips"."""

    client_id: str | None
    """Name of the client in the broker's logs; None for the default."""

    request_timeout_ms: float
    """How long to wait for the response to a request. Default: 40000."""

    retry_backoff_ms: float
    """Pause before a failed request is sent again; doubles with every further failure. Default:
    100."""

    retry_backoff_max_ms: float
    """Longest pause between retries. Default: 1000."""

    reconnect_backoff_ms: float
    """Pause before a broken connection is made again; doubles with every further failure. Default:
    50."""

    reconnect_backoff_max_ms: float
    """Longest pause between attempts to connect. Default: 1000."""

    socket_connection_setup_timeout_ms: float
    """How long a connection may take to be made; doubles with every further failure. Default:
    10000."""

    socket_connection_setup_timeout_max_ms: float
    """Longest time that a connection may take to be made. Default: 30000."""

    connections_max_idle_ms: float | None
    """Close a connection that was not used for this long; None for never. Default: 540000."""

    metadata_max_age_ms: float
    """Ask for the state of the cluster at least this often. Default: 300000."""

    metadata_max_idle_ms: float
    """Forget a topic that was not used for this long (KIP-526). Default: 300000."""

    metadata_recovery_rebootstrap_trigger_ms: float | None
    """Start again from bootstrap_servers when no known broker gives metadata: as soon as all of
    them were tried, at the latest after this long; None for never. Default: 300000."""

    receive_message_max_bytes: int
    """Refuse a response larger than this many bytes. Default: 268435456."""

    allow_auto_create_topics: bool
    """Let a broker that is configured so create a missing topic when it is asked for it. Default:
    True."""

    enable_metrics_push: bool
    """Push metrics to brokers that ask for them (KIP-714). An admin client does so only if it is
    set. Default: True."""

    client_rack: str | None
    """Rack of a consumer, to read from a replica near by (KIP-392, Kafka 2.4); told to the group,
    whose assignor may prefer partitions with such a replica. Other clients do not use it. Default:
    None."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Protocol of the listener: with or without TLS, with or without SASL. Default: "PLAINTEXT"."""

    ssl_context: TlsSource | None
    """TLS settings, or a function that gives them for each new connection; needed for SSL and
    SASL_SSL. Default: None."""

    sasl_mechanism: Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """How SASL authenticates. Default: "PLAIN"."""

    sasl_plain_username: Credential | None
    """User name for PLAIN and SCRAM, or a function that gives it for each authentication. Default:
    None."""

    sasl_plain_password: Credential | None
    """Password for PLAIN and SCRAM, or a function that gives it for each authentication. Default:
    None."""

    sasl_scram_tokenauth: bool
    """With SCRAM: the user name is the id of a delegation token, the password its HMAC in base64
    (KIP-48). Default: False."""

    sasl_kerberos_service_name: str
    """Service name of the brokers for GSSAPI. Default: "kafka"."""

    sasl_kerberos_domain_name: str | None
    """Kerberos domain for GSSAPI; by default the host name of the broker. Default: None."""

    sasl_kerberos_principal: str | None
    """Principal of the client for GSSAPI; by default that of the ticket cache, or the first of the
    keytab. Default: None."""

    sasl_kerberos_keytab: str | None
    """Path of a keytab to get tickets with, for GSSAPI; by default KRB5CCNAME and
    KRB5_CLIENT_KTNAME of the environment count. Default: None."""

    sasl_oauth_token_provider: AbstractTokenProvider | None
    """Source of tokens for OAUTHBEARER. Default: None."""


class AdminOptions(ClientOptions, total=False):
    """Options of admin clients."""

    bootstrap_controllers: str | list[str] | tuple[str, ...] | AbstractSet[str] | None
    """Controllers to ask in place of brokers (KIP-919, Kafka 3.7), also while no broker runs; give
    it instead of bootstrap_servers. Default: None."""


class ConsumerOptions(ClientOptions, total=False):
    """Options of consumers."""

    group_id: str | None
    """Group to join and to commit offsets for; None for neither: every partition is read. Default:
    None."""

    group_instance_id: str | None
    """Name of a static member, which keeps its partitions over a restart (KIP-345). Default:
    None."""

    group_protocol: Literal["classic", "consumer"]
    """How members come to their partitions: with classic one of them assigns, with consumer the
    broker does (KIP-848, Kafka 4.0). Default: "classic"."""

    group_remote_assignor: str | None
    """Assignor of the broker for group_protocol="consumer": uniform, range, or one that it is
    configured with (group.consumer.assignors); None for the broker's first. Default: None."""

    fetch_max_wait_ms: float
    """How long a broker waits until it has fetch_min_bytes. Default: 500."""

    fetch_min_bytes: int
    """Bytes that a broker tries to collect before it answers. Default: 1."""

    fetch_max_bytes: int
    """Most bytes in one answer of a broker. Default: 52428800."""

    max_partition_fetch_bytes: int
    """Most bytes of one partition in one answer; one larger batch is sent all the same. Default:
    1048576."""

    fetch_buffer_memory: int
    """Bytes fetched ahead of the application, over all brokers. Default: 67108864."""

    max_decompressed_bytes: int
    """Refuse a batch that would decompress to more bytes than this. Default: 268435456."""

    default_api_timeout_ms: float
    """How long a call that has no time limit of its own may take. Default: 60000."""

    unreachable_timeout_ms: float | None
    """Reading raises KafkaUnreachableError when the group's coordinator, or the brokers of all
    partitions, have not answered for this long; None: it waits for them without limit. Default:
    None."""

    max_poll_records: int | None
    """Most records that getmany returns; None: no limit. Default: None."""

    consumer_timeout_ms: float
    """Accepted for compatibility; the consumer waits for data without polling. Default: 200."""

    auto_offset_reset: Literal["earliest", "latest", "none"] | timedelta
    """Where to start without a valid position: earliest is the oldest record, latest is after the
    newest, none raises NoOffsetForPartitionError or OffsetOutOfRangeError. With a timedelta, or
    by_duration:, the first record not older than that (KIP-1106). Default: "latest"."""

    enable_auto_commit: bool
    """Commit in the background what the application has finished: all that was returned before its
    latest call. Default: True."""

    auto_commit_interval_ms: float
    """Time between such commits. Default: 5000."""

    check_crcs: bool
    """Check the checksum of every batch that is read. Default: True."""

    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether records of open and aborted transactions are read. Default: "read_uncommitted"."""

    exclude_internal_topics: bool
    """Leave internal topics out when topics are listed or matched by a pattern that is a str.
    Default: True."""

    partition_assignment_strategy: Sequence[
        type[AbstractPartitionAssignor] | AbstractPartitionAssignor
    ]
    """Ways to assign partitions in a group, in the order of preference. Default:
    [RoundRobinPartitionAssignor]."""

    session_timeout_ms: float
    """The group removes a member that has sent no heartbeat for this long (classic protocol).
    Default: 10000."""

    heartbeat_interval_ms: float
    """Time between heartbeats, less than session_timeout_ms (classic protocol). Default: 3000."""

    max_poll_interval_ms: float
    """A member that has not asked for records for this long leaves the group. Default: 300000."""

    rebalance_timeout_ms: float | None
    """How long a member may take to give up partitions in a rebalance. None: session_timeout_ms, or
    max_poll_interval_ms with group_protocol="consumer". Default: None."""

    interceptors: Sequence[ConsumerInterceptor]
    """See records before they are returned, and may change them, in this order. Default: ()."""

    metrics_collector: ConsumerMetricsCollector | None
    """Is called with what is fetched, returned and committed. Default: None."""


class ProducerOptions(ClientOptions, total=False):
    """Options of producers."""

    acks: Literal[0, 1, -1, "all"]
    """Which brokers have written a record before it counts as sent: 0 none, 1 the leader, "all" (or
    -1) every replica in sync. By default "all"."""

    enable_idempotence: bool
    """Let the broker drop what a retry would write twice. By default on, unless acks is set to 0 or
    1; always on with a transactional_id."""

    transactional_id: str | None
    """Name of the producer across restarts; turns transactions on. Default: None."""

    transaction_timeout_ms: float
    """The broker aborts a transaction that lasts longer. Default: 60000."""

    partitioner: Callable[[bytes | None, list[int], list[int]], int] | None
    """Chooses a partition: partitioner(key bytes, all partitions, available partitions). By default
    as Java's client does, see DefaultPartitioner. Default: DefaultPartitioner()."""

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None
    """How batches are compressed. Default: None."""

    compression_level: int | None
    """Level of the codec, where it has levels; None for its default. Default: None."""

    max_batch_size: int
    """Size in bytes at which a batch is full. Unless it is set, batches that wait behind others of
    their partition grow to 1 MB. Default: 16384."""

    max_request_size: int
    """Largest size of a request in bytes. Default: 1048576."""

    linger_ms: float
    """How long a batch that is not full waits for more records. Default: 0."""

    buffer_memory: int
    """Bytes of records that may wait to be sent; beyond it send waits. Default: 33554432."""

    max_block_ms: float
    """How long send waits for metadata and for memory. Default: 60000."""

    delivery_timeout_ms: float
    """Time within which a record is delivered or fails, retries included. By default 120000, or
    linger_ms + request_timeout_ms when that is more."""

    max_in_flight_requests_per_connection: int
    """Requests that may be in flight to each broker; at most 5 with idempotence. Default: 5."""

    interceptors: Sequence[ProducerInterceptor]
    """See records on their way out, and may change them, in this order. Default: ()."""

    metrics_collector: ProducerMetricsCollector | None
    """Is called with what becomes of the batches. Default: None."""
