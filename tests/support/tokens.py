"""OAuth tokens without a signature, for brokers that accept unsecured tokens."""

from __future__ import annotations

import base64
import json
import time

from aiokafka.abc import AbstractTokenProvider


class Token(AbstractTokenProvider):
    """Provides an unsecured JSON web token."""

    def __init__(self, subject: str = "alice", lifetime: float = 300) -> None:
        self.subject, self.lifetime = subject, lifetime

    async def token(self) -> str:
        claims = {"sub": self.subject, "exp": time.time() + self.lifetime}
        parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
        return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
