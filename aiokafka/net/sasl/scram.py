"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove the password unsent."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from typing import TYPE_CHECKING

from aiokafka.errors import AuthenticationFailedError
from aiokafka.net.sasl.credentials import Credentials

if TYPE_CHECKING:
    from aiokafka._config import Credential

__all__ = ["Scram", "saslprep"]

# RFC 7677 asks for at least 4096; Kafka's own tools refuse more than 16384. A broker that asks for
# far more would only keep our event loop busy.
_MIN_ITERATIONS = 4096
_MAX_ITERATIONS = 100_000

# Kafka's own salts and nonces have 20 to 26 bytes; this bounds what a hostile server has us hash.
_MAX_MESSAGE = 4096

_GS2_HEADER = "n,,"


class Scram:
    """Two tokens out, two back: the second one proves that the broker knows the password, too."""

    def __init__(self, mechanism: str, username: Credential, password: Credential) -> None:
        """`mechanism` is "SCRAM-SHA-256" or "SCRAM-SHA-512"."""
        self.name = mechanism
        self.done = False
        self.is_token = False
        """Whether name and password are those of a delegation token (KIP-48)."""
        self._digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._credentials = Credentials(username, password)
        self._nonce = ""
        self._first_bare = ""
        self._server_signature: bytes | None = None

    @property
    def user(self) -> str:
        """The user name."""
        return self._credentials.user

    async def prepare(self) -> None:
        """Ask for name and password where functions give them."""
        await self._credentials.fetch()

    def start(self) -> bytes:
        """The client-first message: name and nonce.

        Raises AuthenticationFailedError for a name that SASLprep forbids.
        """
        self._nonce = secrets.token_urlsafe(24)
        name = self._prepared("user name", self.user).replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if self.is_token else ""
        self._first_bare = f"n={name},r={self._nonce}{extension}"
        return (_GS2_HEADER + self._first_bare).encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Answer the server-first message with our proof; check that in the server-final one."""
        text = self._text(challenge)
        if self._server_signature is None:
            return self._prove(text)
        self._verify(text, self._server_signature)
        self.done = True
        return None

    def _prove(self, server_first: str) -> bytes:
        salt, iterations, nonce = self._parse_server_first(server_first)
        password = self._prepared("password", self._credentials.password).encode()
        salted = hashlib.pbkdf2_hmac(self._digest, password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = ",".join((self._first_bare, server_first, without_proof)).encode()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _parse_server_first(self, text: str) -> tuple[bytes, int, str]:
        fields = self._attributes(text)
        nonce, salt, count = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._failure(
                "the broker's nonce does not continue ours: the answer is not to our question"
            )
        if not (count.isascii() and count.isdigit() and len(count) < 10):
            raise self._failure("the broker sent no valid iteration count")
        iterations = int(count)
        if not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
            raise self._failure(
                f"the broker asks for {iterations} iterations; "
                f"accepted are {_MIN_ITERATIONS} to {_MAX_ITERATIONS}"
            )
        return self._decoded(salt, "salt"), iterations, nonce

    def _verify(self, text: str, expected: bytes) -> None:
        proof = self._decoded(self._attributes(text).get("v", ""), "signature")
        if not hmac.compare_digest(proof, expected):
            raise self._failure(
                "the broker could not prove that it knows the password: it may be an impostor"
            )

    def _attributes(self, text: str) -> dict[str, str]:
        """The `k=value` pairs of a message; refuses errors and mandatory extensions."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if "e" in fields:
            raise self._failure(f"the broker refused: {fields['e'][:200]}")
        if "m" in fields:
            raise self._failure("the broker demands an extension that this client does not know")
        return fields

    def _decoded(self, text: str, what: str) -> bytes:
        try:
            value = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            value = b""
        if not value:
            raise self._failure(f"the broker sent no valid {what}")
        return value

    def _text(self, challenge: bytes) -> str:
        if len(challenge) > _MAX_MESSAGE:
            raise self._failure(f"the broker sent a message of {len(challenge)} bytes")
        try:
            return bytes(challenge).decode()
        except UnicodeDecodeError:
            raise self._failure("the broker sent a message that is not text") from None

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)

    def _prepared(self, what: str, text: str) -> str:
        try:
            return saslprep(text)
        except ValueError as error:
            raise self._failure(f"the {what} has characters that SASL forbids: {error}") from None

    def _failure(self, reason: str) -> AuthenticationFailedError:
        return AuthenticationFailedError(f"{self.name}: {reason}")


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Prepare a user name or a password for comparison (RFC 4013).

    Raises ValueError for prohibited characters and for forbidden mixes of writing directions. The
    message names the kind of the problem, never the text.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = (
        " " if stringprep.in_table_c12(char) else char
        for char in text
        if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", "".join(mapped))
    if any(check(char) for char in prepared for check in _PROHIBITED):
        raise ValueError("a control, private or non-text character")
    if any(stringprep.in_table_d1(char) for char in prepared):
        if any(stringprep.in_table_d2(char) for char in prepared):
            raise ValueError("letters of both writing directions")
        if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
            raise ValueError(
                "right-to-left text that does not begin and end with right-to-left letters"
            )
    return prepared
