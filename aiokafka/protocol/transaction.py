"""Import path of aiokafka: the requests of transactional producers."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__
