"""Import path of aiokafka, kept as a shim: the code is in `producer/sending/`."""

from aiokafka.producer.sending.sender import Sender

__all__ = ["Sender"]
