"""Compatibility module, an import path of aiokafka 0.14: connections."""

from aiokafka._upstream.conn import *
from aiokafka._upstream.conn import __all__ as __all__
