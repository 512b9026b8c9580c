"""What must be true at the end of a run, when all has come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaTimeoutError, RequestTimedOutError
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.history import Sent, Transaction
from tests.simulation.promises import LATE_ONLY

if TYPE_CHECKING:
    from tests.simulation.world import World

OFFSETS_OF_LATER_EPOCHS_ONLY = (2, 4)
"""The first release whose groups refuse offsets of a transaction that is over."""

_NO_LATE_WRITES = (4, 0)
_LATE = {"hang", "slow broker", "late response", "slow line", "silent line", "stall", "misled"}

# The second one is why the last try failed, of a record whose time was over then.
_LATE_ERRORS = (KafkaTimeoutError, RequestTimedOutError)

Logs = dict[TopicPartition, list[logs.Entry]]


def check_all(world: World) -> None:
    """Compare what the programs were told with what is in the logs."""
    found = _read_logs(world)
    _check_records(world, found)
    _check_order(world, found)
    _check_transactions(world, found)
    _check_deliveries(world, found)
    _check_pipelines(world, found)
    if world.promises(LATE_ONLY):
        _check_failures(world)
    for check in world.at_end:
        check()


def is_a_transaction_open(world: World) -> bool:
    """Return whether a record in the logs is neither committed nor aborted yet."""
    return any(
        logs.has_open_transaction(world, tp)
        for topic in world.scenario.topics
        if topic.name not in world.history.copies
        for tp in logs.partitions(world, topic.name)
    )


def _read_logs(world: World) -> Logs:
    return {
        tp: logs.entries(world, tp)
        for topic in world.scenario.topics
        if topic.name not in world.history.copies
        for tp in logs.partitions(world, topic.name)
    }


def _check_records(world: World, found: Logs) -> None:
    """Acknowledged: there, where it was said to be. Not sent: not there. Idempotent: once."""
    history = world.history
    places: dict[int, list[tuple[TopicPartition, int]]] = {}
    for tp, entries in found.items():
        for entry in entries:
            places.setdefault(entry.number, []).append((tp, entry.offset))
    for tp, known in history.kept.items():
        if tp.topic in history.copies:
            continue
        for offset, numbers in known.items():
            for number in numbers:
                if (tp, offset) not in places.get(number, ()):
                    places.setdefault(number, []).append((tp, offset))
    for sent in history.sent:
        there = places.get(sent.number, [])
        if sent.outcome == "unsent" and there:
            world.violate("written all the same", f"{sent!r} is at {there}: {sent.error!r}")
        if sent.session.is_idempotent and len(there) > 1:
            world.violate("doubled", f"{sent!r} is at {there}")
        if sent.topic not in history.forgiven:
            _check_acknowledged(world, sent, there)


def _check_acknowledged(world: World, sent: Sent, there: list[tuple[TopicPartition, int]]) -> None:
    if sent.outcome != "acknowledged" or not sent.session.is_told:
        return
    if not sent.session.is_safe and sent.topic in world.history.lost_when_unsafe:
        return
    if not there:
        world.violate("lost", f"{sent!r} is not in the log")
        return
    # An idempotent producer is told no offset when a repetition was found to be one long ago.
    if sent.offset is None or sent.offset < 0 or sent.partition is None:
        return
    place = TopicPartition(sent.topic, sent.partition), sent.offset
    if place not in there:
        world.violate("wrong place", f"{sent!r} is at {there}")


def _check_order(world: World, found: Logs) -> None:
    """What one idempotent producer object wrote to a partition is in the order of its calls."""
    sent = world.history.sent
    for tp, entries in found.items():
        if tp.topic in world.history.forgiven:
            continue
        last: dict[int, Sent] = {}
        for entry in entries:
            if not 0 <= entry.number < len(sent):
                continue  # Not of a program whose calls are noted.
            record = sent[entry.number]
            if not record.session.is_idempotent:
                continue
            before = last.get(id(record.session))
            if before is not None and before.order > record.order:
                text = f"{tp}: {before!r} (call {before.order}) is before {record!r} "
                world.violate("out of order", text + f"(call {record.order})")
            last[id(record.session)] = record


def _check_transactions(world: World, found: Logs) -> None:
    """All or nothing, and as the program was told."""
    visible: Counter[int] = Counter()
    undecided: set[int] = set()
    for entries in found.values():
        for entry in entries:
            if entry.is_open:
                undecided.add(entry.number)
            elif not entry.is_aborted:
                visible[entry.number] += 1
    for transaction in world.history.transactions:
        records = _comparable(world, transaction)
        seen = [record for record in records if visible[record.number]]
        may_be_late = _may_be_written_late(world)
        open_ = [
            record
            for record in records
            if record.number in undecided and not (may_be_late and record.is_lost)
        ]
        if open_:
            world.violate("still open", f"transaction {transaction.name}: {open_[:3]!r}")
        elif transaction.outcome == "committed":
            # What failed makes a commit fail; what was not sent is not part of it.
            missing = [r for r in records if r.outcome != "unsent" and r not in seen]
            if missing:
                text = f"transaction {transaction.name} was committed without {missing[:3]!r}"
                world.violate("torn transaction", text)
        elif transaction.outcome == "aborted" and seen:
            text = f"transaction {transaction.name} was aborted, but there is {seen[:3]!r}"
            world.violate("torn transaction", text)
        elif seen:
            # Nothing is committed while a record of it has failed.
            is_sure = not _may_be_written_late(world)
            missing = [
                r
                for r in records
                if r not in seen and (r.outcome == "acknowledged" or (is_sure and r.is_lost))
            ]
            if missing:
                text = f"of transaction {transaction.name} there is {seen[:3]!r}, "
                world.violate("torn transaction", text + f"but not {missing[:3]!r}")


def _check_failures(world: World) -> None:
    """What fails in a transaction has failed because a record of that transaction was late."""
    for transaction in world.history.transactions:
        failed = [record for record in transaction.records if record.is_lost]
        if failed and not any(isinstance(record.error, _LATE_ERRORS) for record in failed):
            text = f"{transaction.name}: {failed[0]!r}, though nothing of it was late: "
            world.violate("failed", text + repr(failed[0].error), failed[0].error)


def _may_be_written_late(world: World) -> bool:
    """Whether brokers may write records after their transaction has ended (until KIP-890)."""
    kinds = {fault.kind for fault in world.scenario.faults}
    return world.scenario.cluster.number < _NO_LATE_WRITES and bool(kinds & _LATE)


def _comparable(world: World, transaction: Transaction) -> list[Sent]:
    """The records of a transaction that were not deleted since, by whatever."""
    history = world.history
    kept = history.kept.values()
    deleted = {number for known in kept for numbers in known.values() for number in numbers}
    return [
        record
        for record in transaction.records
        if record.topic not in history.forgiven and record.number not in deleted
    ]


def _check_deliveries(world: World, found: Logs) -> None:
    """What was read is what is in the log, and nothing that was aborted."""
    for audience in world.history.audiences:
        for tp, known in audience.delivered.items():
            if tp.topic in world.history.forgiven:
                continue
            entries = {entry.offset: entry for entry in found.get(tp, ())}
            for offset, number in known.items():
                entry = entries.get(offset)
                if entry is None:
                    continue
                if entry.number != number:
                    text = f"{audience.name} got record {number} at {tp} {offset}, "
                    world.violate("wrong record", text + f"where {entry.number} is")
                if entry.is_aborted and audience.committed_only:
                    text = f"{audience.name} got record {number} at {tp} {offset}"
                    world.violate("aborted record", text)


def _check_pipelines(world: World, found: Logs) -> None:
    """Every record before the committed offsets was copied once, and no other."""
    history = world.history
    for group_id, source, target in history.pipelines:
        if source in history.forgiven or target in history.forgiven:
            continue
        copies = Counter(
            history.sent[entry.number].copy_of
            for tp, entries in found.items()
            if tp.topic == target
            for entry in entries
            if not entry.is_aborted
        )
        if any(tp.topic == target for tp in history.kept):
            continue
        if _may_be_written_late(world):
            # One that was given up may come to the log after its abort, into the next transaction.
            copies -= Counter(
                sent.copy_of
                for tp, entries in found.items()
                if tp.topic == target
                for entry in entries
                if not entry.is_aborted and (sent := history.sent[entry.number]).is_lost
            )
        given_again = {
            sent.copy_of
            for transaction in history.given_again.get(group_id, ())
            for sent in transaction.records
        }
        doubled = [p for p, count in copies.items() if count > 1 and p not in given_again]
        if doubled:
            text = f"{group_id}: records {doubled[:5]} were copied to {target} twice"
            world.violate("copied twice", text)
        places = _before_commits(world, group_id, source, found)
        missing = [place for place in places if not copies[place]]
        if world.scenario.cluster.number < OFFSETS_OF_LATER_EPOCHS_ONLY:
            # Offsets that come behind the abort of their transaction count with the next one's.
            ends = _ends_in_vain(history.transactions)
            missing = [place for place in missing if place[2] >= ends.get(place[:2], 0)]
        if missing:
            text = f"{group_id}: records {missing[:5]} are committed, but not copied"
            world.violate("not copied", text)


def _ends_in_vain(transactions: Iterable[Transaction]) -> dict[tuple[str, int], int]:
    """The highest offsets of transactions that were not committed, by topic and partition."""
    ends: dict[tuple[str, int], int] = {}
    for transaction in transactions:
        if transaction.outcome != "committed":
            for tp, offset in transaction.offsets.items():
                ends[tuple(tp)] = max(offset, ends.get(tuple(tp), 0))
    return ends


def _before_commits(
    world: World, group_id: str, source: str, found: Logs
) -> Iterable[tuple[str, int, int]]:
    """The places of the records that the group has committed."""
    for tp, entries in found.items():
        if tp.topic == source:
            end = world.cluster.groups.committed(group_id, *tp) or 0
            for entry in entries:
                if entry.offset < end and not entry.is_aborted and not entry.is_open:
                    yield (*tp, entry.offset)
