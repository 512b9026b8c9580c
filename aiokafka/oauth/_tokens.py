"""JSON web tokens: when one expires, and how one is signed."""

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
from aiokafka._tasks import is_told_to_end
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError, renewed

__all__ = ["ALGORITHMS", "CachedTokenProvider", "OAuthConfig", "Token", "expiry_of", "sign"]


# The year 2286; anything later is not a time in seconds.
_LAST_SECOND = 10**10


def expiry_of(token: str) -> float | None:
    """Return the expiry time of a token in seconds since 1970, None if it does not state one.

    The signature is not checked: the issuer is trusted, and the broker checks it.
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
    """Return a token of these parts, signed with a private key of the `cryptography` package.

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
    # RFC 7518, 3.4: two numbers of 32 bytes, not the ASN.1 around them.
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
    """A number within bounds."""

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
    """When a token is fetched again, and how long that may take."""

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
    """Return a dict of texts, empty for None. Raises TypeError for what is none."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument}: must be a dict of strings, not {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"{argument}: {name!r}: must be a string, and have one as its value")
    return dict(given)


def text(argument: str, given: str | None) -> str | None:
    """Return a text, or None. Raises TypeError for anything else."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{argument}: must be a string or None, not {type(given).__name__}")
    return given


# -- Keep a token, and fetch the next one in time: once for all callers


log = logging.getLogger("aiokafka.oauth")

# Seconds that a connection waits for a refresh while the current token would do.
_PATIENCE = 4.0

# Assumed lifetime, in seconds, of a token that does not state its lifetime.
_UNKNOWN_LIFETIME = 60.0

# Share of its lifetime, and seconds, that a token must have left to be used: it has to reach the
# broker.
_LEEWAY = (0.05, 5.0)


@dataclass(frozen=True)
class Token:
    """A token, and its lifetime from now on."""

    value: str = field(repr=False)
    """The secret that is sent to the broker."""

    lifetime: float | None = None
    """Seconds from now; None if unknown."""


