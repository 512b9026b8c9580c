"""SASL authentication of a connection, and re-authentication before the session ends (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout as within
from aiokafka._retry import Backoff
from aiokafka._subject import about
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    UnknownError,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.net.failures import handshake_failure, sanitized
from aiokafka.net.sasl import Mechanism, create_mechanism
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig, SecurityConfig
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.net.credential_sources import CredentialSource

__all__ = ["SessionKeeper", "authenticate", "exchange", "prepare_mechanism"]

log = logging.getLogger("aiokafka.conn")

# Maximum number of tokens to send; no mechanism needs more. If the broker does not end the exchange
# by then, the authentication fails.
_MAX_SASL_STEPS = 16

# Fraction of the handshake timeout in which the credentials must be fetched; otherwise the connect
# fails.
_PREPARING_PART = 0.9


async def authenticate(
    connection: BrokerConnection,
    security: SecurityConfig,
    host: str,
    timeout: float,
    source: CredentialSource | None = None,
) -> None:
    """Authenticate by SASL, and start the session. Each step may take `timeout` seconds.

    `host` is the broker's name for Kerberos. Raises AuthenticationMethodNotSupported when the
    broker does not support the mechanism, AuthenticationFailedError when it rejects the
    credentials, KafkaConnectionError when the connection ends or the credentials cannot be fetched,
    and RequestTimedOutError when the broker does not respond to a step within `timeout` seconds.
    """
    # Fetch the credentials in less than `timeout`. The whole connection setup ends after `timeout`,
    # and its error would not say that the credentials were late.
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

    Raises KafkaConnectionError if the source of the credentials fails or takes more than `timeout`
    seconds, AuthenticationFailedError if the source returns an invalid result, and
    AuthenticationMethodNotSupported if the mechanism is not available.
    """
    mechanism = create_mechanism(security, host)
    try:
        async with within(timeout):
            # Call the source with the client's common backoff. A Kerberos ticket is for one broker:
            # its failure must not delay the connects to other brokers.
            if source is None or mechanism.name == "GSSAPI":
                await mechanism.prepare()
            else:
                await source.call(mechanism.prepare)
    except asyncio.TimeoutError:
        text = f"{connection.peer}: {mechanism.name}: no credentials within {timeout:.1f} s"
        if mechanism.name == "GSSAPI":
            text += (
                ": the KDC of krb5.conf does not respond, or the default executor of the event "
                "loop is busy"
            )
        raise KafkaConnectionError(text) from None
    return mechanism


async def exchange(connection: BrokerConnection, mechanism: Mechanism, timeout: float) -> None:
    """Authenticate by a prepared mechanism. Raises the errors of `authenticate`.

    On a connection in use, the first response comes after the responses to in-flight requests.
    """
    version = connection.pick(SaslHandshakeRequest)
    answer = await connection.send_nowait(
        SaslHandshakeRequest(mechanism=mechanism.name), version, timeout, authenticates=True
    )
    if answer.error_code == UnsupportedSaslMechanismError.errno:
        offered = sanitized(", ".join(answer.mechanisms)) or "none"
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
    # Set the user after the broker has accepted the credentials: `SessionKeeper` compares the user
    # with the user of new credentials.
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
        answer = await connection.send_nowait(
            SaslAuthenticateRequest(auth_bytes=token), timeout=timeout, authenticates=True
        )
        if answer.error_code:
            kind = for_code(answer.error_code)
            reason = sanitized(answer.error_message or kind.description, mechanism.sent_secret)
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
    """Return the mechanism's next token. A slow step runs in the default executor; the step of an
    application's mechanism is awaited. Raises KafkaConnectionError if there is no token within
    `timeout` seconds, for example because the executor is busy, else the error of the mechanism."""
    try:
        if not mechanism.is_slow:
            token = mechanism.step(challenge)
            if token is None or isinstance(token, bytes):
                return token
            async with within(timeout):
                return await token
        async with within(timeout):
            loop = asyncio.get_running_loop()
            computed: Any = await loop.run_in_executor(None, mechanism.step, challenge)
            return computed  # type: ignore[no-any-return]
    except AuthenticationFailedError as error:
        # Add the name of the broker, which the mechanism does not know.
        raise AuthenticationFailedError(f"{connection.peer}: {error.args[0]}") from error
    except asyncio.TimeoutError:
        if not mechanism.is_slow:
            raise KafkaConnectionError(
                f"{connection.peer}: {mechanism.name}: no token within {timeout:.1f} s"
            ) from None
        raise KafkaConnectionError(
            f"{connection.peer}: {mechanism.name}: no thread computed the proof within "
            f"{timeout:.1f} s: the default executor of the event loop is busy"
        ) from None


