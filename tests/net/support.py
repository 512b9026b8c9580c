"""What the tests of the network share: a scripted server, short times, certificates."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from aiokafka._config import ClientConfig
from aiokafka._tasks import TaskOwner
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.connector import Connector
from aiokafka.net.pool import ConnectionPool, Endpoint
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.exchange import (
    decode_request_header,
    encode_response_header,
    peek_request_header,
)
from aiokafka.protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka.protocol.schema import Request, Response

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def now() -> float:
    return asyncio.get_running_loop().time()


def config(servers: str = "127.0.0.1:1", **options: Any) -> ClientConfig:
    return ClientConfig.from_options(bootstrap_servers=servers, **options)


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextlib.asynccontextmanager
async def serve(
    handler: Handler,
    *,
    context: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[str]:
    """A TCP server that does what `handler` does with each connection; yields its address."""
    writers: list[asyncio.StreamWriter] = []

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, host, port, ssl=context)
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@contextlib.asynccontextmanager
async def connected(address: str, **options: Any) -> AsyncIterator[BrokerConnection]:
    """A greeted connection to a broker."""
    connector = Connector(config(address, **options), *split(address), "test broker")
    connection = await connector.open(now() + 10)
    try:
        yield connection
    finally:
        connection.close()
        await connection.closed


class Addresses:
    """The part of `MetadataLoop` that a pool uses; each access sees a new snapshot."""

    def __init__(self, endpoint_of: Callable[[int], Endpoint | None]) -> None:
        self.endpoint_of = endpoint_of
        self.epoch = 0
        self.cluster_id: str | None = None  # no checks of the brokers (KIP-1242)

    @property
    def cluster(self) -> Addresses:
        self.epoch += 1
        return self


def pool_of(
    config: ClientConfig, endpoint_of: Callable[[int], Endpoint | None], owner: TaskOwner
) -> ConnectionPool:
    return ConnectionPool(config, cast(Any, Addresses(endpoint_of)), owner)


@contextlib.asynccontextmanager
async def pooled(*addresses: str, **options: Any) -> AsyncIterator[ConnectionPool]:
    """A pool in which node 0 is the first address, node 1 the second."""
    endpoints = [Endpoint(*split(address), f"node {i}") for i, address in enumerate(addresses)]
    owner = TaskOwner("test")

    def endpoint_of(node_id: int) -> Endpoint | None:
        return endpoints[node_id] if 0 <= node_id < len(endpoints) else None

    pool = pool_of(config(**options), endpoint_of, owner)
    try:
        yield pool
    finally:
        await owner.stop(now() + 5)
        await pool.close(now() + 5)
        owner.check()


class Certificates:
    """An authority and what it signed, made at test time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        authority = self._sign(self._name, self._key, x509.BasicConstraints(True, None), "")
        self.authority = authority.public_bytes(serialization.Encoding.PEM).decode()
        self.cafile = self._write("ca.pem", self.authority.encode())

    def issue(self, name: str, host: str, *, days: int = 2, password: bytes = b"") -> str:
        """Path of a file with a key and its certificate for `host` (a name or an IP address).

        It is good for so many `days` from now; 0 or less: it has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, x509.BasicConstraints(False, None), host, days)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            encryption,
        )
        return self._write(
            f"{name}.pem", pem + certificate.public_bytes(serialization.Encoding.PEM)
        )

    def server_context(self, host: str, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.cafile)
        context.load_cert_chain(self.issue(f"server-{host}", host))
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: Any,
        constraints: x509.BasicConstraints,
        host: str,
        days: int = 2,
    ) -> x509.Certificate:
        today = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today + datetime.timedelta(days=min(0, days) - 1))
            .not_valid_after(today + datetime.timedelta(days=days))
            .add_extension(constraints, critical=True)
            .add_extension(_key_usage(constraints.ca), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            # Python 3.13 insists on it.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if host:
            alternative = x509.SubjectAlternativeName([_general_name(host)])
            builder = builder.add_extension(alternative, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


Answers = dict[type[Request[Any]], Callable[[Any], Response | bytes | None]]


@contextlib.asynccontextmanager
async def scripted_broker(
    answers: Answers, *, versions: dict[int, tuple[int, int]] | None = None
) -> AsyncIterator[str]:
    """A broker that answers by the table: a response, raw bytes, or None to close the connection.

    ApiVersions it answers itself, with the newest versions of the table's requests (or `versions`).
    """
    known = {request.API_KEY: request for request in answers}
    ranges = {key: request.VERSIONS for key, request in known.items()} | (versions or {})

    def api_versions(request: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in ranges.items()
            ]
        )

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await read_frame(reader)
            key, version, correlation_id = peek_request_header(frame)
            request_class = known.get(key, ApiVersionsRequest)
            header = decode_request_header(request_class, version, frame)
            request = codec(request_class, version).decode(frame, header.body_offset)
            answer = answers.get(request_class, api_versions)(request)
            if answer is None:
                return
            if not isinstance(answer, bytes):
                head = encode_response_header(request_class, version, correlation_id)
                body = head + codec(request_class.RESPONSE, version).encode_bytes(answer)
                answer = len(body).to_bytes(4, "big") + body
            writer.write(answer)

    async with serve(handle) as address:
        yield address


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


USER = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "sécret",
}
TOKEN = "\0alice\0sécret".encode()


def plain_answers(**answer: Any) -> Answers:
    return {
        SaslHandshakeRequest: lambda request: SaslHandshakeResponse(mechanisms=["PLAIN"]),
        SaslAuthenticateRequest: lambda request: SaslAuthenticateResponse(
            **{
                "error_message": None,
                "error_code": 0 if request.auth_bytes == TOKEN else 58,
                "auth_bytes": b"",
                "session_lifetime_ms": 60_000,
                **answer,
            },
        ),
    }
