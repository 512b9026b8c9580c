"""What a producer knows of one partition's sequence numbers (KIP-98, KIP-360)."""

from __future__ import annotations

__all__ = ["PartitionSequence", "advance"]


def advance(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`: 0 follows 2**31 - 1 (KIP-98)."""
    return (sequence + count) & 0x7FFFFFFF


class PartitionSequence:
    """The sequence numbers of one partition. Only the `Sequencer` writes to it."""

    __slots__ = (
        "epoch",
        "expected",
        "generation",
        "has_gap",
        "is_uncertain",
        "is_unresolved",
        "known_by",
        "known_id",
        "next",
        "producer_id",
        "topic_id",
        "used_at",
    )

    def __init__(self) -> None:
        self.generation = -1
        """Which producer id the partition uses, by the sequencer's count of them."""
        self.producer_id = -1
        self.epoch = -1
        self.next = 0
        """The first sequence number of the next new batch."""
        self.expected = 0
        """What the leader expects next, as far as its responses tell."""
        self.is_uncertain = False
        """A batch was given up after it may have been sent: `expected` may never reach `next`."""
        self.is_unresolved = False
        """A batch was given up, and nothing tells whether it will still be written."""
        self.has_gap = False
        """The leader reported that records before the oldest batch are missing."""
        self.known_id = -1
        """The producer id that the leader is known to know, under whatever epoch."""
        self.known_by = -1
        """The node id of that leader."""
        self.used_at = 0.0
        """When a batch was last about to be sent (loop time)."""
        self.topic_id: bytes | None = None
        """The id of the topic, as the metadata had it last; None before Kafka 2.8."""
