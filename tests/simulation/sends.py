"""What passes through the interceptors of a producer: each record once, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiokafka.interceptors import ProducerInterceptor, ProducerRecord
from aiokafka.structs import RecordMetadata
from tests.simulation.contexts import Calling, Dispatches, check_context, current_call
from tests.simulation.history import Sent, number_of
from tests.simulation.intercepting import Behaviour, Turns

if TYPE_CHECKING:
    from tests.simulation.calls import Caller

_MARK = ("by", b"an interceptor")


class Sends:
    """The interceptors of one producer object, and what they have seen.

    Owns: by record, in which call it was sent, and what the second interceptor has to get.
    """

    def __init__(self, caller: Caller, options: dict[str, Any]) -> None:
        self.caller = caller
        self.world = caller.world
        source = self.world.random_for(f"interceptors of {caller.name}")
        self.behaviour = Behaviour(source, options)
        self.turns = Turns()
        self.calls: dict[int, Calling | None] = {}
        self.made: dict[int, ProducerRecord] = {}
        self.outcomes: dict[int, tuple[RecordMetadata | None, BaseException | None]] = {}
        self._pair = (_Sender(self, 0), _Sender(self, 1))
        self.world.at_end.append(self.check)

    @property
    def arguments(self) -> dict[str, Any]:
        """Keywords for the producer."""
        return {"interceptors": self._pair, "metrics_collector": Dispatches(self.caller)}

    def sent(self, record: ProducerRecord) -> Sent | None:
        """Return what the history knows of a record; None for one that nothing follows."""
        number = number_of(record.value)
        return self.world.history.sent[number] if number >= 0 else None

    def violate(self, kind: str, text: str) -> None:
        """Tell what is not as it must be."""
        self.world.violate(kind, f"{self.caller.name}: {text}")

    def check(self) -> None:
        """See that interceptors heard once of the end of each record, as its program did."""
        for interceptor in self._pair:
            for number, count in interceptor.seen.items():
                told = interceptor.told[number]
                sent = self.world.history.sent[number]
                if count > 1:
                    self.violate("sent twice", f"on_send was called {count} times for {sent!r}")
                if told != 1:
                    text = f"on_acknowledgement was called {told} times for {sent!r}"
                    self.violate("not acknowledged once", text)
            for number in interceptor.told.keys() - interceptor.seen.keys():
                text = f"an interceptor that has not seen record {number} has heard of its end"
                self.violate("not acknowledged once", text)
        for number, (metadata, error) in self.outcomes.items():
            self._compare(self.world.history.sent[number], metadata, error)

    def _compare(
        self, sent: Sent, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        if sent.outcome == "acknowledged":
            is_right = error is None
            if metadata is not None:
                place = metadata.partition, metadata.offset
                is_right = is_right and (sent.partition, sent.offset) == place
            else:
                is_right = is_right and not sent.session.is_told
        else:
            is_right = sent.outcome == "open" or error is not None
        if not is_right:
            text = f"on_acknowledgement was called for {sent!r} with {metadata} and {error!r}"
            self.violate("acknowledged otherwise", text)


class _Sender(ProducerInterceptor):
    """One interceptor; number 0 makes trouble."""

    def __init__(self, sends: Sends, number: int) -> None:
        self._sends = sends
        self._number = number
        self._behaviour = sends.behaviour
        self.seen: Counter[int] = Counter()
        self.told: Counter[int] = Counter()

    def on_send(self, record: ProducerRecord) -> Any:
        """Look at the record, and perhaps take time, raise, or replace it."""
        sends = self._sends
        sent = sends.sent(record)
        if sent is None:
            return None
        self.seen[sent.number] += 1
        if self._number:
            expected = sends.made.get(sent.number)
            if record is not expected:
                sends.violate("passed by", f"{record} was sent, not {expected}")
            # Those that wait for a coroutine are overtaken.
            sent.order = sent.session.next_order()
            return None
        sends.calls[sent.number] = current_call()
        sends.made[sent.number] = record
        if self._behaviour.is_coroutine():
            return self._take(record, sent)
        self._behaviour.maybe_raise()
        return self._replace(record, sent)

    async def _take(self, record: ProducerRecord, sent: Sent) -> ProducerRecord | None:
        if not self._sends.world.calm.is_set():
            # Or some of many sends of a transaction would be cancelled each time, without end.
            await self._behaviour.take_time()
        check_context(self._sends.caller, "on_send", self._sends.calls[sent.number])
        await self._behaviour.maybe_fail()
        return self._replace(record, sent)

    def _replace(self, record: ProducerRecord, sent: Sent) -> ProducerRecord | None:
        if not self._behaviour.happens("replace_rate"):
            return None
        made = replace(record, headers=(*record.headers, _MARK))
        sent.headers = made.headers
        self._sends.made[sent.number] = made
        return made

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> Awaitable[None] | None:
        """Take note of the outcome, and in whose context it is told."""
        sends = self._sends
        sent = sends.sent(record)
        if sent is None:
            return None
        self.told[sent.number] += 1
        sends.outcomes[sent.number] = metadata, error
        call = sends.calls.get(sent.number)
        check_context(sends.caller, "on_acknowledgement", call)
        if record is not sends.made.get(sent.number):
            sends.violate("passed by", f"{record} has an outcome, which was not sent")
        if self._behaviour.is_coroutine("notes"):
            return self._take_note(sends.turns.next(), call)
        if not self._number:
            self._behaviour.maybe_raise()
        return None

    async def _take_note(self, number: int, call: Calling | None) -> None:
        sends = self._sends
        complaint = sends.turns.begin(number)
        if complaint:
            sends.violate("notified at once", complaint)
        try:
            await self._behaviour.take_time("note_s")
            check_context(sends.caller, "a coroutine of on_acknowledgement", call)
            if not self._number:
                await self._behaviour.maybe_fail()
        finally:
            sends.turns.end()
