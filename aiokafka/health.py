"""How a client is doing: what `consumer.health()` and `producer.health()` return.

All fields are plain data: `json.dumps(consumer.health().as_dict())` works at any moment.
The exception behind `last_error` is the attribute `last_exception`, which is no field.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka._health import ConsumerState, ProducerState, Word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka._health import Stall, StateLog

__all__ = [
    "ConsumerHealth",
    "ConsumerState",
    "ProducerHealth",
    "ProducerState",
    "StalledWait",
    "StateChange",
]


def _plain(value: Any) -> Any:
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, (StateChange, StalledWait)):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


_HIDDEN = "last_exception"


class _Plain:
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON: the state as a str, and lists for tuples."""
        return {
            name: _plain(getattr(self, name))
            for name in self.__dataclass_fields__
            if name != _HIDDEN
        }


@dataclass(frozen=True)
class StateChange:
    """A state that a client was in before, and why it was."""

    state: str
    reason: str
    """The last reason it was in this state for, "" if there was nothing to say."""

    age_ms: float
    """Since it came into this state."""


@dataclass(frozen=True)
class StalledWait:
    """What a client has been waiting for, for more than five seconds."""

    what: str
    """What it waits for, such as "records of orders-3" or "OffsetCommit of group 'billing'"."""

    reason: str
    """Why: mostly the last error that a broker responded with; "" if that is not known."""

    age_ms: float
    """Since it began to wait."""


@dataclass(frozen=True)
class ConsumerHealth(_Plain):
    """A consumer at one moment. Ages are in milliseconds; None: it has not happened yet."""

    state: ConsumerState
    state_age_ms: float
    """How long it has been in this state."""

    reason: str
    """Why it is in this state, "" if there is nothing to say."""

    joined: bool
    """Whether it is a member of its group, as far as can be known: after a whole session without
    a response to a heartbeat it is not. With group_protocol="consumer" only the broker knows how
    long a session is; nine heartbeats are assumed, as by its defaults. False without a group."""

    heartbeat_age_ms: float | None
    """Since the coordinator counted it as a member for sure: since the last heartbeat was sent that
    was answered as a member's."""

    fetch_age_ms: float | None
    """Since a broker last answered a fetch, with records or without. A consumer with nothing to
    fetch, since all is paused or the buffer is full, does not fetch."""

    lag: int | None
    """Records between the positions and the ends of the assigned partitions, as of the last
    fetches; None while that is unknown of one of them."""

    last_error: str | None
    """The text of the last failure in the background, even if it is over; of what is `stalled`,
    as long as it is."""

    error_age_ms: float | None
    """Since that failure."""

    unreachable: tuple[str, ...]
    """Who does not answer at the moment, of those it needs; () if all do."""

    changes: tuple[StateChange, ...] = ()
    """The states before this one, the last one first, 20 at most."""

    stalled: tuple[StalledWait, ...] = ()
    """What it has been waiting for, for more than five seconds, the oldest first; () if all goes
    on."""

    skipped: int = 0
    """Offsets that were skipped because the log did not have the position any more, since the
    consumer was started: retention was faster, mostly."""

    last_exception: InitVar[BaseException | None] = None
    """The failure itself. It is an attribute but no field: `asdict`, `==`, `repr` pass it by."""

    def __post_init__(self, last_exception: BaseException | None) -> None:
        object.__setattr__(self, "last_exception", last_exception)


@dataclass(frozen=True)
class ProducerHealth(_Plain):
    """A producer at one moment. Ages are in milliseconds; None: it has not happened yet."""

    state: ProducerState
    state_age_ms: float
    """How long it has been in this state."""

    reason: str
    """Why it is in this state, "" if there is nothing to say."""

    pending: int
    """Batches that are not delivered yet, those in flight included."""

    pending_age_ms: float | None
    """Since the oldest of them was begun; None without any."""

    delivery_age_ms: float | None
    """Since a broker last took records."""

    last_error: str | None
    """The text of the last failure in the background, even if it is over; of what is `stalled`,
    as long as it is."""

    error_age_ms: float | None
    """Since that failure."""

    unreachable: tuple[str, ...]
    """Who does not answer at the moment, of those it needs; () if all do."""

    changes: tuple[StateChange, ...] = ()
    """The states before this one, the last one first, 20 at most."""

    stalled: tuple[StalledWait, ...] = ()
    """What it has been waiting for, for more than five seconds, the oldest first; () if all goes
    on."""

    last_exception: InitVar[BaseException | None] = None
    """The failure itself. It is an attribute but no field: `asdict`, `==`, `repr` pass it by."""

    def __post_init__(self, last_exception: BaseException | None) -> None:
        object.__setattr__(self, "last_exception", last_exception)


def state_changes(states: StateLog, now: float) -> tuple[StateChange, ...]:
    """Return the states that a client was in before, the last one first; `now`: loop time."""
    return tuple(
        StateChange(str(state.state), state.reason, (now - since) * 1000)
        for since, state in reversed(states.before)
    )


def stalled_waits(stalls: Iterable[Stall], now: float) -> tuple[StalledWait, ...]:
    """Return the `stalled` field of a health for waits that last; `now`: loop time."""
    return tuple(StalledWait(each.what, each.reason, (now - each.since) * 1000) for each in stalls)
