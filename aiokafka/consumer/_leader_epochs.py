"""By which leader's epoch the records of one partition were written (KIP-320). No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from aiokafka.record.header import MOST_SPANS, Span

__all__ = ["LeaderEpochs"]

_UNKNOWN = -1


class LeaderEpochs:
    """What fetched batches said of their leader epochs.

    Written once for each record set fetched, and read by commits, so that it costs records nothing.
    Knows the offsets fetched in one go, from the latest seek or reset to the end of what is
    buffered; of all others it says "unknown", which a commit may always say.
    """

    __slots__ = ("_end", "_spans")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._end = 0  # where the next fetch goes on

    def start_at(self, offset: int, epoch: int) -> None:
        """Begin at `offset`; the record before it is of this epoch, -1 if that is not known."""
        if epoch >= 0 and offset >= 0:
            self._spans = [(offset - 1, offset, epoch)]
            self._end = offset
        elif offset < 0:
            self._spans = []

    def note(self, asked: int, spans: Iterable[Span]) -> None:
        """Take in the batches that a fetch from the offset `asked` brought."""
        if asked > self._end:
            # What was passed over is unknown, and begins no later than the end of what is known.
            self._spans = []
        for span in spans:
            self._append(span)
        del self._spans[:-MOST_SPANS]
        self._end = self._spans[-1][1] if self._spans else asked

    def before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if it is not known."""
        index = bisect_left(self._spans, offset, key=_end_of)
        if index < len(self._spans):
            first, _, epoch = self._spans[index]
            if first < offset:
                return epoch
        return _UNKNOWN

    def _append(self, span: Span) -> None:
        first, end, epoch = span
        spans = self._spans
        # What is fetched again counts as it is now.
        while spans and spans[-1][0] >= first:
            spans.pop()
        if spans:
            its_first, its_end, its_epoch = spans[-1]
            if its_epoch == epoch:
                first = its_first
                spans.pop()
            elif its_end > first:
                spans[-1] = (its_first, first, its_epoch)
        spans.append((first, end, epoch))


def _end_of(span: Span) -> int:
    return span[1]
