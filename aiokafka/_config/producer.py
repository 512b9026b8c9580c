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
    """Options of a producer, in addition to those in `client`."""

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
        """Which brokers have written a record before it counts as sent: 0 none, 1 the leader,
        "all" (or -1) every replica in sync. By default "all".""",
        opening="Invalid ACKS parameter",
        when="To 1 or 0 only for records that may be lost: it also turns idempotence off.",
    )
    enable_idempotence: bool = option(
        Flag(),
        "enable_idempotence",
        MISSING,
        """Let the broker drop what a retry would write twice. By default on, unless acks is set
        to 0 or 1; always on with a transactional_id.""",
        when="True to insist on it: an old broker is then an error. False hardly ever.",
    )
    transactional_id: str | None = option(
        Text(optional=True, empty=False),
        "transactional_id",
        None,
        "Name of the producer across restarts; turns transactions on.",
        when="""To write all or nothing. One name for each running producer, the same after its
        restart.""",
    )
    transaction_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "transaction_timeout_ms",
        60_000,
        "The broker aborts a transaction that lasts longer.",
        java="transaction.timeout.ms",
        when="""Larger for longer transactions. Readers of committed records wait as long for one
        that died.""",
    )
    key_serializer: Callable[[Any], bytes | None] | None = option(
        Function(),
        "key_serializer",
        None,
        "Turns the key given to send into bytes, or None for none.",
        annotation="Callable[[Any], bytes | None] | None",
        when="When keys are no bytes.",
    )
    value_serializer: Callable[[Any], bytes | None] | None = option(
        Function(),
        "value_serializer",
        None,
        "Turns the value given to send into bytes, or None for none.",
        annotation="Callable[[Any], bytes | None] | None",
        when="When values are no bytes.",
    )
    partitioner: Callable[..., int] | None = option(
        Function(),
        "partitioner",
        None,
        "Chooses a partition: partitioner(key bytes, all partitions, available partitions). By "
        "default as Java's client does, see DefaultPartitioner.",
        annotation="Callable[[bytes | None, list[int], list[int]], int] | None",
        java="partitioner.class",
        when="When the key does not decide, or another client has to find the same partition.",
    )
    compression_type: str | None = option(
        Choice(COMPRESSION_TYPES),
        "compression_type",
        None,
        "How batches are compressed.",
        opening="Invalid compression type!",
        when="In production nearly always: lz4 for speed, zstd for size.",
    )
    compression_level: int | None = option(
        Number(-(2**17), 22, optional=True),
        "compression_level",
        None,
        "Level of the codec, where it has levels; None for its default.",
        java="compression.gzip.level, compression.lz4.level, compression.zstd.level",
        when="When the network costs more than the processor, or the other way round.",
    )
    max_batch_size: int = option(
        Number(0),
        "max_batch_size",
        16_384,
        """Size in bytes at which a batch is full. Unless it is set, batches that wait behind others
        of their partition grow to 1 MB.""",
        java="batch.size",
        when="Larger (65,536 to 1,000,000) for throughput, with linger_ms.",
    )
    max_request_size: int = option(
        Number(1),
        "max_request_size",
        _MEBIBYTE,
        "Largest size of a request in bytes.",
        when="Larger for large records; the topic's max.message.bytes has to allow it.",
    )
    linger: float = option(
        Milliseconds(0),
        "linger_ms",
        0,
        "How long a batch that is not full waits for more records.",
        when="""To 5 to 100 for throughput: fuller batches compress better and cost the brokers
        less.""",
    )
    buffer_memory: int = option(
        Number(1, 2**63 - 1),
        "buffer_memory",
        32 * _MEBIBYTE,
        "Bytes of records that may wait to be sent; beyond it send waits.",
        when="Larger for bursts and slow links; smaller in a small container.",
    )
    max_block: float = option(
        Milliseconds(0),
        "max_block_ms",
        60_000,
        "How long send waits for metadata and for memory.",
        when="Smaller where a caller waits, as in a request of a web service.",
    )
    delivery_timeout: float = option(
        Milliseconds(1),
        "delivery_timeout_ms",
        MISSING,
        """Time within which a record is delivered or fails, retries included. By default 120000,
        or linger_ms + request_timeout_ms when that is more.""",
        when="Smaller if a late record is worthless; larger to survive a longer outage.",
    )
    max_in_flight_requests: int = option(
        Number(1, 1000),
        "max_in_flight_requests_per_connection",
        5,
        "Requests that may be in flight to each broker; at most 5 with idempotence.",
        java="max.in.flight.requests.per.connection",
        when="To 1 to keep the order without idempotence.",
    )

    interceptors: tuple[ProducerInterceptor, ...] = option(
        Instances("aiokafka.interceptors", "ProducerInterceptor"),
        "interceptors",
        (),
        "See records on their way out, and may change them, in this order.",
        java="interceptor.classes",
        when="To add headers or to count, in all programs alike.",
    )
    metrics_collector: ProducerMetricsCollector | None = option(
        Instance(ProducerMetricsCollector),
        "metrics_collector",
        None,
        "Is called with what becomes of the batches.",
        java="metric.reporters",
        when="To feed a system for metrics that has no adapter here.",
    )

    @classmethod
    def of(cls, owner: str, options: dict[str, Any]) -> Self:
        """Return the configuration from the keywords of a constructor. Options of all clients
        become the field `client`. Raises TypeError, with the name `owner`, for an unknown
        keyword."""
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
            # The error text is that of aiokafka. A transactional producer is always idempotent.
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
            # Java's client requires at least linger_ms + request_timeout_ms. This producer needs no
            # time for a whole request, because records fail at their deadline even in flight.
            raise ValueError(
                f"delivery_timeout_ms={self.delivery_timeout * 1000:g}: must be more than "
                f"linger_ms, that is {self.linger * 1000:g}"
            )
