"""`aiokafka consume --schema-registry`: converts Avro, JSON Schema and Protobuf records to JSON."""

from __future__ import annotations

import base64
import importlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

if TYPE_CHECKING:
    from aiokafka.serialization import SerializationContext

__all__ = ["SchemaDecoder", "registry_options"]

_TIMEOUT = 10  # seconds for a request to the registry

Decode = Callable[[bytes, Any], Awaitable[bytes]]


def registry_options(url: str, credentials: str | None) -> dict[str, Any]:
    """Return the configuration of a registry client. `credentials`: "user:password", or None.

    Raises click.UsageError for a URL that is not http or https, or that has a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"--schema-registry: {url!r} is not an http or https URL")
    if parts.password is not None:
        raise click.UsageError(
            "--schema-registry: the URL must not have a password, because other users see command "
            "lines; set AIOKAFKA_SCHEMA_REGISTRY_AUTH to user:password"
        )
    options: dict[str, Any] = {"url": url, "timeout": _TIMEOUT}
    if credentials:
        if ":" not in credentials:
            raise click.UsageError("AIOKAFKA_SCHEMA_REGISTRY_AUTH: must be user:password")
        options["basic.auth.user.info"] = credentials
    return options


class SchemaDecoder:
    """A deserializer that returns a key or value as JSON in UTF-8.

    Reads the schema id from the record, and the schema and its type (Avro, JSON Schema or Protobuf)
    from the registry.

    Args:
        options: The configuration of a registry client.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._registry: Any = AsyncSchemaRegistryClient(options)
        self._decoders: dict[int | str, Decode] = {}

    async def aclose(self) -> None:
        """Close the connections to the registry."""
        await self._registry.aclose()

    async def __call__(self, data: bytes | None, ctx: SerializationContext) -> bytes | None:
        """Decode a key or value. Raises ValueError if it has no schema id."""
        if data is None:
            return None
        found = SchemaId("")
        _without_id(data, ctx, found)
        schema_id = found.id if found.id is not None else str(found.guid)
        decode = self._decoders.get(schema_id)
        if decode is None:
            decode = self._decoders[schema_id] = await self._decoder(schema_id)
        return await decode(data, ctx)

    async def _decoder(self, schema_id: int | str) -> Decode:
        # Registries serialize only Protobuf schemas; they return other schemas unchanged.
        schema = (
            await self._registry.get_schema(schema_id, fmt="serialized")
            if isinstance(schema_id, int)
            else await self._registry.get_schema_by_guid(schema_id, fmt="serialized")
        )
        if schema.schema_type == "PROTOBUF":
            return await self._protobuf(schema)
        if schema.schema_type == "JSON":
            return _json

        deserialize = await AsyncAvroDeserializer(self._registry)

        async def avro(data: bytes, ctx: Any) -> bytes:
            return _as_json(await deserialize(data, ctx))

        return avro

    async def _protobuf(self, schema: Any) -> Decode:

        pool = descriptor_pool.DescriptorPool()
        name = await self._add_file(pool, schema, "record.proto")
        file = pool.FindFileByName(name)

        async def protobuf(data: bytes, ctx: Any) -> bytes:
            found = SchemaId("PROTOBUF")
            payload = _without_id(data, ctx, found)
            index, *nested = found.message_indexes or [0]
            kind = list(file.message_types_by_name.values())[index]
            for each in nested:
                kind = kind.nested_types[each]
            message = message_factory.GetMessageClass(kind)()
            message.ParseFromString(payload)
            text = json_format.MessageToDict(
                message, preserving_proto_field_name=True, descriptor_pool=pool
            )
            return _as_json(text)

        return protobuf

    async def _add_file(self, pool: Any, schema: Any, name: str) -> str:
        """Add the file of a Protobuf schema, and the files that it imports, to `pool`. Return the
        name of the file of the schema."""
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(schema.schema_str, validate=True)
            )
        except Exception as error:
            raise ValueError("the registry does not return Protobuf schemas as binary") from error
        file.name = file.name if file.name not in ("", "default") else name
        for each in schema.references or ():
            found = await self._registry.get_version(each.subject, each.version, fmt="serialized")
            await self._add_file(pool, found.schema, each.name)
        for imported in file.dependency:
            if imported.startswith("google/protobuf/"):
                _add_well_known(pool, imported)
        pool.Add(file)
        return str(file.name)


def _add_well_known(pool: Any, name: str) -> None:
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for imported in file.dependency:
        _add_well_known(pool, imported)
    pool.Add(file)


def _without_id(data: bytes, ctx: Any, schema_id: Any) -> bytes:
    """Store the schema id of a key or value in `schema_id`, and return the bytes after it.

    Raises ValueError if neither a header nor the start of `data` has a schema id.
    """
    try:
        return bytes(dual_schema_id_deserializer(data, ctx, schema_id).read())
    except Exception as error:
        raise ValueError(f"no schema id: {error}") from None


async def _json(data: bytes, ctx: Any) -> bytes:
    return _without_id(data, ctx, SchemaId(""))


def _as_json(value: Any) -> bytes:
    """Return JSON on one line. Bytes become text of code points 0 to 255, as in Avro's own JSON;
    times and decimals become text."""
    return json.dumps(value, ensure_ascii=False, default=_text).encode()


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
