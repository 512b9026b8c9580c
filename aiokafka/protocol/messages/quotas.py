"""Messages for client quotas (KIP-546)."""

from aiokafka.protocol.schema import F64, I8, I16, I32, Bool, NStr, Request, Response, Str, Struct


class EntityData(Struct):
    entity_type: Str
    entity_name: NStr


class ValueData(Struct):
    key: Str
    value: F64


class EntryData(Struct):
    entity: list[EntityData]
    values: list[ValueData]


class DescribeClientQuotasResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr
    entries: list[EntryData] | None


class ComponentData(Struct):
    entity_type: Str
    match_type: I8
    match: NStr


class DescribeClientQuotasRequest(
    Request[DescribeClientQuotasResponse], api_key=48, versions="0-1", flexible="1+"
):
    """Describe the client quotas that match a filter."""

    components: list[ComponentData]
    strict: Bool


class AlteredEntryData(Struct):
    error_code: I16 = 0
    error_message: NStr
    entity: list[EntityData]


class AlterClientQuotasResponse(Response):
    throttle_time_ms: I32 = 0
    entries: list[AlteredEntryData]


class OpData(Struct):
    key: Str
    value: F64
    remove: Bool


class AlterEntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(
    Request[AlterClientQuotasResponse], api_key=49, versions="0-1", flexible="1+"
):
    """Set and remove client quotas."""

    entries: list[AlterEntryData]
    validate_only: Bool
