"""Compatibility module, an import path of aiokafka 0.14: control records, the transaction
markers."""

from aiokafka._upstream.records import *
