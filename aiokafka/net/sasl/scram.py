"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove that they know the
password, without sending it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING

from aiokafka import _clock
from aiokafka.errors import AuthenticationFailedError
from aiokafka.net.failures import sanitized
from aiokafka.net.sasl.credentials import Credentials

if TYPE_CHECKING:
    from aiokafka._config import Credential

__all__ = ["Scram"]

# RFC 7677 requires at least 4096 iterations. Kafka's tools allow at most 16384; other servers may
# use 600,000, as recommended for stored passwords. A million iterations, the most that a hostile
# server can cause, take a second or two.
_MIN_ITERATIONS = 4096
_MAX_ITERATIONS = 1_000_000

# Largest message in bytes, because a hostile server could send large inputs for the hashes. Salts
# and nonces of Kafka have 20 to 26 bytes.
_MAX_MESSAGE = 4096

_GS2_HEADER = "n,,"


class Scram:
    """Sends two tokens. The second response proves that the broker knows the password as well.

    Name and password are used unchanged, in UTF-8. RFC 5802 requires SASLprep, but Kafka neither
    stores nor checks prepared passwords, so SASLprep would make passwords differ.
    """

    sent_secret = ""

    def __init__(self, mechanism: str, username: Credential, password: Credential) -> None:
        self.name = mechanism
        self.done = False
        self.is_token = False
        """Whether name and password are the id and HMAC of a delegation token (KIP-48)."""
        self._digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._credentials = Credentials(username, password)
        self._nonce = ""
        self._first_bare = ""
        self._server_signature: bytes | None = None

    @property
    def user(self) -> str:
        """The user name; "" before `prepare` if the name is a function."""
        return self._credentials.user

    async def prepare(self) -> None:
        """Fetch user name and password, see `Credentials.fetch`."""
        await self._credentials.fetch()

    @property
    def is_slow(self) -> bool:
        """Whether the next `step` hashes the password, which takes thousands of iterations."""
        return self._server_signature is None

    def start(self) -> bytes:
        """Return the client-first message, with the user name and a nonce."""
        self._nonce = base64.urlsafe_b64encode(_clock.random_bytes(24)).decode()
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if self.is_token else ""
        self._first_bare = f"n={name},r={self._nonce}{extension}"
        return (_GS2_HEADER + self._first_bare).encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Return the client's proof for the server-first message. For the server-final message,
        check the broker's proof, and return None.

        Raises AuthenticationFailedError if a message is invalid or has an error, or if the broker
        does not prove that it knows the password.
        """
        text = self._text(challenge)
        if self._server_signature is None:
            return self._prove(text)
        self._verify(text, self._server_signature)
        self.done = True
        return None

    def note_refusal(self) -> None:
        """Do nothing: each authentication fetches name and password again."""

    def _prove(self, server_first: str) -> bytes:
        salt, iterations, nonce = self._parse_server_first(server_first)
        password = self._credentials.password.encode()
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
                "the broker's nonce does not continue ours: the response is not to our request"
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
        # Compare in constant time, so that the duration reveals nothing.
        if not hmac.compare_digest(proof, expected):
            raise self._failure(
                "the broker could not prove that it knows the password: it may be an impostor"
            )

    def _attributes(self, text: str) -> dict[str, str]:
        """Return the `k=value` pairs of a message. Raises AuthenticationFailedError for an error of
        the server, or for a mandatory extension."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        if "e" in fields:
            raise self._failure(f"the broker refused: {sanitized(fields['e'])}")
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

    def _failure(self, reason: str) -> AuthenticationFailedError:
        return AuthenticationFailedError(f"{self.name}: {reason}")
