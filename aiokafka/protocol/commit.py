"""Import path of aiokafka: requests for committed offsets of groups."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["OffsetCommitRequest", "OffsetFetchRequest"]
