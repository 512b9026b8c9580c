"""What the configuration page says of each option besides what `aiokafka._config` declares.

For each keyword: the name in Java's client, or "" if it has no such option, and when to change it.
`tests/test_option_page.py` holds this table to the options that exist.
"""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """Two cells of an option on the configuration page."""

    java: str
    when: str


SAME = "="
"""The name in Java's client is the same, with dots."""

CLIENT = {
    "bootstrap_servers": (
        SAME,
        "Always, but on your own machine. Name two or three brokers, so that one may be down.",
    ),
    "client_dns_lookup": (SAME, "With Kerberos, when the brokers stand behind an alias."),
    "client_id": (
        SAME,
        "Always in production: quotas, the logs of brokers and metrics go by this name.",
    ),
    "request_timeout_ms": (
        SAME,
        "Larger if brokers are far away or overloaded; smaller to notice a dead broker earlier.",
    ),
    "retry_backoff_ms": (SAME, "Hardly ever."),
    "retry_backoff_max_ms": (SAME, "Larger if many clients would disturb a cluster that recovers."),
    "reconnect_backoff_ms": (SAME, "Hardly ever."),
    "reconnect_backoff_max_ms": (
        SAME,
        "Larger if many clients would disturb a cluster that recovers.",
    ),
    "socket_connection_setup_timeout_ms": (
        "socket.connection.setup.timeout.ms",
        "Larger behind a slow VPN, or where logging in takes long.",
    ),
    "socket_connection_setup_timeout_max_ms": (
        "socket.connection.setup.timeout.max.ms",
        "Together with the one above.",
    ),
    "connections_max_idle_ms": (
        SAME,
        "Below the idle timeout of a load balancer or firewall that drops connections in silence.",
    ),
    "metadata_max_age_ms": (
        SAME,
        "Smaller to notice new partitions, and new topics that match a pattern, earlier.",
    ),
    "metadata_max_idle_ms": (
        SAME,
        "Smaller in a producer that writes to many topics, each for a short time.",
    ),
    "metadata_recovery_rebootstrap_trigger_ms": (
        SAME,
        "None if the addresses of the brokers never change all at once.",
    ),
    "receive_message_max_bytes": (
        "",
        "Together with fetch_max_bytes, for very large records.",
    ),
    "allow_auto_create_topics": (
        SAME,
        "False in production, so that a misspelt topic is an error.",
    ),
    "enable_metrics_push": (
        SAME,
        "False if the operators of the cluster must not see metrics of clients.",
    ),
    "client_rack": (
        SAME,
        "If brokers have racks: the zone of the client saves traffic between zones.",
    ),
}
SECURITY = {
    "security_protocol": (
        SAME,
        "To what the listener of the brokers wants: in production SASL_SSL or SSL.",
    ),
    "ssl_context": ("ssl.*", "With SSL and SASL_SSL, always."),
    "sasl_mechanism": (SAME, "To what the brokers want."),
    "sasl_plain_username": ("sasl.jaas.config", "With PLAIN and SCRAM, always."),
    "sasl_plain_password": (
        "sasl.jaas.config",
        "With PLAIN and SCRAM, always. A function can read it from a file that is renewed.",
    ),
    "sasl_scram_tokenauth": (
        "tokenauth in sasl.jaas.config",
        "True to log in with a delegation token.",
    ),
    "sasl_kerberos_service_name": (
        SAME,
        "If the principal of the brokers does not begin with kafka/.",
    ),
    "sasl_kerberos_domain_name": (
        "",
        "If brokers are reached by another name than that of their principal.",
    ),
    "sasl_kerberos_principal": (
        "principal in sasl.jaas.config",
        "If the cache or the keytab has several.",
    ),
    "sasl_kerberos_keytab": (
        "keyTab in sasl.jaas.config",
        "In services, where kinit is not run by hand.",
    ),
    "sasl_oauth_token_provider": ("sasl.login.callback.handler.class", "With OAUTHBEARER, always."),
}
OAUTH = {
    "refresh_window_factor": ("sasl.login.refresh.window.factor", "Hardly ever."),
    "refresh_window_jitter": (
        "sasl.login.refresh.window.jitter",
        "Larger if very many clients start together.",
    ),
    "refresh_min_period_seconds": (
        "sasl.login.refresh.min.period.seconds",
        "Smaller with tokens that live for minutes.",
    ),
    "refresh_buffer_seconds": (
        "sasl.login.refresh.buffer.seconds",
        "Smaller with tokens that live for minutes.",
    ),
    "retry_backoff_ms": ("sasl.login.retry.backoff.ms", "Hardly ever."),
    "retry_backoff_max_ms": ("sasl.login.retry.backoff.max.ms", "Hardly ever."),
    "token_timeout_ms": ("", "Larger with a slow identity provider."),
    "connect_timeout_ms": (
        "sasl.login.connect.timeout.ms",
        "Larger with a slow network to the provider.",
    ),
    "read_timeout_ms": ("sasl.login.read.timeout.ms", "Larger with a slow identity provider."),
}
PRODUCER = {
    "acks": (SAME, "To 1 or 0 only for records that may be lost: it also turns idempotence off."),
    "enable_idempotence": (
        SAME,
        "True to insist on it: an old broker is then an error. False hardly ever.",
    ),
    "transactional_id": (
        SAME,
        "To write all or nothing. One name for each running producer, the same after its restart.",
    ),
    "transaction_timeout_ms": (
        "transaction.timeout.ms",
        "Larger for longer transactions. Readers of committed records wait as long for one that "
        "died.",
    ),
    "key_serializer": (SAME, "When keys are no bytes."),
    "value_serializer": (SAME, "When values are no bytes."),
    "partitioner": (
        "partitioner.class",
        "When the key does not decide, or another client has to find the same partition.",
    ),
    "compression_type": (SAME, "In production nearly always: lz4 for speed, zstd for size."),
    "compression_level": (
        "compression.gzip.level, compression.lz4.level, compression.zstd.level",
        "When the network costs more than the processor, or the other way round.",
    ),
    "max_batch_size": (
        "batch.size",
        "Larger (65,536 to 1,000,000) for throughput, with linger_ms.",
    ),
    "max_request_size": (
        SAME,
        "Larger for large records; the topic's max.message.bytes has to allow it.",
    ),
    "linger_ms": (
        SAME,
        "To 5 to 100 for throughput: fuller batches compress better and cost the brokers less.",
    ),
    "buffer_memory": (SAME, "Larger for bursts and slow links; smaller in a small container."),
    "max_block_ms": (SAME, "Smaller where a caller waits, as in a request of a web service."),
    "delivery_timeout_ms": (
        SAME,
        "Smaller if a late record is worthless; larger to survive a longer outage.",
    ),
    "max_in_flight_requests_per_connection": (
        "max.in.flight.requests.per.connection",
        "To 1 to keep the order without idempotence.",
    ),
    "interceptors": ("interceptor.classes", "To add headers or to count, in all programs alike."),
    "metrics_collector": (
        "metric.reporters",
        "To feed a system for metrics that has no adapter here.",
    ),
}
CONSUMER = {
    "group_id": (
        SAME,
        "To divide partitions among processes and to go on after a restart: nearly always.",
    ),
    "group_instance_id": (
        SAME,
        "If restarts must not rebalance: the name of the pod in a StatefulSet.",
    ),
    "group_protocol": (
        SAME,
        "To consumer with brokers of Kafka 4.0 and later: rebalances stop only what moves.",
    ),
    "group_remote_assignor": (
        SAME,
        'With group_protocol="consumer", if the default of the brokers does not suit.',
    ),
    "key_deserializer": (SAME, "When keys are no bytes."),
    "value_deserializer": (SAME, "When values are no bytes."),
    "fetch_max_wait_ms": (
        "fetch.max.wait.ms",
        "Smaller for latency when fetch_min_bytes is large.",
    ),
    "fetch_min_bytes": (
        SAME,
        "Larger (10,000 to 1,000,000) to spare brokers and processor, at the price of latency.",
    ),
    "fetch_max_bytes": (SAME, "Smaller in a small container."),
    "max_partition_fetch_bytes": (
        SAME,
        "Larger for throughput with few partitions; smaller with many and little memory.",
    ),
    "fetch_buffer_memory": (
        "",
        "Smaller in a small container; larger for throughput over slow links.",
    ),
    "max_decompressed_bytes": ("", "Larger if batches that are trusted compress that well."),
    "default_api_timeout_ms": (SAME, "Smaller where a caller waits."),
    "unreachable_timeout_ms": (
        "",
        "If the program has to end or to tell when the cluster is away, not to wait for it.",
    ),
    "max_poll_records": (
        SAME,
        "To the number of records that are processed well within max_poll_interval_ms.",
    ),
    "consumer_timeout_ms": ("", "Never."),
    "auto_offset_reset": (
        SAME,
        "To earliest if a new group must not miss what is there; to none to decide in the program.",
    ),
    "enable_auto_commit": (
        SAME,
        "False to commit after the work is done, or to keep offsets elsewhere.",
    ),
    "auto_commit_interval_ms": (SAME, "Smaller to see fewer records again after a crash."),
    "check_crcs": (SAME, "Hardly ever."),
    "isolation_level": (SAME, "To read_committed if producers use transactions."),
    "exclude_internal_topics": (
        "exclude.internal.topics",
        "False to look at __consumer_offsets by a pattern.",
    ),
    "partition_assignment_strategy": (
        SAME,
        "To the cooperative assignor, so that a rebalance stops only what moves; in a group with "
        "members of other clients, to an assignor that all of them have.",
    ),
    "session_timeout_ms": (
        SAME,
        "Larger (45,000) if the event loop or the network stalls; smaller to replace dead members "
        "earlier.",
    ),
    "heartbeat_interval_ms": (SAME, "Together with session_timeout_ms: a third of it."),
    "max_poll_interval_ms": (
        SAME,
        "Larger if a batch takes longer; better: fewer records a batch.",
    ),
    "rebalance_timeout_ms": (
        "max.poll.interval.ms",
        "Larger if giving up partitions takes long, as flushing a buffer does.",
    ),
    "interceptors": ("interceptor.classes", "To read headers or to count, in all programs alike."),
    "metrics_collector": (
        "metric.reporters",
        "To feed a system for metrics that has no adapter here.",
    ),
}
TABLES = {
    "ClientConfig": CLIENT,
    "SecurityConfig": SECURITY,
    "OAuthConfig": OAUTH,
    "ProducerConfig": PRODUCER,
    "ConsumerConfig": CONSUMER,
}


def advice(config: str, keyword: str) -> Advice:
    """Return what the page says of an option of a configuration class."""
    java, when = TABLES[config][keyword]
    return Advice(keyword.replace("_", ".") if java == SAME else java, when)
