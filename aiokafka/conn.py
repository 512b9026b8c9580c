"""Import path of aiokafka: connections."""

from aiokafka._upstream.conn import *
from aiokafka._upstream.conn import __all__ as __all__
