"""Import path of aiokafka: compression codecs."""

from aiokafka._upstream.codec import *
from aiokafka._upstream.codec import __all__ as __all__
