"""SASL mechanisms. They create and check tokens; `authentication` exchanges the tokens with the
broker."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from aiokafka._config import SecurityConfig
from aiokafka.errors import AuthenticationMethodNotSupported
from aiokafka.net.sasl.plain import Plain

__all__ = ["Mechanism", "create_mechanism"]


class Mechanism(Protocol):
    """The client side of one authentication, on a new or a re-authenticated connection."""

    name: str
    """The name in SaslHandshake, such as "SCRAM-SHA-256"."""

    done: bool
    """Whether the exchange may end: the mechanism has returned its last token and, if it verifies
    the broker, has done so. `step` is still called for a later challenge."""

    @property
    def sent_secret(self) -> str:
        """The secret that is sent to the broker in plain text; "" if the mechanism sends none."""

    @property
    def user(self) -> str:
        """The user name, available after `prepare`; "" if only the broker knows it."""

    async def prepare(self) -> None:
        """Fetch the credentials (a token, a ticket). Called once, before `start`."""

    def start(self) -> bytes:
        """Return the first token to send."""

    @property
    def is_slow(self) -> bool:
        """Whether the next `step` takes long, and should run in a thread."""

    def step(self, challenge: bytes) -> bytes | Awaitable[bytes | None] | None:
        """Return the token for the broker's `challenge`, None if no token is needed. A mechanism of
        the application returns an awaitable of it.

        Raises AuthenticationFailedError if the broker rejects the client, or does not prove its
        identity.
        """

    def note_refusal(self) -> None:
        """Called when the broker has rejected the credentials by an error code."""


def create_mechanism(security: SecurityConfig, host: str) -> Mechanism:
    """Return the configured mechanism, for the broker at `host`.

    Raises AuthenticationMethodNotSupported for an unknown mechanism, and for OAUTHBEARER without a
    token provider.
    """
    name = security.sasl_mechanism
    if not isinstance(name, str):
        from aiokafka.net.sasl.custom import CustomMechanism

        return CustomMechanism(name, host)
    if name == "PLAIN":
        return Plain(security.sasl_plain_username or "", security.sasl_plain_password or "")
    if name.startswith("SCRAM-"):
        from aiokafka.net.sasl.scram import Scram

        scram = Scram(name, security.sasl_plain_username or "", security.sasl_plain_password or "")
        scram.is_token = security.sasl_scram_tokenauth
        return scram
    if name == "OAUTHBEARER" and security.sasl_oauth_token_provider is not None:
        from aiokafka.net.sasl.oauthbearer import OAuthBearer

        return OAuthBearer(security.sasl_oauth_token_provider)
    if name == "GSSAPI":
        from aiokafka.net.sasl.gssapi import Gssapi, KerberosIdentity

        host = security.sasl_kerberos_domain_name or host
        identity = KerberosIdentity(security.sasl_kerberos_principal, security.sasl_kerberos_keytab)
        return Gssapi(security.sasl_kerberos_service_name, host, identity)
    raise AuthenticationMethodNotSupported(f"sasl_mechanism {name!r} is not available")
