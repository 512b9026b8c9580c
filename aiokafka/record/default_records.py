"""Compatibility module, an import path of aiokafka 0.14: batches of magic 2, built and read record
by record."""

from aiokafka._upstream.records import *
from aiokafka._upstream.records import (
    _DefaultRecordBatchBuilderPy as _DefaultRecordBatchBuilderPy,
)
