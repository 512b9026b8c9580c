"""A fake schema registry, with Confluent's HTTP API, inside the test process."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiokafka.testing.schema_compatibility import LEVELS, avro_conflicts, check_avro

__all__ = ["FakeSchemaRegistry"]

_TYPES = ("JSON", "PROTOBUF", "AVRO")
_MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_MOST_BODY = 10_000_000
_MOST_HEADERS = 100
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_NAMESPACE = uuid.UUID("00000000-0000-0000-0000-00000000aa11")
_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 409: "Conflict", 413: "Too Large"}


class _Refused(Exception):
    """An error response."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error_code": code, "message": message}


@dataclass
class _Schema:
    """A registered schema: its id (`number`), GUID, text, type (`kind`) and references."""

    number: int
    guid: str
    text: str
    kind: str
    references: list[dict[str, Any]]
    extra: dict[str, Any]
    """The fields "metadata" and "ruleSet"."""

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.number, "guid": self.guid, "schema": self.text}
        if self.kind != "AVRO":
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = self.references
        return {**found, **self.extra}


@dataclass
class _Subject:
    """A subject: its versions by number, from 1 on, and the numbers of soft-deleted versions."""

    versions: dict[int, _Schema] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    last: int = 0

    def live(self, with_deleted: bool = False) -> list[int]:
        return [n for n in self.versions if with_deleted or n not in self.deleted]


