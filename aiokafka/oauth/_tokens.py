"""Token providers that cache a token, their options, and JSON web tokens."""

from __future__ import annotations

import abc
import asyncio
import base64
import binascii
import dataclasses
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import _clock
from aiokafka._compat import timeout
from aiokafka._config.options import Milliseconds, Number, Options, option
from aiokafka._retry import Backoff
from aiokafka._tasks import is_task_cancelled
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError, renewed

__all__ = ["ALGORITHMS", "CachedTokenProvider", "OAuthConfig", "Token", "expiry_of", "sign"]


# A larger expiry time (after the year 2286) is not in seconds, so it is ignored.
_LAST_SECOND = 10**10


def expiry_of(token: str) -> float | None:
    """Return the expiry time of a JSON web token, in seconds since 1970. Return None if `token` is
    not a JSON web token, or has no valid expiry time.

    The signature is not verified: the token comes from a trusted issuer, and the broker verifies
    it.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)):
        return None
    return float(expiry) if 0 < expiry < _LAST_SECOND else None


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: Any) -> str:
    """Return a JSON web token, signed with a private key of the `cryptography` package.

    `header["alg"]` is one of `ALGORITHMS`. Raises AuthenticationFailedError for a key of another
    type than this algorithm needs.
    """
    signed = f"{_segment(header)}.{_segment(claims)}"
    signature = ALGORITHMS[header["alg"]](key, signed.encode())
    return f"{signed}.{_base64url(signature)}"


def _sign_rs256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if not isinstance(key, rsa.RSAPrivateKey):
        raise AuthenticationFailedError("RS256 needs an RSA private key")
    signature: bytes = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return signature


def _sign_es256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AuthenticationFailedError("ES256 needs a private key on the curve P-256")
    # RFC 7518, 3.4: the signature is two numbers of 32 bytes, not their ASN.1 encoding.
    first, second = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    signature: bytes = first.to_bytes(32, "big") + second.to_bytes(32, "big")
    return signature


ALGORITHMS: dict[str, Callable[[Any, bytes], bytes]] = {"RS256": _sign_rs256, "ES256": _sign_es256}
"""The values of Kafka's `sasl.oauthbearer.assertion.algorithm`, and the functions that sign."""


