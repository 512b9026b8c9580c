"""TLS by `ssl_context`, and messages that name the likely cause when it does not work."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.net.connector import Connector
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.protocol.messages.metadata import MetadataRequestTopic
from aiokafka.testing import FakeCluster
from tests.net.support import (
    Certificates,
    Handler,
    config,
    connected,
    now,
    read_frame,
    serve,
    split,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_requests_of_every_size_pass(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=certificates.server_context("127.0.0.1")) as cluster:
        async with connected(
            cluster.bootstrap_servers, security_protocol="SSL", ssl_context=context
        ) as connection:
            for count in (0, 1, 500, 20_000):
                names = {f"topic-{i}" for i in range(count)}
                topics = [MetadataRequestTopic(name=name) for name in names]
                request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                answer = await connection.request(request)
                assert {topic.name for topic in answer.topics} == names


async def test_a_client_finds_and_uses_a_tls_cluster(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(brokers=2, ssl_context=server) as cluster:
        client = AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=context,
        )
        async with client:
            for node_id in (0, 1):
                assert (await client.send(node_id, MetadataRequest(topics=[]))).brokers


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_broker_that_does_not_read_is_hung_up_on(
    certificates: Certificates, calls: int
) -> None:
    """Also after a second close(), which makes abort() of a TLS transport a no-op."""
    context = create_ssl_context(cafile=certificates.cafile)
    options = {"security_protocol": "SSL", "ssl_context": context, "request_timeout_ms": 300}
    server = certificates.server_context("127.0.0.1")
    async with (
        FakeCluster(ssl_context=server, proxied=True) as cluster,
        connected(cluster.bootstrap_servers, **options) as connection,
    ):
        cluster.proxies[0].stall()
        topics = [MetadataRequestTopic(name="t" * 200) for _ in range(20_000)]
        while connection.is_ready:
            connection.send_nowait(MetadataRequest(topics=topics), timeout=30).cancel()
        for _ in range(calls):
            connection.close()
        # asyncio itself would wait for 30 s.
        await asyncio.wait_for(asyncio.shield(connection.closed), 15)


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    context = create_ssl_context(
        cafile=certificates.cafile, certfile=certificates.issue("client", "client.example")
    )
    options = {"security_protocol": "SSL", "ssl_context": context}
    async with FakeCluster(ssl_context=server) as cluster:
        async with connected(cluster.bootstrap_servers, **options) as connection:
            assert (await connection.request(MetadataRequest(topics=[]))).brokers


async def fails(address: str, match: str, context: ssl.SSLContext | None = None) -> None:
    options = {} if context is None else {"security_protocol": "SSL", "ssl_context": context}
    connector = Connector(config(address, **options), *split(address), "")
    with pytest.raises(KafkaConnectionError, match=match):
        await connector.open(now() + 2)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_client_certificate_is_named(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    async with FakeCluster(ssl_context=server) as cluster:
        context = create_ssl_context(cafile=certificates.cafile)
        context.minimum_version = context.maximum_version = version
        # With TLS 1.3 the refusal comes after the handshake, when the client speaks already. Then
        # the network may lose the reason.
        text = "requires a client certificate|may not take the client's certificate"
        await fails(cluster.bootstrap_servers, text, context)


def polite(context: ssl.SSLContext) -> Handler:
    """A server that reads on when it has refused a client, so that the alert is not lost."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        refused = False
        while data := await reader.read(65536):
            incoming.write(data)
            if not refused:
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    refused = True
                writer.write(outgoing.read())

    return handle