class CachedTokenProvider(AbstractTokenProvider):
    """A source of tokens, each of which is used until shortly before it expires.

    A subclass fetches them in `fetch`. One object may serve many clients of one event loop, and
    should: they share the token.

    However many callers ask at once, one of them fetches and the others share the result. When most
    of a token's lifetime is over, the next caller fetches a new one, while the others go on with
    the current token. So do all callers while fetching fails, until the token expires. A token that
    a broker has refused is replaced in the same way, and used until then, because other brokers may
    accept it. Each failure is followed by a longer pause without any fetch.

    Without a usable token, `token` raises AuthenticationFailedError when `fetch` was refused. When
    `fetch` did not work it raises KafkaConnectionError, which clients treat as a reason to retry.

    Args:
        extensions: the SASL extensions to send with each token (KIP-342).
        options: those of `OAuthConfig`.
    """

    def __init__(self, *, extensions: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__()
        self._config = config = OAuthConfig.from_options(**options)
        self._extensions = texts("extensions", extensions)
        self._current: _Kept | None = None
        self._flight: asyncio.Future[KafkaError | None] | None = None
        self._failure: KafkaError | None = None
        self._quiet_until = 0.0
        self._suspect_until = 0.0
        self._failures = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._refusals = Backoff(config.retry_backoff, config.retry_backoff_max)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @abc.abstractmethod
    async def fetch(self) -> Token:
        """Fetch a new token.

        A KafkaError that is `retriable`, an OSError, a TimeoutError and a CancelledError of what it
        awaits lead to another attempt within `token_timeout_ms`; any other exception does not. The
        call may be cancelled.
        """

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions to send with the token (KIP-342)."""
        return dict(self._extensions)

    async def token(self) -> str:
        """Return a token that is valid now.

        Cancelling it does not harm other callers that wait: one of them takes over.
        """
        while True:
            kept = self._at_hand()
            if kept is not None:
                return kept.value
            flight = self._flight
            if flight is None or flight.get_loop() is not asyncio.get_running_loop():
                return await self._lead()
            await asyncio.wait((flight,))
            failure = flight.result()
            if failure is not None:
                raise renewed(failure) from failure.__cause__

    def refused(self, token: str) -> None:
        """Request a replacement for a token that a broker has refused, whatever its lifetime.

        The next caller fetches another one. Pauses between such fetches grow while brokers refuse
        one token after the other. The token is used until it is replaced: that one broker may be
        wrong.
        """
        kept = self._current
        if kept is None or kept.value != token or kept.is_suspect:
            return
        due = max(_clock.running_time(), self._suspect_until)
        self._current = dataclasses.replace(
            kept, refresh_at=min(kept.refresh_at, due), is_suspect=True
        )

    # -- parts

    def _at_hand(self) -> _Kept | None:
        """Return the token to use without fetching; None if one must be fetched or waited for.

        Raises the last failure in the pause after it.
        """
        kept = self._valid()
        now = _clock.running_time()
        is_quiet = now < self._quiet_until
        if kept is not None:
            # One that is due is still good: one caller replaces it, the others go on with it.
            if now < kept.refresh_at or is_quiet or self._flight is not None:
                return kept
            return None
        if is_quiet and self._failure is not None and self._flight is None:
            raise renewed(self._failure) from self._failure.__cause__
        return None

    def _valid(self) -> _Kept | None:
        kept = self._current
        # Both clocks: one may stop while the machine sleeps, the other may be set.
        if kept is None or _clock.running_time() >= kept.ends_at:
            return None
        return kept if _clock.wall_time() < kept.ends_at_time else None

    async def _lead(self) -> str:
        flight = self._flight = asyncio.get_running_loop().create_future()
        failure: KafkaError | None = None
        try:
            self._keep(await self._obtain())
            assert self._current is not None
            return self._current.value
        except KafkaError as error:
            failure = error
            self._pause(failure)
            kept = self._valid()
            if kept is None:
                raise failure from failure.__cause__
            log.warning(
                "%s: no new token, the current one is still valid: %s",
                type(self).__name__,
                failure,
            )
            return kept.value
        finally:
            # Also when the caller is cancelled: those that wait wake up, find no token and no
            # flight, and the first of them fetches.
            self._flight = None
            flight.set_result(failure)

    async def _obtain(self) -> Token:
        """Fetch; retry for as long as there is no other usable token."""
        has_one = self._valid() is not None
        patience = min(_PATIENCE, self._config.token_timeout)
        # With a token at hand the caller need not wait long: the next one tries again.
        patience = patience if has_one else self._config.token_timeout
        last: KafkaError | None = None
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        try:
            async with timeout(patience):
                while True:
                    try:
                        return _checked(await self.fetch())
                    except asyncio.CancelledError as error:
                        if is_told_to_end():
                            raise
                        last = KafkaConnectionError(
                            f"{type(self).__name__}.fetch: what it awaits was cancelled"
                        )
                        last.__cause__ = error
                    except Exception as error:
                        # On Python 3.10 the HTTP client may make one of the timeout's cancellation.
                        if last is None or loop.time() < end:
                            last = self._as_kafka_error(error)
                    if has_one or not last.retriable:
                        raise last
                    if loop.time() >= end:
                        raise asyncio.TimeoutError
                    await asyncio.sleep(self._failures.next())
        except asyncio.TimeoutError:
            reason = f"; the last attempt: {_text(last)}" if last else ""
            raise KafkaConnectionError(f"no token within {patience:g} s{reason}") from last

    def _keep(self, token: Token) -> None:
        lifetime = _UNKNOWN_LIFETIME if token.lifetime is None else token.lifetime
        now = _clock.running_time()
        share, seconds = _LEEWAY
        usable = lifetime - min(lifetime * share, seconds)
        if self._current is not None and self._current.is_suspect:
            self._suspect_until = now + self._refusals.next()
        elif self._current is not None:
            # It was replaced because of its age, so brokers accepted it.
            self._refusals.reset()
        self._current = _Kept(
            token.value,
            now + self._refresh_after(lifetime),
            now + usable,
            _clock.wall_time() + usable,
        )
        self._failures.reset()
        self._failure = None
        self._quiet_until = 0.0

    def _refresh_after(self, lifetime: float) -> float:
        """Return the seconds after which a token of this lifetime is replaced, by Kafka's rules."""
        config = self._config
        factor = config.refresh_window_factor + random.uniform(0, config.refresh_window_jitter)
        if config.refresh_min_period + config.refresh_buffer > lifetime:
            return lifetime * factor
        latest = lifetime - config.refresh_buffer
        return max(float(config.refresh_min_period), min(lifetime * factor, latest))

    def _pause(self, failure: KafkaError) -> None:
        self._failure = failure
        self._quiet_until = _clock.running_time() + self._failures.next()

    def _as_kafka_error(self, error: Exception) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        made: KafkaError
        if isinstance(error, (OSError, asyncio.TimeoutError)):
            made = KafkaConnectionError(f"{type(self).__name__}: {error}")
        else:
            # Its text may contain secrets.
            made = AuthenticationFailedError(
                f"{type(self).__name__}.fetch failed: {type(error).__name__}"
            )
        made.__cause__ = error
        return made


@dataclass(frozen=True)
class _Kept:
    """A token and its times: the first two by a clock that is never set, the last of day."""

    value: str = field(repr=False)
    refresh_at: float
    ends_at: float
    ends_at_time: float
    is_suspect: bool = False
    """Whether a broker has refused it."""


def _checked(token: Token) -> Token:
    if token.lifetime is not None and token.lifetime <= 0:
        raise AuthenticationFailedError(
            f"the new token expired {-token.lifetime:.0f} s ago; is the clock right?"
        )
    return token


def _text(error: KafkaError | None) -> str:
    return str(error.args[0]) if error is not None and error.args else repr(error)
