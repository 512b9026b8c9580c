"""The broker's side of the SASL mechanisms."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, Protocol

from aiokafka import _seams
from aiokafka.testing.delegation_tokens import DelegationTokens
from aiokafka.testing.scram_credentials import SCRAM, Credential, ScramCredentials, hashed

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""What the fake brokers can do."""


class LoginRefusedError(Exception):
    """The credentials are not good; the text goes to the client."""


class Conversation(Protocol):
    """One login by one mechanism."""

    user: str
    """Who logged in; "" until it is known."""

    lifetime: float | None
    """Seconds for which the credentials are good; None for no limit."""

    is_by_token: bool
    """Whether the credentials are those of a delegation token."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the client and return the broker's next one.

        Raises:
            LoginRefusedError: the login failed.
        """


class Accounts(Protocol):
    """The users that may log in; a `Security` has them."""

    users: dict[str, str]
    """The password of each user."""
    iterations: int
    """How often SCRAM hashes a password."""
    accept_token: Callable[[str], str | None]
    """Return the user of a token, or None to refuse it."""
    credentials: ScramCredentials
    """What SCRAM checks."""
    tokens: DelegationTokens
    """What it checks where the client says that it has a token."""


def begin(mechanism: str, security: Accounts) -> Conversation:
    """Begin the broker's side of a new login."""
    if mechanism == "PLAIN":
        return _Plain(security)
    if mechanism == "OAUTHBEARER":
        return _OAuthBearer(security)
    return _Scram(mechanism, security)


class _Plain:
    def __init__(self, security: Accounts) -> None:
        self.user = ""
        self.is_by_token = False
        self.lifetime: float | None = None
        self._users = security.users

    def step(self, token: bytes) -> bytes:
        parts = _text(token).split("\0")
        if len(parts) != 3:
            raise LoginRefusedError("Invalid SASL/PLAIN response")
        _authorization_id, user, password = parts
        if not hmac.compare_digest(self._users.get(user, "").encode(), password.encode()) or (
            user not in self._users
        ):
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class _Scram:
    """RFC 5802, without channel binding, as Kafka does it."""

    def __init__(self, mechanism: str, security: Accounts) -> None:
        self.user = ""
        self.lifetime: float | None = None
        self.is_by_token = False
        self._refusal = (
            "Authentication failed during authentication due to invalid credentials "
            f"with SASL mechanism {mechanism}"
        )
        self._digest = SCRAM[mechanism]
        self._mechanism = mechanism
        self._security = security
        self._claimed: str | None = None
        self._nonce = ""
        self._spoken = ""
        self._salted = b""

    def step(self, token: bytes) -> bytes:
        text = _text(token)
        return self._first(text) if self._claimed is None else self._final(text, self._claimed)

    def _first(self, text: str) -> bytes:
        header, _, bare = text.partition(",,")
        fields = _fields(bare)
        self._claimed = fields.get("n", "").replace("=2C", ",").replace("=3D", "=")
        self.is_by_token = fields.get("tokenauth") == "true"
        if self.is_by_token:
            stored = self._of_token(self._claimed)
        else:
            stored = self._security.credentials.find(self._claimed, self._mechanism)
        if header != "n" or stored is None or not fields.get("r"):
            raise LoginRefusedError(self._refusal)
        salt, iterations, self._salted = stored
        self._nonce = fields["r"] + base64.urlsafe_b64encode(_seams.random_bytes(18)).decode()
        answer = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._spoken = f"{bare},{answer}"
        return answer.encode()

    def _of_token(self, token_id: str) -> Credential | None:
        token = self._security.tokens.by_id(token_id)
        if token is None:
            return None
        self._claimed = token.owner.removeprefix("User:")
        self.lifetime = max(0.001, token.expires / 1000 - _seams.wall_time())
        return hashed(self._mechanism, token.password, self._security.iterations)

    def _final(self, text: str, user: str) -> bytes:
        without_proof, _, proof = text.rpartition(",p=")
        signed = f"{self._spoken},{without_proof}".encode()
        key = self._hmac(self._salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._digest, key).digest(), signed)
        try:
            shown = base64.b64decode(proof, validate=True)
        except (binascii.Error, ValueError):
            shown = b""
        expected = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        if _fields(without_proof).get("r") != self._nonce or not hmac.compare_digest(
            shown, expected
        ):
            raise LoginRefusedError(self._refusal)
        self.user = user
        own = self._hmac(self._hmac(self._salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(own)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


class _OAuthBearer:
    """RFC 7628: a refusal is a response, which the client has to acknowledge."""

    def __init__(self, security: Accounts) -> None:
        self.user = ""
        self.lifetime: float | None = None
        self.is_by_token = False
        self._accept = security.accept_token
        self._is_refused = False

    def step(self, token: bytes) -> bytes:
        if self._is_refused:
            raise LoginRefusedError('{"status":"invalid_token"}')
        header = next((p for p in _text(token).split("\1") if p.startswith("auth=")), "")
        jwt = header.removeprefix("auth=Bearer ")
        user = self._accept(jwt)
        if not user:
            self._is_refused = True
            return b'{"status":"invalid_token"}'
        expires = claims_of(jwt).get("exp")
        if isinstance(expires, int | float):
            self.lifetime = max(0.001, expires - _seams.wall_time())
        self.user = user
        return b""


def subject_of(token: str) -> str | None:
    """Return the subject of a JSON web token that has not expired; None for anything else.

    The signature is not looked at, as by a broker that is set up for unsecured tokens.
    """
    claims = claims_of(token)
    expires = claims.get("exp")
    if isinstance(expires, int | float) and expires <= _seams.wall_time():
        return None
    subject = claims.get("sub")
    return subject if isinstance(subject, str) else None


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token; empty if `token` is none."""
    try:
        segment = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _text(token: bytes) -> str:
    try:
        return bytes(token).decode()
    except UnicodeDecodeError:
        raise LoginRefusedError("the token is not text") from None
