"""The results of `health()` of consumers, share consumers and producers.

All fields are plain data, so `json.dumps(consumer.health().as_dict())` works. The attribute
`last_exception`, which is an exception, is not a field.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka._health import ConsumerState, ProducerState, StrEnum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka._health import Stall, StateLog

__all__ = [
    "ConsumerHealth",
    "ConsumerState",
    "ProducerHealth",
    "ProducerState",
    "ShareConsumerHealth",
    "StalledWait",
    "StateChange",
]


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, (StateChange, StalledWait)):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


_HIDDEN = "last_exception"


class _Plain:
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data: the state as a str, tuples as lists."""
        return {
            name: _plain(getattr(self, name))
            for name in self.__dataclass_fields__
            if name != _HIDDEN
        }


@dataclass(frozen=True)
class StateChange:
    """A state that a client had before the current state."""

    state: str
    reason: str
    """The last reason of this state, "" if there was none."""

    age_ms: float
    """Milliseconds since the start of this state."""


@dataclass(frozen=True)
class StalledWait:
    """A wait of a client, longer than five seconds."""

    what: str
    """What the client waits for, such as "records of orders-3" or "OffsetCommit of group
    'billing'"."""

    reason: str
    """The reason of the wait, usually the last error of a broker; "" if unknown."""

    age_ms: float
    """Milliseconds since the start of the wait."""


@dataclass(frozen=True)
class ConsumerHealth(_Plain):
    """The health of a consumer at one moment. Ages are in milliseconds, None before the first
    event."""

    state: ConsumerState
    state_age_ms: float
    """Age of the current state."""

    reason: str
    """The reason of the current state, "" if there is none."""

    joined: bool
    """Whether the consumer is a member of its group, as far as the consumer knows: False without a
    group, and after a session timeout without a heartbeat response. With group_protocol="consumer"
    only the broker knows the session timeout; the consumer assumes nine heartbeat intervals, the
    default of brokers."""

    heartbeat_age_ms: float | None
    """Age of the last heartbeat (by its send time) that the coordinator accepted."""

    fetch_age_ms: float | None
    """Age of the last response to a fetch, with records or without. A consumer does not fetch while
    all partitions are paused or the buffer is full."""

    lag: int | None
    """Records between the positions and the ends of the assigned partitions, as of the last
    fetches; None if unknown for a partition."""

    last_error: str | None
    """The text of the last background error, even if its cause is over; while a wait is
    `stalled`, the error of that wait."""

    error_age_ms: float | None
    """Age of `last_error`."""

    unreachable: tuple[str, ...]
    """The names of the brokers that do not respond at the moment, and of the group's coordinator if
    it does not respond. "The leader of ..." names the partitions that have no leader. () if all
    respond."""

    changes: tuple[StateChange, ...] = ()
    """The earlier states, the latest first, at most 20."""

    stalled: tuple[StalledWait, ...] = ()
    """The waits of more than five seconds, the oldest first."""

    skipped: int = 0
    """Number of offsets that were skipped since the start because the log no longer had them,
    usually by retention."""

    unreadable: int = 0
    """Number of records since the start that a deserializer could not read, and that were skipped
    or returned as bytes (`on_deserialization_error`)."""

    defaults: tuple[str, ...] = ()
    """The options from defaults of the process with their sources, such as "linger_ms=5 by
    aiokafka.defaults() at app.py:12"; see `aiokafka.defaults`."""

    last_exception: InitVar[BaseException | None] = None
    """The exception of `last_error`. This attribute is not a field: `asdict`, `==` and `repr`
    ignore it."""

    def __post_init__(self, last_exception: BaseException | None) -> None:
        object.__setattr__(self, "last_exception", last_exception)


