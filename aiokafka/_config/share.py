"""The configuration of share consumers (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import (
    MISSING,
    Choice,
    Instance,
    Number,
    Option,
    Options,
    Serde,
    Text,
    nested,
    option,
)
from aiokafka._subject import Subject
from aiokafka.metrics import ConsumerMetricsCollector

if TYPE_CHECKING:
    from aiokafka.interceptors import ConsumerInterceptor

__all__ = ["ShareConsumerConfig"]

_DECLARED = {each.name: each for each in ConsumerConfig.describe()}


def _of_consumers(name: str) -> Any:
    """Return the declaration of an option that has the same meaning in `ConsumerConfig`."""
    declared: Option = _DECLARED[name]
    return declared


class ShareConsumerConfig(Options):
    """The options of a share consumer; `client` has the options of all clients."""

    @property
    def introduction(self) -> dict[str, Any]:
        """The argument of an interceptor's `configure`."""
        return self.client.introduction(group_id=self.group_id)

    @property
    def subject(self) -> str:
        """The consumer's name in log lines: its client id, and its group."""
        client_id = self.client.client_id
        return Subject(
            f"Share consumer {client_id} of group {self.group_id}",
            client_id=client_id,
            group_id=self.group_id,
        )

    client: ClientConfig = nested(ClientConfig)
    group_id: str = option(
        Text(empty=False),
        "group_id",
        MISSING,
        "Share group to join. All members of the group consume the same records, each record once.",
        when="Always: a share consumer needs a group.",
    )
    share_acknowledgement_mode: str = option(
        Choice(("implicit", "explicit")),
        "share_acknowledgement_mode",
        "implicit",
        """implicit: a call of getone or getmany accepts the records that the same task got from its
        previous call. explicit: the application acknowledges each record, with acknowledge() or
        processing().""",
        when="To explicit if records must be released or rejected, or are processed concurrently.",
    )
    share_acquire_mode: str = option(
        Choice(("batch_optimized", "record_limit")),
        "share_acquire_mode",
        "batch_optimized",
        """batch_optimized: a fetch may acquire more records than max_poll_records, because the
        broker acquires whole batches. record_limit: a fetch never acquires more (KIP-1206, Kafka
        4.2; older brokers ignore it).""",
        when="To record_limit if records take long, so that idle members get records as well.",
    )
    max_poll_records: int = option(
        Number(1, 2**31 - 1),
        "max_poll_records",
        500,
        """Maximum number of records that getmany returns, and number of records to acquire with one
        fetch from a broker.""",
        when="""To a number of records that are certainly processed before the acquisition lock
        expires (group.share.record.lock.duration.ms, 30 s by default).""",
    )
    key_deserializer: Callable[..., Any] | None = option(
        Serde("deserialize"),
        "key_deserializer",
        None,
        """Converts the bytes of a key to the key of the record; called with None for a record
        without a key. For errors, see value_deserializer.""",
        annotation="Callable[..., Any] | None",
        when="If keys are not bytes.",
    )
    value_deserializer: Callable[..., Any] | None = option(
        Serde("deserialize"),
        "value_deserializer",
        None,
        """Converts the bytes of a value to the value of the record; called with None for a record
        without a value (a tombstone). It is called with a SerializationContext, too, if its second
        parameter has the name ctx; it returns the result or an awaitable, which the call that reads
        awaits. If it raises an exception, records before this one are returned first; then a call
        raises RecordDeserializationError with the raw record. With
        implicit acknowledgement the record is released, or rejected if the exception is
        RejectRecord; with explicit acknowledgement the application acknowledges error.record. See
        on_deserialization_error.""",
        annotation="Callable[..., Any] | None",
        when="If values are not bytes.",
    )
    on_deserialization_error: str = option(
        Choice(("raise", "skip", "raw")),
        "on_deserialization_error",
        "raise",
        """What to do with a record if a deserializer raises an exception. raise: raise
        RecordDeserializationError once. skip: reject the record, so that it is not delivered again;
        a broker with dead letters (Kafka 4.4) copies it to the dead-letter topic. raw: return the
        record with its key and value as bytes, and the error in record.deserialization_error; it is
        acknowledged like other records. With skip and raw, the consumer logs a warning and counts
        the record in health().unreadable.""",
        java="",
        when="""To skip if unreadable records may be lost, or the group has a dead-letter topic; to
        raw to send them elsewhere.""",
    )
    fetch_max_wait: float = _of_consumers("fetch_max_wait")
    fetch_min_bytes: int = _of_consumers("fetch_min_bytes")
    fetch_max_bytes: int = _of_consumers("fetch_max_bytes")
    max_decompressed_bytes: int = _of_consumers("max_decompressed_bytes")
    default_api_timeout: float = _of_consumers("default_api_timeout")
    check_crcs: bool = _of_consumers("check_crcs")
    interceptors: tuple[ConsumerInterceptor, ...] = _of_consumers("interceptors")
    metrics_collector: ConsumerMetricsCollector | None = option(
        Instance(ConsumerMetricsCollector),
        "metrics_collector",
        None,
        "Is called after fetches, for returned records, and after acknowledgements.",
        java="metric.reporters",
        when="To send metrics to a system for which there is no adapter in this package.",
    )

    @property
    def is_explicit(self) -> bool:
        """Whether the application acknowledges the records."""
        return self.share_acknowledgement_mode == "explicit"
