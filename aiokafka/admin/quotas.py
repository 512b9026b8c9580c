"""Describe and change client quotas, such as byte rates (`admin.quotas`, KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka._arguments import as_flag, as_instance, items_of
from aiokafka.admin._items import settle
from aiokafka.admin._routing import AdminApi, Outcomes, call_of
from aiokafka.admin._values import Value
from aiokafka.admin.enums import QuotaName
from aiokafka.errors import KafkaError, KafkaProtocolError, for_code
from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

__all__ = ["QuotaEntity", "QuotaFilter", "Quotas"]


# -- Entities and filters

KINDS = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The fields of `QuotaEntity` by Kafka's names of the entity types."""


@dataclass(frozen=True)
class QuotaEntity(Value):
    """The subject of a quota: a user, a client id, both together, or an IP address.

    `QuotaName.DEFAULT` in place of a name stands for all users, client ids or addresses that have
    no quota of their own. An entity is hashable. Raises ValueError for other combinations, and
    TypeError for a field that is neither a str nor a QuotaName.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __post_init__(self) -> None:
        _check(self)
        if QuotaName.ANY in (self.user, self.client_id, self.ip):
            raise ValueError("QuotaName.ANY is for filters only")
        if self.user is self.client_id is self.ip is None:
            raise ValueError("give a user, a client_id or an ip")
        if self.ip is not None and not self.user is self.client_id is None:
            raise ValueError("ip: cannot be combined with user or client_id")

    def __str__(self) -> str:
        """Return the entity as Kafka's tools print it, such as "user=alice,
        client-id=<default>"."""
        return ", ".join(f"{kind}={_text(name)}" for kind, name in parts(self).items())


@dataclass(frozen=True)
class QuotaFilter(Value):
    """Selects quotas by the fields of their entities. A field that is None matches all quotas.

    Other values of a field: a name, `QuotaName.DEFAULT` for the default quota, or `QuotaName.ANY`
    for all quotas whose entity has this field. Raises TypeError for a field of another type.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
    strict: bool = False
    """Whether to exclude quotas whose entity has a field that is None in this filter."""

    def __post_init__(self) -> None:
        _check(self)


def parts(value: QuotaEntity | QuotaFilter) -> dict[str, str | QuotaName]:
    """Return a dict from Kafka's name of the entity type to the field, for fields that are not
    None."""
    found = {kind: getattr(value, name) for kind, name in KINDS.items()}
    return {kind: name for kind, name in found.items() if name is not None}


def _check(value: QuotaEntity | QuotaFilter) -> None:
    for kind, name in parts(value).items():
        if not isinstance(name, str | QuotaName):
            raise TypeError(f"{KINDS[kind]}: must be a str or a QuotaName, not {name!r}")
        if name == "" and kind != "client-id":  # a client id may be empty
            raise ValueError(f"{KINDS[kind]}: must not be empty")


def _text(name: str | QuotaName) -> str:
    return f"<{name.name.lower()}>" if isinstance(name, QuotaName) else name


class Quotas(AdminApi):
    """The sub-client `admin.quotas`, for client quotas (KIP-546, Kafka 2.6).

    Quotas have Kafka's names: `producer_byte_rate` and `consumer_byte_rate` in bytes per second;
    `request_percentage`, in percent of the time of one broker thread; `controller_mutation_rate` in
    partitions per second; `connection_creation_rate` of an IP address in connections per second.
    Each broker applies a quota on its own, so a client may use the quota at every broker.
    """

    async def describe(
        self, filter: QuotaFilter | None = None, *, timeout_ms: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the limits that a filter selects, by entity and by the name of the quota (Java:
        describeClientQuotas).

        Args:
            filter: the filter; by default all quotas are returned.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = QuotaFilter() if filter is None else as_instance("filter", filter, QuotaFilter)
        deadline = self._deadline(timeout_ms)
        components = [_component(kind, name) for kind, name in parts(wanted).items()]
        call = call_of(DescribeClientQuotasRequest(components=components, strict=wanted.strict))

        async def ask(
            left: list[QuotaFilter],
        ) -> Outcomes[QuotaFilter, dict[QuotaEntity, dict[str, float]]]:
            response = await self._router.to_any(call, deadline)
            if response.error_code:
                return {wanted: for_code(response.error_code)(response.error_message or "describe")}
            found = {
                _entity(entry.entity): {each.key: each.value for each in entry.values}
                for entry in response.entries or ()
            }
            return {wanted: found}

        return (await settle(self._router, [wanted], ask, deadline))[wanted]

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
            entity: the user, client id or IP address.
            changes: by the name of the quota, its new limit; None removes the quota. Other quotas
                are not changed.
            validate_only: only check whether the quotas could be changed.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidRequestError for an unknown quota or an invalid limit.
        """
        entity = as_instance("entity", entity, QuotaEntity)
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
            changes: by entity, the changes as for `alter`.
            validate_only: only check whether the quotas could be changed.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a single entity; AdminItemsError if one of several entities fails.
        """
        for entity, limits in items_of("changes", changes):
            _check_limits(as_instance("changes: entity", entity, QuotaEntity), limits)
        validate_only = as_flag("validate_only", validate_only)
        deadline = self._deadline(timeout_ms)

        async def ask(left: list[QuotaEntity]) -> Outcomes[QuotaEntity, None]:
            entries = [
                AlterEntryData(entity=_parts_of(entity), ops=_ops(changes[entity]))
                for entity in left
            ]
            request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
            response = await self._router.to_any(call_of(request), deadline)
            found: dict[QuotaEntity, KafkaError | None] = {}
            for each in response.entries:
                entity, code, message = _entity(each.entity), each.error_code, each.error_message
                found[entity] = for_code(code)(f"{entity}: {message or ''}") if code else None
            return found

        await settle(self._router, changes, ask, deadline)


def _check_limits(entity: QuotaEntity, limits: Mapping[Any, Any]) -> None:
    for key, value in items_of(f"changes: {entity}", limits):
        if not isinstance(key, str) or not key:
            raise ValueError(f"changes: {key!r} must be the name of a quota")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"changes: {key}={value!r}: must be a number, or None to remove it")
        if not math.isfinite(value):
            raise ValueError(f"changes: {key}={value!r}: must be finite")


# -- Requests

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MATCHES = {QuotaName.DEFAULT: _DEFAULT, QuotaName.ANY: _ANY}


def _component(kind: str, name: str | QuotaName) -> ComponentData:
    if isinstance(name, QuotaName):
        return ComponentData(entity_type=kind, match_type=_MATCHES[name], match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def _parts_of(entity: QuotaEntity) -> list[EntityData]:
    return [
        EntityData(entity_type=kind, entity_name=None if isinstance(name, QuotaName) else name)
        for kind, name in parts(entity).items()
    ]


def _ops(changes: Mapping[str, float | None]) -> list[OpData]:
    return [
        OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
        for key, value in changes.items()
    ]


def _entity(parts: Iterable[EntityData]) -> QuotaEntity:
    names: dict[str, str | QuotaName] = {}
    for each in parts:
        if each.entity_type not in KINDS:
            raise KafkaProtocolError(
                f"the response has a quota of the unknown kind {each.entity_type!r}"
            )
        name = QuotaName.DEFAULT if each.entity_name is None else each.entity_name
        names[KINDS[each.entity_type]] = name
    try:
        return QuotaEntity(**names)
    except ValueError as error:
        raise KafkaProtocolError(
            f"the response has a quota of an invalid entity: {error}"
        ) from error
