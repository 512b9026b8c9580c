"""Token providers with a cache, their options, and JSON web tokens."""

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


# Latest accepted time, in the year 2286. A larger number cannot be a time in seconds.
_LAST_SECOND = 10**10


def expiry_of(token: str) -> float | None:
    """Return the expiry time of a JSON web token (seconds since 1970); None without an expiry time.

    The signature is not verified, because the issuer is trusted and the broker verifies it.
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

    `header["alg"]` is one of `ALGORITHMS`. Raises AuthenticationFailedError for a key of the wrong
    kind.
    """
    signed = f"{_segment(header)}.{_segment(claims)}"
    signature = ALGORITHMS[header["alg"]](key, signed.encode())
    return f"{signed}.{_base64url(signature)}"


def _sign_rs256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if not isinstance(key, rsa.RSAPrivateKey):
        raise AuthenticationFailedError("RS256 takes the private key of an RSA pair")
    signature: bytes = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return signature


def _sign_es256(key: Any, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AuthenticationFailedError("ES256 takes a private key on the curve P-256")
    # RFC 7518, 3.4: two numbers of 32 bytes, without ASN.1.
    first, second = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    signature: bytes = first.to_bytes(32, "big") + second.to_bytes(32, "big")
    return signature


ALGORITHMS: dict[str, Callable[[Any, bytes], bytes]] = {"RS256": _sign_rs256, "ES256": _sign_es256}
"""The algorithms of Kafka's `sasl.oauthbearer.assertion.algorithm`."""


def _segment(value: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# -- The options of all token providers, modelled on Kafka's `sasl.login.*`


class Real:
    """The type of options that are numbers within bounds."""

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
    """Options of all token providers: refresh, retries and timeouts."""

    refresh_window_factor: float = option(
        Real(0.5, 1.0),
        "refresh_window_factor",
        0.8,
        "Share of its lifetime after which a token is replaced.",
        java="sasl.login.refresh.window.factor",
        when="Hardly ever.",
    )
    refresh_window_jitter: float = option(
        Real(0.0, 0.25),
        "refresh_window_jitter",
        0.05,
        "Largest share of its lifetime that is added at random, so that clients that started "
        "together do not refresh together.",
        java="sasl.login.refresh.window.jitter",
        when="Larger if very many clients start together.",
    )
    refresh_min_period: int = option(
        Number(0, 900),
        "refresh_min_period_seconds",
        60,
        "How long a token is kept at least; has no effect if its lifetime is shorter than this and "
        "refresh_buffer_seconds together.",
        java="sasl.login.refresh.min.period.seconds",
        when="Smaller with tokens that live for minutes.",
    )
    refresh_buffer: int = option(
        Number(0, 3600),
        "refresh_buffer_seconds",
        300,
        "How long before it expires a token is replaced at the latest; the same exception applies.",
        java="sasl.login.refresh.buffer.seconds",
        when="Smaller with tokens that live for minutes.",
    )
    retry_backoff: float = option(
        Milliseconds(1),
        "retry_backoff_ms",
        100,
        "Pause after a failure to fetch a token; doubles with every further one, also from one "
        "call to the next.",
        java="sasl.login.retry.backoff.ms",
        when="Hardly ever.",
    )
    retry_backoff_max: float = option(
        Milliseconds(1),
        "retry_backoff_max_ms",
        10_000,
        "Longest pause after a failure.",
        java="sasl.login.retry.backoff.max.ms",
        when="Hardly ever.",
    )
    token_timeout: float = option(
        Milliseconds(1),
        "token_timeout_ms",
        8_000,
        "How long a connection waits for a token, retries included. Keep it below "
        "socket_connection_setup_timeout_ms, which would hide the reason.",
        java="",
        when="Larger with a slow identity provider.",
    )
    connect_timeout: float = option(
        Milliseconds(1),
        "connect_timeout_ms",
        4_000,
        "How long connecting to the token endpoint may take, TLS included.",
        java="sasl.login.connect.timeout.ms",
        when="Larger with a slow network to the provider.",
    )
    read_timeout: float = option(
        Milliseconds(1),
        "read_timeout_ms",
        6_000,
        "How long the token endpoint may be silent.",
        java="sasl.login.read.timeout.ms",
        when="Larger with a slow identity provider.",
    )


def texts(argument: str, given: Mapping[Any, Any] | None) -> dict[str, str]:
    """Return a dict of strings, empty for None. Raises TypeError for other values."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument}: must be a dict of strings, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{argument}: {name!r}: must be a string, and have one as its value")
    return dict(given)


def text(argument: str, given: str | None) -> str | None:
    """Return a string or None. Raises TypeError for other values."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{argument}: must be a string or None, not {type(given).__name__}")
    return given


# -- A cached token, which is refreshed before it expires, once for all callers


log = logging.getLogger("aiokafka.oauth")

# Seconds that a connection waits for a refresh while the current token is still valid.
_REFRESH_TIMEOUT = 4.0

# Assumed lifetime in seconds of a token without a known lifetime.
_UNKNOWN_LIFETIME = 60.0

# The last part of a token's lifetime (share, and at most seconds), in which the token is not used.
# So a token is still valid when it reaches the broker.
_EXPIRY_MARGIN = (0.05, 5.0)


@dataclass(frozen=True)
class Token:
    """A token and its remaining lifetime."""

    value: str = field(repr=False)
    """The secret that is sent to the broker."""

    lifetime: float | None = None
    """Seconds until the token expires; None if unknown."""


class CachedTokenProvider(AbstractTokenProvider):
    """Base class of token providers that use a token until shortly before it expires.

    Subclasses implement `fetch`. All clients of an event loop should share one provider, and so
    share the token.

    One caller fetches a token, and concurrent callers wait for its result. When most of the
    lifetime is over, the next caller fetches a new token, while the others use the current token.
    If the fetch fails, all callers use the current token until it expires. A token that a broker
    has rejected is replaced in the same way, and used until then, because other brokers may accept
    the token. After each failure there is a longer pause without fetches.

    Without a valid token, `token` raises AuthenticationFailedError if the identity provider has
    rejected the request. After other failures it raises KafkaConnectionError, which is retriable.

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
        """Fetch a new token.

        The provider calls `fetch` again, within `token_timeout_ms`, after a retriable KafkaError,
        an OSError, a TimeoutError, or the CancelledError of an awaited task. Other exceptions are
        not retried. The call may be cancelled.
        """

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token (KIP-342)."""
        return dict(self._extensions)

    async def token(self) -> str:
        """Return a token that is valid now.

        If the call that fetches the token is cancelled, one of the waiting callers fetches a token.
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
        """Replace a token that a broker has rejected.

        The next caller fetches a new token. The pauses between such fetches grow while brokers
        reject the new tokens as well. The rejected token is used until the fetch succeeds, because
        other brokers may accept it.
        """
        cached = self._current
        if cached is None or cached.value != token or cached.is_rejected:
            return
        due = max(_clock.running_time(), self._next_rejection_fetch)
        self._current = dataclasses.replace(
            cached, refresh_at=min(cached.refresh_at, due), is_rejected=True
        )

    def _usable(self) -> _CachedToken | None:
        """Return the token to use without fetching; None if the caller has to fetch or wait.

        Without a valid token, raises the last failure until the pause after this failure is over.
        """
        cached = self._valid()
        now = _clock.running_time()
        is_paused = now < self._no_fetch_until
        if cached is not None:
            # After `refresh_at` the token is still valid: one caller replaces the token, the others
            # use it.
            if now < cached.refresh_at or is_paused or self._fetching is not None:
                return cached
            return None
        if is_paused and self._failure is not None and self._fetching is None:
            raise renewed(self._failure) from self._failure.__cause__
        return None

    def _valid(self) -> _CachedToken | None:
        cached = self._current
        # Check both clocks: the monotonic clock may stop while the machine is suspended, and the
        # wall clock may be set.
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
            # Even if this caller is cancelled, the waiting callers wake up. They find neither a
            # token nor a fetch in progress, and the first of them fetches.
            self._fetching = None
            fetching.set_result(failure)

    async def _obtain(self) -> Token:
        """Fetch a token, with retries unless the current token is still valid."""
        has_one = self._valid() is not None
        limit = min(_REFRESH_TIMEOUT, self._config.token_timeout)
        # With a valid token the caller does not wait long; the next caller tries again.
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
                            f"{type(self).__name__}.fetch: what it awaits was cancelled"
                        )
                        last.__cause__ = error
                    except Exception as error:
                        # On Python 3.10 the HTTP client may convert the cancellation by the timeout
                        # to another exception, which does not replace the last failure.
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
            # The old token was replaced because of its age, so brokers have accepted it.
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
        """Return the seconds until a token with this lifetime is replaced, by Kafka's rules."""
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
            # The text of the exception may have secrets.
            made = AuthenticationFailedError(
                f"{type(self).__name__}.fetch failed: {type(error).__name__}"
            )
        made.__cause__ = error
        return made


@dataclass(frozen=True)
class _CachedToken:
    """A token with its times by the monotonic clock, and `ends_at_time` by the wall clock."""

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
