"""Compatibility module, an import path of aiokafka 0.14: message sets of magic 0 and 1, built and
read."""

from aiokafka._upstream.records import *
