"""Import path of aiokafka: appending record batches."""

from aiokafka._upstream.requests import *  # noqa: F403
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["ProduceRequest"]  # noqa: F405
