"""Tokens from an identity provider and from files: the requests, and what follows on responses."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
)
from aiokafka.helpers import create_ssl_context
from aiokafka.oauth import (
    CachedTokenProvider,
    ClientCredentialsTokenProvider,
    FileAssertion,
    FileTokenProvider,
    JwtBearerTokenProvider,
    MskIamTokenProvider,
    SignedAssertion,
)
from tests.net.support import Certificates, Handler, serve
from tests.oauth.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    claims_of,
    decoded,
    private_pem,
)
from tests.oauth.support import QUICK, client


async def eventually(tokens: CachedTokenProvider) -> str:
    """A token, when the pause is over in which there is none."""
    while True:
        try:
            return await tokens.token()
        except KafkaError:
            await asyncio.sleep(0.001)


# ---------------------------------------------------------------- client credentials


async def test_client_credentials(provider: IdentityProvider) -> None:
    tokens = client(provider, scope="read write", parameters={"audience": "kafka"})
    token = await tokens.token()
    assert claims_of(token)["sub"] == CLIENT_ID
    assert await tokens.token() == token
    (asked,) = provider.asked
    assert asked.form == {
        "grant_type": "client_credentials",
        "scope": "read write",
        "audience": "kafka",
    }


async def test_the_query_of_the_endpoint_is_kept(provider: IdentityProvider) -> None:
    tokens = ClientCredentialsTokenProvider(
        provider.url("/a/token?tenant=1"), client_id=CLIENT_ID, client_secret=CLIENT_SECRET
    )
    await tokens.token()
    assert provider.asked[0].path == "/a/token?tenant=1"


async def test_id_and_secret_are_encoded_on_demand(provider: IdentityProvider) -> None:
    with pytest.raises(AuthenticationFailedError, match="invalid_client: wrong secret"):
        await client(provider, header_urlencode=True).token()
    # The server compares with the header of what is not encoded.
    encoded = client(provider, "plain", header_urlencode=True)
    with pytest.raises(AuthenticationFailedError):
        await encoded.token()
    plain = client(provider, "plain")
    with pytest.raises(AuthenticationFailedError):
        await plain.token()
    first, second, third = (asked.headers["Authorization"] for asked in provider.asked)
    assert second == third != first


async def test_a_function_gives_the_secret_each_time(provider: IdentityProvider) -> None:
    given = ["old", CLIENT_SECRET]

    async def secret() -> str:
        return given.pop(0)

    tokens = client(provider, secret)
    with pytest.raises(AuthenticationFailedError):
        await tokens.token()
    assert await eventually(tokens)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_signed_assertion_in_place_of_the_secret(
    provider: IdentityProvider, tmp_path: Path, algorithm: str
) -> None:
    assertion = signed_assertion(provider, tmp_path, algorithm)
    tokens = ClientCredentialsTokenProvider(provider.url(), client_id="me", assertion=assertion)
    assert claims_of(await tokens.token())["sub"] == CLIENT_ID
    form = provider.asked[0].form
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert form["client_id"] == "me"
    assert "Authorization" not in provider.asked[0].headers


def signed_assertion(
    provider: IdentityProvider, folder: Path, algorithm: str = "ES256", **options: Any
) -> SignedAssertion:
    key: Any = ec.generate_private_key(ec.SECP256R1())
    if algorithm == "RS256":
        key = rsa.generate_private_key(65537, 2048)
    provider.assertion_key = key.public_key()
    path = folder / "key.pem"
    passphrase = options.get("private_key_passphrase")
    path.write_bytes(private_pem(key, passphrase and passphrase.encode()))
    return SignedAssertion(path, algorithm=algorithm, claim_sub=CLIENT_ID, **options)


# ---------------------------------------------------------------- JWT bearer and assertions


async def test_jwt_bearer(provider: IdentityProvider, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps({"header": {"kid": "my-key"}, "payload": {"tenant": 7, "aud": "not this"}})
    )
    assertion = signed_assertion(
        provider,
        tmp_path,
        private_key_passphrase="open",
        claim_iss="me",
        claim_aud="you",
        claim_jti_include=True,
        template_file=template,
    )
    tokens = JwtBearerTokenProvider(provider.url(), assertion=assertion, scope="kafka")
    assert claims_of(await tokens.token())["sub"] == CLIENT_ID
    form = provider.asked[0].form
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["scope"] == "kafka"
    head, claims = (decoded(part) for part in form["assertion"].split(".")[:2])
    assert head == {"kid": "my-key", "alg": "ES256", "typ": "JWT"}
    assert claims["exp"] - claims["iat"] == 300 and claims["iat"] - claims["nbf"] == 60
    assert len(claims["jti"]) == 36
    fixed = {name: claims[name] for name in ("iss", "aud", "sub", "tenant")}
    assert fixed == {"iss": "me", "aud": "you", "sub": CLIENT_ID, "tenant": 7}


async def test_an_assertion_from_a_file_is_read_each_time(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    signed = signed_assertion(provider, tmp_path)
    path = tmp_path / "assertion"
    path.write_text("not.signed.eA")
    tokens = JwtBearerTokenProvider(provider.url(), assertion=FileAssertion(path), **QUICK)
    provider.script.append((400, {"error": "invalid_grant"}))
    with pytest.raises(AuthenticationFailedError, match="invalid_grant"):
        await tokens.token()
    path.write_text(signed.create() + "\n")
    assert await eventually(tokens)


def test_a_key_of_the_wrong_kind_is_refused(provider: IdentityProvider, tmp_path: Path) -> None:
    signed_assertion(provider, tmp_path, "ES256")
    with pytest.raises(AuthenticationFailedError, match="RS256 needs"):
        SignedAssertion(tmp_path / "key.pem", algorithm="RS256").create()
    signed_assertion(provider, tmp_path, "RS256")
    with pytest.raises(AuthenticationFailedError, match="ES256 needs"):
        SignedAssertion(tmp_path / "key.pem", algorithm="ES256").create()


def test_files_that_are_no_keys_are_refused(provider: IdentityProvider, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(KafkaConnectionError, match=r"key\.pem"):
        SignedAssertion(path).create()
    path.write_text("no key")
    with pytest.raises(AuthenticationFailedError, match=r"key\.pem"):
        SignedAssertion(path).create()
    signed_assertion(provider, tmp_path, private_key_passphrase="open")
    for passphrase in (None, "shut"):
        with pytest.raises(AuthenticationFailedError) as caught:
            SignedAssertion(path, algorithm="ES256", private_key_passphrase=passphrase).create()
        assert "shut" not in str(caught.value)
    signed_assertion(provider, tmp_path)
    template = tmp_path / "template"
    for content in ("[]", "{", '{"header": 1}', "[" * 100_000):
        template.write_text(content)
        with pytest.raises(AuthenticationFailedError, match="template"):
            SignedAssertion(path, algorithm="ES256", template_file=template).create()


def test_signing_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "cryptography.hazmat.primitives.serialization", None
    )
    with pytest.raises(AuthenticationMethodNotSupported, match=r"aiokafka\[oauth\]"):
        SignedAssertion(tmp_path / "key.pem")


# ---------------------------------------------------------------- what servers answer

NOT_RETRIED = [
    (400, {"error": "invalid_request"}, "invalid_request"),
    (401, {"error": "invalid_client", "error_description": "wrong"}, "invalid_client: wrong"),
    (403, b"<html>no</html>", "HTTP 403"),
    (403, {"errorCode": "E1", "errorSummary": "disabled"}, "E1: disabled"),
    (302, b"", "redirects"),
    (200, {"token": "x"}, "no access_token"),
    (200, {"access_token": 7}, "no access_token"),
    (200, ["x"], "no access_token"),
]


@pytest.mark.parametrize(("status", "body", "words"), NOT_RETRIED)
async def test_a_refusal_is_final(
    provider: IdentityProvider, status: int, body: Any, words: str
) -> None:
    provider.script.append((status, body))
    with pytest.raises(AuthenticationFailedError, match=words):
        await client(provider).token()
    assert len(provider.asked) == 1


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b"<html>Please log in</html>", b"\xff"])
async def test_an_answer_that_is_not_json_is_retried(
    provider: IdentityProvider, body: bytes
) -> None:
    provider.script += [(200, body), (200, body)]
    assert await client(provider).token()
    assert len(provider.asked) == 3
    provider.script += [(200, body)] * 1000
    with pytest.raises(KafkaConnectionError, match="not JSON"):
        await client(provider, token_timeout_ms=1000).token()


def answering(*answers: bytes) -> tuple[Handler, list[bytes]]:
    """A server that gives these answers, one to each connection, and cuts it; what it was asked."""
    left, asked = list(answers), list[bytes]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return handle, asked


WHOLE = b'{"access_token": "abc", "expires_in": 300}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        ANSWER % (len(WHOLE), b""),
        ANSWER % (len(WHOLE), WHOLE[:-1]),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2a\r\n" + WHOLE,
        b"this is no HTTP\r\n\r\n",
    ],
)
async def test_an_answer_that_was_cut_off_is_retried(
    provider: IdentityProvider, cut: bytes
) -> None:
    handle, asked = answering(cut, ANSWER % (len(WHOLE), WHOLE))
    async with serve(handle) as address:
        tokens = ClientCredentialsTokenProvider(
            f"http://{address}/token", client_id="a", client_secret="b", **QUICK
        )
        assert await tokens.token() == "abc"
    assert len(asked) == 2


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
async def test_an_outage_is_retried(provider: IdentityProvider, status: int) -> None:
    provider.script += [(status, b""), (status, {"error": "server_error"})]
    assert await client(provider).token()
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("fields", "lifetime"),
    [
        ({"expires_in": 120}, 120),
        ({"expires_in": "120"}, 120),
        ({"expires_in": 120.5}, 120.5),
        ({"expires_in": True}, None),
        ({"expires_in": 0}, None),
        ({"expires_in": "0"}, None),
        ({"expires_in": -5}, None),
        ({"expires_in": 1e300}, None),
        ({"expires_in": "9" * 5000}, None),
        ({}, None),
    ],
)
async def test_how_long_a_token_lives(
    provider: IdentityProvider, fields: dict[str, Any], lifetime: float | None
) -> None:
    provider.script.append((200, {"access_token": "opaque", **fields}))
    token = await client(provider).fetch()
    assert (token.value, token.lifetime) == ("opaque", lifetime)


@pytest.mark.parametrize("fields", [{}, {"expires_in": 0}])
async def test_the_expiry_in_the_token_counts_where_the_answer_has_none(
    provider: IdentityProvider, fields: dict[str, Any]
) -> None:
    token = provider.issue(exp=time.time() + 200)
    provider.script.append((200, {"id_token": token, **fields}))
    found = await client(provider).fetch()
    assert found.value == token
    assert found.lifetime is not None and 190 < found.lifetime <= 200


@pytest.mark.parametrize(
    "token", ["a.b.c", "a..c", "a.e30.c", "a.W10.c", "a.eyJleHAiOiIxIn0.c", "a.b", "." * 1000]
)
async def test_tokens_that_say_nothing_about_their_end(
    provider: IdentityProvider, token: str
) -> None:
    provider.script.append((200, {"access_token": token}))
    assert (await client(provider).fetch()).lifetime is None


async def test_what_a_server_says_is_shown_within_bounds_and_without_our_secret(
    provider: IdentityProvider,
) -> None:
    text = f"bad secret {CLIENT_SECRET}\r\n\x1b[31m" + "x" * 10_000
    provider.script.append((401, {"error": "e" * 10_000, "error_description": text}))
    with pytest.raises(AuthenticationFailedError) as caught:
        await client(provider).token()
    shown = str(caught.value)
    assert CLIENT_SECRET not in shown and "***" in shown
    assert len(shown) < 1000 and shown.isprintable()


async def test_an_answer_without_end_is_refused(provider: IdentityProvider) -> None:
    provider.script += [(200, b"x" * 1_000_000), (200, b"x" * 1_000_000)]
    with pytest.raises(KafkaConnectionError, match="more than 262144 bytes"):
        await client(provider, token_timeout_ms=2000, retry_backoff_ms=10_000).token()


async def test_nothing_secret_in_reprs(provider: IdentityProvider, tmp_path: Path) -> None:
    tokens = client(provider)
    token = await tokens.token()
    passphrase = "~pass phrase~"
    assertion = signed_assertion(provider, tmp_path, private_key_passphrase=passphrase)
    bearer = JwtBearerTokenProvider(provider.url(), assertion=assertion)
    for text in (repr(tokens), repr(bearer), repr(assertion), repr(FileAssertion("a"))):
        assert CLIENT_SECRET not in text
        assert token not in text
        assert passphrase not in text
    assert provider.url() in repr(tokens)


# ---------------------------------------------------------------- the way there


async def test_https_is_verified(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with IdentityProvider(context=certificates.server_context("localhost")) as provider:
        context = create_ssl_context(cafile=certificates.cafile)
        arguments: dict[str, Any] = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        url = provider.url(host="localhost")
        trusting = ClientCredentialsTokenProvider(url, ssl_context=context, **arguments)
        assert await trusting.token()
        with pytest.raises(AuthenticationFailedError, match="certificate was refused"):
            await ClientCredentialsTokenProvider(url, **arguments).token()
        with pytest.raises(AuthenticationFailedError, match="certificate was refused"):
            await ClientCredentialsTokenProvider(
                provider.url(), ssl_context=context, **arguments
            ).token()


async def test_a_proxy_of_the_environment_is_used(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:p%40ss@127.0.0.1:{provider.port}")
    monkeypatch.setenv("no_proxy", "")
    tokens = ClientCredentialsTokenProvider(
        "http://idp.invalid/token", client_id="a", client_secret="b", allow_http=True
    )
    provider.script.append((200, {"access_token": "x"}))
    assert await tokens.token() == "x"
    (asked,) = provider.asked
    assert asked.path == "http://idp.invalid/token"
    assert asked.headers["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_stays_on_this_machine_is_shown_to_no_proxy(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("no_proxy", "")
    with IdentityProvider() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        tokens = ClientCredentialsTokenProvider(
            provider.url(host=host), client_id=CLIENT_ID, client_secret=CLIENT_SECRET, **QUICK
        )
        assert await tokens.token()
        assert len(provider.asked) == 1
        assert proxy.asked == []


async def test_a_proxy_with_tls_is_spoken_to_with_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with IdentityProvider(context=certificates.server_context("localhost")) as proxy:
        monkeypatch.setenv("http_proxy", f"https://user:p%40ss@localhost:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        proxy.script.append((200, {"access_token": "x"}))
        tokens = ClientCredentialsTokenProvider(
            "http://idp.invalid/token",
            client_id="a",
            client_secret="b",
            allow_http=True,
            ssl_context=create_ssl_context(cafile=certificates.cafile),
            **QUICK,
        )
        assert await tokens.token() == "x"
        (asked,) = proxy.asked
        assert asked.path == "http://idp.invalid/token"
        assert asked.headers["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
async def test_a_proxy_without_a_port_is_at_that_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, scheme: str, port: int
) -> None:
    asked: set[object] = set()

    def look_up(host: object, service: object, *others: object, **options: object) -> None:
        asked.add(service)
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    monkeypatch.setenv("http_proxy", f"{scheme}://proxy.invalid")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    tokens = ClientCredentialsTokenProvider(
        "http://idp.invalid/token",
        client_id="a",
        client_secret="b",
        allow_http=True,
        token_timeout_ms=500,
        **QUICK,
    )
    with pytest.raises(KafkaConnectionError):
        await tokens.token()
    assert asked == {port}


async def test_no_proxy_is_obeyed(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{provider.port}")
    monkeypatch.setenv("no_proxy", "idp.invalid")
    tokens = ClientCredentialsTokenProvider(
        "http://idp.invalid/token",
        client_id="a",
        client_secret="b",
        allow_http=True,
        token_timeout_ms=500,
        **QUICK,
    )
    with pytest.raises(KafkaConnectionError):
        await tokens.token()
    assert provider.asked == []


async def test_nothing_secret_is_logged(
    provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = client(provider)
    token = await tokens.token()
    basic = provider.asked[0].headers["Authorization"].partition(" ")[2]
    for secret in (token, basic, CLIENT_SECRET):
        assert secret not in caplog.text


async def test_a_netrc_file_is_not_asked(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assertion = signed_assertion(provider, tmp_path)
    tokens = JwtBearerTokenProvider(provider.url(), assertion=assertion)
    await tokens.token()
    assert "Authorization" not in provider.asked[0].headers


def test_asking_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for make in (
        lambda: ClientCredentialsTokenProvider("https://idp/t", client_id="a", client_secret="b"),
        lambda: JwtBearerTokenProvider("https://idp/t", assertion=FileAssertion("a")),
    ):
        with pytest.raises(AuthenticationMethodNotSupported, match=r"httpx.*aiokafka\[oauth\]"):
            make()
    # The others do without.
    FileTokenProvider(tmp_path / "token")
    MskIamTokenProvider("eu-central-1")


async def test_nobody_listens() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/token"
        tokens = ClientCredentialsTokenProvider(
            url, client_id="a", client_secret="b", token_timeout_ms=1000, **QUICK
        )
        with pytest.raises(KafkaConnectionError, match="ConnectionRefused"):
            await tokens.token()


async def test_a_server_that_is_silent_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/token"
        tokens = ClientCredentialsTokenProvider(
            url, client_id="a", client_secret="b", token_timeout_ms=100, read_timeout_ms=50_000
        )
        with pytest.raises(KafkaConnectionError, match="no token within"):
            await tokens.token()
        # Nothing waits for the response any more: the connection has ended.
        connection, _ = await asyncio.to_thread(server.accept)
        with connection:
            connection.settimeout(20)
            while await asyncio.to_thread(connection.recv, 65536):
                pass
        await asyncio.get_running_loop().shutdown_default_executor()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://idp.example.com/token", "allow_http"),
        ("ftp://localhost/token", "https://host"),
        ("https:///token", "https://host"),
        ("localhost/token", "https://host"),
        ("https://user:secret@idp/token", "user name"),
        ("https://idp/token#x", "fragment"),
        ("https://idp/to ken", "spaces"),
        ("https://idp/\r\ntoken", "."),
        ("https://idp:99999/token", "."),
    ],
)
async def test_wrong_endpoints_are_refused(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        ClientCredentialsTokenProvider(url, client_id="a", client_secret="b")
    assert "secret@" not in str(caught.value)


async def test_wrong_combinations_are_refused() -> None:
    url = "https://idp/token"
    with pytest.raises(ValueError, match="either"):
        ClientCredentialsTokenProvider(url, client_id="a")
    with pytest.raises(ValueError, match="either"):
        ClientCredentialsTokenProvider(
            url, client_id="a", client_secret="b", assertion=FileAssertion("c")
        )
    with pytest.raises(ValueError, match="client_id"):
        ClientCredentialsTokenProvider(url, client_secret="b")
    with pytest.raises(TypeError, match="client_secret"):
        ClientCredentialsTokenProvider(url, client_id="a", client_secret=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ssl_context"):
        JwtBearerTokenProvider(url, assertion=FileAssertion("c"), ssl_context=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="algorithm"):
        SignedAssertion("key", algorithm="HS256")
    with pytest.raises(ValueError, match="claim_exp_seconds"):
        SignedAssertion("key", claim_exp_seconds=-1)


# ---------------------------------------------------------------- files


async def test_a_token_file_is_read_again(provider: IdentityProvider, tmp_path: Path) -> None:
    path = tmp_path / "token"
    first, second = provider.issue(jti="1"), provider.issue(jti="2")
    path.write_text(first + "\n")
    tokens = FileTokenProvider(path, extensions={"a": "b"}, **QUICK)
    assert await tokens.token() == await tokens.token() == first
    path.write_text(second)
    assert await tokens.token() == second
    assert tokens.extensions() == {"a": "b"}


async def test_while_the_file_is_away_its_last_token_is_used(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(provider.issue())
    tokens = FileTokenProvider(path, **QUICK)
    found = await tokens.token()
    path.unlink()
    assert await tokens.token() == found
    path.write_text("")
    await asyncio.sleep(0.01)
    assert await tokens.token() == found


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"x" * 300_000])
async def test_files_that_hold_no_token(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    tokens: CachedTokenProvider = FileTokenProvider(path, token_timeout_ms=500, **QUICK)
    with pytest.raises((AuthenticationFailedError, KafkaConnectionError), match="token"):
        await tokens.token()


async def test_a_file_that_nobody_replaces_is_named(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(provider.issue(exp=time.time() - 3600))
    with pytest.raises(AuthenticationFailedError, match=r"expired 3[0-9]{3} s ago"):
        await FileTokenProvider(path).token()
