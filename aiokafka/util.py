"""Compatibility module, an import path of aiokafka 0.14: helpers that this package does not use."""

from aiokafka._upstream.util import *
from aiokafka._upstream.util import __all__ as __all__
