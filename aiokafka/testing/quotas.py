"""Quotas of a fake cluster: how much clients may send, fetch and ask for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka._typing import later
from aiokafka.testing.quota_entries import Entity, QuotaEntries

if TYPE_CHECKING:
    from aiokafka.testing.script import RequestContext
else:
    RequestContext = later("aiokafka.testing.script.RequestContext")

_PRODUCE, _FETCH = 0, 1
KINDS = ("produce", "fetch", "request", "mutation")
_MOST = 30.0  # seconds that a client is made to wait at most


@dataclass
class _Bucket:
    """What is left of a quota; it fills to what one second gives."""

    rate: float
    left: float
    seen_at: float

    def fill(self, now: float) -> None:
        self.left = min(self.left + (now - self.seen_at) * self.rate, self.rate)
        self.seen_at = now


class Quotas:
    """What clients of a :class:`FakeCluster` may use; see its `quotas`. At first there are none.

    Who is over a quota gets ``throttle_time_ms``, and the broker reads nothing from the connection
    for that long (KIP-219); a fetch then brings nothing. Over the quota of mutations, requests that
    change topics get THROTTLING_QUOTA_EXCEEDED (KIP-599).

    Example::

        cluster.quotas.limit("produce", 100_000)                  # bytes a second, each client id
        cluster.quotas.limit("request", 50, client_id="noisy")
    """

    def __init__(self) -> None:
        #: What clients have set by AlterClientQuotas.
        self.entries = QuotaEntries()
        self._rates: dict[tuple[str, str | None], float] = {}
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    # -- for tests -----------------------------------------------------------------------------

    def limit(self, kind: str, per_second: float, client_id: str | None = None) -> None:
        """Set a quota.

        Args:
            kind: ``"produce"`` or ``"fetch"``: bytes; ``"request"``: requests of any API;
                ``"mutation"``: partitions that are created or deleted.
            per_second: How much.
            client_id: Only for this client; None (the default) for each client id that has no
                quota of its own.

        Raises:
            ValueError: unknown kind, or a quota that is not above 0.
        """
        self._check(kind)
        if per_second <= 0:
            raise ValueError("per_second must be above 0")
        self._rates[kind, client_id] = per_second
        self._buckets.clear()

    def lift(self, kind: str, client_id: str | None = None) -> None:
        """End a quota; nothing happens if there is none.

        Raises:
            ValueError: unknown kind.
        """
        self._check(kind)
        self._rates.pop((kind, client_id), None)
        self._buckets.clear()

    def heal(self) -> None:
        """End all quotas."""
        self._rates.clear()
        self._buckets.clear()

    # -- for the brokers -----------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether there are none."""
        return not (self._rates or self.entries)

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set and remove limits of an entity, as a client asks (KIP-546)."""
        self.entries.alter(entity, changes)
        self._buckets.clear()

    def charge_for(self, context: RequestContext, response: Any) -> int:
        """Note a request that was answered; the milliseconds that its client has to wait. A fetch
        over the quota brings nothing."""
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
        """Note what a client used; the milliseconds that it has to wait."""
        bucket = self._bucket(kind, client_id or "")
        if bucket is None:
            return 0
        bucket.left -= amount
        if bucket.left >= 0:
            return 0
        return math.ceil(min(-bucket.left / bucket.rate, _MOST) * 1000)

    def is_over(self, kind: str, client_id: str | None) -> bool:
        """Return whether a client has to wait already."""
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
