"""What passes through the interceptors of a consumer: each record is shown once before it is read.

A call that is cancelled while interceptors look has taken nothing: its records are shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.interceptors import ConsumerInterceptor, Records
from aiokafka.structs import ConsumerRecord, TopicPartition
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.contexts import check_context
from tests.simulation.history import Reading
from tests.simulation.intercepting import AT_ONCE, Behaviour, Turns, copies
from tests.simulation.promises import SILENT

if TYPE_CHECKING:
    from collections.abc import Iterable


# Ways to commit of members, of which commit() at any other time changes nothing.
_BY_POSITIONS = ("auto", "sync", "mixed")


class Showing:
    """The records of one call, while interceptors look at them."""

    def __init__(self, records: Records, held: set[TopicPartition] | None) -> None:
        self.given = {tp: list(some) for tp, some in records.items()}
        self.made: Records = records
        """What the second interceptor has to get."""
        self.left: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        """What the application has to get."""
        self.held = held
        self.sought: dict[TopicPartition, int] = {}
        self.is_over = False


class Shows:
    """The interceptors of one consumer object, and what they have seen.

    Owns: the showing in progress, or the last one.
    """

    consumer: AIOKafkaConsumer

    def __init__(
        self, caller: Caller, reading: Reading, options: dict[str, Any], *, is_of_group: bool
    ) -> None:
        self.is_of_group = is_of_group
        self.caller = caller
        self.world = caller.world
        self.reading = reading
        source = self.world.random_for(f"interceptors of {caller.name}")
        self.behaviour = Behaviour(source, options)
        self.turns = Turns()
        self.last: Showing | None = None
        self.is_looking = False
        self.pair = (_Troublemaker(self), _Witness(self))
        reading.shows = self

    def violate(self, kind: str, text: str) -> None:
        """Tell what is not as it must be."""
        self.world.violate(kind, f"{self.caller.name}: {text}")

    # -- of the interceptors

    def begin(self, records: Records) -> Showing:
        """Records are shown: those that come next, and no others are looked at meanwhile."""
        if self.is_looking:
            self.violate("shown at once", f"{_places(records)} while others are looked at")
        held = self.reading.held
        self.last = showing = Showing(records, None if held is None else set(held))
        for tp, some in records.items():
            self.reading.check_shown(tp, [record.offset for record in some])
        self.world.note(self.caller.name, "is shown", _places(records))
        self.world.hit("shown")
        return showing

    def leave(self, showing: Showing, records: Records) -> None:
        """The last interceptor has seen them: here is what the application is to get."""
        if records is not showing.made:
            text = f"{_places(records)} came, not {_places(showing.made)}"
            self.violate("passed by", text)
        showing.left = {tp: list(some) for tp, some in records.items()}
        showing.is_over = True
        self.reading.shown_until = self.world.now
        if not any(showing.left.values()):
            # The call goes on, or ends without records: these count as read.
            self._take(showing, showing.given, None)

    # -- of the program

    def returned(self, records: Iterable[ConsumerRecord[Any, Any]], generation: int | None) -> None:
        """A call has returned these records: all that are left, but for those of partitions that
        were taken away meanwhile."""
        showing = self.last
        found: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for record in records:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        if showing is None or not showing.is_over:
            if found:
                self.violate("not shown", f"{_places(found)}")
            return
        if not found:
            return
        for tp, some in found.items():
            expected = showing.left.get(tp, [])
            if len(some) != len(expected) or any(map(_is_other, some, expected)):
                text = f"{_places({tp: some})} was returned, not {_places({tp: expected})}"
                self.violate("passed by", text)
        if self.world.promises(SILENT):
            self._check_held(showing, found)
        # Of a partition that is not there, members do not have it any more; others leave it out.
        taken = {
            tp: some for tp, some in showing.given.items() if tp in found or not self.is_of_group
        }
        self._take(showing, taken, generation)

    def _check_held(self, showing: Showing, found: Records) -> None:
        reading = self.reading
        if reading.is_listening:
            self.violate("during its listener", f"{_places(found)} was returned")
        gone = set(found) & (showing.held or set()) - (reading.held or set())
        if gone:
            places = _places({tp: found[tp] for tp in sorted(gone)})
            self.violate("after its revocation", f"{places} was returned")

    def _take(self, showing: Showing, records: Records, generation: int | None) -> None:
        """The program has these; the next are those behind them, or those that it has sought."""
        reading = self.reading
        for tp, some in records.items():
            if tp in showing.sought:
                reading.forget([tp])
            for record in some:
                reading.took(record, generation)
            if tp in showing.sought:
                reading.forget([tp])
                reading.positions[tp] = showing.sought[tp]


def intercepted(
    caller: Caller, reading: Reading, options: dict[str, Any], **client: Any
) -> AIOKafkaConsumer:
    """Return a consumer with the interceptors and the deserializer that the options of its program
    want, if any."""
    wanted = options.get("interceptors")
    if rate := options.get("deserializer_rate"):
        source = caller.world.random_for(f"deserializer of {caller.name}")

        async def wait_for_some(data: bytes | None) -> bytes | None:
            # The same record may wait when it is deserialized again, or not.
            if source.random() < rate:
                await asyncio.sleep(source.choice((0, 0.0001)))
            return data

        client["value_deserializer"] = wait_for_some
    if not wanted:
        return AIOKafkaConsumer(**client)
    if options.get("commits") not in _BY_POSITIONS:
        wanted = wanted | {"commit_rate": 0}
    shows = Shows(caller, reading, wanted, is_of_group="group_id" in client)
    shows.consumer = AIOKafkaConsumer(interceptors=shows.pair, **client)
    return shows.consumer


class _Troublemaker(ConsumerInterceptor):
    """The first interceptor: slow, failing, and busy."""

    def __init__(self, shows: Shows) -> None:
        self._shows = shows
        self._behaviour = shows.behaviour
        self._waited: float | None = None

    def on_poll(self, seconds: float) -> Awaitable[None] | None:
        """Take note that records come."""
        self._waited = seconds
        if not 0 <= seconds <= self._shows.world.now:
            self._shows.violate("waited", f"a call has waited for {seconds} s")
        return self._take_note() if self._behaviour.is_coroutine("notes") else None

    def on_consume(self, records: Records) -> Any:
        """Look at the records, and perhaps take time, raise, replace them or leave some out."""
        if self._waited is None:
            self._shows.violate("waited", "on_consume is called without on_poll")
        self._waited = None
        showing = self._shows.begin(records)
        if self._behaviour.is_coroutine():
            return self._look(showing, records)
        self._behaviour.maybe_raise()
        return self._change(showing, records)

    async def _look(self, showing: Showing, records: Records) -> Records | None:
        shows, behaviour = self._shows, self._behaviour
        shows.is_looking = True
        try:
            with shows.reading.showing():
                await self._be_busy(showing)
                await behaviour.take_time()
                await behaviour.maybe_fail()
                return self._change(showing, records)
        finally:
            shows.is_looking = False

    def _change(self, showing: Showing, records: Records) -> Records | None:
        """Return other records in place of these, or fewer."""
        behaviour = self._behaviour
        if behaviour.happens("replace_rate"):
            showing.made = {tp: copies(some) for tp, some in records.items()}
        if behaviour.happens("drop_rate"):
            # Members of groups cannot tell a partition that is left out from one taken away.
            least = 1 if self._shows.is_of_group else 0
            showing.made = {
                tp: some[behaviour.random.randint(0, len(some) - least) :]
                for tp, some in showing.made.items()
            }
        return None if showing.made is records else showing.made

    # -- what else the program does while they are looked at

    async def _be_busy(self, showing: Showing) -> None:
        shows, behaviour = self._shows, self._behaviour
        if shows.world.calm.is_set():
            return
        tp = behaviour.random.choice(sorted(showing.given))
        if behaviour.happens("seek_rate"):
            self._seek(showing, tp)
        elif behaviour.happens("pause_rate"):
            await self._pause(tp)
        elif behaviour.happens("commit_rate"):
            # commit() includes records that another task of the program has not finished.
            if not shows.reading.in_hand:
                shows.reading.tasks.append(asyncio.ensure_future(self._commit()))
                # It takes the positions of now.
                await asyncio.sleep(0.001)
        elif behaviour.happens("stop_rate"):
            shows.reading.tasks.append(asyncio.ensure_future(self._stop()))
        elif not showing.sought:
            await self._look_at_position(showing, tp)

    def _seek(self, showing: Showing, tp: TopicPartition) -> None:
        """Go elsewhere: the records that are looked at come all the same."""
        shows = self._shows
        if tp not in shows.consumer.assignment():
            return
        known = sorted(shows.reading.audience.delivered.get(tp, ()))
        offset = self._behaviour.random.choice(known) if known else 0
        shows.world.note(shows.caller.name, f"seek {tp} {offset}", "while records are looked at")
        shows.consumer.seek(tp, offset)
        showing.sought[tp] = offset
        # Where the next come from, also if the call is cancelled.
        shows.reading.forget([tp])
        shows.reading.positions[tp] = offset

    async def _pause(self, tp: TopicPartition) -> None:
        consumer = self._shows.consumer
        if tp not in consumer.assignment():
            return
        consumer.pause(tp)
        try:
            await self._behaviour.take_time()
        finally:
            if tp in consumer.assignment():
                consumer.resume(tp)

    async def _commit(self) -> None:
        """Commit positions: those before the records."""
        shows = self._shows
        try:
            await shows.caller.call("commit() meanwhile", shows.consumer.commit())
        except (KafkaError, InterruptedCall):
            pass

    async def _stop(self) -> None:
        shows = self._shows
        shows.caller.has_stopped = True
        try:
            await shows.caller.call("stop() meanwhile", shows.consumer.stop(), limit=12.0)
        except (KafkaError, InterruptedCall):
            pass

    async def _look_at_position(self, showing: Showing, tp: TopicPartition) -> None:
        """It stays before the records, unless the log has lost them, or the partition is gone."""
        shows = self._shows
        if tp not in shows.consumer.assignment() or tp.topic in shows.reading.audience.forgiven:
            return
        call = shows.consumer.position(tp)
        try:
            found = await shows.caller.call(
                "position meanwhile", call, patience=AT_ONCE, may_cancel=False
            )
        except (KafkaError, InterruptedCall):
            return
        first = showing.given[tp][0].offset
        is_held = shows.reading.held is None or tp in shows.reading.held
        if found > first and is_held and tp not in shows.world.history.kept:
            shows.violate("position", f"is {found} of {tp} while {first} is looked at")

    # -- notifications

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Awaitable[None] | None:
        """Take note of a commit, and in whose context it is told."""
        check_context(self._shows.caller, "on_commit", may_be_under_way=True)
        if self._behaviour.is_coroutine("notes"):
            return self._take_note()
        self._behaviour.maybe_raise()
        return None

    def _take_note(self) -> Awaitable[None]:
        return self._note(self._shows.turns.next())

    async def _note(self, number: int) -> None:
        shows = self._shows
        complaint = shows.turns.begin(number)
        if complaint:
            shows.violate("notified at once", complaint)
        try:
            await self._behaviour.take_time("note_s")
            check_context(shows.caller, "a coroutine of on_commit")
            await self._behaviour.maybe_fail()
        finally:
            shows.turns.end()


class _Witness(ConsumerInterceptor):
    """The second interceptor: sees what the application is to get."""

    def __init__(self, shows: Shows) -> None:
        self._shows = shows

    def on_consume(self, records: Records) -> None:
        """Take note of it."""
        showing = self._shows.last
        if showing is None:
            self._shows.violate("passed by", f"only the second has seen {_places(records)}")
        else:
            self._shows.leave(showing, records)


def _is_other(one: object, other: object) -> bool:
    return one is not other


def _places(records: Records) -> str:
    return ", ".join(
        f"{tp.topic}-{tp.partition} {some[0].offset}..{some[-1].offset}" if some else f"{tp} -"
        for tp, some in records.items()
    )
