"""Spans and metrics of a producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from aiokafka._version import __version__
from aiokafka.interceptors import ProducerInterceptor, ProducerRecord
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.otel import _names
from aiokafka.otel._clients import Count, MessageCounter
from aiokafka.otel._names import Propagation, context, has_own_spans, is_suppressed, metrics, trace
from aiokafka.structs import RecordMetadata

__all__ = ["OUTCOME", "ProducerTelemetry", "TracedTransaction"]

T = TypeVar("T")

_get_current = _names.get_current

_NO_CONTEXT = context.Context()
"""An empty context, so that durations are recorded without a reference to a span."""


@dataclass(frozen=True, slots=True)
class _TracedRecord(ProducerRecord):
    """A record with its span. `dataclasses.replace` keeps the span in the new record."""

    span: Any = field(default=None, repr=False, compare=False)


class ProducerTelemetry(ProducerInterceptor, ProducerMetricsCollector):
    """Creates OpenTelemetry spans and metrics for one producer. Each producer needs its own object.

    As one of `interceptors`, it creates a span for each record, which lasts from `send` until the
    record is acknowledged or has failed. It adds the trace context and baggage to the record's
    headers. As `metrics_collector`, it counts messages, and measures the duration of each batch::

        telemetry = ProducerTelemetry()
        producer = AIOKafkaProducer(interceptors=[telemetry], metrics_collector=telemetry)

    Both uses are optional. Put the object after all other interceptors: an interceptor after it
    that creates a new record without `dataclasses.replace` loses the span.
    """

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        propagator: Any = None,
        keys: bool = True,
        partitions: bool = False,
    ) -> None:
        """Use these providers and this propagator; None: those that are global in the process.

        `keys=False` omits the keys of records from spans. Metrics have the topic; `partitions=True`
        adds the partition.
        """
        self._tracer = trace.get_tracer(
            "aiokafka", __version__, tracer_provider, schema_url=_names.SCHEMA
        )
        meter = metrics.get_meter("aiokafka", __version__, meter_provider, _names.SCHEMA)
        self._is_proxy = _names.is_proxy(self._tracer)
        self._propagation = Propagation(propagator)
        self._keys = keys
        self._partitions = partitions
        self._identity = _names.Identity()
        # A subclass may override methods, and then has to be called even if nothing records spans.
        self._is_own = type(self) is ProducerTelemetry
        self._sending = {**self._identity.attributes, **_names.operation("send")}
        self._sent = MessageCounter.of(
            "messaging.client.sent.messages",
            "Number of messages producer attempted to send to the broker.",
            meter_provider,
        )
        self._counts: dict[tuple[str, int, str | None], Count] = {}
        self._duration = _names.durations(
            meter,
            "messaging.client.operation.duration",
            "Duration of messaging operation initiated by a producer or consumer client.",
        )

    # -- spans

    def configure(self, options: Mapping[str, Any]) -> None:
        """Set the client id and the bootstrap server of the spans."""
        self._identity.learn(options)
        self._sending = {**self._identity.attributes, **_names.operation("send")}

    def _is_idle(self) -> bool:
        """Return whether `on_send` would change nothing: no spans are recorded, and the current
        context has no span and no baggage to put into the headers. The producer calls this for each
        record."""
        if _get_current() or not self._is_own:
            return False
        # A global provider may be set at any time.
        if self._is_proxy and trace._TRACER_PROVIDER is None:
            return True
        return _names.is_noop(self._tracer)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Start the span of a record; return the record with the trace context in its headers.

        If the headers already have a trace context, they are not changed, and the span has a link
        to it. Returns None, which leaves the record unchanged, if the record already has a span, if
        instrumentation is suppressed, or if OpenTelemetry's own instrumentation is active.
        """
        if isinstance(record, _TracedRecord) or is_suppressed() or has_own_spans():
            return None
        creation = self._propagation.creation_of(record.headers)
        span = self._tracer.start_span(
            f"send {record.topic}",
            kind=trace.SpanKind.PRODUCER if creation is None else trace.SpanKind.CLIENT,
            links=[] if creation is None else [trace.Link(creation)],
            attributes=self._attributes(record),
        )
        headers = record.headers
        if creation is None:
            headers = self._propagation.inject(headers, trace.set_span_in_context(span))
        return _TracedRecord(
            record.topic,
            record.value,
            record.key,
            record.partition,
            record.timestamp_ms,
            headers,
            span,
        )

    def _attributes(self, record: ProducerRecord) -> dict[str, Any]:
        attributes = {**self._sending, _names.DESTINATION: str(record.topic)}
        key = _names.text_of(record.key) if self._keys else None
        if key is not None:
            attributes[_names.KEY] = key
        if record.value is None:
            attributes[_names.TOMBSTONE] = True
        return attributes

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> None:
        """End the span of a record, with its partition and offset or its error."""
        if not isinstance(record, _TracedRecord):
            return
        span = record.span
        if not span.is_recording():
            return
        if metadata is not None:
            span.set_attributes(
                {
                    _names.DESTINATION: metadata.topic,
                    _names.PARTITION: str(metadata.partition),
                    _names.OFFSET: metadata.offset,
                }
            )
        if error is not None:
            _names.fail(span, error)
        span.end()

    def transaction(self, block: AbstractAsyncContextManager[T]) -> AbstractAsyncContextManager[T]:
        """Return a context manager that runs `block`, a `producer.transaction()`, within a span.

        The spans of records that are sent in the block, and the span of the commit or abort, are
        children of this span.
        """
        attributes = self._identity.attributes
        span = self._tracer.start_span
        return TracedTransaction(
            block, self._tracer, lambda: span("transaction", attributes=attributes), attributes
        )

    # -- metrics

    def on_batch_completed(
        self,
        *,
        topic: str,
        partition: int,
        send_to_completion_seconds: float,
        record_count: int,
        acknowledged: bool,
        batch_age_seconds: float,
    ) -> None:
        """Count the records of a batch, and record the time from its first record to its
        completion."""
        self._count(topic, partition, None, record_count, batch_age_seconds)

    def on_batch_failed(
        self,
        *,
        topic: str,
        partition: int,
        exception: BaseException,
        record_count: int,
        batch_age_seconds: float,
    ) -> None:
        """Count the records of a failed batch by error, and record the time from its first record
        to the failure."""
        self._count(topic, partition, _names.kind_of(exception), record_count, batch_age_seconds)

    def _count(
        self, topic: str, partition: int, error: str | None, records: int, seconds: float
    ) -> None:
        key = topic, partition if self._partitions else -1, error
        count = self._counts.get(key)
        if count is None:
            attributes = self._metric_attributes(topic, partition)
            if error is not None:
                attributes[_names.ERROR_TYPE] = error
            count = self._counts[key] = self._sent.count_of(attributes)
        count.value += records
        self._duration.record(seconds, count.attributes, _NO_CONTEXT)

    def _metric_attributes(self, topic: str, partition: int) -> dict[str, Any]:
        attributes = {
            _names.SYSTEM: "kafka",
            **_names.operation("send"),
            _names.DESTINATION: topic,
        }
        if self._partitions:
            attributes[_names.PARTITION] = str(partition)
        return attributes


