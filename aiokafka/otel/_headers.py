"""The context of a trace in the headers of a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.otel._api import context, propagate, trace

__all__ = ["Headers", "Propagation"]

Headers = Sequence[tuple[str, bytes | None]]

_LONGEST = 8192
"""Bytes of a header: what baggage may have at most. Longer ones are no context."""

_MOST_LINKS = 128
"""Links of a span: what OpenTelemetry keeps of them unless it is told otherwise."""


class Propagation:
    """Reads and writes contexts with one propagator, or with that of the process."""

    def __init__(self, propagator: Any = None) -> None:
        self._propagator = propagator

    @property
    def _current(self) -> Any:
        # That of the process may be set later than clients are made.
        return self._propagator or propagate.get_global_textmap()

    def extract(self, headers: Headers, base: Any = None) -> Any:
        """Return `base` with what the headers say; without, an empty context with that.

        Of several headers with one name the last counts, which was added last.
        """
        base = context.Context() if base is None else base
        carrier = {
            name: value.decode(errors="replace")
            for name, value in headers
            if value is not None and len(value) <= _LONGEST
        }
        return self._current.extract(carrier, context=base) if carrier else base

    def creation_of(self, headers: Headers) -> Any:
        """Return the context of the span that has made a record; None if there is none."""
        if not headers:
            return None
        found = trace.get_current_span(self.extract(headers)).get_span_context()
        return found if found.is_valid else None

    def inject(self, headers: Headers, ambient: Any) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers with `ambient` in them; what they had under these names goes."""
        carrier: dict[str, str] = {}
        self._current.inject(carrier, context=ambient)
        kept = (pair for pair in headers if pair[0] not in carrier)
        return (*kept, *((name, value.encode()) for name, value in carrier.items()))

    def links(self, records: Iterable[Any]) -> list[trace.Link]:
        """Return links to the spans that have made these records, one for each span."""
        found: dict[tuple[int, int], trace.Link] = {}
        for record in records:
            creation = self.creation_of(record.headers)
            if creation is not None:
                found.setdefault((creation.trace_id, creation.span_id), trace.Link(creation))
                if len(found) >= _MOST_LINKS:
                    break
        return list(found.values())
