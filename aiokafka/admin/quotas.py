"""Client quotas: how much clients may send, fetch and ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aiokafka.admin import _quotas
from aiokafka.admin._arguments import items_of
from aiokafka.admin._quota_values import QuotaEntity, QuotaFilter
from aiokafka.admin._room import Room

__all__ = ["Quotas"]


class Quotas(Room):
    """Calls about client quotas (KIP-546, Kafka 2.6): `admin.quotas`.

    Quotas have the names that Kafka gives them: `producer_byte_rate` and `consumer_byte_rate` in
    bytes a second, `request_percentage` of a thread's time, `controller_mutation_rate` in
    partitions a second, `connection_creation_rate` of an address in connections a second. They
    count for each broker.
    """

    async def describe(
        self, filter: QuotaFilter | None = None, *, timeout_ms: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas that a filter chooses (Java: describeClientQuotas).

        Args:
            filter: which; by default all.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = QuotaFilter() if filter is None else filter
        if not isinstance(wanted, QuotaFilter):
            raise TypeError(f"filter: must be a QuotaFilter, not {filter!r}")
        return await _quotas.describe(self._router, wanted, self._deadline(timeout_ms))

    async def alter(
        self,
        entity: QuotaEntity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set and remove quotas of one entity (Java: alterClientQuotas).

        Args:
            entity: the user, client id, both or address that they are about.
            changes: limits by the name of the quota; None removes one. Others stay.
            validate_only: check it, and change nothing.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidRequestError for a quota or a limit that cannot be.
        """
        await self.alter_all({entity: changes}, validate_only=validate_only, timeout_ms=timeout_ms)

    async def alter_all(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set and remove quotas of several entities in one request (Java: alterClientQuotas).

        Args:
            changes: for each entity what `alter` takes.
            validate_only: check it, and change nothing.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of an entity: AdminItemsError, by entity, if several were given.
        """
        for entity, limits in items_of("changes", changes):
            _check(entity, limits)
        deadline = self._deadline(timeout_ms)
        await _quotas.alter(self._router, changes, validate_only, deadline)


def _check(entity: Any, limits: Mapping[Any, Any]) -> None:
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"entity: must be a QuotaEntity, not {entity!r}")
    for key, value in limits.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"changes: {key!r} must be the name of a quota")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"changes: {key}={value!r}: must be a number, or None to remove it")
        if not math.isfinite(value):
            raise ValueError(f"changes: {key}={value!r}: must be finite")
