"""Compatibility module, an import path of aiokafka 0.14: iteration over the batches of a record
set."""

from aiokafka._upstream.records import *