def causes(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("own", "match", "alert"),
    [
        ("none", "requires a client certificate", "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
        ("foreign", "refused the client's certificate", "UNKNOWN_CA"),
        ("expired", "refused the client's certificate", "CERTIFICATE_EXPIRED"),
    ],
)
async def test_the_alert_is_in_the_chain_of_causes(
    certificates: Certificates,
    tmp_path: Path,
    own: str,
    match: str,
    alert: str,
    version: ssl.TLSVersion,
) -> None:
    certfile = None
    if own == "foreign":
        certfile = Certificates(tmp_path / "other").issue("stranger", "client.example")
    elif own == "expired":
        certfile = certificates.issue("late", "client.example", days=-1)
    context = create_ssl_context(cafile=certificates.cafile, certfile=certfile)
    context.minimum_version = context.maximum_version = version
    server = certificates.server_context("127.0.0.1", wants_client=True)
    async with serve(polite(server)) as address:
        client = AIOKafkaClient(
            bootstrap_servers=address, security_protocol="SSL", ssl_context=context
        )
        with pytest.raises(KafkaConnectionError, match=match) as caught:
            await client.bootstrap()
        await client.close()
    alerts = [cause for cause in causes(caught.value) if isinstance(cause, ssl.SSLError)]
    assert alerts and re.search(alert, str(alerts[0].reason))


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (40, "requires a client certificate"),
        (42, "requires a client certificate"),
        (43, "refused the client's certificate"),
        (44, "refused the client's certificate"),
        (45, "refused the client's certificate"),
        (46, "refused the client's certificate"),
        (48, "refused the client's certificate"),
        (49, "refused the client's certificate"),
        (70, "does not speak the TLS versions"),
        (80, r"TLS handshake failed \(TLSV1_ALERT_INTERNAL_ERROR\)$"),
    ],
)
async def test_what_alerts_mean(certificates: Certificates, code: int, meaning: str) -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(bytes([21, 3, 3, 0, 2, 2, code]))
        await reader.read()

    async with serve(alert) as address:
        await fails(address, meaning, create_ssl_context(cafile=certificates.cafile))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_that_is_refused_is_named(
    certificates: Certificates, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    stranger = Certificates(tmp_path / "other").issue("stranger", "client.example")
    for own in (stranger, certificates.issue("late", "client.example", days=-1)):
        async with FakeCluster(ssl_context=server) as cluster:
            context = create_ssl_context(cafile=certificates.cafile, certfile=own)
            context.minimum_version = context.maximum_version = version
            await fails(
                cluster.bootstrap_servers,
                "refused the client's certificate|refused the one it got|may not take the client's",
                context,
            )


async def test_no_tls_version_in_common(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    async with FakeCluster(ssl_context=server) as cluster:
        context = create_ssl_context(cafile=certificates.cafile)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        await fails(cluster.bootstrap_servers, "the TLS versions", context)


async def test_an_expired_certificate_is_refused(certificates: Certificates) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.issue("expired", "127.0.0.1", days=-1))
    async with FakeCluster(ssl_context=server) as cluster:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(cluster.bootstrap_servers, "certificate was refused.*expired", context)


async def test_an_unknown_authority_is_refused(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "certificate was refused", create_ssl_context())


async def test_a_certificate_for_another_host_is_refused(certificates: Certificates) -> None:
    server = certificates.server_context("other.example")
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "certificate was refused.*127.0.0.1", context)
        context.check_hostname = False
        options = {"security_protocol": "SSL", "ssl_context": context}
        async with connected(cluster.bootstrap_servers, **options) as connection:
            assert connection.is_ready


async def test_a_plain_client_on_a_tls_port(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1")
    async with FakeCluster(ssl_context=server) as cluster:
        await fails(cluster.bootstrap_servers, "TLS")


async def test_a_tls_client_on_a_port_that_closes(certificates: Certificates) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What a Kafka broker does: it takes the hello for a request of 369 MB.
        await reader.readexactly(4)
        writer.transport.abort()

    async with serve(refuse) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "may expect plaintext", context)


async def test_a_tls_client_on_a_port_that_answers_plain(certificates: Certificates) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"hello, this is no TLS\r\n")
        await reader.read()

    async with serve(greet) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "speak plaintext, not TLS", context)


async def test_a_tls_client_on_a_port_that_says_nothing(certificates: Certificates) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)

    async with serve(silent) as address:
        context = create_ssl_context(cafile=certificates.cafile)
        await fails(address, "may expect plaintext", context)


def split_pem(path: str) -> tuple[str, str]:
    """Key and certificate of a file."""
    pem = Path(path).read_text()
    start = pem.index("-----BEGIN CERTIFICATE")
    return pem[:start], pem[start:]


@pytest.mark.parametrize("kind", [str, str.encode])
@pytest.mark.parametrize("has_memory_files", [True, False])
async def test_certificates_as_text(
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: Any,
    has_memory_files: bool,
) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    key, certificate = split_pem(certificates.issue("client", "client.example"))
    server = certificates.server_context("127.0.0.1", wants_client=True)
    context = create_ssl_context(
        cadata=certificates.authority,
        certdata=kind(certificate),
        keydata=kind(key),
    )
    assert os.listdir(tmp_path) == []
    async with FakeCluster(ssl_context=server) as cluster:
        options = {"security_protocol": "SSL", "ssl_context": context}
        async with connected(cluster.bootstrap_servers, **options) as connection:
            assert (await connection.request(MetadataRequest(topics=[]))).brokers


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("certificate_has_key", [False, True])
def test_certificates_as_text_may_end_anyhow(
    certificates: Certificates, end: str, certificate_has_key: bool
) -> None:
    """Secret stores take the newline at the end away, or add one."""
    key, certificate = (
        text.rstrip() + end for text in split_pem(certificates.issue("client", "client.example"))
    )
    if certificate_has_key:
        create_ssl_context(certdata=f"{key.rstrip()}\n{certificate}")
    else:
        create_ssl_context(certdata=certificate, keydata=key)


