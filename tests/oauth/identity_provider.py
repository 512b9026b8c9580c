"""A small identity provider: token endpoint and keys, in a thread of its own."""

from __future__ import annotations

import base64
import functools
import json
import ssl
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

ISSUER = "urn:test:issuer"
AUDIENCE = "kafka-broker"
CLIENT_ID, CLIENT_SECRET = "alice", "alice's secret: 100 % & more"
SCRIPTED = tuple[int, Any]


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(segment: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = decoded(token.split(".")[1])
    return claims


@functools.cache
def _signing_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@dataclass
class Asked:
    """One request to the token endpoint."""

    form: dict[str, str]
    headers: dict[str, str]
    path: str


@dataclass
class IdentityProvider:
    """Gives tokens to its one client. `script` holds answers to give in place of that, once each:
    a status with a body (bytes, or what becomes JSON), or a function that makes both."""

    subject: str = CLIENT_ID
    lifetime: float = 300.0
    assertion_key: Any = None
    """The public key of the client, for assertions."""
    script: deque[SCRIPTED | Callable[[], SCRIPTED]] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    context: ssl.SSLContext | None = None
    echo_headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._key = _signing_key()
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if self.context is not None:
            self._server.socket = self.context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> IdentityProvider:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/token", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{path}"

    def issue(self, **claims: Any) -> str:
        """A token as the broker expects it; `claims` change or add some."""
        now = time.time()
        all_claims = {
            "sub": self.subject,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now),
            "exp": now + self.lifetime,
            "jti": unpadded(time.monotonic_ns().to_bytes(8, "big")),
            **claims,
        }
        head = unpadded(json.dumps({"alg": "RS256", "kid": "one", "typ": "JWT"}).encode())
        signed = f"{head}.{unpadded(json.dumps(all_claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{unpadded(signature)}"

    def keys(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        modulus = numbers.n.to_bytes(256, "big")
        key = {"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig"}
        return {"keys": [{**key, "n": unpadded(modulus), "e": "AQAB"}]}

    # -- what the endpoint decides

    def answer(self, asked: Asked) -> SCRIPTED:
        self.asked.append(asked)
        if self.script:
            step = self.script.popleft()
            return step() if callable(step) else step
        reason = self._refusal(asked)
        if reason:
            return 401, {"error": "invalid_client", "error_description": reason}
        token = self.issue()
        lifetime = {"expires_in": self.lifetime} if self.lifetime >= 1 else {}
        return 200, {"access_token": token, "token_type": "Bearer", **lifetime}

    def _refusal(self, asked: Asked) -> str:
        grant = asked.form.get("grant_type", "")
        if grant.endswith(":jwt-bearer"):
            return self._assertion_refusal(asked.form.get("assertion", ""))
        if grant != "client_credentials":
            return f"unknown grant {grant}"
        if "client_assertion" in asked.form:
            return self._assertion_refusal(asked.form["client_assertion"])
        wanted = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        return "" if asked.headers.get("Authorization") == f"Basic {wanted}" else "wrong secret"

    def _assertion_refusal(self, assertion: str) -> str:
        head, payload, signature = assertion.split(".")
        raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
        try:
            if isinstance(self.assertion_key, rsa.RSAPublicKey):
                assert decoded(head)["alg"] == "RS256"
                self.assertion_key.verify(
                    raw, f"{head}.{payload}".encode(), padding.PKCS1v15(), hashes.SHA256()
                )
            else:
                assert decoded(head)["alg"] == "ES256" and len(raw) == 64
                both = (int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
                self.assertion_key.verify(
                    encode_dss_signature(*both),
                    f"{head}.{payload}".encode(),
                    ec.ECDSA(hashes.SHA256()),
                )
        except InvalidSignature:
            return "the assertion is not signed by you"
        claims = decoded(payload)
        now = time.time()
        if not claims["nbf"] <= now < claims["exp"] or claims.get("sub") != self.subject:
            return "the assertion is not valid now, or not yours"
        return ""


class _Handler(BaseHTTPRequestHandler):
    provider: IdentityProvider

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        form = dict(urllib.parse.parse_qsl(self.rfile.read(size).decode()))
        asked = Asked(form, dict(self.headers), self.path)
        self._send(*self.provider.answer(asked))

    def do_GET(self) -> None:
        self._send(200, self.provider.keys())

    def _send(self, status: int, content: Any) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.provider.echo_headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def private_pem(key: Any, passphrase: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return pem