class FakeSchemaRegistry:
    """A schema registry on 127.0.0.1 that keeps its schemas in memory.

    Any client of Confluent's HTTP API can use it, in any language. It supports subjects, versions,
    ids, GUIDs, references, soft and permanent deletion, compatibility levels and modes, and returns
    Confluent's error codes. Compatibility is checked for Avro only: JSON and Protobuf schemas are
    compatible with every schema of the same type. Topics never have associations.

    Args:
        credentials: User name and password that requests must have (HTTP basic authentication);
            None (the default) for no authentication.
        port: TCP port; 0 (the default) for a free port.

    Example::

        async with FakeSchemaRegistry() as registry:
            client = AsyncSchemaRegistryClient({"url": registry.url})
            serializer = await AsyncAvroSerializer(client, SCHEMA)
    """

    def __init__(self, *, credentials: tuple[str, str] | None = None, port: int = 0) -> None:
        self._credentials = credentials
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
        self._subjects: dict[str, _Subject] = {}
        self._schemas: dict[int, _Schema] = {}
        self._by_content: dict[Any, _Schema] = {}
        self._levels: dict[str | None, str] = {None: "BACKWARD"}
        self._modes: dict[str | None, str] = {None: "READWRITE"}
        self._failures: list[_Refused] = []
        self._open = asyncio.Event()
        self._open.set()
        self.requests: list[tuple[str, str]] = []
        """Method and path, with the query, of each request so far."""

    # -- start and stop

    async def start(self) -> None:
        """Start listening. Raises RuntimeError if the registry runs already, OSError if the port is
        in use."""
        if self._server is not None:
            raise RuntimeError("the registry was started already")
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def stop(self) -> None:
        """Close all connections, and stop listening. The schemas are kept for the next start."""
        if self._server is None:
            return
        self._server.close()
        self._open.set()
        for writer in self._connections:
            writer.transport.abort()
        tasks = [task for task in self._connections.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> FakeSchemaRegistry:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The URL for clients. Raises RuntimeError if the registry does not run."""
        if self._server is None:
            raise RuntimeError("the registry does not run: use `async with`, or call start()")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    # -- for tests

    def register(
        self,
        subject: str,
        schema: str | Mapping[str, Any],
        schema_type: str = "AVRO",
        references: Iterable[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema without HTTP, and return its id. `references`: mappings with name,
        subject and version. Raises ValueError if the registry rejects the schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": schema_type, "references": [*map(dict, references)]}
        try:
            return int(self._register(subject, {}, body)["id"])
        except _Refused as error:
            raise ValueError(str(error)) from None

    def subjects(self) -> dict[str, list[int]]:
        """Return the versions of each subject, except deleted versions."""
        return {name: its.live() for name, its in self._subjects.items() if its.live()}

    def schema(self, schema_id: int) -> str:
        """Return the text of a schema. Raises KeyError for an unknown id."""
        return self._schemas[schema_id].text

    def fail(
        self, status: int = 500, error_code: int = 50001, message: str = "it fails", times: int = 1
    ) -> None:
        """Respond to the next `times` requests with the HTTP status `status` and with an error body
        of `error_code` and `message`."""
        self._failures += [_Refused(status, error_code, message)] * times

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the responses to all requests until the end of the `with` block."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    # -- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = asyncio.current_task()
        try:
            while (request := await _read_request(reader)) is not None:
                method, target, headers, body = request
                self.requests.append((method, target))
                await self._open.wait()
                status, answer = self._respond(method, target, headers, body)
                text = json.dumps(answer).encode()
                head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\n"
                head += f"Content-Type: {_MEDIA_TYPE}\r\nContent-Length: {len(text)}\r\n\r\n"
                writer.write(head.encode() + text)
                await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # The client has closed the connection, or does not speak HTTP.
        finally:
            del self._connections[writer]
            writer.close()

    def _respond(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any]:
        try:
            if self._failures:
                raise self._failures.pop(0)
            self._authenticate(headers.get("authorization", ""))
            split = urlsplit(target)
            parts = [unquote(part) for part in split.path.split("/") if part]
            query = {name: some[-1] for name, some in parse_qs(split.query).items()}
            return 200, self._dispatch(method, parts, query, _json(body))
        except _Refused as error:
            return error.status, error.body

    def _authenticate(self, authorization: str) -> None:
        if self._credentials is None:
            return
        wanted = base64.b64encode(":".join(self._credentials).encode()).decode()
        if not hmac.compare_digest(authorization, f"Basic {wanted}"):
            raise _Refused(401, 401, "Unauthorized")

    def _dispatch(self, method: str, parts: list[str], query: dict[str, str], body: Any) -> Any:
        """Call the function that handles the first part of the path; return the response body."""
        routes: dict[str, Callable[..., Any]] = {
            "schemas": self._get_schemas,
            "subjects": self._on_subjects,
            "config": self._on_config,
            "mode": self._on_mode,
            "compatibility": self._on_compatibility,
            "contexts": lambda *_: ["."],
            "associations": lambda *_: [],
        }
        if not parts:
            return {}
        route = routes.get(parts[0])
        if route is None:
            raise _not_found(method, parts)
        return route(method, parts[1:], query, body)

    # -- schemas

    def _get_schemas(self, method: str, parts: list[str], query: dict[str, str], _: Any) -> Any:
        if method != "GET":
            raise _not_found(method, parts)
        if parts == ["types"]:
            return list(_TYPES)
        if parts[:1] == ["guids"] and len(parts) == 2:
            for each in self._schemas.values():
                if each.guid == parts[1]:
                    return each.fields()
            raise _Refused(404, 40403, "Schema not found")
        if parts[:1] != ["ids"] or not parts[1:2] or not parts[1].isdigit():
            raise _not_found(method, parts)
        schema = self._schemas.get(int(parts[1]))
        if schema is None:
            raise _Refused(404, 40403, f"Schema {parts[1]} not found")
        uses = [
            (name, number)
            for name, its in self._subjects.items()
            for number in its.live(query.get("deleted") == "true")
            if its.versions[number] is schema and query.get("subject", name) == name
        ]
        if parts[2:] == ["subjects"]:
            return sorted({name for name, _ in uses})
        if parts[2:] == ["versions"]:
            return [{"subject": name, "version": number} for name, number in uses]
        if parts[2:] == ["schema"]:
            return json.loads(schema.text) if schema.kind != "PROTOBUF" else schema.text
        return schema.fields()

    # -- subjects

    def _on_subjects(self, method: str, parts: list[str], query: dict[str, str], body: Any) -> Any:
        with_deleted = query.get("deleted") == "true"
        if not parts and method == "GET":
            names = [name for name, its in self._subjects.items() if its.live(with_deleted)]
            return sorted(name for name in names if name.startswith(query.get("subjectPrefix", "")))
        if len(parts) == 1 and method == "POST":
            return self._look_up(parts[0], body, with_deleted)
        if len(parts) == 1 and method == "DELETE":
            return self._delete_subject(parts[0], query.get("permanent") == "true")
        if parts[1:] == ["metadata"] and method == "GET":
            return self._version_fields(parts[0], "latest")
        if parts[1:] == ["versions"] and method == "POST":
            return self._register(parts[0], query, body)
        if parts[1:] == ["versions"] and method == "GET":
            return self._subject(parts[0], with_deleted).live(with_deleted)
        if parts[1:2] == ["versions"] and len(parts) == 3 and method == "DELETE":
            return self._delete_version(parts[0], parts[2], query.get("permanent") == "true")
        if parts[1:2] == ["versions"] and method == "GET":
            found = self._version_fields(parts[0], parts[2], with_deleted)
            if parts[3:] == ["referencedby"]:
                return self._referenced_by(parts[0], found["version"])
            if parts[3:] == ["schema"]:
                return json.loads(found["schema"])
            return found
        raise _not_found(method, parts)

    def _subject(self, name: str, with_deleted: bool = False) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None or not subject.live(with_deleted):
            raise _Refused(404, 40401, f"Subject '{name}' not found.")
        return subject

    def _number(self, name: str, version: str, with_deleted: bool = False) -> int:
        """Return the number of a version, given as digits, or as "latest" or "-1" for the latest.
        Raise `_Refused` if the subject has no such version."""
        numbers = self._subject(name, with_deleted).live(with_deleted)
        if version in ("latest", "-1"):
            return numbers[-1]
        if not version.isdigit() or not 0 < int(version) < 2**31:
            raise _Refused(
                422, 42202, f"The specified version '{version}' is not a valid version id"
            )
        if int(version) not in numbers:
            raise _Refused(404, 40402, f"Version {version} not found.")
        return int(version)

    def _version_fields(
        self, name: str, version: str, with_deleted: bool = False
    ) -> dict[str, Any]:
        number = self._number(name, version, with_deleted)
        schema = self._subjects[name].versions[number]
        return {"subject": name, "version": number, **schema.fields()}

    def _referenced_by(self, name: str, version: int) -> list[int]:
        wanted = {"subject": name, "version": version}
        return [
            each.number
            for each in self._schemas.values()
            if any(wanted.items() <= reference.items() for reference in each.references)
        ]

    def _register(self, name: str, query: Mapping[str, str], body: Any) -> dict[str, Any]:
        mode = self._modes.get(name, self._modes[None])
        if mode.startswith("READONLY"):
            raise _Refused(422, 42205, f"Subject {name} is in read-only mode")
        schema = self._parse(body)
        subject = self._subjects.get(name) or _Subject()
        for number in subject.live():
            if subject.versions[number] is schema:
                return {"subject": name, "version": number, **schema.fields()}
        conflicts = self._conflicts(schema, subject, self._levels.get(name, self._levels[None]))
        if conflicts:
            raise _Refused(
                409,
                409,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{name}", details: {conflicts}',
            )
        self._subjects[name] = subject
        self._schemas[schema.number] = schema
        subject.last += 1
        subject.versions[subject.last] = schema
        return {"subject": name, "version": subject.last, **schema.fields()}

    def _parse(self, body: Any) -> _Schema:
        """Return the schema in the body of a request: the registered schema with the same content,
        or a new object that is not registered yet."""
        if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            raise _Refused(422, 42201, "Empty schema")
        text, kind = body["schema"], body.get("schemaType") or "AVRO"
        references = body.get("references") or []
        if kind not in _TYPES:
            raise _Refused(422, 42201, f"Invalid schema type {kind}")
        for each in references:
            try:
                self._number(each["subject"], str(each["version"]), True)
            except (_Refused, KeyError):
                raise _Refused(422, 42201, f"Invalid schema: no reference {each!r}") from None
        canonical = text
        if kind != "PROTOBUF":
            try:
                canonical = json.dumps(json.loads(text), sort_keys=True)
                if kind == "AVRO":
                    check_avro(json.loads(text), {each.get("name") for each in references})
            except (ValueError, RecursionError) as error:
                raise _Refused(422, 42201, f"Invalid schema {text}, details: {error}") from None
        extra = {name: body[name] for name in ("metadata", "ruleSet") if body.get(name)}
        content = json.dumps([canonical, kind, references, extra], sort_keys=True)
        known = self._by_content.get(content)
        if known is None:
            number = len(self._by_content) + 1
            guid = str(uuid.uuid5(_NAMESPACE, content))
            known = self._by_content[content] = _Schema(number, guid, text, kind, references, extra)
        return known

    def _look_up(self, name: str, body: Any, with_deleted: bool) -> dict[str, Any]:
        subject = self._subject(name, with_deleted)
        schema = self._parse(body)
        for number in subject.live(with_deleted):
            if subject.versions[number] is schema:
                return {"subject": name, "version": number, **schema.fields()}
        raise _Refused(404, 40403, "Schema not found")

    def _delete_subject(self, name: str, is_permanent: bool) -> list[int]:
        subject = self._subjects.get(name)
        if subject is None:
            raise _Refused(404, 40401, f"Subject '{name}' not found.")
        if is_permanent and subject.live():
            raise _Refused(404, 40405, f"Subject '{name}' was not deleted first before permanently")
        if not is_permanent and not subject.live():
            raise _Refused(404, 40404, f"Subject '{name}' was soft deleted.")
        numbers = subject.live(is_permanent)
        self._refuse_referenced(name, numbers)
        if is_permanent:
            del self._subjects[name]
        else:
            subject.deleted.update(numbers)
        return numbers

    def _delete_version(self, name: str, version: str, is_permanent: bool) -> int:
        number = self._number(name, version, is_permanent)
        subject = self._subjects[name]
        if is_permanent and number not in subject.deleted:
            raise _Refused(404, 40407, f"Subject '{name}' Version {number} was not deleted first")
        self._refuse_referenced(name, [number])
        if is_permanent:
            del subject.versions[number]
        else:
            subject.deleted.add(number)
        return number

    def _refuse_referenced(self, name: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._referenced_by(name, number):
                raise _Refused(422, 42206, f"One or more references exist to {name}-{number}")

    # -- compatibility, levels and modes

    def _conflicts(self, schema: _Schema, subject: _Subject, level: str) -> list[str]:
        """Return the reasons why `schema` is not compatible with the earlier versions of the
        subject at a compatibility level; [] if it is compatible."""
        earlier = [subject.versions[number] for number in subject.live()]
        if level == "NONE" or not earlier:
            return []
        if not level.endswith("_TRANSITIVE"):
            earlier = earlier[-1:]
        found: list[str] = []
        for each in earlier:
            if each.kind != schema.kind:
                found.append(f"the type {schema.kind} differs from {each.kind}")
            elif schema.kind == "AVRO":
                new, old = json.loads(schema.text), json.loads(each.text)
                if level.startswith(("BACKWARD", "FULL")):
                    found += avro_conflicts(reader=new, writer=old)
                if level.startswith(("FORWARD", "FULL")):
                    found += avro_conflicts(reader=old, writer=new)
        return found

    def _on_compatibility(
        self, method: str, parts: list[str], query: dict[str, str], body: Any
    ) -> dict[str, Any]:
        if method != "POST" or parts[:1] != ["subjects"] or parts[2:3] != ["versions"]:
            raise _not_found(method, parts)
        name = parts[1]
        level = self._levels.get(name, self._levels[None])
        subject = self._subjects.get(name) or _Subject()
        if len(parts) == 4:
            number = self._number(name, parts[3])
            subject = _Subject({number: subject.versions[number]})
        conflicts = self._conflicts(self._parse(body), subject, level)
        answer: dict[str, Any] = {"is_compatible": not conflicts}
        if query.get("verbose", "").lower() == "true":
            answer["messages"] = conflicts
        return answer

    def _on_config(self, method: str, parts: list[str], _: Any, body: Any) -> dict[str, Any]:
        name = parts[0] if parts else None
        if method == "PUT":
            level = body.get("compatibility") if isinstance(body, dict) else None
            if level not in LEVELS:
                raise _Refused(422, 42203, f"Invalid compatibility level {level}")
            self._levels[name] = level
            return {"compatibility": level}
        if name is not None and name not in self._levels:
            raise _Refused(
                404, 40408, f"Subject '{name}' does not have subject-level compatibility configured"
            )
        level = self._levels[name]
        if method == "DELETE":
            self._levels.pop(name)
            self._levels.setdefault(None, "BACKWARD")
        return {"compatibilityLevel": level}

    def _on_mode(self, method: str, parts: list[str], _: Any, body: Any) -> dict[str, Any]:
        name = parts[0] if parts else None
        if method == "PUT":
            mode = body.get("mode") if isinstance(body, dict) else None
            if mode not in _MODES:
                raise _Refused(422, 42204, f"Invalid mode {mode}")
            self._modes[name] = mode
            return {"mode": mode}
        if name is not None and name not in self._modes:
            raise _Refused(404, 40409, f"Subject '{name}' does not have subject-level mode")
        mode = self._modes[name]
        if method == "DELETE":
            self._modes.pop(name)
            self._modes.setdefault(None, "READWRITE")
        return {"mode": mode}


def _not_found(method: str, parts: list[str]) -> _Refused:
    return _Refused(404, 404, f"HTTP 404 Not Found: {method} {'/'.join(parts)}")


def _json(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(400, 400, f"the body is no JSON: {error}") from None


async def _read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, str, dict[str, str], bytes] | None:
    """Return method, target, headers and body of the next request; None at the end of the
    connection. The body has the size in Content-Length; without this header it is empty.

    Raises:
        ValueError: the request is malformed or too large.
        EOFError: the connection ends within the body.
    """
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode("ascii").split()
    headers: dict[str, str] = {}
    for _ in range(_MOST_HEADERS):
        line = await reader.readline()
        if not line.strip():
            break
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    else:
        raise ValueError("too many headers")
    size = int(headers.get("content-length", "0"))
    if not 0 <= size <= _MOST_BODY:
        raise ValueError("the body is too large")
    return method, target, headers, await reader.readexactly(size)
