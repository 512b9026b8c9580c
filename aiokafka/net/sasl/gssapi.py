"""GSSAPI (RFC 4752): Kerberos 5, through the `gssapi` package."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import AuthenticationFailedError, AuthenticationMethodNotSupported

__all__ = ["Gssapi", "KerberosIdentity"]

# The start of the last token: no security layer, with buffer size 0 (RFC 4752, 3.1).
_NO_SECURITY_LAYER = b"\x01\x00\x00\x00"
_OFFERS_NO_LAYER = 0x01


@dataclass(frozen=True)
class KerberosIdentity:
    """The principal and keytab of the client. If both are None, Kerberos uses the environment
    variables KRB5CCNAME or KRB5_CLIENT_KTNAME."""

    principal: str | None = None
    keytab: str | None = None


class Gssapi:
    """Sends a ticket, checks the broker's proof, and selects "no security layer" (TLS encrypts).

    Each authentication looks up the ticket again. So it uses a ticket that another program has
    renewed in the cache, and with a keytab it obtains a new ticket when necessary.
    """

    name = "GSSAPI"
    user = ""
    sent_secret = ""
    is_slow = False

    def __init__(self, service: str, host: str, identity: KerberosIdentity | None = None) -> None:
        """The broker's principal is `service`/`host` in the realm of the host."""
        self._target = f"{service}@{host}"
        self._identity = identity or KerberosIdentity()
        self._context: Any = None
        self._error: type[Exception] = Exception
        self._first = b""
        self.done = False

    async def prepare(self) -> None:
        """Get the ticket, in the default executor because the package may call the KDC.

        Raises AuthenticationMethodNotSupported without the `gssapi` package,
        AuthenticationFailedError without usable credentials.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._initiate)

    def _initiate(self) -> None:
        gssapi = _load()
        self._error = gssapi.exceptions.GSSError
        try:
            name = gssapi.Name(self._target, name_type=gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=name,
                creds=self._credentials(gssapi),
                usage="initiate",
                mech=gssapi.MechType.kerberos,
                flags=gssapi.RequirementFlag.mutual_authentication
                | gssapi.RequirementFlag.integrity,
            )
            self._first = self._context.step() or b""
        except self._error as error:
            raise self._failure(error) from error

    def _credentials(self, gssapi: Any) -> Any:
        """Return the credentials of the principal or keytab; None to use the environment. Raises
        AuthenticationFailedError if the keytab cannot be read."""
        principal, keytab = self._identity.principal, self._identity.keytab
        if principal is None and keytab is None:
            return None
        name = None
        if principal is not None:
            name = gssapi.Name(principal, name_type=gssapi.NameType.kerberos_principal)
        store = None
        if keytab is not None:
            if not os.access(keytab, os.R_OK):
                raise AuthenticationFailedError(
                    f"GSSAPI: sasl_kerberos_keytab={keytab!r} does not exist, or is not readable"
                )
            # Use a separate cache: the cache of the process may belong to another user.
            digest = hashlib.sha256(f"{principal}\0{keytab}".encode()).hexdigest()[:16]
            store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:aiokafka-{digest}"}
        return gssapi.Credentials(
            name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store
        )

    def start(self) -> bytes:
        """Return the service ticket."""
        return self._first

    def step(self, challenge: bytes) -> bytes | None:
        """Return the client's token for a token of the broker; None after the last token.

        The last token selects "no security layer" (RFC 4752).

        Raises AuthenticationFailedError if the broker does not prove its identity, or requires a
        security layer.
        """
        if self.done:
            return None
        try:
            if not self._context.complete:
                return self._context.step(bytes(challenge)) or b""
            return self._agree(bytes(challenge))
        except self._error as error:
            raise self._failure(error) from error

    def note_refusal(self) -> None:
        """Do nothing: each authentication looks up the ticket again."""

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
        reason = " ".join(str(error).split())[:500]
        return AuthenticationFailedError(
            f"GSSAPI: no authentication to {self._target}: {reason}{_advice(reason)}"
        )


def _load() -> Any:
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:
        raise AuthenticationMethodNotSupported(
            'sasl_mechanism "GSSAPI" needs the package gssapi: pip install "aiokafka[gssapi]" '
            f"({error})"
        ) from error


_SERVICE_ADVICE = (
    "the KDC knows no such service; see sasl_kerberos_service_name, sasl_kerberos_domain_name and "
    "client_dns_lookup"
)
_KEYTAB_ADVICE = "the keys in the keytab differ from those of the KDC; create a new keytab"
_ADVICE = (
    ("no kerberos credentials available", "run kinit, or set sasl_kerberos_keytab"),
    ("expired", "run kinit again, or set sasl_kerberos_keytab"),
    ("not found in kerberos database", _SERVICE_ADVICE),
    ("cannot find kdc", _SERVICE_ADVICE),
    ("preauthentication failed", _KEYTAB_ADVICE),
    ("integrity check failed", _KEYTAB_ADVICE),
    ("clock skew", "the clocks of this machine and of the KDC differ"),
    ("cannot contact any kdc", "the KDC of krb5.conf does not respond"),
)


def _advice(reason: str) -> str:
    for sign, advice in _ADVICE:
        if sign in reason.lower():
            return f" ({advice})"
    return ""
