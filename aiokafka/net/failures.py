"""Errors of connections, with likely causes."""

from __future__ import annotations

import socket
import ssl

from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    for_code,
)

__all__ = [
    "REFUSALS",
    "connect_failure",
    "early_close_hint",
    "handshake_failure",
    "loss_reason",
    "sanitized",
]

REFUSALS = (AuthenticationFailedError, AuthenticationMethodNotSupported)
"""Errors for rejected credentials, which are fatal at the start of a client. A running client may
retry, because operators rotate credentials on one broker after another."""

# TLS alerts of the peer, by the endings of their OpenSSL names.
_WANTS_CERTIFICATE = ("BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")
_REFUSED_CERTIFICATE = (
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
)

# Remedies for a rejected broker certificate, by X509_V_ERR_ number.
_REMEDIES = {
    10: "the broker needs a new one",
    18: "it is self-signed: give it as cafile if it is to be trusted",
    19: "its authority is not trusted: give the authority's certificate as cafile",
    20: "its authority is not trusted: give the authority's certificate as cafile",
    21: "its authority is not trusted: give the authority's certificate as cafile",
    62: "connect by a name that is in it, or set check_hostname = False on the context",
    64: "connect by a name that is in it, or set check_hostname = False on the context",
}


_MAX_SHOWN = 500
# Shortest secret that is replaced. A shorter secret may be part of the text by chance, and "***" in
# its place would reveal it.
_LEAST_HIDDEN = 12


def sanitized(text: str, secret: str = "") -> str:
    """Return the `text` of a peer on one line, shortened, and without `secret`."""
    if len(secret) >= _LEAST_HIDDEN:
        text = text.replace(secret, "***")
    text = text[:_MAX_SHOWN]
    # The peer may be hostile: line breaks would forge log lines, and escapes control a terminal.
    return "".join(char if char.isprintable() else " " for char in text)


def handshake_failure(code: int, peer: str, request: str, why: str = "") -> KafkaConnectionError:
    """Return the error for an unexpected error code in the handshake.

    The error of `code` is the `__cause__` of the returned error, and is not returned itself: a
    caller could mistake that error for the error of its own request.
    """
    cause = for_code(code)(why) if why else for_code(code)()
    failure = KafkaConnectionError(f"{peer}: refused {request}: {cause}")
    failure.__cause__ = cause
    return failure


def connect_failure(error: BaseException, peer: str, *, uses_tls: bool) -> KafkaConnectionError:
    """Return the error for a failed attempt to connect to `peer` ("host:port"). A
    KafkaConnectionError is returned unchanged."""
    if isinstance(error, KafkaConnectionError):
        return error
    return KafkaConnectionError(f"{peer}: {_reason(error, uses_tls=uses_tls)}")


def _reason(error: BaseException, *, uses_tls: bool) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host name: {error.strerror or text}"
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDIES.get(error.verify_code)
        reason = (error.verify_message or text) + (f" ({remedy})" if remedy else "")
        return f"the broker's TLS certificate was refused: {reason}"
    if isinstance(error, ssl.SSLError):
        return _tls_reason(error)
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: no process listens on this port, or a firewall rejects it"
    if uses_tls and isinstance(error, (ConnectionResetError, BrokenPipeError, EOFError)):
        return (
            f"closed during the TLS handshake ({text}): the listener may expect plaintext, not "
            "TLS, or may not take the client's certificate or the TLS versions of the context"
        )
    return text


def _tls_reason(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if reason in (
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    ):
        return f"TLS handshake failed ({reason}): the listener seems to speak plaintext, not TLS"
    meaning = _alert_meaning(reason)
    return f"TLS handshake failed ({reason}){': ' if meaning else ''}{meaning}"


def _alert_meaning(reason: str) -> str:
    if reason.endswith(_WANTS_CERTIFICATE):
        return (
            "the listener requires a client certificate, and got none or an unusable one "
            "(see certfile and keyfile of create_ssl_context)"
        )
    if reason.endswith(_REFUSED_CERTIFICATE):
        return (
            "the broker refused the client's certificate: it may have expired, or be of an "
            "authority that the broker does not trust"
        )
    if reason.endswith("PROTOCOL_VERSION"):
        return "the broker does not speak the TLS versions that the context allows"
    return ""


def loss_reason(error: Exception | None) -> tuple[str, bool]:
    """Return why an open connection ended, and whether this reason needs no further hint.

    The reason may be a TLS alert about the client's certificate: with TLS 1.3 a broker rejects the
    certificate after the handshake.
    """
    if error is None:
        return "connection closed by the broker", False
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if meaning := _alert_meaning(reason):
            return f"closed by the broker with a TLS alert ({reason}): {meaning}", True
    return f"connection lost: {str(error) or type(error).__name__}", False


def early_close_hint(uses_tls: bool, uses_sasl: bool, *, has_versions: bool) -> str:
    """Return the likely causes if a broker closes a connection during the handshake.

    With `has_versions` the broker has responded to ApiVersions, which needs no SASL.
    """
    causes = []
    if not uses_tls and not has_versions:
        causes.append("the listener expects TLS (set security_protocol to SSL or SASL_SSL)")
    if not uses_sasl:
        causes.append(
            "the listener expects SASL (set security_protocol to SASL_PLAINTEXT or SASL_SSL)"
        )
    elif not has_versions:
        causes.append("the listener does not use SASL")
    if uses_tls and not has_versions:
        causes.append("the listener requires a client certificate, or refused the one it got")
    if not has_versions:
        causes.append("this is not a Kafka broker")
    causes.append("the broker is shutting down")
    return "possible causes: " + "; ".join(causes)
