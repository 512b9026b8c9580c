"""A real Kafka with TLS and SASL: its properties, its users, and how clients log in."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from tests.net.support import Certificates

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
USER, PASSWORD = "alice", "alice-secret"

# Passwords that SASLprep would change or refuse, which Kafka does not know. Its names are ASCII.
ODD_USERS = {
    "decomposed": "cafe\u0301-secret",
    "ligature": "\ufb01sh-secret",
    "no-break": "a\u00a0b-secret",
    "half": "\u00bd-secret",
    "persian": "\u0633\u0631\u06cc123",
    "tab": "tab\tsecret",
    "full-width": "\u5bc6\u7801\uff11\uff12",
    "with a space": "caf\u00e9-secret",
}

# For the formatting of the storage.
SCRAM_USERS = tuple(
    argument
    for mechanism in MECHANISMS
    if mechanism.startswith("SCRAM")
    for name, password in {USER: PASSWORD, **ODD_USERS}.items()
    for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
)


class UnsecuredToken(AbstractTokenProvider):
    """A JSON web token without a signature, which the broker takes where nothing else is set up."""

    def __init__(self, subject: str = USER, lifetime: float = 300) -> None:
        self.subject = subject
        self.lifetime = lifetime

    async def token(self) -> str:
        now = time.time()
        claims = {"sub": self.subject, "iat": now, "exp": now + self.lifetime}
        return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def login(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    """The options of a client that logs in; any other password is wrong."""
    if mechanism == "OAUTHBEARER":
        # The broker forgives 30 seconds of clock skew.
        lifetime = 300 if password == PASSWORD else -60
        return {
            "sasl_mechanism": mechanism,
            "sasl_oauth_token_provider": UnsecuredToken(lifetime=lifetime),
        }
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def secured_properties(
    certificates: Certificates,
    listeners: Mapping[str, str],
    others: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Broker properties for `listeners`, name -> security protocol. One called MTLS wants client
    certificates; `others` have a certificate of their own, name -> path."""
    broker = certificates.issue("localhost-broker", "localhost")
    found = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _property(Path(certificates.cafile).read_text()),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "0",
    }
    for listener, protocol in listeners.items():
        prefix = f"listener.name.{listener.lower()}."
        if protocol.endswith("SSL"):
            pem = Path((others or {}).get(listener, broker)).read_text()
            key = re.search(r"-----BEGIN[^-]*PRIVATE KEY-----.*?-----END[^-]*-----", pem, re.DOTALL)
            assert key is not None
            found[f"{prefix}ssl.keystore.type"] = "PEM"
            found[f"{prefix}ssl.keystore.key"] = _property(key[0])
            chain = pem[pem.index("-----BEGIN CERTIFICATE") :]
            found[f"{prefix}ssl.keystore.certificate.chain"] = _property(chain)
        if protocol.startswith("SASL"):
            for mechanism, module in _LOGINS.items():
                found[f"{prefix}{mechanism}.sasl.jaas.config"] = (
                    f"org.apache.kafka.common.security.{module};"
                )
    return found


_LOGINS = {
    "plain": f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": (
        'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"'
    ),
}


def _segment(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _property(pem: str) -> str:
    return pem.replace("\n", "\\n")