@dataclass(frozen=True)
class ShareConsumerHealth(_Plain):
    """The health of a share consumer at one moment. Ages are in milliseconds, None before the first
    event."""

    state: ConsumerState
    """The state. REBALANCING means that the consumer joins its group, or has got no response to a
    heartbeat for longer than the session timeout. The consumer assumes that this timeout is nine
    heartbeat intervals. POLL_OVERDUE does not occur."""

    state_age_ms: float
    """Age of the current state."""

    reason: str
    """The reason of the current state, "" if there is none."""

    joined: bool
    """Whether the consumer is a member of its group, as far as the consumer knows."""

    heartbeat_age_ms: float | None
    """Age of the last heartbeat (by its send time) that the coordinator accepted."""

    fetch_age_ms: float | None
    """Age of the last response to a fetch. A share consumer fetches only when the application wants
    records."""

    pending_acknowledgements: int
    """Number of acknowledgements that have no outcome yet."""

    failed_acknowledgements: int
    """Number of records whose acknowledgement has failed since the start."""

    expired: int
    """Number of records and record sets that were dropped because the acquisition lock expired
    before the application requested them."""

    last_error: str | None
    """The text of the last background error, even if its cause is over."""

    error_age_ms: float | None
    """Age of `last_error`."""

    unreachable: tuple[str, ...]
    """The names of the brokers that do not respond at the moment, and of the group's coordinator if
    it does not respond."""

    changes: tuple[StateChange, ...] = ()
    """The earlier states, the latest first, at most 20."""

    stalled: tuple[StalledWait, ...] = ()
    """The waits of more than five seconds, the oldest first."""

    unreadable: int = 0
    """Number of records since the start that a deserializer could not read, and that were rejected
    or returned as bytes (`on_deserialization_error`)."""

    defaults: tuple[str, ...] = ()
    """The options from defaults of the process with their sources; see `aiokafka.defaults`."""

    last_exception: InitVar[BaseException | None] = None
    """The exception of `last_error`. This attribute is not a field: `asdict`, `==` and `repr`
    ignore it."""

    def __post_init__(self, last_exception: BaseException | None) -> None:
        object.__setattr__(self, "last_exception", last_exception)


@dataclass(frozen=True)
class ProducerHealth(_Plain):
    """The health of a producer at one moment. Ages are in milliseconds, None before the first
    event."""

    state: ProducerState
    state_age_ms: float
    """Age of the current state."""

    reason: str
    """The reason of the current state, "" if there is none."""

    pending: int
    """Undelivered batches, including those in flight."""

    pending_age_ms: float | None
    """Age of the oldest undelivered batch; None without undelivered batches."""

    delivery_age_ms: float | None
    """Age of the last response that accepted a batch."""

    last_error: str | None
    """The text of the last background error, even if its cause is over; while a wait is
    `stalled`, the error of that wait."""

    error_age_ms: float | None
    """Age of `last_error`."""

    unreachable: tuple[str, ...]
    """The names of the brokers that do not respond at the moment; () if all respond."""

    changes: tuple[StateChange, ...] = ()
    """The earlier states, the latest first, at most 20."""

    stalled: tuple[StalledWait, ...] = ()
    """The waits of more than five seconds, the oldest first."""

    defaults: tuple[str, ...] = ()
    """The options from defaults of the process with their sources, such as "linger_ms=5 by
    aiokafka.defaults() at app.py:12"; see `aiokafka.defaults`."""

    last_exception: InitVar[BaseException | None] = None
    """The exception of `last_error`. This attribute is not a field: `asdict`, `==` and `repr`
    ignore it."""

    def __post_init__(self, last_exception: BaseException | None) -> None:
        object.__setattr__(self, "last_exception", last_exception)


def state_changes(states: StateLog, now: float) -> tuple[StateChange, ...]:
    """Return the field `changes` of a health report: the earlier states, the latest first. `now` is
    the loop time."""
    return tuple(
        StateChange(str(state.state), state.reason, (now - since) * 1000)
        for since, state in reversed(states.before)
    )


def stalled_waits(stalls: Iterable[Stall], now: float) -> tuple[StalledWait, ...]:
    """Return the field `stalled` for the waits `stalls`. `now` is the loop time."""
    return tuple(StalledWait(each.what, each.reason, (now - each.since) * 1000) for each in stalls)
