"""The broker's side of the SASL mechanisms, SCRAM credentials, and delegation tokens."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokafka import _clock, errors
from aiokafka.testing.actions import RefusedError

if TYPE_CHECKING:
    from aiokafka.testing.security import Security

# -- SCRAM credentials (KIP-554)


SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each SCRAM mechanism."""


class Credential(NamedTuple):
    """The stored SCRAM credential of a user: a salted and hashed password."""

    salt: bytes
    iterations: int
    salted_password: bytes


class ScramCredentials:
    """SCRAM credentials, set by AlterUserScramCredentials or derived from the test's passwords.

    Args:
        passwords: The password of each user. The mapping may change at any time.
        mechanisms: The mechanisms that accept the passwords.
        iterations: Iterations of the password hash.
    """

    def __init__(
        self,
        passwords: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] = (),
        iterations: int = 4096,
    ) -> None:
        self._passwords = {} if passwords is None else passwords
        self._mechanisms = [name for name in SCRAM if name in mechanisms]
        self._iterations = iterations
        # Credentials set by clients, by user and mechanism. None means deleted: the user's
        # password is then not valid either.
        self._set: dict[tuple[str, str], Credential | None] = {}

    def users(self) -> list[str]:
        found = {*self._passwords, *(user for user, _ in self._set)}
        return sorted(user for user in found if self.infos(user))

    def infos(self, user: str) -> list[tuple[str, int]]:
        """Return (mechanism, iterations) of each credential of a user."""
        found = []
        for mechanism in SCRAM:
            stored = self._set.get((user, mechanism))
            if stored is not None:
                found.append((mechanism, stored.iterations))
            elif self._by_password(user, mechanism):
                found.append((mechanism, self._iterations))
        return found

    def find(self, user: str, mechanism: str) -> Credential | None:
        """Return the credential of a user for a mechanism, or None."""
        stored = self._set.get((user, mechanism))
        if stored is not None or not self._by_password(user, mechanism):
            return stored
        return hashed(mechanism, self._passwords[user], self._iterations)

    def store(self, user: str, mechanism: str, credential: Credential) -> None:
        self._set[user, mechanism] = credential

    def delete(self, user: str, mechanism: str) -> None:
        self._set[user, mechanism] = None

    def _by_password(self, user: str, mechanism: str) -> bool:
        is_deleted = (user, mechanism) in self._set
        return user in self._passwords and mechanism in self._mechanisms and not is_deleted


def hashed(mechanism: str, password: str, iterations: int) -> Credential:
    """Return a SCRAM credential for a password, with a random salt."""
    salt = _clock.random_bytes(16)
    return Credential(salt, iterations, _salted(SCRAM[mechanism], password, salt, iterations))


@functools.lru_cache(maxsize=64)
def _salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


# -- Delegation tokens (KIP-48, KIP-373)


_KEY = "delegation.token.secret.key"


class TokenRefusedError(RefusedError):
    """The broker rejects a request about delegation tokens."""


