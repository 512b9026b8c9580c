"""Compatibility module, an import path of aiokafka 0.14: compression codecs."""

from aiokafka._upstream.codec import *
from aiokafka._upstream.codec import __all__ as __all__
