"""Context variables: work in the background has none of a call that was over long ago.

The senders of a producer, its timers and the connects of every client run in the context variables
of `start()`. With those of the call that needed them first, all later work would be traced and
logged in the name of that call. Each call of a program has a value of its own here, and code of the
program that is called back looks which one it sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiokafka.metrics import ProducerMetricsCollector

if TYPE_CHECKING:
    from tests.simulation.calls import Caller

# Calls that begin a client: what it does in the background may have their variables for ever.
_BEGINS = ("start", "session", "block")


class Calling:
    """A call of a client in progress, or one that was."""

    __slots__ = ("is_over", "program", "what")

    def __init__(self, program: str, what: str) -> None:
        self.program = program
        self.what = what
        self.is_over = False


_calling: ContextVar[Calling | None] = ContextVar("calling", default=None)


@contextmanager
def calling(program: str, what: str) -> Iterator[None]:
    """Run the block, a call of a client, with a variable of its own."""
    call = Calling(program, what)
    token = _calling.set(call)
    try:
        yield
    finally:
        call.is_over = True
        _calling.reset(token)


def current_call() -> Calling | None:
    """Return the call in whose context the code runs that asks."""
    return _calling.get()


def check_context(
    caller: Caller, what: str, own: Calling | None = None, *, may_be_under_way: bool = False
) -> None:
    """See that this runs in the context of the start of a client of `caller`, or of the call `own`.

    What comes over the network may bring the context of another program: in the simulation one side
    calls the other. That tells nothing about the client.

    Args:
        may_be_under_way: It may be called by any call that is not over.
    """
    found = _calling.get()
    if found is None or found is own or found.program != caller.name:
        return
    if found.what.startswith(_BEGINS) or (may_be_under_way and not found.is_over):
        return
    state = "is over" if found.is_over else "is under way"
    text = f"{caller.name}: {what} runs in the context of '{found.what}', which {state}"
    caller.world.violate("foreign context", text)


def arguments_of(caller: Caller, client: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords for a client: a password is a function, which looks where it is called.

    It is called for each login, and connections are made whenever they are needed.
    """
    if "sasl_plain_password" not in client:
        return client
    return client | {"sasl_plain_password": _asking(caller, client["sasl_plain_password"])}


def _asking(caller: Caller, password: str) -> Callable[[], str]:
    def ask() -> str:
        check_context(caller, "a login")
        return password

    return ask


class Dispatches(ProducerMetricsCollector):
    """Looks in which context the sender of a broker sends a batch."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def on_batch_dispatched(self, **_: Any) -> None:
        """Look."""
        check_context(self._caller, "the sender of a broker")
