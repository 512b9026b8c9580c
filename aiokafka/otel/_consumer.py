"""Spans and metrics of a consumer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import _clock
from aiokafka._callbacks import check_result, refuse_generators
from aiokafka._typing import later
from aiokafka._version import __version__
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.metrics import ConsumerMetricsCollector
from aiokafka.otel import _names
from aiokafka.otel._clients import Count, MessageCounter
from aiokafka.otel._names import Propagation, context, has_own_spans, is_suppressed, metrics, trace
from aiokafka.otel._producer import TracedTransaction
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.session.transaction import SessionTransaction
else:
    SessionTransaction = later("aiokafka.session.transaction.SessionTransaction")

__all__ = ["ConsumerTelemetry"]

T = TypeVar("T")

_NS = 1_000_000_000

_NO_CONTEXT = context.Context()
"""An empty context, so that durations are recorded without a reference to a span."""


class ConsumerTelemetry(ConsumerInterceptor, ConsumerMetricsCollector):
    """Creates OpenTelemetry spans and metrics for one consumer. Each consumer needs its own object.

    As one of `interceptors`, it creates a span for each call that returns records, with links to
    the spans of their producers, and a span for each commit. As `metrics_collector`, it counts
    messages, and measures the durations of fetches and commits. `process` creates a span while the
    application processes a record, in the trace of the record's producer::

        telemetry = ConsumerTelemetry()
        consumer = AIOKafkaConsumer("orders", interceptors=[telemetry], metrics_collector=telemetry)
        ...
        async for record in consumer:
            with telemetry.process(record):
                await work(record)

    Each of the three uses is optional.
    """

    def __init__(
        self,
        *,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        propagator: Any = None,
        keys: bool = True,
        partitions: bool = False,
        group_id: str | None = None,
    ) -> None:
        """Use these providers and this propagator; None: those that are global in the process.

        `keys=False` omits the keys of records from spans. Metrics have the topic; `partitions=True`
        adds the partition. `group_id` is needed only if the object is a collector but not an
        interceptor: an interceptor gets the group id from the consumer.
        """
        self._tracer = trace.get_tracer(
            "aiokafka", __version__, tracer_provider, schema_url=_names.SCHEMA
        )
        meter = metrics.get_meter("aiokafka", __version__, meter_provider, _names.SCHEMA)
        self._propagation = Propagation(propagator)
        self._keys = keys
        self._partitions = partitions
        self._identity = _names.Identity()
        self._is_interceptor = False
        self._commit_seconds = 0.0
        self._poll_seconds = 0.0
        if group_id is not None:
            self._identity.attributes[_names.GROUP] = group_id
        self._consumed = MessageCounter.of(
            "messaging.client.consumed.messages",
            "Number of messages that were delivered to the application.",
            meter_provider,
        )
        self._counts: dict[tuple[str, int], Count] = {}
        self._duration = _names.durations(
            meter,
            "messaging.client.operation.duration",
            "Duration of messaging operation initiated by a producer or consumer client.",
        )
        self._processing = _names.durations(
            meter, "messaging.process.duration", "Duration of processing operation."
        )

    # -- receive

    def configure(self, options: Mapping[str, Any]) -> None:
        """Set the client id, the group id and the bootstrap server of the spans."""
        self._identity.learn(options)
        self._is_interceptor = True

    def _is_idle(self) -> bool:
        """Return whether `on_poll` and `on_consume` would have no effect: neither spans nor
        durations are recorded."""
        is_own = type(self) is ConsumerTelemetry  # a subclass may override the methods
        return is_own and _names.is_noop(self._tracer) and _names.is_noop(self._duration)

    def on_poll(self, seconds: float) -> None:
        """Store the time that a call of the application has waited for records."""
        # The consumer calls `on_consume` next, where this time is used.
        self._poll_seconds = seconds

    def on_consume(self, records: Records) -> None:
        """Record the duration of a call that returns records, and create its span.

        There is no span if no spans are recorded, instrumentation is suppressed, or OpenTelemetry's
        own instrumentation is active. Calls without records are ignored.
        """
        taken = {tp: some for tp, some in records.items() if some}
        if not taken:
            return
        topics = {tp.topic for tp in taken}
        partitions = {tp.partition for tp in taken}
        measured = self._metric_attributes("poll")
        self._set_destination(measured, topics, partitions if self._partitions else ())
        self._duration.record(self._poll_seconds, measured, _NO_CONTEXT)
        if _names.is_noop(self._tracer) or is_suppressed() or has_own_spans():
            return
        attributes: dict[str, Any] = {
            **self._identity.attributes,
            **_names.operation("poll"),
            _names.BATCH_COUNT: sum(map(len, taken.values())),
        }
        self._set_destination(attributes, topics, partitions)
        ended_at = int(_clock.wall_time() * _NS)
        self._tracer.start_span(
            _span_name("poll", topics),
            kind=trace.SpanKind.CLIENT,
            links=self._propagation.links(one for some in taken.values() for one in some),
            attributes=attributes,
            start_time=ended_at - int(self._poll_seconds * _NS),
        ).end(ended_at)

    def _set_destination(
        self, attributes: dict[str, Any], topics: Iterable[str], partitions: Iterable[int]
    ) -> None:
        """Set the topic attribute if there is only one topic; if there is also only one partition,
        set the partition attribute."""
        names, numbers = list(topics), list(partitions)
        if len(names) == 1:
            attributes[_names.DESTINATION] = names[0]
            if len(numbers) == 1:
                attributes[_names.PARTITION] = str(numbers[0])

    # -- process

    @contextmanager
    def process(
        self, records: ConsumerRecord[Any, Any] | Iterable[ConsumerRecord[Any, Any]]
    ) -> Iterator[trace.Span]:
        """Run a `with` block in a span. The block processes one record, or several records
        together.

        - One record: the span is a child of the producer's span in the record's headers, and has a
          link to the current span. The block also gets the baggage in the headers.
        - Several records: the span is a child of the current span, and has links to the spans of
          the producers.

        Use ``with``, not ``async with``, in coroutines too.
        """
        span, ambient, attributes = self._begin_process(records)
        began_at = _clock.running_time()
        token = context.attach(ambient)
        measured = {key: attributes[key] for key in _METRIC_ATTRIBUTES if key in attributes}
        try:
            yield span
        except BaseException as error:
            measured[_names.ERROR_TYPE] = _names.kind_of(error)
            _names.fail(span, error)
            raise
        finally:
            self._processing.record(_clock.running_time() - began_at, measured, ambient)
            context.detach(token)
            span.end()

    def _begin_process(self, records: Any) -> tuple[trace.Span, Any, dict[str, Any]]:
        """Start a `process` span; return the span, a context with the span, and its attributes."""
        attributes = {**self._identity.attributes, **_names.operation("process")}
        ambient = context.get_current()
        if isinstance(records, ConsumerRecord):
            self._describe(attributes, records)
            before = trace.get_current_span(ambient).get_span_context()
            ambient = self._propagation.extract(records.headers, ambient)
            parent = trace.get_current_span(ambient).get_span_context()
            links = [trace.Link(before)] if before.is_valid and before != parent else []
            topics = {records.topic}
        else:
            some = list(records)
            attributes[_names.BATCH_COUNT] = len(some)
            topics = {record.topic for record in some}
            self._set_destination(attributes, topics, {record.partition for record in some})
            links = self._propagation.links(some)
        if is_suppressed():
            return trace.INVALID_SPAN, ambient, attributes
        span = self._tracer.start_span(
            _span_name("process", topics),
            context=ambient,
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes=attributes,
        )
        return span, trace.set_span_in_context(span, ambient), attributes

    def _describe(self, attributes: dict[str, Any], record: ConsumerRecord[Any, Any]) -> None:
        attributes[_names.DESTINATION] = record.topic
        attributes[_names.PARTITION] = str(record.partition)
        attributes[_names.OFFSET] = record.offset
        key = _names.text_of(record.key) if self._keys else None
        if key is not None:
            attributes[_names.KEY] = key
        if record.value is None:
            attributes[_names.TOMBSTONE] = True

    def handler(
        self, function: Callable[[ConsumerRecord[Any, Any]], Awaitable[T] | T]
    ) -> Callable[[ConsumerRecord[Any, Any]], Awaitable[T]]:
        """Return `function`, which handles single records, with each call in a `process` span.

        `function` is a function or a coroutine function, as for `ParallelConsumer.run`.
        """
        refuse_generators("function", function)

        @functools.wraps(function)
        async def traced(record: ConsumerRecord[Any, Any]) -> T:
            with self.process(record):
                result = function(record)
                if inspect.isawaitable(result):
                    return await result
                check_result(result)
                return result

        return traced

    def transaction(self, transaction: SessionTransaction) -> AbstractAsyncContextManager[Any]:
        """Return a transaction of a `TransactionalSession` within a `process` span of its records.

        Write ``async with telemetry.transaction(transaction) as records`` instead of ``async with
        transaction as records``. The spans of records that are sent in the block are children of
        that span.
        """
        attributes = self._identity.attributes
        return TracedTransaction(
            transaction,
            self._tracer,
            lambda: self._begin_process(transaction.records)[0],
            attributes,
        )

    # -- commit

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Create the span of a successful commit, unless instrumentation is suppressed."""
        self._create_commit_span(offsets, self._commit_seconds, None)
        self._commit_seconds = 0.0

    def on_commit_completed(
        self, *, offsets: Mapping[TopicPartition, int], commit_seconds: float
    ) -> None:
        """Record the duration of a commit."""
        self._measure_commit(offsets, commit_seconds, None)
        # The consumer calls `on_commit` next, where this duration is used.
        self._commit_seconds = commit_seconds

    def on_commit_failed(
        self,
        *,
        offsets: Mapping[TopicPartition, int],
        exception: BaseException,
        commit_seconds: float,
    ) -> None:
        """Record the duration of a failed commit; if this object is an interceptor, create its
        span."""
        self._measure_commit(offsets, commit_seconds, exception)
        if self._is_interceptor:
            self._create_commit_span(offsets, commit_seconds, exception)

    def _create_commit_span(
        self,
        offsets: Mapping[TopicPartition, int],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        if is_suppressed():
            return
        topics = {tp.topic for tp in offsets}
        attributes = {**self._identity.attributes, **_names.operation("commit")}
        self._set_destination(attributes, topics, {tp.partition for tp in offsets})
        ended_at = int(_clock.wall_time() * _NS)
        span = self._tracer.start_span(
            _span_name("commit", topics),
            context=_without_ended_span(),
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=ended_at - int(seconds * _NS),
        )
        if error is not None:
            _names.fail(span, error)
        span.end(ended_at)

    # -- metrics

    def _metric_attributes(self, name: str) -> dict[str, Any]:
        own = self._identity.attributes
        attributes = {_names.SYSTEM: "kafka", **_names.operation(name)}
        if _names.GROUP in own:
            attributes[_names.GROUP] = own[_names.GROUP]
        return attributes

    def _partition_attributes(self, name: str, topic: str, partition: int) -> dict[str, Any]:
        attributes = self._metric_attributes(name)
        attributes[_names.DESTINATION] = topic
        if self._partitions:
            attributes[_names.PARTITION] = str(partition)
        return attributes

    def on_records_consumed(self, *, topic: str, partition: int, record_count: int) -> None:
        """Count records that were returned to the application."""
        key = topic, partition if self._partitions else -1
        count = self._counts.get(key)
        if count is None:
            attributes = self._partition_attributes("poll", topic, partition)
            count = self._counts[key] = self._consumed.count_of(attributes)
        count.value += record_count

    def on_fetch_completed(
        self,
        *,
        topic: str,
        partition: int,
        fetch_seconds: float,
        record_count: int,
        size_bytes: int,
    ) -> None:
        """Record the duration of a fetch of a partition."""
        attributes = self._partition_attributes("fetch", topic, partition)
        self._duration.record(fetch_seconds, attributes, _NO_CONTEXT)

    def _measure_commit(
        self,
        offsets: Mapping[TopicPartition, int],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        for topic in {tp.topic for tp in offsets}:
            attributes = {**self._metric_attributes("commit"), _names.DESTINATION: topic}
            if error is not None:
                attributes[_names.ERROR_TYPE] = _names.kind_of(error)
            self._duration.record(seconds, attributes, _NO_CONTEXT)


_METRIC_ATTRIBUTES = (
    _names.SYSTEM,
    _names.OPERATION,
    _names.OPERATION_TYPE,
    _names.DESTINATION,
    _names.GROUP,
)
"""The attributes of a `process` span that its duration metric has as well."""


def _span_name(name: str, topics: Iterable[str]) -> str:
    found = list(topics)
    return f"{name} {found[0]}" if len(found) == 1 else name


def _without_ended_span() -> Any:
    """Return the current context; an empty context if the current span has ended.

    Background commits run in the context of the call that started the consumer. The span of that
    call may have ended.
    """
    ambient = context.get_current()
    if getattr(trace.get_current_span(ambient), "end_time", None) is not None:
        return context.Context()
    return ambient
