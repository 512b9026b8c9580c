"""Tokens and assertions (RFC 7523) from files, and assertions signed with a key from a file."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from aiokafka import _clock
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
)
from aiokafka.oauth._tokens import ALGORITHMS, CachedTokenProvider, Token, expiry_of, sign

__all__ = ["Assertion", "FileAssertion", "FileTokenProvider", "SignedAssertion", "read_file"]

_MAX_FILE = 256 * 1024

# A token that expired at most this many seconds ago is still sent, because Kafka tolerates such a
# difference of clocks (sasl.oauthbearer.clock.skew.seconds).
_CLOCK_SKEW = 30.0


def read_file(path: str, what: str) -> bytes:
    """Return the content of a small file. Blocks while it reads.

    Raises KafkaConnectionError if the file cannot be read, is empty, or has more than 256 KiB. This
    error is retriable, because the file may be replaced soon. `what` is for the error text.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise KafkaConnectionError(f"cannot read the {what} {path!r}: {reason}") from error
    if not content.strip():
        raise KafkaConnectionError(f"the {what} {path!r} is empty")
    if len(content) > _MAX_FILE:
        raise KafkaConnectionError(f"the {what} {path!r} has more than {_MAX_FILE} bytes")
    return content


def read_text(path: str, what: str) -> str:
    """Return the ASCII text of a small file, without surrounding white space.

    Raises AuthenticationFailedError for other bytes, and the errors of `read_file`.
    """
    try:
        return read_file(path, what).decode("ascii").strip()
    except UnicodeDecodeError:
        raise AuthenticationFailedError(f"the {what} {path!r} is not ASCII text") from None


class FileTokenProvider(CachedTokenProvider):
    """Tokens from a file that another program writes, such as Kubernetes for a service account.

    The file is read for every connection and every re-authentication, so that a new token is used
    at once. If the file cannot be read, the last token is used until it expires.

    Args:
        path: the file; white space around the token is ignored.
        extensions: the SASL extensions to send with the token (KIP-342).
        options: the options of `OAuthConfig`; those about refresh times have no effect.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        extensions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(extensions=extensions, **options)
        self._path = os.fspath(path)

    async def fetch(self) -> Token:
        """Read the token from the file, in the executor.

        Raises KafkaConnectionError if the file cannot be read, AuthenticationFailedError if the
        token has expired.
        """
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(None, read_text, self._path, "token file")
        expiry = expiry_of(value)
        if expiry is None:
            return Token(value, None)
        left = expiry - _clock.wall_time()
        if left < -_CLOCK_SKEW:
            raise AuthenticationFailedError(
                f"the token in {self._path!r} expired {-left:.0f} s ago: nothing has replaced "
                "it, or the clock is wrong"
            )
        return Token(value, max(left, 1.0))

    def _refresh_after(self, lifetime: float) -> float:
        return 0.0


# -- Assertions: JSON web tokens with which a client authenticates, in place of a secret (RFC 7523)


class Assertion(Protocol):
    """Creates assertions. Applications can implement this protocol."""

    def create(self) -> str:
        """Return a JSON web token that is valid now. It is called in the executor, so it may block.

        Raises KafkaError if there is no token.
        """


class FileAssertion:
    """An assertion from a file that another program writes. The file is read for each request.

    It corresponds to Kafka's `sasl.oauthbearer.assertion.file`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __repr__(self) -> str:
        return f"FileAssertion({self._path!r})"

    def create(self) -> str:
        """Return the content of the file. Raises KafkaConnectionError if it cannot be read, and
        AuthenticationFailedError if it is not ASCII."""
        return read_text(self._path, "assertion file")


class SignedAssertion:
    """An assertion that is created and signed for each request. Needs `aiokafka[oauth]`.

    The arguments correspond to Kafka's `sasl.oauthbearer.assertion.*`.

    Args:
        private_key_file: a private key in PEM format. The file is read for each assertion, so a new
            key is used at once.
        private_key_passphrase: the passphrase of an encrypted key.
        algorithm: "RS256" (RSA) or "ES256" (curve P-256).
        claim_aud: the audience; None omits the claim.
        claim_iss: the issuer; None omits the claim.
        claim_sub: the subject; None omits the claim.
        claim_exp_seconds: seconds until an assertion expires.
        claim_nbf_seconds: seconds before its creation from which an assertion is valid, because the
            clock of the identity provider may be slow.
        claim_jti_include: add a unique id to each assertion.
        template_file: a JSON file with further fields, `{"header": {...}, "payload": {...}}`; the
            other arguments override them.

    Raises ValueError for an unknown algorithm and for seconds that are not from 0 to 86400,
    AuthenticationMethodNotSupported without cryptography (the extra `oauth`).
    """

    def __init__(
        self,
        private_key_file: str | os.PathLike[str],
        *,
        private_key_passphrase: str | None = None,
        algorithm: str = "RS256",
        claim_aud: str | None = None,
        claim_iss: str | None = None,
        claim_sub: str | None = None,
        claim_exp_seconds: int = 300,
        claim_nbf_seconds: int = 60,
        claim_jti_include: bool = False,
        template_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm={algorithm!r}: must be one of {', '.join(ALGORITHMS)}")
        for name, seconds in (("exp", claim_exp_seconds), ("nbf", claim_nbf_seconds)):
            if not 0 <= seconds <= 86_400:
                raise ValueError(f"claim_{name}_seconds={seconds!r}: must be from 0 to 86400")
        _need_cryptography()
        self._key_file = os.fspath(private_key_file)
        self._passphrase = private_key_passphrase
        self._algorithm = algorithm
        self._claims = {"aud": claim_aud, "iss": claim_iss, "sub": claim_sub}
        self._exp_seconds = claim_exp_seconds
        self._nbf_seconds = claim_nbf_seconds
        self._has_id = claim_jti_include
        self._template_file = None if template_file is None else os.fspath(template_file)

    def __repr__(self) -> str:
        return f"SignedAssertion({self._key_file!r}, algorithm={self._algorithm!r})"

    def create(self) -> str:
        """Create and sign an assertion.

        Raises AuthenticationFailedError for a key or template that is not valid, and
        KafkaConnectionError if a file cannot be read.
        """
        header, claims = self._template()
        header |= {"alg": self._algorithm, "typ": "JWT"}
        now = int(_clock.wall_time())
        claims |= {name: value for name, value in self._claims.items() if value is not None}
        claims |= {"iat": now, "exp": now + self._exp_seconds, "nbf": now - self._nbf_seconds}
        if self._has_id:
            claims["jti"] = str(uuid.uuid4())
        return sign(header, claims, self._key())

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self._template_file is None:
            return {}, {}
        content = read_file(self._template_file, "assertion template")
        try:
            parts = json.loads(content)
            return dict(parts.get("header") or {}), dict(parts.get("payload") or {})
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise AuthenticationFailedError(
                f"the assertion template {self._template_file!r} is not a JSON object with "
                '"header" and "payload"'
            ) from error

    def _key(self) -> Any:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        content = read_file(self._key_file, "private key")
        passphrase = None if self._passphrase is None else self._passphrase.encode()
        try:
            return load_pem_private_key(content, passphrase)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            # The error texts of `cryptography` contain neither keys nor passwords.
            raise AuthenticationFailedError(
                f"the private key {self._key_file!r} cannot be used: {str(error)[:200]}"
            ) from error


def _need_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.serialization  # noqa: F401
    except ImportError as error:
        raise AuthenticationMethodNotSupported(
            'signing assertions needs the package cryptography: pip install "aiokafka[oauth]"'
        ) from error
