"""PLAIN and SCRAM-SHA-256 as an application would write them, by `AbstractSaslMechanism`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncGenerator

from aiokafka.abc import AbstractSaslMechanism
from aiokafka.errors import AuthenticationFailedError

__all__ = ["OwnPlain", "OwnScram"]


class OwnPlain(AbstractSaslMechanism):
    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self.user, self.password = user, password
        self.hosts: list[str] = []
        self.refusals = 0

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        self.hosts.append(host)
        await asyncio.sleep(0)
        yield f"\0{self.user}\0{self.password}".encode()

    def refused(self) -> None:
        self.refusals += 1


class OwnScram(OwnPlain):
    name = "SCRAM-SHA-256"

    async def exchange(self, host: str) -> AsyncGenerator[bytes, bytes]:
        self.hosts.append(host)
        first = f"n={self.user},r={secrets.token_hex(12)}"
        challenge = (yield f"n,,{first}".encode()).decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        salted = await asyncio.to_thread(
            hashlib.pbkdf2_hmac,
            "sha256",
            self.password.encode(),
            base64.b64decode(fields["s"]),
            int(fields["i"]),
        )
        last = f"c=biws,r={fields['r']}"
        message = f"{first},{challenge},{last}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        answer = yield f"{last},p={base64.b64encode(proof).decode()}".encode()
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        expected = base64.b64encode(hmac.digest(server_key, message, "sha256"))
        if answer.split(b",")[0] != b"v=" + expected:
            raise AuthenticationFailedError("the broker does not know the password")
