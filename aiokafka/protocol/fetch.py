"""Compatibility module, an import path of aiokafka 0.14: the Fetch request."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = ["FetchRequest"]
