"""Import path of aiokafka: message sets of magic 0 and 1, built and read."""

from aiokafka._upstream.records import *
