"""Keys and values of control records."""

from aiokafka.protocol.schema import I16, I32, Message


class ControlRecordTypeSchema(Message, versions="0"):
    """The key: 0 aborts and 1 commits a transaction. An int16 version precedes it."""

    type: I16


class EndTxnMarker(Message, versions="0"):
    """The value of an abort or commit. An int16 version precedes it."""

    coordinator_epoch: I32