async def _exchange_raw_tokens(
    connection: BrokerConnection, mechanism: Mechanism, timeout: float
) -> None:
    """Exchange tokens without request headers, because the broker is older than Kafka 1.0.

    Such a broker rejects credentials by closing the connection.
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


# -- Re-authentication (KIP-368)


# Re-authenticate after a random fraction of the session lifetime in this range. The remaining time
# is for in-flight requests, such as long polls of fetches.
_USED_PART = (0.8, 0.9)

# Start to fetch credentials this fraction of the session lifetime before the re-authentication.
_RENEWAL_PART = 0.1

# Seconds between two re-authentications, at least: brokers reject a second one within a second.
_LEAST_INTERVAL = 1.1


class SessionKeeper:
    """Re-authenticates one connection before each session ends, until the connection closes.

    In-flight requests get their responses first, and new requests wait at the SendGate, so no
    request fails. Owns the time of the next re-authentication. A failure closes the connection. If
    the credentials name another user now, the connection is closed too, because brokers do not
    allow this change on an open connection; the next connection uses the new credentials.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        config: ClientConfig,
        host: str,
        source: CredentialSource,
    ) -> None:
        """Args:
        host: The broker's name for Kerberos.
        """
        self._connection = connection
        self._config = config
        self._host = host
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0
        self._delays = Backoff(config.retry_backoff, config.retry_backoff_max)

    async def run(self) -> None:
        """Re-authenticate until the connection closes or a session has no end. Raises nothing."""
        connection = self._connection
        while connection.is_open and connection.session_lifetime:
            lifetime = connection.session_lifetime
            due = connection.session_end - lifetime * (1 - random.uniform(*_USED_PART))
            if not await self._is_open_at(due - lifetime * _RENEWAL_PART):
                return
            try:
                await self._renew(due)
            except KafkaError as error:
                self._end(error)
            except Exception as error:
                log.exception(
                    "%s: unexpected error while re-authenticating",
                    connection.peer,
                    extra=about(connection.peer),
                )
                self._end(KafkaConnectionError(f"{connection.peer}: unexpected {error!r}"))

    async def _renew(self, due: float) -> None:
        """Re-authenticate at `due` (loop time) with current credentials. Without credentials, or
        with those of another user, close the connection after the in-flight requests. Raises the
        error of the exchange."""
        connection = self._connection
        try:
            # The steps, and the reasons for their order:
            # 1. Fetch credentials while the old session is valid, because that may take seconds.
            # 2. Close the gate when the re-authentication is due: in-flight requests get their
            #    responses, and new requests wait.
            # 3. Send the exchange after the in-flight requests. The broker would not respond to
            #    other requests during the exchange, and closes the connection for requests after
            #    the end of the session.
            # 4. Open the gate, even after a failure: the waiting requests find a closed connection,
            #    and their callers use another connection.
            mechanism = await self._prepare()
        except KafkaError as error:
            await self._retire(error)
            return
        if mechanism is None or not await self._is_open_at(due):
            return
        if mechanism.user != connection.user:
            text = f"{connection.peer}: closed because the new credentials belong to another user"
            await self._retire(KafkaConnectionError(text))
            return
        connection.gate.hold()
        try:
            if await self._is_open_at(self._not_before):
                await self._exchange(mechanism)
        finally:
            connection.gate.release()

    async def _prepare(self) -> Mechanism | None:
        """Return a mechanism with current credentials, with retries until the session ends.

        Returns None if the connection closes before. Raises the last error if the next retry would
        come after the end of the session.
        """
        connection = self._connection
        self._delays.reset()
        while True:
            left = max(0.0, connection.session_end - self._loop.time())
            try:
                security = self._config.security
                return await prepare_mechanism(connection, security, self._host, left, self._source)
            except KafkaError as error:
                again = self._loop.time() + self._delays.next()
                if again >= connection.session_end:
                    raise
                # Log one warning per outage.
                log.log(
                    logging.WARNING if self._delays.failures == 1 else logging.DEBUG,
                    "%s: no credentials for re-authentication: %s",
                    connection.peer,
                    error,
                    extra=about(connection.peer),
                )
            if not await self._is_open_at(again):
                return None

    async def _exchange(self, mechanism: Mechanism) -> None:
        connection = self._connection
        now = self._loop.time()
        # The broker sends the responses to in-flight requests first, so `request_timeout` counts
        # from the last of their deadlines.
        limit = max(now, connection.last_deadline) - now + self._config.request_timeout
        await exchange(connection, mechanism, limit)
        # Brokers reject a re-authentication within a second of the previous one. They count from
        # the request; to be safe, count from the response, which is later.
        self._not_before = self._loop.time() + _LEAST_INTERVAL
        log.debug(
            "%s: re-authenticated by %s in %.0f ms, for %.0f s",
            connection.peer,
            mechanism.name,
            (self._loop.time() - now) * 1000,
            connection.session_lifetime,
            extra=about(connection.peer),
        )

    async def _retire(self, error: KafkaError) -> None:
        """Refuse new requests, wait for the in-flight requests, then close the connection with
        `error`."""
        connection = self._connection
        connection.gate.hold()
        await connection.drain(connection.last_deadline)
        self._end(error)

    def _end(self, error: KafkaError) -> None:
        if self._connection.is_open:
            log.warning(
                "%s: the session is not renewed: %s",
                self._connection.peer,
                error,
                extra=about(self._connection.peer),
            )
            self._connection.close(error)

    async def _is_open_at(self, time: float) -> bool:
        """Wait until `time` (loop time), or until the connection closes; return whether the
        connection is open."""
        delay = time - self._loop.time()
        if delay > 0 and self._connection.is_open:
            await asyncio.wait((self._connection.closed,), timeout=delay)
        return self._connection.is_open
