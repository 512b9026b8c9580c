"""Import path of aiokafka, kept as a shim: the code is in `consumer/fetch/`."""

from aiokafka.consumer.fetch.fetcher import Fetcher
from aiokafka.errors import RecordTooLargeError
from aiokafka.protocol.fetch import FetchRequest

__all__ = ["FetchRequest", "Fetcher", "RecordTooLargeError"]
