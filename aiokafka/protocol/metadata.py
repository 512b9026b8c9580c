"""Import path of aiokafka: brokers, topics and leaders."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["MetadataRequest"]
