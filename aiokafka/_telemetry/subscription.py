"""What the brokers want to know of a client, how, and how often."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from aiokafka.errors import UnsupportedCodecError
from aiokafka.protocol.messages.telemetry import GetTelemetrySubscriptionsResponse
from aiokafka.record import compression

__all__ = ["DEFAULT_INTERVAL", "Subscription"]

DEFAULT_INTERVAL = 300.0
"""Seconds between two pushes where no broker has said another time."""

_MOST_NAMES = 1000
"""Names that are looked at; each of a client's metrics is compared with all of them."""

_SHORTEST, _LONGEST = 0.1, 24 * 3600.0
"""What is made of shorter and longer ones, in seconds."""


class Subscription(NamedTuple):
    """One response to GetTelemetrySubscriptions, made safe."""

    id: int
    interval: float
    """Seconds between two pushes."""
    most_bytes: int
    """Largest size of a push, compressed."""
    is_delta: bool
    """Whether counts are those since the last push, and not since the client was made."""
    prefixes: tuple[str, ...]
    """How the names of the wanted metrics begin."""
    codecs: tuple[int, ...]
    """Numbers of the codecs that the broker accepts, the best first."""

    @classmethod
    def of(cls, response: GetTelemetrySubscriptionsResponse) -> Subscription:
        """Read a response."""
        names = response.requested_metrics[:_MOST_NAMES]
        return cls(
            id=response.subscription_id,
            interval=min(max(response.push_interval_ms / 1000, _SHORTEST), _LONGEST),
            most_bytes=max(0, response.telemetry_max_bytes),
            is_delta=response.delta_temporality,
            # All of them: "*" says the broker, an empty name the KIP.
            prefixes=tuple("" if name == "*" else name for name in names),
            codecs=tuple(response.accepted_compression_types),
        )

    def wants(self, name: str) -> bool:
        """Return whether the metric of this telemetry name is to be pushed."""
        return name.startswith(self.prefixes)

    def codec(self, refused: Collection[int]) -> int:
        """Return the number of the best codec that there is here, and that is not among
        `refused`; that of no compression if there is none."""
        for codec in self.codecs:
            if codec not in refused and _is_usable(codec):
                return codec
        return compression.NONE


def _is_usable(codec: int) -> bool:
    try:
        compression.require_codec(codec)
    except UnsupportedCodecError:
        return False
    return True
