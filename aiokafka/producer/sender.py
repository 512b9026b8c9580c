"""Import path of aiokafka: the code is in `producer/sending/`."""

from aiokafka.producer.sending.sender import Sender

__all__ = ["Sender"]
