"""Why a simulated run cannot go on."""

from __future__ import annotations

__all__ = [
    "BusyLoopError",
    "NotSimulatedError",
    "SimulationError",
    "StuckError",
    "VirtualTimeError",
]


class SimulationError(Exception):
    """A simulated run cannot go on."""


class StuckError(SimulationError):
    """Nothing is left that could happen: no timer, no bytes under way, and the program waits."""


class VirtualTimeError(SimulationError):
    """The program did not end within its virtual time."""


class BusyLoopError(SimulationError):
    """Something runs in every turn of the loop, so that time does not go by."""


_ADVICE = {
    "threads": "use asyncio.to_thread() or loop.run_in_executor(), which run in the loop here",
    "subprocesses": "put a function in their place in this test",
}
_USUAL_ADVICE = (
    "asyncio.open_connection(), start_server(), loop.create_connection(host, port) and "
    "create_server(host, port) work; run the other side in the same test, or put a stand-in in "
    "the place of what opens it"
)


class NotSimulatedError(SimulationError):
    """The program wants something of the system that a simulated loop does not have.

    Args:
        what: What it wants, in the plural.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"a simulated loop has no {what}: {_ADVICE.get(what, _USUAL_ADVICE)}")
