"""Import path of aiokafka: the Metadata request."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["MetadataRequest"]
