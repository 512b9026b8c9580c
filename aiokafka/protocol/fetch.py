"""Import path of aiokafka: reading record batches."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["FetchRequest"]