def test_an_encrypted_key_needs_its_password(certificates: Certificates) -> None:
    path = certificates.issue("client", "client.example", password=b"open sesame")
    key, certificate = split_pem(path)
    create_ssl_context(certfile=path, password="open sesame")
    create_ssl_context(certdata=certificate, keydata=key, password=b"open sesame")
    # OpenSSL itself would ask for it at the terminal.
    with pytest.raises(ValueError, match="password: the client's key is encrypted"):
        create_ssl_context(certfile=path)
    with pytest.raises(ssl.SSLError, match="belong together") as caught:
        create_ssl_context(certfile=path, password="wrong sesame")
    assert "sesame" not in str(caught.value)


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    key, _ = split_pem(certificates.issue("one", "client.example"))
    _, certificate = split_pem(certificates.issue("two", "client.example"))
    for text in (key, ""):
        with pytest.raises(ssl.SSLError, match="belong together"):
            create_ssl_context(certdata=certificate, keydata=text)


#: How PEM is written where line ends do not get through.
WRITINGS = {
    "spaces in place of line ends": lambda pem: " ".join(pem.split("\n")),
    "nothing in place of line ends": lambda pem: "".join(pem.split("\n")),
    "escaped line ends": lambda pem: pem.replace("\n", "\\n"),
    "escaped line ends of Windows": lambda pem: pem.replace("\n", "\\r\\n"),
    "line ends of Windows": lambda pem: pem.replace("\n", "\r\n"),
    "continued lines": lambda pem: pem.replace("\n", " \\\n"),
    "indented": lambda pem: "".join(f"    {line}\n" for line in pem.splitlines()),
    "attributes around": lambda pem: f"Bag Attributes\n    name: M\xfcller\n{pem}  the end\n",
}


@pytest.mark.parametrize("kind", [str, lambda text: text.encode("latin-1")], ids=["str", "bytes"])
@pytest.mark.parametrize("write", WRITINGS.values(), ids=list(WRITINGS))
@pytest.mark.parametrize("password", [None, b"open sesame"], ids=["plain", "encrypted"])
def test_pem_without_its_line_ends_is_read_as_in_java(
    certificates: Certificates, write: Any, kind: Any, password: bytes | None, tmp_path: Path
) -> None:
    path = certificates.issue("client", "client.example", password=password)
    key, certificate = split_pem(path)
    texts = [kind(write(text)) for text in (certificates.authority, certificate, key)]
    given = dict(zip(("cadata", "certdata", "keydata"), texts, strict=True))
    context = create_ssl_context(**given, password=password)
    assert len(context.get_ca_certs()) == 1
    files = {}
    for name, text in zip(("cafile", "certfile", "keyfile"), texts, strict=True):
        files[name] = str(tmp_path / name)
        Path(files[name]).write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
    assert len(create_ssl_context(**files, password=password).get_ca_certs()) == 1


def test_every_certificate_of_one_line_is_trusted(certificates: Certificates) -> None:
    _, other = split_pem(certificates.issue("other", "other.example"))
    context = create_ssl_context(cadata=f"{certificates.authority} {other}".replace("\n", " "))
    assert context.cert_store_stats()["x509"] == 2


def test_an_old_encrypted_key_keeps_its_header(certificates: Certificates) -> None:
    key, certificate = split_pem(certificates.issue("client", "client.example"))
    loaded = serialization.load_pem_private_key(key.encode(), None)
    old = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"open sesame"),
    ).decode()
    assert "DEK-Info" in old
    for text in (old, old.replace("\n", " "), old.replace("\n", "\\n")):
        create_ssl_context(certdata=certificate, keydata=text, password="open sesame")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cadata": "hello"}, "cadata does not contain a certificate in PEM"),
        ({"cadata": "/etc/ssl/ca.pem"}, "cadata does not contain a certificate in PEM"),
        ({"cadata": b"hello"}, "cadata: "),
        ({"cadata": "-----BEGIN CERTIFICATE-----\nAAAA"}, "cadata: a PEM block does not end"),
        ({"certdata": "hello"}, "certdata is not in PEM"),
        ({"certdata": b"\x30\x82"}, "certdata is not in PEM"),
        ({"cafile": os.__file__}, "cafile='.*os.py' contains no certificate in PEM"),
    ],
)
def test_what_is_no_pem_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ssl.SSLError, match=message):
        create_ssl_context(**given)


