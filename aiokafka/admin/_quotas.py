"""What is said to brokers about client quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin._items import settle
from aiokafka.admin._quota_values import KINDS, QuotaEntity, QuotaFilter, parts
from aiokafka.admin._routing import Call, Router
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

Limits = dict[str, float]
Changes = Mapping[QuotaEntity, Mapping[str, "float | None"]]

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MATCHES = {QuotaName.DEFAULT: _DEFAULT, QuotaName.ANY: _ANY}


async def describe(
    router: Router, wanted: QuotaFilter, deadline: float
) -> dict[QuotaEntity, Limits]:
    """Return the quotas that the filter chooses."""

    def build(version: int) -> DescribeClientQuotasRequest:
        components = [_component(kind, name) for kind, name in parts(wanted).items()]
        return DescribeClientQuotasRequest(components=components, strict=wanted.strict)

    async def ask(
        left: list[QuotaFilter],
    ) -> dict[QuotaFilter, dict[QuotaEntity, Limits] | KafkaError]:
        response = await router.to_any(Call(DescribeClientQuotasRequest, build), deadline)
        if response.error_code:
            return {wanted: for_code(response.error_code)(response.error_message or "describe")}
        found = {
            _entity(entry.entity): {each.key: each.value for each in entry.values}
            for entry in response.entries or ()
        }
        return {wanted: found}

    return (await settle(router, [wanted], ask, deadline))[wanted]


async def alter(router: Router, changes: Changes, validate_only: bool, deadline: float) -> None:
    """Set and remove quotas; raise what failed."""

    async def ask(left: list[QuotaEntity]) -> dict[QuotaEntity, KafkaError | None]:
        def build(version: int) -> AlterClientQuotasRequest:
            entries = [
                AlterEntryData(entity=_parts_of(entity), ops=_ops(changes[entity]))
                for entity in left
            ]
            return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

        response = await router.to_any(Call(AlterClientQuotasRequest, build), deadline)
        found: dict[QuotaEntity, KafkaError | None] = {}
        for each in response.entries:
            entity, code, message = _entity(each.entity), each.error_code, each.error_message
            found[entity] = for_code(code)(f"{entity}: {message or ''}") if code else None
        return found

    await settle(router, changes, ask, deadline)


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


def _entity(told: Iterable[EntityData]) -> QuotaEntity:
    names: dict[str, str | QuotaName] = {}
    for each in told:
        if each.entity_type not in KINDS:
            raise KafkaProtocolError(f"a quota of an unknown kind, {each.entity_type!r}")
        name = QuotaName.DEFAULT if each.entity_name is None else each.entity_name
        names[KINDS[each.entity_type]] = name
    try:
        return QuotaEntity(**names)
    except ValueError as error:
        raise KafkaProtocolError(f"a quota of an impossible entity: {error}") from error
