"""The keys and values of transaction markers, which are control records."""

from aiokafka.protocol.schema import I16, I32, Message


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a transaction marker, after its int16 version. `type` 0: abort, 1: commit."""

    type: I16


class EndTxnMarker(Message, versions="0"):
    """The value of a transaction marker, after its int16 version."""

    coordinator_epoch: I32
