"""Import path of aiokafka, kept as a shim: the code is in `consumer/fetch/`."""

from aiokafka.consumer.fetch.fetcher import Fetcher

__all__ = ["Fetcher"]
