"""The configuration of producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig
from aiokafka._config.options import (
    MISSING,
    Choice,
    Flag,
    Function,
    Instance,
    Instances,
    Milliseconds,
    Number,
    Options,
    Serde,
    Text,
    nested,
    option,
    refuse_unknown,
)
from aiokafka._config.security import SecurityConfig
from aiokafka._subject import Subject
from aiokafka.metrics import ProducerMetricsCollector

if TYPE_CHECKING:
    from typing_extensions import Self

    from aiokafka.interceptors import ProducerInterceptor


COMPRESSION_TYPES = (None, "none", "gzip", "snappy", "lz4", "zstd")

_MEBIBYTE = 1024 * 1024


class ProducerConfig(Options):
    """The options of a producer; `client` has the options of all clients."""

    @property
    def introduction(self) -> dict[str, Any]:
        """The argument of an interceptor's `configure`."""
        return self.client.introduction(transactional_id=self.transactional_id)

    @property
    def subject(self) -> str:
        """The producer's name in log lines: its client id, and its transactional id."""
        name = f" with transactional_id {self.transactional_id}" if self.transactional_id else ""
        client_id = self.client.client_id
        return Subject(
            f"Producer {client_id}{name}",
            client_id=client_id,
            transactional_id=self.transactional_id,
        )

    client: ClientConfig = nested(ClientConfig)
    acks: int = option(
        Choice((0, 1, -1, "all")),
        "acks",
        MISSING,
        """Number of replicas that must have written a record before the broker acknowledges
        it: 0 none (and no response), 1 the leader, "all" (or -1) all in-sync replicas. By
        default "all".""",
        opening="Invalid ACKS parameter",
        when="To 1 or 0 only for records that may be lost. Both also disable idempotence.",
    )
    enable_idempotence: bool = option(
        Flag(),
        "enable_idempotence",
        MISSING,
        """Let the broker discard duplicates of records that are sent again. By default True,
        unless acks is 0 or 1, or max_in_flight_requests_per_connection is above 5; always True
        with a transactional_id.""",
        when="To True to require it: an old broker is an error then. To False hardly ever.",
    )
    transactional_id: str | None = option(
        Text(optional=True, empty=False),
        "transactional_id",
        None,
        "Id of the producer that stays the same after a restart; enables transactions.",
        when="""To send records all or nothing. Each running producer needs its own id, and the
        same id after a restart.""",
    )
    transaction_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "transaction_timeout_ms",
        60_000,
        "Time after which the coordinator aborts an open transaction.",
        java="transaction.timeout.ms",
        when="""Larger for longer transactions. After a producer has failed, read_committed
        consumers wait this long.""",
    )
    key_serializer: Callable[..., Any] | None = option(
        Serde("serialize"),
        "key_serializer",
        None,
        "Converts the key given to send to bytes, or to None for no key; see value_serializer.",
        annotation="Callable[..., bytes | Awaitable[bytes] | None] | None",
        when="If keys are not bytes.",
    )
    value_serializer: Callable[..., Any] | None = option(
        Serde("serialize"),
        "value_serializer",
        None,
        """Converts the value given to send to bytes, or to None for no value. It is called with the
        value, and with a SerializationContext if its second parameter has the name ctx; it returns
        the result or an awaitable, which send awaits.""",
        annotation="Callable[..., bytes | Awaitable[bytes] | None] | None",
        when="If values are not bytes.",
    )
    partitioner: Callable[..., int] | None = option(
        Function(),
        "partitioner",
        None,
        """Returns the partition of a record: partitioner(key bytes, all partitions, available
        partitions). By default the same as in the Java client: see DefaultPartitioner.""",
        annotation="Callable[[bytes | None, list[int], list[int]], int] | None",
        java="partitioner.class",
        when="""If the key does not determine the partition, or another client has to compute the
        same partition.""",
    )
    partitioner_rack_aware: bool = option(
        Flag(),
        "partitioner_rack_aware",
        False,
        """Send records without a key only to partitions whose leader is in client_rack, if there
        are such partitions (KIP-1123). No effect with a partitioner of your own.""",
        when="With client_rack, to reduce traffic between zones.",
    )
    compression_type: str | None = option(
        Choice(COMPRESSION_TYPES),
        "compression_type",
        None,
        "Codec with which batches are compressed; None: not compressed.",
        opening="Invalid compression type!",
        when="In production nearly always: lz4 for speed, zstd for size.",
    )
    compression_level: int | None = option(
        Number(-(2**17), 22, optional=True),
        "compression_level",
        None,
        "Level of the codec, if it has levels; None for the codec's default.",
        java="compression.gzip.level, compression.lz4.level, compression.zstd.level",
        when="If the network costs more than CPU time, or the reverse.",
    )
    max_batch_size: int = option(
        Number(0),
        "max_batch_size",
        16_384,
        """Size in bytes at which a batch is full. By default, full batches grow up to 1 MB until
        they are sent.""",
        java="batch.size",
        when="Larger (65,536 to 1,000,000) for throughput, with linger_ms.",
    )
    max_request_size: int = option(
        Number(1),
        "max_request_size",
        _MEBIBYTE,
        "Maximum size of a request in bytes.",
        when="Larger for large records; max.message.bytes of the topic must allow it.",
    )
    linger: float = option(
        Milliseconds(0),
        "linger_ms",
        0,
        "Time that a batch waits for more records before it is sent, unless it is full.",
        when="To 5 to 100 for throughput: larger batches compress better, and cost brokers less.",
    )
    buffer_memory: int = option(
        Number(1, 2**63 - 1),
        "buffer_memory",
        32 * _MEBIBYTE,
        "Maximum number of bytes in records that wait to be sent. If it is used up, send waits.",
        when="Larger for bursts and slow networks; smaller in a container with little memory.",
    )
    max_block: float = option(
        Milliseconds(0),
        "max_block_ms",
        60_000,
        "Time that send waits for metadata and buffer memory.",
        when="Smaller if a user waits, as in a request of a web service.",
    )
    delivery_timeout: float = option(
        Milliseconds(1),
        "delivery_timeout_ms",
        MISSING,
        """Time in which a record is delivered, retries included, or fails. By default 120000, or
        linger_ms + request_timeout_ms if that is more.""",
        when="Smaller if a late record is worthless; larger to survive longer outages.",
    )
    max_in_flight_requests: int = option(
        Number(1, 1000),
        "max_in_flight_requests_per_connection",
        5,
        "Maximum number of in-flight requests to each broker; at most 5 with idempotence.",
        java="max.in.flight.requests.per.connection",
        when="To 1 to keep the order of records without idempotence.",
    )

    interceptors: tuple[ProducerInterceptor, ...] = option(
        Instances("aiokafka.interceptors", "ProducerInterceptor"),
        "interceptors",
        (),
        """Interceptors that get the records before they are sent, and may change them; called in
        the order of the list.""",
        java="interceptor.classes",
        when="To add headers or count records in the same way in all programs.",
    )
    metrics_collector: ProducerMetricsCollector | None = option(
        Instance(ProducerMetricsCollector),
        "metrics_collector",
        None,
        "Is called with the outcome of each batch.",
        java="metric.reporters",
        when="To send metrics to a system for which there is no adapter in this package.",
    )

    @classmethod
    def of(cls, owner: str, options: dict[str, Any]) -> Self:
        """Return the configuration from the keywords of a producer's constructor.

        The field `client` gets the options of all clients. For an unknown keyword, raises TypeError
        whose text has the class name `owner`.
        """
        refuse_unknown(owner, options, cls, ClientConfig, SecurityConfig)
        own = cls.keywords()
        rest = {name: value for name, value in options.items() if name not in own}
        client = ClientConfig.from_options(**rest)
        return cls.from_options(
            client=client, **{name: value for name, value in options.items() if name in own}
        )

    def telemetry_labels(self) -> dict[str, str]:
        """Return the attributes of the producer in pushed metrics (KIP-714)."""
        return {"transactional_id": self.transactional_id or ""}

    def __post_init__(self) -> None:
        self._settle_acks()
        self._settle_delivery_timeout()
        if self.compression_type == "none":
            object.__setattr__(self, "compression_type", None)

    def _settle_acks(self) -> None:
        acks = -1 if self.acks in ("all", MISSING) else self.acks
        idempotent = self.enable_idempotence
        if self.transactional_id is not None:
            idempotent = True
        elif idempotent is MISSING:
            idempotent = acks == -1 and self.max_in_flight_requests <= 5
        if idempotent and acks != -1:
            # The error text begins as in aiokafka 0.14. `reason` explains why the producer is
            # idempotent although the user may not have set enable_idempotence.
            reason = "" if self.transactional_id is None else " (transactional_id is set)"
            raise ValueError(
                f"acks={acks} not supported if enable_idempotence=True{reason}: "
                "must be 'all' (or -1)"
            )
        if idempotent and self.max_in_flight_requests > 5:
            raise ValueError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests}: "
                "must be at most 5 with idempotence, or the broker cannot keep the order"
            )
        object.__setattr__(self, "acks", acks)
        object.__setattr__(self, "enable_idempotence", idempotent)

    def _settle_delivery_timeout(self) -> None:
        least = self.linger + self.client.request_timeout
        if self.delivery_timeout is MISSING:
            object.__setattr__(self, "delivery_timeout", max(120.0, least))
        elif self.delivery_timeout <= self.linger:
            # The Java client requires at least linger_ms + request_timeout_ms. This producer does
            # not, because records fail at their deadline even while their request is in flight.
            raise ValueError(
                f"delivery_timeout_ms={self.delivery_timeout * 1000:g}: must be more than "
                f"linger_ms, that is {self.linger * 1000:g}"
            )