@dataclass
class Token:
    """A delegation token. Times are milliseconds since 1970."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued: int
    expires: int
    ends: int
    """Latest time of expiry, which renewals cannot exceed."""

    @property
    def password(self) -> str:
        """The SCRAM password of a login with the token."""
        return base64.b64encode(self.hmac).decode()

    def is_of(self, principal: str) -> bool:
        """Return whether a principal may renew and expire the token: its owner, its requester, or a
        renewer."""
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """All delegation tokens of a cluster. The setting `delegation.token.secret.key` enables
    delegation tokens.
    """

    def __init__(self) -> None:
        self._tokens: dict[bytes, Token] = {}

    def create(
        self,
        config: Mapping[str, str],
        owner: str,
        requester: str,
        renewers: tuple[str, ...],
        lifetime_ms: int,
    ) -> Token:
        """Create a token. A negative lifetime means the maximum. Raises TokenRefusedError if a
        renewer is not a user, or if delegation tokens are disabled."""
        self._check(config)
        if not all(renewer.startswith("User:") for renewer in renewers):
            raise TokenRefusedError(errors.InvalidPrincipalType)
        longest = int(config["delegation.token.max.lifetime.ms"])
        now, token_id = _now(), str(_clock.random_uuid())
        ends = now + (longest if lifetime_ms < 0 else min(lifetime_ms, longest))
        expires = min(ends, now + int(config["delegation.token.expiry.time.ms"]))
        secret = hmac.digest(config[_KEY].encode(), token_id.encode(), hashlib.sha512)
        token = Token(token_id, secret, owner, requester, renewers, now, expires, ends)
        self._tokens[secret] = token
        return token

    def renew(self, config: Mapping[str, str], secret: bytes, user: str, period_ms: int) -> int:
        """Renew a token by `period_ms` from now; if this is negative, by the default period. Return
        the time of expiry.

        Raises TokenRefusedError if the token is unknown or has expired, if the user may not renew
        it, or if tokens are disabled.
        """
        token = self._find(config, secret, user)
        standard = int(config["delegation.token.expiry.time.ms"])
        period = standard if period_ms < 0 else period_ms
        token.expires = min(token.ends, _now() + period)
        return token.expires

    def expire(self, config: Mapping[str, str], secret: bytes, user: str, period_ms: int) -> int:
        """Set the time of expiry of a token, and return it; a negative period deletes the token.
        Raises TokenRefusedError like `renew()`.
        """
        token = self._find(config, secret, user)
        if period_ms < 0:
            del self._tokens[token.hmac]
            return _now()
        token.expires = min(token.ends, _now() + period_ms)
        return token.expires

    def list(self, config: Mapping[str, str]) -> list[Token]:
        """Return the unexpired tokens. Raises TokenRefusedError if tokens are disabled."""
        self._check(config)
        return [token for token in self._tokens.values() if token.expires > _now()]

    def by_id(self, token_id: str) -> Token | None:
        """Return the unexpired token with this id, or None."""
        live = (token for token in self._tokens.values() if token.expires > _now())
        return next((token for token in live if token.token_id == token_id), None)

    def _find(self, config: Mapping[str, str], secret: bytes, user: str) -> Token:
        self._check(config)
        token = self._tokens.get(bytes(secret))
        if token is None:
            raise TokenRefusedError(errors.DelegationTokenNotFound)
        if not token.is_of(user):
            raise TokenRefusedError(errors.DelegationTokenOwnerMismatch)
        if token.expires <= _now():
            raise TokenRefusedError(errors.DelegationTokenExpired)
        return token

    @staticmethod
    def _check(config: Mapping[str, str]) -> None:
        if not config[_KEY]:
            raise TokenRefusedError(errors.DelegationTokenAuthDisabled)


def _now() -> int:
    return int(_clock.wall_time() * 1000)


# -- Mechanisms

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that fake brokers support."""


class LoginRefusedError(Exception):
    """The login failed. The text is sent to the client."""


class Conversation(Protocol):
    """The broker's side of one login."""

    user: str
    """The user; "" until the login has succeeded."""

    lifetime: float | None
    """Seconds until the credentials expire; None if they do not expire."""

    is_by_token: bool
    """Whether the client logs in with a delegation token."""

    def step(self, token: bytes) -> bytes:
        """Handle a SASL token of the client; return the broker's next token.

        Raises:
            LoginRefusedError: the login failed.
        """


def begin(mechanism: str, security: Security) -> Conversation:
    """Create the broker's side of a new login."""
    if mechanism == "PLAIN":
        return _Plain(security)
    if mechanism == "OAUTHBEARER":
        return _OAuthBearer(security)
    return _Scram(mechanism, security)


class _Plain:
    def __init__(self, security: Security) -> None:
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
    """SCRAM (RFC 5802) without channel binding, as in Kafka."""

    def __init__(self, mechanism: str, security: Security) -> None:
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
        self._nonce = fields["r"] + base64.urlsafe_b64encode(_clock.random_bytes(18)).decode()
        answer = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._spoken = f"{bare},{answer}"
        return answer.encode()

    def _of_token(self, token_id: str) -> Credential | None:
        token = self._security.tokens.by_id(token_id)
        if token is None:
            return None
        self._claimed = token.owner.removeprefix("User:")
        self.lifetime = max(0.001, token.expires / 1000 - _clock.wall_time())
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
    """OAUTHBEARER (RFC 7628): the client must acknowledge an error before the login fails."""

    def __init__(self, security: Security) -> None:
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
            self.lifetime = max(0.001, expires - _clock.wall_time())
        self.user = user
        return b""


def subject_of(token: str) -> str | None:
    """Return the subject of a JSON web token; None if the token is malformed, has expired, or has
    no subject.

    Like a broker that accepts unsecured tokens, the function does not verify the signature.
    """
    claims = claims_of(token)
    expires = claims.get("exp")
    if isinstance(expires, int | float) and expires <= _clock.wall_time():
        return None
    subject = claims.get("sub")
    return subject if isinstance(subject, str) else None


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token; empty if `token` is malformed."""
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
