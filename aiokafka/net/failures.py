"""Say why a connection failed, in words that name the likely cause, and copy exceptions for many
waiters."""

from __future__ import annotations

import copy
import socket
import ssl

from aiokafka.errors import KafkaConnectionError, KafkaError

__all__ = ["connect_failure", "early_close_hint", "renewed"]


def renewed(error: BaseException) -> BaseException:
    """A new object equal to `error`: one exception object must never be raised in two waiters
    (tracebacks grow)."""
    try:
        twin = copy.copy(error)
    except Exception:
        # An exotic constructor. The text and the kind of failure are what the waiter needs.
        twin = KafkaError(f"{type(error).__name__}: {error}")
    if twin is error or type(twin) is not type(error):
        twin = KafkaError(f"{type(error).__name__}: {error}")
    twin.__traceback__ = None
    twin.__cause__ = error.__cause__
    return twin


def connect_failure(error: BaseException, peer: str, *, uses_tls: bool) -> KafkaConnectionError:
    """The error for an attempt to open a connection to `peer` ("host:port") that ended with
    `error`."""
    if isinstance(error, KafkaConnectionError):
        return error
    return KafkaConnectionError(f"{peer}: {_reason(error, uses_tls=uses_tls)}")


def _reason(error: BaseException, *, uses_tls: bool) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return f"cannot resolve the host name: {error.strerror or text}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's TLS certificate was refused: {error.verify_message or text}"
    if isinstance(error, ssl.SSLError):
        return _tls_reason(error)
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: no process listens on this port, or a firewall rejects it"
    if uses_tls and isinstance(error, (ConnectionResetError, BrokenPipeError, EOFError)):
        return (
            f"closed during the TLS handshake ({text}): the listener may expect plaintext, not TLS"
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
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"TLS handshake failed ({reason}): the broker may require a client certificate"
    return f"TLS handshake failed: {reason}"


def early_close_hint(uses_tls: bool, uses_sasl: bool, *, is_greeted: bool) -> str:
    """Why a broker may close a connection before it answered the first request.

    `is_greeted`: it did answer ApiVersions, which brokers answer before SASL.
    """
    causes = []
    if not uses_tls and not is_greeted:
        causes.append("the listener expects TLS (set security_protocol to SSL or SASL_SSL)")
    if not uses_sasl:
        causes.append(
            "the listener expects SASL (set security_protocol to SASL_PLAINTEXT or SASL_SSL)"
        )
    elif not is_greeted:
        causes.append("the listener does not use SASL")
    if not is_greeted:
        causes.append("this is not a Kafka broker")
    causes.append("the broker is shutting down")
    return "possible causes: " + "; ".join(causes)
