"""GSSAPI (RFC 4752): Kerberos 5, through the `gssapi` package."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.errors import AuthenticationFailedError, AuthenticationMethodNotSupported

__all__ = ["Gssapi"]

# The last token: first byte no security layer, the next three no buffer for one (RFC 4752, 3.1).
_NO_SECURITY_LAYER = b"\x01\x00\x00\x00"
_OFFERS_NO_LAYER = 0x01


class Gssapi:
    """A ticket out, the broker's proof back, then an agreement not to encrypt: TLS does that."""

    name = "GSSAPI"
    user = ""

    def __init__(self, service: str, host: str) -> None:
        """The broker's principal is `service`/`host` in the realm of the host."""
        self._target = f"{service}@{host}"
        self._context: Any = None
        self._first = b""
        self.done = False

    async def prepare(self) -> None:
        """Get the ticket. It may take a call to the KDC, so it runs in the default executor.

        Raises AuthenticationMethodNotSupported without the `gssapi` package,
        AuthenticationFailedError without usable credentials.
        """
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._initiate)
        except ImportError as error:
            raise AuthenticationMethodNotSupported(
                'sasl_mechanism "GSSAPI" needs the package gssapi: pip install "aiokafka[gssapi]"'
            ) from error

    def _initiate(self) -> None:
        import gssapi  # type: ignore[import-not-found, unused-ignore]

        try:
            name = gssapi.Name(self._target, name_type=gssapi.NameType.hostbased_service)
            target = name.canonicalize(gssapi.MechType.kerberos)
            self._context = gssapi.SecurityContext(
                name=target, usage="initiate", mech=gssapi.MechType.kerberos
            )
            self._first = self._context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def start(self) -> bytes:
        """The service ticket."""
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        """Check the broker's proof, then agree on no security layer."""
        if self.done:
            return None
        import gssapi

        try:
            if not self._context.complete:
                return self._context.step(bytes(challenge)) or b""
            return self._agree(bytes(challenge))
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def _agree(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & _OFFERS_NO_LAYER:
            raise AuthenticationFailedError(
                "GSSAPI: the broker demands a security layer of its own; use TLS instead"
            )
        user = str(self._context.initiator_name).encode()
        answer: bytes = self._context.wrap(_NO_SECURITY_LAYER + user, False).message
        self.done = True
        return answer

    def _failure(self, error: Exception) -> AuthenticationFailedError:
        return AuthenticationFailedError(f"GSSAPI: no authentication to {self._target}: {error}")
