"""Quotas of a fake cluster: limits of produced and fetched bytes, requests and topic changes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._typing import later

if TYPE_CHECKING:
    from aiokafka.testing.script import RequestContext
else:
    RequestContext = later("aiokafka.testing.script.RequestContext")


# -- Quotas set by clients (KIP-546)


_EXACT, _DEFAULT, _ANY = 0, 1, 2

Entity = tuple[tuple[str, "str | None"], ...]
"""A quota entity: (type, name) pairs, sorted by type. The name None stands for the default entity
of the type."""

# The name of the quota in AlterClientQuotas requests, by the `kind` of `Quotas.limit`.
_ENFORCED = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "mutation": "controller_mutation_rate",
}
_OF_CLIENTS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_OF_ADDRESSES = ("connection_creation_rate",)


class Wanted(NamedTuple):
    """One component of a filter of quota entities."""

    kind: str
    match_type: int
    name: str | None

    def matches(self, name: str | None) -> bool:
        """Return whether an entity name matches; None is the name of a default entity."""
        if self.match_type == _ANY:
            return True
        return name == (None if self.match_type == _DEFAULT else self.name)


class QuotaEntries:
    """The quotas set by clients, by entity. Only quotas of client ids are enforced."""

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(
        self, wanted: Mapping[str, Wanted], *, strict: bool
    ) -> Iterator[tuple[Entity, dict[str, float]]]:
        """Yield matching entities and their limits; if `strict`, omit entities that also have a
        type that is not in `wanted`."""
        for entity, limits in self._limits.items():
            names = dict(entity)
            has_all = all(
                kind in names and one.matches(names[kind]) for kind, one in wanted.items()
            )
            if has_all and not (strict and names.keys() - wanted.keys()):
                yield entity, limits

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set limits of an entity; the value None removes a limit."""
        limits = self._limits.setdefault(entity, {})
        for key, value in changes.items():
            if value is None:
                limits.pop(key, None)
            else:
                limits[key] = value
        if not limits:
            del self._limits[entity]

    def rate(self, kind: str, client_id: str | None) -> float | None:
        """Return the limit of a client id, or else the default of all client ids; None without a
        limit."""
        key = _ENFORCED.get(kind, "")
        for name in (client_id, None):
            limit = self._limits.get((("client-id", name),), {}).get(key)
            if limit is not None:
                return limit
        return None


def problem_of(entity: Entity, changes: Mapping[str, float | None]) -> str | None:
    """Return the error message for an invalid change of quotas; None for a valid change."""
    kinds = {kind for kind, _ in entity}
    if not kinds or not (kinds <= {"user", "client-id"} or kinds == {"ip"}):
        return f"Invalid quota entity {sorted(kinds)}"
    known = _OF_ADDRESSES if kinds == {"ip"} else _OF_CLIENTS
    for key, value in changes.items():
        if key not in known:
            return f"Invalid configuration key {key}"
        if value is not None and value <= 0:
            return f"Quota {key} must be greater than 0"
    return None


# -- Usage and throttle times

_PRODUCE, _FETCH = 0, 1
KINDS = ("produce", "fetch", "request", "mutation")
_LONGEST_THROTTLE = 30.0  # maximum throttle time in seconds


@dataclass
class _Bucket:
    """The token bucket of one client's quota, which holds at most the quota of one second."""

    rate: float
    left: float
    seen_at: float

    def fill(self, now: float) -> None:
        self.left = min(self.left + (now - self.seen_at) * self.rate, self.rate)
        self.seen_at = now


class Quotas:
    """Quotas of a :class:`FakeCluster` (its `quotas`). By default no quota is set.

    A client above a quota gets responses with ``throttle_time_ms``, and the broker reads nothing
    from its connection for that time (KIP-219). Throttled fetch responses have no records. Above
    the mutation quota, requests that change topics get THROTTLING_QUOTA_EXCEEDED (KIP-599).

    Example::

        cluster.quotas.limit("produce", 100_000)                  # bytes a second, each client id
        cluster.quotas.limit("request", 50, client_id="noisy")
    """

    def __init__(self) -> None:
        #: Quotas set by AlterClientQuotas.
        self.entries = QuotaEntries()
        self._rates: dict[tuple[str, str | None], float] = {}
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    # -- for tests -----------------------------------------------------------------------------

    def limit(self, kind: str, per_second: float, client_id: str | None = None) -> None:
        """Set a quota.

        Args:
            kind: ``"produce"`` or ``"fetch"``: bytes; ``"request"``: requests of any API;
                ``"mutation"``: created and deleted partitions.
            per_second: The allowed bytes, requests or partitions per second.
            client_id: Only clients with this id; None (the default) for each client id without a
                quota of its own.

        Raises:
            ValueError: unknown kind, or a limit that is not above 0.
        """
        self._check(kind)
        if per_second <= 0:
            raise ValueError("per_second must be above 0")
        self._rates[kind, client_id] = per_second
        self._buckets.clear()

    def lift(self, kind: str, client_id: str | None = None) -> None:
        """Remove a quota, if there is one.

        Raises:
            ValueError: unknown kind.
        """
        self._check(kind)
        self._rates.pop((kind, client_id), None)
        self._buckets.clear()

    def heal(self) -> None:
        """Remove all quotas set by :meth:`limit`."""
        self._rates.clear()
        self._buckets.clear()

    # -- for the brokers -----------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no quota is set, by tests or by clients."""
        return not (self._rates or self.entries)

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set and remove limits of an entity (KIP-546)."""
        self.entries.alter(entity, changes)
        self._buckets.clear()

    def charge_for(self, context: RequestContext, response: Any) -> int:
        """Charge a handled request to its client; return the throttle time in milliseconds. If a
        Fetch request is throttled, remove the records from `response`.
        """
        client_id = context.client_id
        waits = self.charge("request", client_id, 1)
        if context.api_key == _PRODUCE:
            waits = max(waits, self.charge("produce", client_id, context.size))
        elif context.api_key == _FETCH:
            parts = [part for topic in response.responses for part in topic.partitions]
            waits = max(waits, self.charge("fetch", client_id, _bytes_in(parts)))
            if waits:
                for part in parts:
                    part.records = b""
        return waits

    def charge(self, kind: str, client_id: str | None, amount: float) -> int:
        """Charge an amount to a client; return the throttle time in milliseconds, 0 within the
        quota or without a quota."""
        bucket = self._bucket(kind, client_id or "")
        if bucket is None:
            return 0
        bucket.left -= amount
        if bucket.left >= 0:
            return 0
        return math.ceil(min(-bucket.left / bucket.rate, _LONGEST_THROTTLE) * 1000)

    def is_over(self, kind: str, client_id: str | None) -> bool:
        """Return whether a client is above a quota."""
        bucket = self._bucket(kind, client_id or "")
        return bucket is not None and bucket.left < 0

    def _bucket(self, kind: str, client_id: str) -> _Bucket | None:
        rate = self._rates.get((kind, client_id), self._rates.get((kind, None)))
        rate = self.entries.rate(kind, client_id) if rate is None else rate
        if rate is None:
            return None
        now = asyncio.get_running_loop().time()
        bucket = self._buckets.get((kind, client_id))
        if bucket is None:
            bucket = self._buckets[kind, client_id] = _Bucket(rate, rate, now)
        bucket.fill(now)
        return bucket

    @staticmethod
    def _check(kind: str) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")


def _bytes_in(parts: Iterable[Any]) -> int:
    return sum(len(part.records or b"") for part in parts)