# -- A transaction as a span


OUTCOME = "aiokafka.transaction.outcome"
"""Name of a span attribute: how a transaction ended ("committed", "aborted" or "failed")."""


class TracedTransaction(AbstractAsyncContextManager[T]):
    """The `async with` block of a transaction, within a span that is the current span of the
    block."""

    def __init__(
        self,
        block: AbstractAsyncContextManager[T],
        tracer: trace.Tracer,
        begin: Callable[[], Any],
        attributes: Mapping[str, Any],
    ) -> None:
        """Args:
        block: The transaction.
        tracer: Starts the spans of commits and aborts.
        begin: Starts the span of the transaction.
        attributes: The attributes of the client.
        """
        self._block = block
        self._tracer = tracer
        self._begin = begin
        self._attributes = attributes

    async def __aenter__(self) -> T:
        self._span = trace.INVALID_SPAN if is_suppressed() else self._begin()
        self._token = context.attach(trace.set_span_in_context(self._span))
        try:
            return await self._block.__aenter__()
        except BaseException as error:
            self._end("failed", error)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        name = "commit" if exc is None else "abort"
        end_span = self._start_end_span(name)
        try:
            suppressed = await self._block.__aexit__(exc_type, exc, traceback)
        except BaseException as error:
            _names.fail(end_span, error)
            end_span.end()
            self._end("aborted" if error is exc else "failed", error)
            raise
        end_span.end()
        is_committed = getattr(self._block, "is_committed", exc is None)
        self._end("committed" if is_committed else "aborted", exc)
        return suppressed

    def _start_end_span(self, name: str) -> Any:
        """Start the span of the commit or abort, and return it."""
        if is_suppressed():
            return trace.INVALID_SPAN
        attributes = {**self._attributes, **_names.operation(name)}
        return self._tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes)

    def _end(self, outcome: str, error: BaseException | None) -> None:
        self._span.set_attribute(OUTCOME, outcome)
        if error is not None:
            _names.fail(self._span, error)
        self._span.end()
        context.detach(self._token)
