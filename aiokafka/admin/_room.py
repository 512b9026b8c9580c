"""What every room of the admin client has: the way to the brokers, and a deadline for each call."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.admin._routing import Router

__all__ = ["Room"]


class Room:
    """Holds calls about one kind of thing. It is reached through an attribute of the admin client.

    A call raises IllegalStateError if the client is not started or is closed already.
    """

    def __init__(self, router: Router, deadline: Callable[[float | None], float]) -> None:
        self._router = router
        self._deadline = deadline