def _segment(value: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# -- The options of all token providers, modelled on Kafka's `sasl.login.*`


class Real:
    """An option type: a number within bounds, converted to float."""

    def __init__(self, minimum: float, maximum: float) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.accepts = f"a number from {minimum:g} to {maximum:g}"
        self.annotation = "float"

    def convert(self, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError
        if not self.minimum <= value <= self.maximum:
            raise ValueError
        return float(value)


class OAuthConfig(Options):
    """The options of all token providers: when to refresh a token, retries and timeouts."""

    refresh_window_factor: float = option(
        Real(0.5, 1.0),
        "refresh_window_factor",
        0.8,
        "Fraction of a token's lifetime after which a new token is fetched.",
        java="sasl.login.refresh.window.factor",
        when="Hardly ever.",
    )
    refresh_window_jitter: float = option(
        Real(0.0, 0.25),
        "refresh_window_jitter",
        0.05,
        """Maximum of a random fraction of the lifetime that is added, so that clients that were
        started together do not fetch new tokens at the same time.""",
        java="sasl.login.refresh.window.jitter",
        when="Larger if very many clients are started together.",
    )
    refresh_min_period: int = option(
        Number(0, 900),
        "refresh_min_period_seconds",
        60,
        """Minimum time until a token is replaced. Has no effect if the token's lifetime is shorter
        than this time and refresh_buffer_seconds together.""",
        java="sasl.login.refresh.min.period.seconds",
        when="Smaller with tokens that expire after minutes.",
    )
    refresh_buffer: int = option(
        Number(0, 3600),
        "refresh_buffer_seconds",
        300,
        """Minimum time between the replacement of a token and its expiry; with the same exception
        as refresh_min_period_seconds.""",
        java="sasl.login.refresh.buffer.seconds",
        when="Smaller with tokens that expire after minutes.",
    )
    retry_backoff: float = option(
        Milliseconds(1),
        "retry_backoff_ms",
        100,
        """Time to wait after a failure to fetch a token; doubles after every further failure, in
        the same or a later call.""",
        java="sasl.login.retry.backoff.ms",
        when="Hardly ever.",
    )
    retry_backoff_max: float = option(
        Milliseconds(1),
        "retry_backoff_max_ms",
        10_000,
        "Maximum time to wait after a failure.",
        java="sasl.login.retry.backoff.max.ms",
        when="Hardly ever.",
    )
    token_timeout: float = option(
        Milliseconds(1),
        "token_timeout_ms",
        8_000,
        """Time that a connection waits for a token, retries included. Keep it below
        socket_connection_setup_timeout_ms: otherwise that timeout hides the reason of the
        failure.""",
        java="",
        when="Larger with a slow identity provider.",
    )
    connect_timeout: float = option(
        Milliseconds(1),
        "connect_timeout_ms",
        4_000,
        "Time in which a connection to the token endpoint has to be established, TLS included.",
        java="sasl.login.connect.timeout.ms",
        when="Larger if the network to the provider is slow.",
    )
    read_timeout: float = option(
        Milliseconds(1),
        "read_timeout_ms",
        6_000,
        "Time to wait for the token endpoint to send data.",
        java="sasl.login.read.timeout.ms",
        when="Larger with a slow identity provider.",
    )


def texts(argument: str, given: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return a dict of strings, {} for None. Raises TypeError for other values."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument}: must be a dict of strings, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{argument}: {name!r}: must be a string, and have one as its value")
    return dict(given)


def text(argument: str, given: str | None) -> str | None:
    """Return the given string or None. Raises TypeError for other values."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{argument}: must be a string or None, not {type(given).__name__}")
    return given


# -- A cached token, which one caller of `token` refreshes before it expires


log = logging.getLogger("aiokafka.oauth")

# While the current token is valid, the caller of `token` that fetches a new one waits for this many
# seconds. After that, the caller uses the current token.
_REFRESH_TIMEOUT = 4.0

# Assumed lifetime in seconds of a token whose lifetime is unknown.
_UNKNOWN_LIFETIME = 60.0

# A token is not used in the last part of its lifetime, so that it is still valid when it reaches
# the broker. The part is this fraction of the lifetime, but at most this many seconds.
_EXPIRY_MARGIN = (0.05, 5.0)


@dataclass(frozen=True)
class Token:
    """A token, and the time until it expires."""

    value: str = field(repr=False)
    """The secret that is sent to the broker."""

    lifetime: float | None = None
    """Seconds until the token expires; None if unknown."""


class CachedTokenProvider(AbstractTokenProvider):
    """Base class of token providers that use a token until shortly before it expires.

    Subclasses implement `fetch`. All clients of an event loop should use the same provider, and so
    the same token.

    If there is no valid token, one caller of `token` fetches a token, and concurrent callers wait
    for the result. When the refresh time of the token is reached (see `OAuthConfig`), the next
    caller of `token` fetches a new token, while other callers use the current token. If the fetch
    fails, all callers use the current token until it expires. A token that a broker has rejected is
    replaced in the same way, and is used until then, because other brokers may accept it. After a
    failure, no token is fetched for a time, which grows with every failure.

    Without a valid token, `token` raises the error of the fetch: AuthenticationFailedError if the
    identity provider has rejected the request, KafkaConnectionError, which is retriable, after
    other failures.

    Args:
        extensions: the SASL extensions to send with each token (KIP-342).
        options: the options of `OAuthConfig`.
    """

    def __init__(self, *, extensions: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__()
        self._config = config = OAuthConfig.from_options(**options)
        self._extensions = texts("extensions", extensions)
        self._current: _CachedToken | None = None
        self._fetching: asyncio.Future[KafkaError | None] | None = None
        self._failure: KafkaError | None = None
        self._no_fetch_until = 0.0
        self._next_rejection_fetch = 0.0
        self._failures = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._refusals = Backoff(config.retry_backoff, config.retry_backoff_max)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @abc.abstractmethod
    async def fetch(self) -> Token:
        """Fetch a new token. Subclasses implement this method.

        Without a valid token, it is called again within `token_timeout_ms` after a retriable
        KafkaError, an OSError, a TimeoutError, or the CancelledError of a task that it awaits.
        After other exceptions, it is not called again in the same call of `token()`. With a valid
        token, it is called again after a backoff. It may be cancelled.
        """

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token (KIP-342)."""
        return dict(self._extensions)

    async def token(self) -> str:
        """Return a token that is valid now. Raises KafkaError if there is none.

        If the caller that fetches the token is cancelled, one of the waiting callers fetches a
        token.
        """
        while True:
            cached = self._usable()
            if cached is not None:
                return cached.value
            fetching = self._fetching
            if fetching is None or fetching.get_loop() is not asyncio.get_running_loop():
                return await self._fetch_for_all()
            await asyncio.wait((fetching,))
            failure = fetching.result()
            if failure is not None:
                raise renewed(failure) from failure.__cause__

    def refused(self, token: str) -> None:
        """Request the replacement of a token that a broker has rejected.

        The next caller of `token()` fetches a new token. If brokers also reject the new tokens, the
        time between such fetches grows. The rejected token is used until a fetch succeeds, because
        other brokers may accept it. Does nothing if the token is not the current one.
        """
        cached = self._current
        if cached is None or cached.value != token or cached.is_rejected:
            return
        due = max(_clock.running_time(), self._next_rejection_fetch)
        self._current = dataclasses.replace(
            cached, refresh_at=min(cached.refresh_at, due), is_rejected=True
        )

    def _usable(self) -> _CachedToken | None:
        """Return the token that this caller uses; None if the caller has to fetch a token, or has
        to wait for another caller that fetches.

        During the pause after a failed fetch, raises the failure if there is neither a valid token
        nor a fetch in progress.
        """
        cached = self._valid()
        now = _clock.running_time()
        is_paused = now < self._no_fetch_until
        if cached is not None:
            # After `refresh_at` the token is still valid: one caller fetches a new token, the
            # others use this one.
            if now < cached.refresh_at or is_paused or self._fetching is not None:
                return cached
            return None
        if is_paused and self._failure is not None and self._fetching is None:
            raise renewed(self._failure) from self._failure.__cause__
        return None

    def _valid(self) -> _CachedToken | None:
        cached = self._current
        # Check both clocks: the monotonic clock may stand still while the machine is suspended, and
        # the wall clock may be changed.
        if cached is None or _clock.running_time() >= cached.ends_at:
            return None
        return cached if _clock.wall_time() < cached.ends_at_time else None

    async def _fetch_for_all(self) -> str:
        fetching = self._fetching = asyncio.get_running_loop().create_future()
        failure: KafkaError | None = None
        try:
            self._keep(await self._obtain())
            assert self._current is not None
            return self._current.value
        except KafkaError as error:
            failure = error
            self._pause(failure)
            cached = self._valid()
            if cached is None:
                raise failure from failure.__cause__
            log.warning(
                "%s: no new token, the current one is still valid: %s",
                type(self).__name__,
                failure,
            )
            return cached.value
        finally:
            # Wake the waiting callers, even if this caller was cancelled. Then they find no token
            # and no fetch in progress, and the first of them fetches.
            self._fetching = None
            fetching.set_result(failure)

    async def _obtain(self) -> Token:
        """Fetch a token. Without a valid token, retry until `token_timeout`. With a valid token,
        make one attempt of at most `_REFRESH_TIMEOUT` seconds; the first caller after the backoff
        tries again."""
        has_one = self._valid() is not None
        limit = min(_REFRESH_TIMEOUT, self._config.token_timeout)
        # With a valid token, do not let the caller wait long.
        limit = limit if has_one else self._config.token_timeout
        last: KafkaError | None = None
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        try:
            async with timeout(limit):
                while True:
                    try:
                        return _checked(await self.fetch())
                    except asyncio.CancelledError as error:
                        if is_task_cancelled():
                            raise
                        last = KafkaConnectionError(
                            f"{type(self).__name__}.fetch awaited a cancelled task or future"
                        )
                        last.__cause__ = error
                    except Exception as error:
                        # On Python 3.10, the HTTP client may convert the cancellation by `timeout`
                        # to another exception. This exception must not replace the last failure.
                        if last is None or loop.time() < end:
                            last = self._as_kafka_error(error)
                    if has_one or not last.retriable:
                        raise last
                    if loop.time() >= end:
                        raise asyncio.TimeoutError
                    await asyncio.sleep(self._failures.next())
        except asyncio.TimeoutError:
            reason = f"; the last attempt: {_text(last)}" if last else ""
            raise KafkaConnectionError(f"no token within {limit:g} s{reason}") from last

    def _keep(self, token: Token) -> None:
        lifetime = _UNKNOWN_LIFETIME if token.lifetime is None else token.lifetime
        now = _clock.running_time()
        share, seconds = _EXPIRY_MARGIN
        usable = lifetime - min(lifetime * share, seconds)
        if self._current is not None and self._current.is_rejected:
            self._next_rejection_fetch = now + self._refusals.next()
        elif self._current is not None:
            # The previous token is replaced because of its age, so brokers have accepted it: after
            # the next rejection, the time between fetches starts at its minimum again.
            self._refusals.reset()
        self._current = _CachedToken(
            token.value,
            now + self._refresh_after(lifetime),
            now + usable,
            _clock.wall_time() + usable,
        )
        self._failures.reset()
        self._failure = None
        self._no_fetch_until = 0.0

    def _refresh_after(self, lifetime: float) -> float:
        """Return the seconds after which a token with this lifetime is replaced, by Kafka's rules.

        If the lifetime is shorter than `refresh_min_period` plus `refresh_buffer`, these two
        options are ignored.
        """
        config = self._config
        factor = config.refresh_window_factor + random.uniform(0, config.refresh_window_jitter)
        if config.refresh_min_period + config.refresh_buffer > lifetime:
            return lifetime * factor
        latest = lifetime - config.refresh_buffer
        return max(float(config.refresh_min_period), min(lifetime * factor, latest))

    def _pause(self, failure: KafkaError) -> None:
        self._failure = failure
        self._no_fetch_until = _clock.running_time() + self._failures.next()

    def _as_kafka_error(self, error: Exception) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        made: KafkaError
        if isinstance(error, (OSError, asyncio.TimeoutError)):
            made = KafkaConnectionError(f"{type(self).__name__}: {error}")
        else:
            # Do not show the text of the exception, because it may contain secrets.
            made = AuthenticationFailedError(
                f"{type(self).__name__}.fetch failed: {type(error).__name__}"
            )
        made.__cause__ = error
        return made


@dataclass(frozen=True)
class _CachedToken:
    """A token, its times by the monotonic clock, and its end by the wall clock (`ends_at_time`)."""

    value: str = field(repr=False)
    refresh_at: float
    ends_at: float
    ends_at_time: float
    is_rejected: bool = False
    """Whether a broker has rejected the token."""


def _checked(token: Token) -> Token:
    if token.lifetime is not None and token.lifetime <= 0:
        raise AuthenticationFailedError(
            f"the new token expired {-token.lifetime:.0f} s ago; is the clock right?"
        )
    return token


def _text(error: KafkaError | None) -> str:
    return str(error.args[0]) if error is not None and error.args else repr(error)
