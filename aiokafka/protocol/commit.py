"""Import path of aiokafka: offsets of groups."""

from aiokafka._upstream.requests import *  # noqa: F403
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["OffsetCommitRequest", "OffsetFetchRequest"]  # noqa: F405
