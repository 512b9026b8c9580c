"""Old import path; the home is `aiokafka.protocol.messages.produce`."""

from aiokafka.protocol.messages.produce import ProduceRequest, ProduceResponse

__all__ = ["ProduceRequest", "ProduceResponse"]
