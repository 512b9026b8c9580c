"""Our declarations against Apache's own, read from the kafka-clients jars.

Kafka 3.9 still has the old versions of every API, 4.4 has the new ones: what we declare is the
union of both.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from aiokafka.protocol import messages
from aiokafka.protocol.schema import (
    EMPTY,
    NEVER,
    ZERO_UUID,
    Field,
    Message,
    Request,
    Response,
    Struct,
    Type,
    Versions,
    fields,
    parse_versions,
)
from tests.kafka.jars import fetch_clients_jar
from tests.protocol.catalogue import all_messages, versions

pytestmark = pytest.mark.conformance

OLD, NEW = "3.9.2", "4.4.0"

# Brokers listen for these, but only brokers and their coordinators send them.
BETWEEN_BROKERS = {
    "InitializeShareGroupState": "group coordinator to share coordinator (KIP-932)",
    "ReadShareGroupState": "share partition leader to share coordinator (KIP-932)",
    "WriteShareGroupState": "share partition leader to share coordinator (KIP-932)",
    "DeleteShareGroupState": "group coordinator to share coordinator (KIP-932)",
    "ReadShareGroupStateSummary": "group coordinator to share coordinator (KIP-932)",
}
RENAMED = {"ListClientMetricsResources": "ListConfigResources"}  # KIP-1142, the same API key

# Fields whose names differ in the old definitions, by message: the bytes are the same.
RENAMED_FIELDS = {"TxnOffsetCommitRequest": {"GenerationId": "GenerationIdOrMemberEpoch"}}

# Share groups were a preview in 3.9, on by a hidden setting; 4.0 began them again.
PREVIEWS_OF_3_9 = {"ShareFetch", "ShareAcknowledge", "ShareGroupHeartbeat", "ShareGroupDescribe"}

ZEROS: dict[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": ZERO_UUID,
    "float64": 0.0,
}


class Definition(NamedTuple):
    """One of Apache's definitions, with the fields of its common structs filled in."""

    name: str
    kind: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    fields: list[dict[str, Any]]


@cache
def definitions(release: str) -> dict[str, Definition]:
    found = {}
    with zipfile.ZipFile(fetch_clients_jar(release)) as jar:
        for path in jar.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", jar.read(path).decode(), flags=re.MULTILINE)
                raw = json.loads(text)
                for field in raw.get("fields", []):
                    new_names = RENAMED_FIELDS.get(raw["name"], {})
                    field["name"] = new_names.get(field["name"], field["name"])
                definition = parse(raw)
                found[definition.name] = definition
    return found


def parse(raw: dict[str, Any]) -> Definition:
    common = {c["name"]: c["fields"] for c in raw.get("commonStructs", [])}
    return Definition(
        raw["name"],
        raw["type"],
        raw.get("apiKey"),
        parse_versions(raw["validVersions"]),
        parse_versions(raw.get("flexibleVersions", "none")),
        tuple(raw.get("listeners", ())),
        [expand(f, common) for f in raw.get("fields", [])],
    )


