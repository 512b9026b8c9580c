"""A transaction as a span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from aiokafka.otel import _names
from aiokafka.otel._api import context, is_suppressed, trace

__all__ = ["OUTCOME", "TracedTransaction"]

T = TypeVar("T")

OUTCOME = "aiokafka.transaction.outcome"
"""The attribute that says how a transaction has ended: "committed", "aborted" or "failed"."""


class TracedTransaction(AbstractAsyncContextManager[T]):
    """An `async with` block of a transaction within a span that is current in the block."""

    def __init__(
        self,
        block: AbstractAsyncContextManager[T],
        tracer: trace.Tracer,
        begin: Callable[[], Any],
        attributes: Mapping[str, Any],
    ) -> None:
        """Trace `block`; `begin` starts its span. `attributes` are those of the client."""
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
        settle = self._begin_end(name)
        try:
            suppressed = await self._block.__aexit__(exc_type, exc, traceback)
        except BaseException as error:
            _names.fail(settle, error)
            settle.end()
            self._end("aborted" if error is exc else "failed", error)
            raise
        settle.end()
        is_committed = getattr(self._block, "is_committed", exc is None)
        self._end("committed" if is_committed else "aborted", exc)
        return suppressed

    def _begin_end(self, name: str) -> Any:
        """Return the span of the commit or abort."""
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
