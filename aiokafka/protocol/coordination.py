"""Import path of aiokafka, kept as a shim: finding coordinators."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import find_coordinator

__all__ = ["FindCoordinatorRequest"]


class FindCoordinatorRequest(
    Request,
    family=Family(
        find_coordinator.FindCoordinatorRequest,
        "coordinator_key coordinator_type",
        "throttle_time_ms error_code error_message coordinator_id host port",
        versions=(0, 1),
    ),
):
    """Find the coordinator of a group (type 0) or a transactional id (1)."""

    NEEDED = ("coordinator_type",)

    def __init__(self, coordinator_key: str, coordinator_type: int) -> None:
        super().__init__(coordinator_key=coordinator_key, coordinator_type=coordinator_type)


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
