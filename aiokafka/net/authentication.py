"""Authenticate a connection by SASL: before its first request, and again later."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokafka._compat import timeout as within
from aiokafka._subject import about
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaConnectionError,
    UnknownError,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.net.failures import handshake_failure, said
from aiokafka.net.sasl import Mechanism, create_mechanism
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from aiokafka._config import SecurityConfig
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.net.credential_sources import CredentialSource

__all__ = ["authenticate", "exchange", "prepare_mechanism"]

log = logging.getLogger("aiokafka.conn")

# No mechanism takes more: a broker that never ends the exchange would hold us in the handshake
# until its deadline.
_MAX_SASL_STEPS = 16

# Share of the time for a handshake that fetching credentials may take.
_PREPARING_PART = 0.9


async def authenticate(
    connection: BrokerConnection,
    security: SecurityConfig,
    host: str,
    timeout: float,
    source: CredentialSource | None = None,
) -> None:
    """Authenticate by SASL, and begin the session. Each step may take `timeout` seconds.

    `host` is the broker's name, which Kerberos proves. Raises AuthenticationMethodNotSupported when
    the broker does not offer the mechanism, AuthenticationFailedError when it refuses the
    credentials, KafkaConnectionError (also when there are no credentials), RequestTimedOutError.
    """
    # Less than all of it: the caller's timer would fire first, and lose the reason.
    left = _PREPARING_PART * timeout
    mechanism = await prepare_mechanism(connection, security, host, left, source)
    await exchange(connection, mechanism, timeout)
    peer = connection.peer
    log.debug("%s: authenticated by %s", peer, mechanism.name, extra=about(peer))


async def prepare_mechanism(
    connection: BrokerConnection,
    security: SecurityConfig,
    host: str,
    timeout: float,
    source: CredentialSource | None = None,
) -> Mechanism:
    """Return the configured mechanism with current credentials.

    Raises KafkaConnectionError when there are none within `timeout` seconds, or their source fails,
    and AuthenticationFailedError when it returns something that cannot be credentials.
    """
    mechanism = create_mechanism(security, host)
    try:
        async with within(timeout):
            # A ticket of Kerberos is for one broker: a failure says nothing about other brokers.
            if source is None or mechanism.name == "GSSAPI":
                await mechanism.prepare()
            else:
                await source.call(mechanism.prepare)
    except asyncio.TimeoutError:
        raise KafkaConnectionError(
            f"{connection.peer}: {mechanism.name}: no credentials within {timeout:.1f} s"
        ) from None
    return mechanism


async def exchange(connection: BrokerConnection, mechanism: Mechanism, timeout: float) -> None:
    """Authenticate by a mechanism that is prepared; raises as `authenticate`.

    On a connection in use the first response comes after those to the requests in flight.
    """
    version = connection.pick(SaslHandshakeRequest)
    answer = await connection.send_through(
        SaslHandshakeRequest(mechanism=mechanism.name), version, timeout
    )
    if answer.error_code == UnsupportedSaslMechanismError.errno:
        offered = said(", ".join(answer.mechanisms)) or "none"
        raise AuthenticationMethodNotSupported(
            f"{connection.peer}: the broker does not offer SASL mechanism {mechanism.name}; "
            f"it offers: {offered}"
        )
    if answer.error_code == IllegalSaslStateError.errno:
        reason = "the broker does not authenticate this connection again"
        if not connection.session_lifetime:
            reason = "the listener does not use SASL"
        raise AuthenticationFailedError(f"{connection.peer}: {reason}")
    if answer.error_code:
        raise handshake_failure(answer.error_code, connection.peer, "SaslHandshake")
    if version == 0:
        await _exchange_raw_tokens(connection, mechanism, timeout)
    else:
        await _exchange_tokens(connection, mechanism, timeout)
    # Only when the broker has accepted it: a renewal compares with it.
    connection.user = mechanism.user


async def _exchange_tokens(
    connection: BrokerConnection, mechanism: Mechanism, timeout: float
) -> None:
    token: bytes | None = mechanism.start()
    lifetime_ms = 0
    for _ in range(_MAX_SASL_STEPS):
        if token is None:
            connection.begin_session(max(0, lifetime_ms) / 1000)
            return
        answer = await connection.send_through(
            SaslAuthenticateRequest(auth_bytes=token), None, timeout
        )
        if answer.error_code:
            kind = for_code(answer.error_code)
            reason = said(answer.error_message or kind.description, mechanism.sent_secret)
            if kind.retriable or kind is UnknownError:
                raise handshake_failure(kind.errno, connection.peer, "SaslAuthenticate", reason)
            mechanism.note_refusal()
            raise AuthenticationFailedError(f"{connection.peer}: {mechanism.name}: {reason}")
        lifetime_ms = answer.session_lifetime_ms
        token = await _step(connection, mechanism, answer.auth_bytes, timeout)
        if token is None and not mechanism.done:
            raise AuthenticationFailedError(
                f"{connection.peer}: {mechanism.name}: the broker ended the exchange early"
            )
    raise AuthenticationFailedError(
        f"{connection.peer}: {mechanism.name}: the broker does not end the exchange"
    )


async def _step(
    connection: BrokerConnection, mechanism: Mechanism, challenge: bytes, timeout: float
) -> bytes | None:
    """Compute the mechanism's next token, in the default executor where it takes long."""
    try:
        if not mechanism.is_slow:
            return mechanism.step(challenge)
        async with within(timeout):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, mechanism.step, challenge)
    except AuthenticationFailedError as error:
        # The mechanism does not know which broker it speaks to.
        raise AuthenticationFailedError(f"{connection.peer}: {error.args[0]}") from error
    except asyncio.TimeoutError:
        raise KafkaConnectionError(
            f"{connection.peer}: {mechanism.name}: no thread computed the proof within "
            f"{timeout:.1f} s: the default executor of the event loop is busy"
        ) from None


async def _exchange_raw_tokens(
    connection: BrokerConnection, mechanism: Mechanism, timeout: float
) -> None:
    """Exchange tokens without headers, as before Kafka 1.0.

    There the broker refuses credentials by closing the connection.
    """
    token: bytes | None = mechanism.start()
    for _ in range(_MAX_SASL_STEPS):
        if token is None and mechanism.done:
            return
        if token is None:
            break
        try:
            challenge = await connection.send_raw(token, timeout)
        except KafkaConnectionError as error:
            raise AuthenticationFailedError(
                f"{connection.peer}: {mechanism.name}: the broker closed the connection, "
                "which is how it refuses credentials before Kafka 1.0"
            ) from error
        token = await _step(connection, mechanism, challenge, timeout)
    raise AuthenticationFailedError(
        f"{connection.peer}: {mechanism.name}: the broker does not end the exchange"
    )
