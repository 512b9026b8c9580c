"""Import path of aiokafka: requests for topics, configurations, groups and more."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__
