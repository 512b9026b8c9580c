"""Import path of aiokafka: control records, the transaction markers."""

from aiokafka._upstream.records import *