def expand(field: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    inner = field.get("fields") or common.get(field["type"].removeprefix("[]"), [])
    return {**field, "fields": [expand(f, common) for f in inner]}


def sources(cls: type[Message]) -> list[Definition]:
    """Apache's definitions of a message, the old one first."""
    name = cls.__name__
    api = re.sub("(Request|Response)$", "", name)
    found = [definitions(release).get(name) for release in (OLD, NEW)]
    if api in PREVIEWS_OF_3_9:
        del found[0]
    return [d for d in found if d is not None and d.versions != NEVER]


def snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.lower()


# -- one field at one version, as plain values that can be compared


def theirs(raw: dict[str, Any], version: int) -> dict[str, Any]:
    kind = raw["type"].removeprefix("[]")
    is_array = raw["type"].startswith("[]")
    is_struct = kind[0].isupper()
    has_tag = "tag" in raw and parse_versions(raw["taggedVersions"]).has(version)
    return {
        "name": snake_case(raw["name"]),
        "type": ("[]" if is_array else "") + ("struct" if is_struct else kind),
        "nullable": parse_versions(raw.get("nullableVersions", "none")).has(version),
        "tag": int(raw["tag"]) if has_tag else None,
        "fields": describe_theirs(raw["fields"], version),
    }


def ours(field: Field, version: int) -> dict[str, Any]:
    element = field.type.element or field.type
    return {
        "name": field.name,
        "type": ("[]" if field.type.element else "") + element.kind,
        "nullable": field.nullable.has(version),
        "tag": field.tag,
        "fields": describe_ours(element.struct, version) if element.struct else [],
    }


def describe_theirs(raw: list[dict[str, Any]], version: int) -> list[dict[str, Any]]:
    return [theirs(f, version) for f in raw if parse_versions(f["versions"]).has(version)]


def describe_ours(cls: type[Struct], version: int) -> list[dict[str, Any]]:
    return [ours(f, version) for f in fields(cls) if f.versions.has(version)]


# -- defaults, and what may be dropped


def default_of(raw: dict[str, Any], wire: Type) -> Any:
    given = raw.get("default")
    if wire.element is not None:
        return None if given == "null" else EMPTY
    if wire.struct is not None:
        return None if given == "null" else wire.struct()
    if given is None:
        return ZEROS.get(wire.kind, 0)
    if given == "null":
        return None
    if wire.kind == "string":
        return given
    if wire.kind == "bool":
        return str(given).lower() == "true"
    return int(str(given), 0)


def compare_defaults(cls: type[Struct], raw: list[dict[str, Any]], path: str) -> list[str]:
    """The differences of defaults and of `ignorable`, below a struct."""
    found = {f.name: f for f in fields(cls)}
    wrong = []
    for theirs in raw:
        field = found.get(snake_case(theirs["name"]))
        if field is None:
            continue  # not in the union: the other test says so if it should be
        where = f"{path}.{field.name}"
        if field.required and "default" in theirs:
            wrong.append(f"{where} has no default")
        if not field.required and field.default != default_of(theirs, field.type):
            wrong.append(f"{where}: {field.default!r} is not {theirs.get('default')!r}")
        is_everywhere = field.versions.first == 0 and field.versions.last > 1000
        if not is_everywhere and field.ignorable != (theirs.get("ignorable") in (True, "true")):
            wrong.append(f"{where}: ignorable is {field.ignorable}")
        element = field.type.element or field.type
        if element.struct is not None:
            wrong += compare_defaults(element.struct, theirs["fields"], where)
    return wrong


# -- the tests


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_fields_types_and_nullability(cls: type[Message]) -> None:
    for definition in sources(cls):
        for version in range(definition.versions.first, definition.versions.last + 1):
            expected = describe_theirs(definition.fields, version)
            assert describe_ours(cls, version) == expected, f"version {version}"


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_defaults_and_ignorable(cls: type[Message]) -> None:
    assert compare_defaults(cls, sources(cls)[-1].fields, cls.__name__) == []


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_version_ranges(cls: type[Message]) -> None:
    known = sources(cls)
    first = min(d.versions.first for d in known)
    last = max(d.versions.last for d in known)
    assert (first, last) == cls.VERSIONS
    for definition in known:
        flexible = None if definition.flexible == NEVER else definition.flexible.first
        assert flexible == cls.FLEXIBLE
        if issubclass(cls, (Request, Response)):
            assert definition.api_key == cls.API_KEY


def test_nothing_is_missing_that_a_client_may_send() -> None:
    have = {cls.API_KEY for cls in all_messages() if issubclass(cls, Request)}
    expected = {}
    for release in (OLD, NEW):
        for definition in definitions(release).values():
            if definition.kind == "request" and "broker" in definition.listeners:
                expected[definition.api_key] = definition.name.removesuffix("Request")
    missing = {name for key, name in expected.items() if key not in have}
    assert missing == set(BETWEEN_BROKERS)
    assert have <= set(expected)


def test_a_renamed_api_keeps_its_key() -> None:
    for old, new in RENAMED.items():
        assert (
            definitions(OLD)[f"{old}Request"].api_key == definitions(NEW)[f"{new}Request"].api_key
        )
        assert f"{old}Request" not in definitions(NEW)


def test_count(record_property: Callable[[str, object], None]) -> None:
    found = all_messages()
    total = sum(len(versions(cls)) for cls in found)
    record_property(
        "summary",
        f"Protocol: {len(messages.APIS)} APIs, {len(found)} messages in {total} versions "
        f"are as Apache Kafka {OLD} and {NEW} define them.",
    )
    assert len(messages.APIS) >= 74
    assert total >= 618
