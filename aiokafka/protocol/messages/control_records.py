"""Keys and values of control records (transaction markers)."""

from aiokafka.protocol.schema import I16, I32, Message


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a transaction marker, after an int16 version: 0 is an abort, 1 a commit."""

    type: I16


class EndTxnMarker(Message, versions="0"):
    """The value of a transaction marker, after an int16 version."""

    coordinator_epoch: I32
