"""Compatibility module, an import path of aiokafka 0.14: helpers that nothing in the package
uses."""

from aiokafka._upstream.util import *
from aiokafka._upstream.util import __all__ as __all__
