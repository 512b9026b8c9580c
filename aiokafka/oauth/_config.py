"""The options of all token providers, modelled on Kafka's `sasl.login.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka._config.options import Milliseconds, Number, Options, option

__all__ = ["OAuthConfig"]


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
    )
    refresh_window_jitter: float = option(
        Real(0.0, 0.25),
        "refresh_window_jitter",
        0.05,
        "Largest share of its lifetime that is added at random, so that clients that started "
        "together do not refresh together.",
    )
    refresh_min_period: int = option(
        Number(0, 900),
        "refresh_min_period_seconds",
        60,
        "How long a token is kept at least; has no effect if its lifetime is shorter than this and "
        "refresh_buffer_seconds together.",
    )
    refresh_buffer: int = option(
        Number(0, 3600),
        "refresh_buffer_seconds",
        300,
        "How long before it expires a token is replaced at the latest; the same exception applies.",
    )
    retry_backoff: float = option(
        Milliseconds(1),
        "retry_backoff_ms",
        100,
        "Pause after a failure to fetch a token; doubles with every further one, also from one "
        "call to the next.",
    )
    retry_backoff_max: float = option(
        Milliseconds(1), "retry_backoff_max_ms", 10_000, "Longest pause after a failure."
    )
    token_timeout: float = option(
        Milliseconds(1),
        "token_timeout_ms",
        8_000,
        "How long a connection waits for a token, retries included. Keep it below "
        "socket_connection_setup_timeout_ms, which would hide the reason.",
    )
    connect_timeout: float = option(
        Milliseconds(1),
        "connect_timeout_ms",
        4_000,
        "How long connecting to the token endpoint may take, TLS included.",
    )
    read_timeout: float = option(
        Milliseconds(1),
        "read_timeout_ms",
        6_000,
        "How long the token endpoint may be silent.",
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
