"""Old import path; the home is `aiokafka.protocol.messages.find_coordinator`."""

from aiokafka.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["FindCoordinatorRequest", "FindCoordinatorResponse"]
