"""Errors of a frame as such."""

from __future__ import annotations

from aiokafka.errors import KafkaProtocolError

__all__ = ["FrameTooLargeError"]


class FrameTooLargeError(KafkaProtocolError):
    """A response is longer than the client accepts."""