def test_key_data_that_is_no_pem_is_not_shown(certificates: Certificates) -> None:
    _, certificate = split_pem(certificates.issue("client", "client.example"))
    with pytest.raises(ssl.SSLError, match="keydata is not in PEM") as caught:
        create_ssl_context(certdata=certificate, keydata="a secret")
    assert "a secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"keyfile": "key.pem"}, "keyfile: needs certfile"),
        ({"keydata": "key"}, "keydata: needs certdata"),
        ({"certfile": "a.pem", "certdata": "text"}, "certdata: the certificate is given"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        create_ssl_context(**arguments)


def test_ciphers_are_chosen() -> None:
    context = create_ssl_context(ciphers="ECDHE+AESGCM")
    chosen = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert chosen and all("GCM" in name for name in chosen)
    with pytest.raises(ssl.SSLError):
        create_ssl_context(ciphers="none of them")


# -- certificates that change


async def test_each_connection_asks_for_its_settings(certificates: Certificates) -> None:
    server = certificates.server_context("127.0.0.1", wants_client=True)
    shown = ["first", "second"]
    serials: list[Any] = []

    async def renewed() -> ssl.SSLContext:
        own = certificates.issue(shown.pop(0), "client.example")
        return create_ssl_context(cafile=certificates.cafile, certfile=own)

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serials.append(writer.get_extra_info("peercert")["subject"][0][0][1])

    options = {"security_protocol": "SSL", "ssl_context": renewed}
    async with serve(serve_one, context=server) as address:
        connector = Connector(config(address, **options), *split(address), "")
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                await connector.open(now() + 2)
    assert serials == ["first", "second"]


# Before 3.11 asyncio itself leaves the transports of failed handshakes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
async def test_a_client_survives_the_change_of_all_certificates(tmp_path: Path) -> None:
    """The authority is replaced while the client runs, and with it everything it has signed."""
    old, new = Certificates(tmp_path / "old"), Certificates(tmp_path / "new")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=old.cafile)
    server.load_cert_chain(old.issue("server", "127.0.0.1"))
    server.verify_mode = ssl.CERT_REQUIRED
    current = old

    def make() -> ssl.SSLContext:
        own = current.issue("client", "client.example")
        return create_ssl_context(cafile=current.cafile, certfile=own)

    async with FakeCluster(ssl_context=server) as cluster:
        client = AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SSL",
            ssl_context=make,
        )
        async with client:
            assert (await client.send(0, MetadataRequest(topics=[]))).brokers
            server.load_cert_chain(new.issue("server", "127.0.0.1"))
            server.load_verify_locations(new.cafile)
            cluster.drop_connections()
            while await client.ready(0):
                await asyncio.sleep(0.01)
            current = new
            await cluster.wait_for(lambda: cluster.connections == 0)
            assert (await client.send(0, MetadataRequest(topics=[]))).brokers


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (FileNotFoundError(2, "No such file", "client.pem"), "failed:.*No such file.*client.pem"),
        (RuntimeError("the password is sesame"), "failed: RuntimeError$"),
        (None, "returned NoneType, not an ssl.SSLContext"),
    ],
)
async def test_settings_that_cannot_be_had(result: Any, text: str) -> None:
    def make() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    options = {"security_protocol": "SSL", "ssl_context": make}
    connector = Connector(config("127.0.0.1:1", **options), "127.0.0.1", 1, "")
    with pytest.raises(KafkaConnectionError, match=text):
        await connector.open(now() + 2)


async def test_settings_of_a_server(certificates: Certificates) -> None:
    """They are refused before there is a connection, which asyncio would have left open."""
    made = certificates.server_context("127.0.0.1")
    accepted: list[asyncio.StreamWriter] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    async with serve(serve_one) as address:
        options = {"security_protocol": "SSL", "ssl_context": lambda: made}
        connector = Connector(config(address, **options), *split(address), "")
        with pytest.raises(KafkaConnectionError, match="made for a server"):
            await connector.open(now() + 2)
    assert not accepted


async def test_settings_that_do_not_come() -> None:
    """It is the function that is named then, and not the network."""

    async def never() -> ssl.SSLContext:
        return await asyncio.get_running_loop().create_future()

    options = {"security_protocol": "SSL", "ssl_context": never}
    connector = Connector(config("127.0.0.1:1", **options), "127.0.0.1", 1, "")
    with pytest.raises(KafkaConnectionError, match="given as ssl_context did not return in time"):
        await connector.open(now() + 0.05)


def test_a_revocation_list_is_checked(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile, crlfile=certificates.cafile)
    assert context.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def test_missing_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        create_ssl_context(cafile=str(tmp_path / "none.pem"))


async def test_a_complete_name_is_that_of_the_certificate(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with a dot, as names in Kubernetes do: the certificate was refused."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **kwargs: Any) -> Any:
        assert host == "kafka.example."
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    server = certificates.server_context("kafka.example")
    server.sni_callback = lambda _, name, __: asked.append(name)
    options = {
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=certificates.cafile),
    }
    async with FakeCluster(ssl_context=server) as cluster:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        _, port = split(cluster.bootstrap_servers)
        async with connected(f"kafka.example.:{port}", **options) as connection:
            assert (await connection.request(MetadataRequest(topics=[]))).brokers
    assert asked == ["kafka.example"]
